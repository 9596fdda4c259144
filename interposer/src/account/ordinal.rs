//! The ordinal that CUDA will give a device, before it has started.

use gpushare_protocol::uuid::Uuid;

/// The ordinal of no device: limits that name one by its ordinal do not hold for it.
pub(super) const NONE: u32 = u32::MAX;

/// What NVML says of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    pub(crate) uuid: Uuid,
    pub(crate) is_mig: bool,
    /// NVML's index, if it says one. That of a MIG instance counts within its GPU.
    pub(crate) index: Option<u32>,
}

/// The device's ordinal where `CUDA_VISIBLE_DEVICES` is `visible`: its place in that list, or
/// without one NVML's index. As in the driver, the first entry that can name no device ends the
/// list. `None`: the program does not see it, or it is not known as which.
pub(super) fn ordinal(device: &Described, visible: Option<&str>) -> Option<u32> {
    let index = device.index.filter(|_| !device.is_mig);
    let Some(visible) = visible else {
        return index;
    };
    let text = device.uuid.text(device.is_mig).to_ascii_lowercase();
    let entries = visible.split(',').map(str::trim);
    let names_it = entries.map_while(|entry| {
        let entry = entry.to_ascii_lowercase();
        if entry.starts_with("gpu-") || entry.starts_with("mig-") {
            // The driver takes the beginning of a GPU's UUID for it.
            return Some(text.starts_with(&entry));
        }
        let of = entry.parse::<u32>().ok()?;
        Some(index == Some(of))
    });
    let mut places = (0..).zip(names_it);
    places.find_map(|(place, names_it)| names_it.then_some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, is_mig: bool) -> Described {
        let mut bytes = [0xaa; 16];
        bytes[15] = u8::try_from(index).unwrap();
        Described {
            uuid: Uuid(bytes),
            is_mig,
            index: Some(index),
        }
    }

    #[test]
    fn a_list_gives_a_device_its_place_in_it() {
        let one = device(1, false);
        assert_eq!(ordinal(&one, Some("1,0")), Some(0));
        assert_eq!(ordinal(&one, Some(" 2 , 1")), Some(1));
        let uuid = one.uuid.text(false);
        assert_eq!(ordinal(&one, Some(&format!("0,{uuid}"))), Some(1));
        assert_eq!(ordinal(&one, Some("GPU-AAAAAAAA")), Some(0));
        assert_eq!(ordinal(&one, None), Some(1));
    }

    #[test]
    fn a_device_that_is_not_in_the_list_has_no_ordinal() {
        let one = device(1, false);
        for none in ["", "0", "0,-1,1", "NoDevFiles", "GPU-bb", "11"] {
            assert_eq!(ordinal(&one, Some(none)), None, "{none}");
        }
    }

    #[test]
    fn an_instance_has_one_by_its_uuid_only() {
        let one = device(1, true);
        assert_eq!(ordinal(&one, None), None);
        assert_eq!(ordinal(&one, Some("1")), None);
        assert_eq!(ordinal(&one, Some(&one.uuid.text(true))), Some(0));
    }
}
