//! `CUDA_VISIBLE_DEVICES`: the devices of the machine that a process sees, and their order.

/// The environment variable.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The indices of the visible devices, in order. `text` is the variable's value, `uuids` the
/// devices' UUIDs as text.
///
/// As in the driver, entries are indices, or unique prefixes of UUIDs. The first entry that names
/// no device ends the list, and a device named twice empties it.
pub(super) fn visible(text: Option<&str>, uuids: &[String]) -> Vec<u32> {
    let all = 0..u32::try_from(uuids.len()).expect("devices are few");
    let Some(text) = text else {
        return all.collect();
    };
    let mut seen = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let Some(index) = index_of(entry, uuids) else {
            break;
        };
        if seen.contains(&index) {
            return Vec::new();
        }
        seen.push(index);
    }
    seen
}

fn index_of(entry: &str, uuids: &[String]) -> Option<u32> {
    let index = if entry.starts_with("GPU-") {
        let mut named = uuids.iter().enumerate().filter(|(_, uuid)| {
            uuid.starts_with(&entry.to_ascii_lowercase().replacen("gpu-", "GPU-", 1))
        });
        let (index, _) = named.next()?;
        if named.next().is_some() {
            return None;
        }
        index
    } else {
        entry
            .parse::<usize>()
            .ok()
            .filter(|index| *index < uuids.len())?
    };
    u32::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<u32> {
        let uuids = ["GPU-aa11", "GPU-aa22", "GPU-bb33"].map(str::to_owned);
        visible(Some(text), &uuids)
    }

    #[test]
    fn indices_and_uuids_select_and_order_devices() {
        assert_eq!(list("2,0"), [2, 0]);
        assert_eq!(list("GPU-bb,GPU-aa22"), [2, 1]);
        assert_eq!(visible(None, &["GPU-x".to_owned()]), [0]);
    }

    #[test]
    fn the_first_entry_that_names_no_device_ends_the_list() {
        assert_eq!(list("1,7,0"), [1]);
        assert_eq!(list("1,-1,0"), [1]);
        assert_eq!(list("1,GPU-aa,0"), [1]);
        assert_eq!(list(""), [0; 0]);
        assert_eq!(list("NoDevFiles"), [0; 0]);
    }

    #[test]
    fn a_device_named_twice_empties_the_list() {
        assert_eq!(list("0,GPU-aa11"), [0; 0]);
    }
}
