//! Why limits are refused, in words that name devices as users know them.

use gpushare_core::{DeviceId, Permille, SpecError, TenantId};
use gpushare_protocol::limits::as_flags;

use super::Node;

impl Node {
    /// Why limits are refused, with the devices' visible names. The variables that say the limits
    /// are those of a change that is under way, else those that the tenant is registered with.
    pub(super) fn words(&self, tenant: TenantId, error: &SpecError) -> String {
        let known = self.tenants.get(&tenant);
        let registered = known.map(|known| &*known.registration().environment);
        let asked = self.changing.as_deref().or(registered).unwrap_or_default();
        words(error, asked, |device| self.device_name(device))
    }
}

/// The flags of `asked` that limit memory, if none of them requests memory: such a limit requests
/// as much.
fn implying(asked: &[(String, String)]) -> Option<String> {
    let of_memory = |(name, _): &&(String, String)| {
        let is_alias = name.contains("DEVICE_MEMORY_LIMIT");
        name.starts_with("GPUSHARE_MEM_LIMIT") || is_alias
    };
    let mut requests = asked.iter().map(|(name, _)| name);
    if requests.any(|name| name.starts_with("GPUSHARE_MEM_REQUEST")) {
        return None;
    }
    let limits: Vec<_> = asked.iter().filter(of_memory).cloned().collect();
    (!limits.is_empty()).then(|| as_flags(&limits))
}

fn words(
    error: &SpecError,
    asked: &[(String, String)],
    name: impl Fn(DeviceId) -> String,
) -> String {
    let implying = implying(asked);
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
        let said = |error: &SpecError| words(error, &[], |device| format!("GPU-{}", device.0));
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
        let said = |short| words(&taken(short), &[], |_| "it".to_owned());
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
        let asked = |name: &str| vec![(name.to_owned(), "8GiB".to_owned())];
        let said = |asked: &[(String, String)]| words(&error, asked, |_| "it".to_owned());
        let implied = said(&asked("GPUSHARE_MEM_LIMIT"));
        let flags = "--mem-limit 8GiB without --mem-request";
        assert!(implied.contains(flags), "{implied}");
        let given = said(&asked("GPUSHARE_MEM_REQUEST"));
        assert!(!given.contains("without"), "{given}");
    }
}
