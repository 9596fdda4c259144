//! Why limits are refused, in words that name devices as users know them.

use gpushare_core::{DeviceId, Permille, SpecError, TenantId};
use gpushare_protocol::limits::{Guarantor, Limits, as_flags};

use super::Node;
use super::commands::limits_under;
use super::tenant::Tenant;

impl Node {
    /// Why limits are refused, with the devices' visible names. The variables that say the limits
    /// are those of a change that is under way, else those that the tenant is registered with.
    pub(super) fn words(&self, tenant: TenantId, error: &SpecError) -> String {
        let known = self.tenants.get(&tenant);
        let limits = known.and_then(|known| {
            let registered = &*known.registration().environment;
            let asked = self.changing.as_deref().unwrap_or(registered);
            let (defaults, [maxima, node_maxima]) = known.terms();
            limits_under(asked, &defaults, [&maxima, &node_maxima]).ok()
        });
        let device_ids = known.map(Tenant::device_ids).unwrap_or_default();
        self.words_for(limits.as_ref(), device_ids, error)
    }

    /// Why these limits are refused on the devices of a tenant.
    pub(super) fn words_for(
        &self,
        limits: Option<&Limits>,
        device_ids: &[DeviceId],
        error: &SpecError,
    ) -> String {
        let guarantor = |device: DeviceId| {
            let ordinal = device_ids.iter().position(|known| *known == device)?;
            let uuid = *self.uuids_of(&[device]).first()?;
            limits?.guarantor(u32::try_from(ordinal).ok()?, &uuid)
        };
        words(error, guarantor, |device| self.device_name(device))
    }
}

/// The limit that requests as much, if it is one that guarantees memory: as the flag that was
/// given, or as the node's default.
fn implying(guarantor: Option<Guarantor>) -> Option<String> {
    let Guarantor {
        variable,
        value,
        is_default,
        ..
    } = guarantor.filter(|known| known.is_limit)?;
    Some(match is_default {
        true => format!("this node's default {variable}={value}"),
        false => as_flags(&[(variable, value)]),
    })
}

