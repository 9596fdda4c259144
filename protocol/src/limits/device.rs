//! The limits of one device, once it is known.

use super::compute::{self, ComputeLimits};
use super::error::LimitError;
use super::layer::above;
use super::maxima::above_maximum;
use super::model::{Limits, View};
use super::policy::Oversubscribe;
use crate::size::Size;
use crate::units::Bytes;
use crate::uuid::Uuid;

/// A tenant's limits on one device. Bytes, but for `compute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Ceiling of the tenant's charges; may be above the device's capacity. `None`: no ceiling
    /// but the device.
    pub limit: Option<u64>,
    /// Guaranteed part, at most the capacity. Defaults to the limit if there is one, else 0; to 0
    /// where the tenant's memory may leave the device.
    pub request: u64,
    /// The device's total that the program sees: at most the capacity, but for managed memory
    /// (`uvm`), which may be more than the device has.
    pub view_total: u64,
    /// Which of the two that is.
    pub view: View,
    /// Its time.
    pub compute: ComputeLimits,
}

/// The value by which memory of a device is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantor {
    /// Its variable.
    pub variable: String,
    /// As it is written.
    pub value: String,
    /// It is a limit, which requests as much.
    pub is_limit: bool,
    /// It is the node's default.
    pub is_default: bool,
}

/// The request, or the limit where none is set. `None`: nothing is guaranteed.
pub(super) fn guarantor(limits: &Limits, ordinal: u32, uuid: &[u8; 16]) -> Option<Guarantor> {
    let (limit, request) = limits.memory.on(ordinal, Uuid(*uuid));
    let is_limit = request.is_none();
    let entry = request.or_else(|| limit.filter(|_| implies(limits)))?;
    Some(Guarantor {
        is_default: !entry.is_own(),
        variable: entry.variable,
        value: entry.value,
        is_limit,
    })
}

/// A request that was not set: the guarantee of a tenant with only a limit, where a percentage
/// bounds that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpliedRequest {
    /// The part of the device, in millionths of a percent.
    pub part: u64,
    /// The most it may come to, in bytes, where an amount bounds it too.
    pub most: Option<u64>,
}

/// Whether a request that is not set is the limit: memory that may leave the device is lent.
fn implies(limits: &Limits) -> bool {
    limits.policy.oversubscribe == Oversubscribe::Off
}

/// A tenant with a request has that request, and a tenant with neither request nor limit has none.
/// A tenant with only a limit has as much guaranteed as the limit and the node's maximum for
/// requests allow, and where the limit is a default above the node's maximum, as that.
pub(super) fn implied(
    limits: &Limits,
    ordinal: u32,
    uuid: &[u8; 16],
    capacity: u64,
) -> Option<ImpliedRequest> {
    let uuid = Uuid(*uuid);
    let (limit, request) = limits.memory.on(ordinal, uuid);
    let limit = limit.filter(|_| request.is_none() && implies(limits))?;
    let (most, _) = limits.maxima.memory_on(ordinal, uuid, capacity);
    let lowered = limit.clone().under(most, capacity);
    let requests = || limits.maxima.requests_on(ordinal, uuid);
    let bounds = || requests().chain([limit.size, lowered.size]);
    let parts = bounds().filter_map(|size| match size {
        Size::Percent(part) => Some(part),
        Size::Bytes(_) => None,
    });
    let amounts = bounds().filter_map(|size| match size {
        Size::Bytes(bytes) => Some(bytes),
        Size::Percent(_) => None,
    });
    Some(ImpliedRequest {
        part: parts.min()?,
        most: amounts.min(),
    })
}

pub(super) fn limits(
    limits: &Limits,
    ordinal: u32,
    uuid: &[u8; 16],
    capacity: u64,
) -> Result<DeviceLimits, LimitError> {
    let uuid = Uuid(*uuid);
    let (limit, request) = limits.memory.on(ordinal, uuid);
    let (most, most_request) = limits.maxima.memory_on(ordinal, uuid, capacity);
    let limit = limit.map(|limit| limit.under(most, capacity));
    let own_limit = limit.as_ref().filter(|limit| limit.is_own());
    let bounds = || [most_request, most, own_limit].into_iter().flatten();
    let request = request.map(|request| request.under(bounds(), capacity));
    for (asked, most) in [(&limit, most), (&request, most_request), (&request, most)] {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked.size.on(capacity) > most.size.on(capacity)
        {
            return Err(above_maximum(asked, most));
        }
    }
    let ceiling = limit.as_ref().or(most).map(|limit| limit.size.on(capacity));
    let shown_limit = ceiling.unwrap_or(capacity);
    let shown_limit = match limits.policy.oversubscribe {
        Oversubscribe::Uvm => shown_limit,
        Oversubscribe::Off | Oversubscribe::Swap => shown_limit.min(capacity),
    };
    let guaranteed = match &request {
        // Unset requests default to the limit; without a limit nothing is guaranteed.
        None => limit.as_ref().filter(|_| implies(limits)).map_or(0, |_| {
            let most = most_request.map_or(u64::MAX, |most| most.size.on(capacity));
            shown_limit.min(most)
        }),
        Some(request) => {
            let bytes = request.size.on(capacity);
            // A default is nobody's wish: of a smaller device it is all.
            let bytes = match request.is_own() {
                true => bytes,
                false => bytes.min(capacity),
            };
            match &limit {
                Some(limit) if ceiling.is_some_and(|ceiling| bytes > ceiling) => {
                    return Err(above(request, limit));
                }
                _ if bytes > capacity => {
                    return Err(LimitError::new(
                        &request.variable,
                        &request.value,
                        format!(
                            "device {ordinal} ({uuid}) has {}, so it cannot be guaranteed",
                            Bytes(capacity)
                        ),
                        "a request of at most the device's memory",
                    ));
                }
                _ => bytes,
            }
        }
    };
    let view_total = match limits.view {
        View::Request if guaranteed != 0 => guaranteed,
        _ => shown_limit,
    };
    Ok(DeviceLimits {
        limit: ceiling,
        request: guaranteed,
        view_total,
        view: limits.view,
        compute: compute::limits((&limits.time, &limits.maxima), ordinal, uuid)?,
    })
}
