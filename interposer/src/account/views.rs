//! A tenant's view of a device's memory.
//!
//! *Total* is the limit (or the request, as `GPUSHARE_MEM_VIEW` says); *free* is the rest of the
//! quota, as far as the tenant can have it. The device's own free memory bounds it, but for the
//! rest of a request that a daemon guarantees: neighbours that hold some of it give it back on
//! demand (ADR 279). Nor does it where the tenant's memory is managed: what does not fit is on the
//! host then. Without a limit the device's own values are shown.
//!
//! Programs that see the request measure their own use by the fall of free memory, and some refuse
//! to continue when it rises meanwhile. So for each process the free memory shown and its own
//! charges never rise together ([`Shown`]): only its own frees raise the value it sees, and an
//! operator who sets another total.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::account::{self, ByRequest, QuotaStatus};
use crate::driver::device::DeviceKey;

/// The least sum of free memory shown and own charges of one process on a device, since the total
/// shown is what it is. Bytes.
#[derive(Debug)]
pub(crate) struct Shown {
    least: AtomicU64,
    total: AtomicU64,
}

impl Shown {
    /// Nothing was shown yet.
    pub(crate) const fn new() -> Self {
        Self {
            least: AtomicU64::new(u64::MAX),
            total: AtomicU64::new(u64::MAX),
        }
    }

    /// The most of `free` bytes of a `total` that may be shown to a process that holds `own`.
    fn at_most(&self, free: u64, own: u64, total: u64) -> u64 {
        let now = free.saturating_add(own);
        if self.total.swap(total, Ordering::Relaxed) != total {
            self.least.store(u64::MAX, Ordering::Relaxed);
        }
        let least = self.least.fetch_min(now, Ordering::Relaxed).min(now);
        free.min(least.saturating_sub(own))
    }
}

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The total memory that the tenant may use.
    pub(crate) total: u64,
    /// The memory that it could have now.
    pub(crate) free: u64,
}

/// The total shown, `None` where it is the device's own.
pub(crate) fn total(device: DeviceKey) -> Option<u64> {
    let status = account::quota_status(device)?;
    (status.view_total != status.capacity).then_some(status.view_total)
}

/// Total and free shown, `None` where they are the device's own. `physical` is the device's free
/// memory, or no bound where the tenant's may be on the host.
pub(crate) fn memory(device: DeviceKey, physical: u64) -> Option<Memory> {
    let (status, by_request) = account::quota_status_by_request(device)?;
    match by_request {
        None => seen(&status, physical),
        Some(by_request) => seen_by_request(&status, &by_request, physical),
    }
}

/// The same where programs see the request. Memory that a daemon guarantees counts as free even
/// while neighbours hold it: it is taken back from them on demand.
fn seen_by_request(status: &QuotaStatus, by_request: &ByRequest, physical: u64) -> Option<Memory> {
    let physical = if by_request.is_guaranteed {
        u64::MAX
    } else {
        physical
    };
    let seen = seen(status, physical)?;
    let left = status.view_total.saturating_sub(status.charged);
    let free = seen.free.min(left);
    Some(Memory {
        free: by_request.shown.at_most(free, by_request.own, seen.total),
        ..seen
    })
}