fn words(
    error: &SpecError,
    guarantor: impl Fn(DeviceId) -> Option<Guarantor>,
    name: impl Fn(DeviceId) -> String,
) -> String {
    let implying = match error {
        SpecError::TooLarge { device, .. } | SpecError::NoRoom { device, .. } => {
            implying(guarantor(*device))
        }
        _ => None,
    };
    match error {
        SpecError::TooLarge {
            device,
            request,
            most,
        } if let Some(flags) = &implying => format!(
            "{} can guarantee at most {} beside a context, and {flags} without --mem-request requests {}; add --mem-request with at most {}, or 0 for none, or give the limit in percent, as in --mem-limit 100%",
            name(*device),
            most.human(),
            request.human(),
            most.human()
        ),
        SpecError::TooLarge {
            device,
            request,
            most,
        } => format!(
            "{} can guarantee at most {} beside a context; {} were requested; ask for less, or 0 for none",
            name(*device),
            most.human(),
            request.human()
        ),
        SpecError::NoRoom { device, short } if let Some(flags) = &implying => format!(
            "on {} {} are missing to guarantee that request now, and {flags} without --mem-request requests as much; add a --mem-request that is smaller by that, or 0 for none, or wait until other tenants end",
            name(*device),
            short.human()
        ),
        SpecError::NoRoom { device, short } => format!(
            "on {} {} are missing to guarantee that request now; ask for less, or wait until other tenants end",
            name(*device),
            short.human()
        ),
        SpecError::NoReturn { device, short } => format!(
            "on {} {} are missing for tenants that move to return beside memory that stays; request that memory, or leave it preemptible",
            name(*device),
            short.human()
        ),
        SpecError::AboveLimit { device, quota } => format!(
            "on {} the request of {} is above the limit of {}",
            name(*device),
            quota.request.human(),
            quota.limit.human()
        ),
        SpecError::ComputeAboveLimit {
            device,
            request,
            limit,
        } => format!(
            "on {} the request of {request} of the time is above the limit of {limit}",
            name(*device)
        ),
        SpecError::ComputeTaken {
            device,
            request,
            short,
        } => {
            let rest = Permille::new(request.get().saturating_sub(short.get()));
            let most = rest.map_or_else(|| "none".to_owned(), |rest| format!("at most {rest}"));
            format!(
                "on {} {most} of the time can be guaranteed beside other tenants' requests; {request} were requested; ask for less, or wait until other tenants end",
                name(*device)
            )
        }
        SpecError::Device(device) => format!("{} is gone, or named twice", name(*device)),
        SpecError::Registered
        | SpecError::Unknown
        | SpecError::Devices
        | SpecError::Oversubscribe
        | SpecError::NoHost
        | SpecError::Unreachable(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_core::{Bytes, Quota, Resolver};
    use std::ffi::OsString;

    fn permille(part: u16) -> Permille {
        Permille::new(part).unwrap()
    }

    #[test]
    fn no_refusal_names_a_device_by_its_number_in_the_core() {
        let device = DeviceId(3);
        let (request, limit) = (Bytes(2), Bytes(1));
        let (short, part) = (Bytes(1), permille(600));
        let of_devices = [
            SpecError::Device(device),
            SpecError::AboveLimit {
                device,
                quota: Quota { request, limit },
            },
            SpecError::ComputeAboveLimit {
                device,
                request: part,
                limit: permille(300),
            },
            SpecError::ComputeTaken {
                device,
                request: part,
                short: permille(200),
            },
            SpecError::TooLarge {
                device,
                request,
                most: limit,
            },
            SpecError::NoRoom { device, short },
            SpecError::NoReturn { device, short },
        ];
        let said = |error: &SpecError| words(error, |_| None, |device| format!("GPU-{}", device.0));
        for error in of_devices {
            let text = said(&error);
            assert!(
                text.contains("GPU-3") && !text.contains("DeviceId"),
                "{text}"
            );
        }
        for error in [
            SpecError::Registered,
            SpecError::Unknown,
            SpecError::Devices,
            SpecError::Oversubscribe,
            SpecError::NoHost,
            SpecError::Unreachable(Resolver::Wait),
        ] {
            let text = said(&error);
            assert!(
                !text.contains("GPU-") && !text.contains("DeviceId"),
                "{text}"
            );
        }
    }

    #[test]
    fn where_all_of_the_time_is_guaranteed_none_is_left() {
        let taken = |short| SpecError::ComputeTaken {
            device: DeviceId(0),
            request: permille(600),
            short: permille(short),
        };
        let said = |short| words(&taken(short), |_| None, |_| "it".to_owned());
        assert!(
            said(600).starts_with("on it none of the time"),
            "{}",
            said(600)
        );
        assert!(
            said(599).starts_with("on it at most 0.1% of"),
            "{}",
            said(599)
        );
    }

    #[test]
    fn a_limit_that_requests_as_much_is_told_of_the_request() {
        let device = DeviceId(0);
        let error = SpecError::NoRoom {
            device,
            short: Bytes::gib(1),
        };
        let limits = |set: &[(&str, &str)], defaults: &[(&str, &str)]| {
            let pairs = |set: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
                set.iter()
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect()
            };
            Limits::from_env_over(pairs(set), pairs(defaults)).unwrap()
        };
        let said = |set: &[(&str, &str)], defaults: &[(&str, &str)]| {
            let limits = limits(set, defaults);
            let guarantor = |_: DeviceId| limits.guarantor(0, &[7; 16]);
            words(&error, guarantor, |_| "it".to_owned())
        };
        let ours = ("GPUSHARE_MEM_LIMIT", "8GiB");
        for (set, told) in [
            (ours, "--mem-limit 8GiB without"),
            (
                ("GPUSHARE_MEM_LIMIT_0", "8GiB"),
                "--mem-limit 0=8GiB without",
            ),
            (
                ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
                "CUDA_DEVICE_MEMORY_LIMIT=8g without",
            ),
            (
                ("NVIDIA_GPU_MEMORY_LIMIT", "8192"),
                "NVIDIA_GPU_MEMORY_LIMIT=8192 without",
            ),
            (
                ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8G"),
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G without",
            ),
        ] {
            let text = said(&[set], &[]);
            assert!(
                text.contains(told) && text.contains("--mem-request"),
                "{text}"
            );
        }
        let by_default = said(&[], &[ours]);
        let told = "this node's default GPUSHARE_MEM_LIMIT=8GiB without";
        assert!(by_default.contains(told), "{by_default}");
        for given in [
            ("GPUSHARE_MEM_REQUEST", "8GiB"),
            ("NVIDIA_GPU_MEMORY_REQUEST", "8192"),
        ] {
            for beside in [&[][..], &[("NVIDIA_GPU_MEMORY_LIMIT", "8192")]] {
                let text = said(&[&[given], beside].concat(), &[]);
                assert!(!text.contains("without"), "{given:?}: {text}");
            }
        }
        let usual = said(&[ours], &[("GPUSHARE_MEM_REQUEST", "4GiB")]);
        assert!(!usual.contains("without"), "{usual}");
    }
}
