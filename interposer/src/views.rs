//! What a container is shown of a device's memory.
//!
//! *Total* is the limit (or the request, as `GPUSHARE_MEM_VIEW` says); *free* is what the quota leaves, and never more than the device
//! has. Without a limit the device's own answers stand.

use crate::account::{self, Standing};
use crate::device::DeviceKey;

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the container may use in all.
    pub(crate) total: u64,
    /// What it could have now.
    pub(crate) free: u64,
}

/// The total shown, `None` where it is the device's own.
pub(crate) fn total(device: DeviceKey) -> Option<u64> {
    let standing = account::standing(device)?;
    (standing.view_total < standing.capacity).then_some(standing.view_total)
}

/// Total and free shown, `None` where they are the device's own. `physical` is what the device has free.
pub(crate) fn memory(device: DeviceKey, physical: u64) -> Option<Memory> {
    seen(&account::standing(device)?, physical)
}

/// The same, from a standing.
pub(crate) fn seen(standing: &Standing, physical: u64) -> Option<Memory> {
    let ceiling = standing
        .limit
        .unwrap_or(u64::MAX)
        .min(standing.reach.unwrap_or(u64::MAX));
    let quota = ceiling.saturating_sub(standing.charged);
    if standing.limit.is_none() && standing.view_total >= standing.capacity {
        return None;
    }
    Some(Memory {
        total: standing.view_total,
        free: quota.min(physical).min(standing.view_total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn standing(limit: Option<u64>, view_total: u64, charged: u64) -> Standing {
        Standing {
            limit,
            view_total,
            capacity: 16 * GIB,
            charged,
            reach: None,
        }
    }

    #[test]
    fn no_more_is_free_than_the_daemon_could_give() {
        let standing = Standing {
            reach: Some(3 * GIB / 2),
            ..standing(Some(4 * GIB), 4 * GIB, GIB)
        };
        let seen = seen(&standing, 12 * GIB).unwrap();
        assert_eq!((seen.total, seen.free), (4 * GIB, GIB / 2));
    }

    #[test]
    fn free_is_what_the_quota_leaves_or_what_the_device_has_whichever_is_less() {
        let standing = standing(Some(4 * GIB), 4 * GIB, GIB);
        assert_eq!(
            seen(&standing, 12 * GIB),
            Some(Memory {
                total: 4 * GIB,
                free: 3 * GIB
            })
        );
        assert_eq!(
            seen(&standing, 2 * GIB),
            Some(Memory {
                total: 4 * GIB,
                free: 2 * GIB
            })
        );
    }

    #[test]
    fn more_charged_than_the_limit_leaves_nothing_free() {
        assert_eq!(
            seen(&standing(Some(GIB), GIB, 2 * GIB), GIB),
            Some(Memory {
                total: GIB,
                free: 0
            })
        );
    }

    #[test]
    fn a_view_by_request_never_has_more_free_than_its_total() {
        assert_eq!(
            seen(&standing(Some(4 * GIB), GIB, 0), 8 * GIB),
            Some(Memory {
                total: GIB,
                free: GIB
            })
        );
    }

    #[test]
    fn without_a_limit_the_device_speaks_for_itself() {
        assert_eq!(seen(&standing(None, 16 * GIB, GIB), 8 * GIB), None);
    }
}
