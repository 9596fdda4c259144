//! Values for single devices against the devices that a tenant's programs see ([ADR
//! 225](../../../docs/adr/0225-a-limit-for-a-device-that-is-not-seen-is-refused.md)).

use super::compute;
use super::error::LimitError;
use super::layer::{Entry, Layer, Selector};
use super::model::Limits;
use crate::uuid::Uuid;

/// The first value of the environment, of those whose variable `is_meant`, that is for none of
/// these devices. One that would say nothing of a device that is seen either is not looked at.
pub(super) fn unseen(
    limits: &Limits,
    devices: &[[u8; 16]],
    is_meant: impl Fn(&str) -> bool,
) -> Option<LimitError> {
    let memory = limits.memory.effective_own().flat_map(Layer::entries);
    let time = limits.time.effective_own();
    let time = time.flat_map(|layer| layer.limit.iter().filter(caps).chain(&layer.request));
    let mut entries = memory.chain(time);
    let is_seen = |device: &Selector| match device {
        Selector::All => true,
        Selector::Ordinal(ordinal) => (*ordinal as usize) < devices.len(),
        Selector::Uuid(uuid) => devices.contains(&uuid.0),
    };
    let (device, entry) =
        entries.find(|(device, entry)| !is_seen(device) && is_meant(&entry.variable))?;
    Some(refusal(*device, entry, devices))
}

/// Whether a limit of time is one: a cap of 100 % is none.
fn caps((_, entry): &(&Selector, &Entry)) -> bool {
    compute::caps(entry)
}

fn refusal(device: Selector, entry: &Entry, devices: &[[u8; 16]]) -> LimitError {
    let accepted = match device {
        Selector::Uuid(_) => {
            let uuids = devices.iter().map(|uuid| Uuid(*uuid).to_string());
            uuids.collect::<Vec<_>>().join(", ")
        }
        _ => {
            let last = devices.len().saturating_sub(1);
            let range = if last == 0 {
                "0".to_owned()
            } else {
                format!("0 to {last}")
            };
            format!("{range}, as the programs count what they see (CUDA_VISIBLE_DEVICES, --gpu)")
        }
    };
    let problem = format!("the programs see no device {device}, so it would limit nothing");
    LimitError::new(
        &entry.variable,
        &entry.value,
        problem,
        format!("{accepted}; or a value for all devices"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    const FIRST: [u8; 16] = [7; 16];
    const SECOND: [u8; 16] = [8; 16];

    fn refused(own: &[(&str, &str)], devices: &[[u8; 16]]) -> Option<String> {
        let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        let limits = Limits::from_env(own.iter().map(pair)).unwrap();
        limits
            .unseen(devices, |_| true)
            .map(|error| error.to_string())
    }

    #[test]
    fn a_value_for_a_device_that_is_not_seen_is_refused_by_its_variable() {
        for (name, value) in [
            ("GPUSHARE_MEM_LIMIT_1", "1GiB"),
            ("GPUSHARE_MEM_REQUEST_1", "1GiB"),
            ("GPUSHARE_SM_LIMIT_1", "50"),
            ("GPUSHARE_SM_REQUEST_1", "50"),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "1g"),
            ("CUDA_DEVICE_SM_LIMIT_1", "30"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=1G"),
        ] {
            let own = [(name, value)];
            let message = refused(&own, &[FIRST]).unwrap_or_default();
            let begin = format!("{name}={value:?} is refused: the programs see no device 1,");
            assert!(message.starts_with(&begin), "{message}");
            assert!(
                message.contains("accepted: 0, as the programs count"),
                "{message}"
            );
            assert_eq!(refused(&own, &[FIRST, SECOND]), None, "{name}");
        }
    }

    #[test]
    fn a_value_for_an_unseen_uuid_is_refused_with_those_that_are_seen() {
        let name = Selector::Uuid(Uuid(SECOND)).variable("GPUSHARE_MEM_LIMIT");
        let own = [(name.as_str(), "1GiB")];
        let message = refused(&own, &[FIRST]).unwrap_or_default();
        let accepted = format!("accepted: {}; or", Uuid(FIRST));
        assert!(message.contains(&accepted), "{message}");
        assert_eq!(refused(&own, &[FIRST, SECOND]), None);
    }

    #[test]
    fn a_value_for_all_devices_or_a_nodes_default_is_never_unseen() {
        assert_eq!(refused(&[("GPUSHARE_MEM_LIMIT", "1GiB")], &[FIRST]), None);
        // An alias that is switched off says nothing of the device.
        assert_eq!(
            refused(&[("CUDA_DEVICE_MEMORY_LIMIT_1", "0")], &[FIRST]),
            None
        );
        let default = [("GPUSHARE_MEM_LIMIT_1".into(), "1GiB".into())];
        let limits = Limits::from_env_over([], default).unwrap();
        assert_eq!(limits.unseen(&[FIRST], |_| true), None);
    }

    #[test]
    fn a_value_that_another_one_overrides_everywhere_is_not_refused() {
        let memory = ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
        for own in [
            [("GPUSHARE_MEM_LIMIT", "4GiB"), memory],
            [("GPUSHARE_MEM_REQUEST", "4GiB"), memory],
            [
                ("GPUSHARE_SM_LIMIT", "50"),
                ("CUDA_DEVICE_SM_LIMIT_1", "20"),
            ],
        ] {
            assert_eq!(refused(&own, &[FIRST]), None, "{own:?}");
        }
        for own in [
            // The value for all is of the other kind, of the same owner or of a lower one.
            [
                ("GPUSHARE_SM_LIMIT", "50"),
                ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g"),
            ],
            [
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
                ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
            ],
            [
                ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
                ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
            ],
        ] {
            assert!(refused(&own, &[FIRST]).is_some(), "{own:?}");
        }
    }

    #[test]
    fn a_cap_of_the_whole_time_is_not_refused_and_such_a_request_is() {
        for name in ["GPUSHARE_SM_LIMIT_1", "CUDA_DEVICE_SM_LIMIT_1"] {
            assert_eq!(refused(&[(name, "100")], &[FIRST]), None, "{name}");
            assert!(refused(&[(name, "99")], &[FIRST]).is_some(), "{name}");
        }
        for name in ["GPUSHARE_SM_REQUEST_1", "GPUSHARE_MEM_LIMIT_1"] {
            assert!(refused(&[(name, "100%")], &[FIRST]).is_some(), "{name}");
        }
    }

    #[test]
    fn only_the_values_that_are_meant_are_looked_at() {
        let own =
            [("GPUSHARE_MEM_LIMIT_1", "1GiB")].map(|(name, value)| (name.into(), value.into()));
        let limits = Limits::from_env(own).unwrap();
        assert_eq!(limits.unseen(&[FIRST], |_| false), None);
        assert!(
            limits
                .unseen(&[FIRST], |name| name.ends_with("_1"))
                .is_some()
        );
    }
}