/// The same, from a status.
pub(crate) fn seen(status: &QuotaStatus, physical: u64) -> Option<Memory> {
    let ceiling = status
        .limit
        .unwrap_or(u64::MAX)
        .min(status.reach.unwrap_or(u64::MAX));
    let quota = ceiling.saturating_sub(status.charged);
    if status.limit.is_none() && status.view_total >= status.capacity {
        return None;
    }
    let physical = physical.max(status.assured.saturating_sub(status.charged));
    Some(Memory {
        total: status.view_total,
        free: quota.min(physical).min(status.view_total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn quota_status(limit: Option<u64>, view_total: u64, charged: u64) -> QuotaStatus {
        QuotaStatus {
            limit,
            view_total,
            capacity: 16 * GIB,
            charged,
            reach: None,
            assured: 0,
        }
    }

    #[test]
    fn no_more_is_free_than_the_daemon_could_give() {
        let status = QuotaStatus {
            reach: Some(3 * GIB / 2),
            ..quota_status(Some(4 * GIB), 4 * GIB, GIB)
        };
        let seen = seen(&status, 12 * GIB).unwrap();
        assert_eq!((seen.total, seen.free), (4 * GIB, GIB / 2));
    }

    #[test]
    fn free_is_what_the_quota_leaves_or_what_the_device_has_whichever_is_less() {
        let status = quota_status(Some(4 * GIB), 4 * GIB, GIB);
        assert_eq!(
            seen(&status, 12 * GIB),
            Some(Memory {
                total: 4 * GIB,
                free: 3 * GIB
            })
        );
        assert_eq!(
            seen(&status, 2 * GIB),
            Some(Memory {
                total: 4 * GIB,
                free: 2 * GIB
            })
        );
    }

    #[test]
    fn more_charged_than_the_limit_leaves_nothing_free() {
        assert_eq!(
            seen(&quota_status(Some(GIB), GIB, 2 * GIB), GIB),
            Some(Memory {
                total: GIB,
                free: 0
            })
        );
    }

    #[test]
    fn a_view_by_request_never_has_more_free_than_its_total() {
        assert_eq!(
            seen(&quota_status(Some(4 * GIB), GIB, 0), 8 * GIB),
            Some(Memory {
                total: GIB,
                free: GIB
            })
        );
    }

    #[test]
    fn what_a_neighbour_gives_back_is_not_told_and_what_one_frees_is() {
        let shown = Shown::new();
        let told = |free: u64, own: u64| shown.at_most(free, own, 4 * GIB);
        assert_eq!(told(4 * GIB, 0), 4 * GIB);
        assert_eq!(told(3 * GIB, 0), 3 * GIB, "a neighbour took one");
        assert_eq!(told(4 * GIB, 0), 3 * GIB, "and gave it back");
        assert_eq!(told(3 * GIB, GIB), 2 * GIB, "the fall is one's own use");
        assert_eq!(told(GIB, GIB), GIB);
        assert_eq!(told(3 * GIB, 0), 2 * GIB, "one's own free raises it");
        assert_eq!(told(GIB, 4 * GIB), 0);
    }

    #[test]
    fn a_total_that_an_operator_sets_is_free_at_once() {
        let shown = Shown::new();
        let told = |free: u64, total: u64| shown.at_most(free, GIB, total);
        assert_eq!(told(3 * GIB, 4 * GIB), 3 * GIB);
        assert_eq!(told(7 * GIB, 8 * GIB), 7 * GIB, "the request was raised");
        assert_eq!(told(GIB, 2 * GIB), GIB, "lowered");
        assert_eq!(told(3 * GIB, 4 * GIB), 3 * GIB, "and set back");
        assert_eq!(told(2 * GIB, 4 * GIB), 2 * GIB, "a neighbour took one");
        assert_eq!(told(3 * GIB, 4 * GIB), 2 * GIB, "and gave it back");
    }

    #[test]
    fn a_guaranteed_request_is_free_whatever_neighbours_hold_of_it() {
        let by_request = |is_guaranteed| ByRequest {
            shown: Box::leak(Box::new(Shown::new())),
            own: 0,
            is_guaranteed,
        };
        let status = QuotaStatus {
            // A daemon writes this where neighbours hold all of the rest.
            reach: Some(4 * GIB),
            ..quota_status(Some(8 * GIB), 4 * GIB, GIB)
        };
        let free = |by_request| seen_by_request(&status, &by_request, GIB).unwrap().free;
        assert_eq!(
            (free(by_request(true)), free(by_request(false))),
            (3 * GIB, GIB)
        );
    }

    #[test]
    fn the_device_bounds_only_what_is_not_assured() {
        let free = |assured, charged, physical| {
            let status = QuotaStatus {
                assured,
                reach: Some(3 * GIB),
                ..quota_status(Some(4 * GIB), 4 * GIB, charged)
            };
            seen(&status, physical).unwrap().free
        };
        assert_eq!(free(2 * GIB, 0, GIB), 2 * GIB, "neighbours hold a half");
        assert_eq!(free(2 * GIB, GIB / 2, GIB), 3 * GIB / 2, "of the rest");
        assert_eq!(free(2 * GIB, 2 * GIB, GIB / 2), GIB / 2, "nothing is left");
        assert_eq!(free(2 * GIB, 3 * GIB, GIB), 0, "nor above it");
        assert_eq!(free(2 * GIB, 0, 5 * GIB / 2), 5 * GIB / 2, "there is more");
        assert_eq!(free(4 * GIB, 0, 0), 3 * GIB, "what the daemon can give");
        assert_eq!(free(0, 0, GIB), GIB, "no request");
    }

    #[test]
    fn no_more_is_free_than_the_total_whatever_is_assured() {
        let status = QuotaStatus {
            assured: 8 * GIB,
            ..quota_status(Some(4 * GIB), 2 * GIB, 0)
        };
        let seen = seen(&status, 0).unwrap();
        assert_eq!((seen.total, seen.free), (2 * GIB, 2 * GIB));
    }

    #[test]
    fn without_a_limit_the_device_speaks_for_itself() {
        assert_eq!(seen(&quota_status(None, 16 * GIB, GIB), 8 * GIB), None);
    }
}
