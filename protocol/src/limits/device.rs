//! The limits of one device, once it is known.

use super::layer::above;
use super::maxima::above_maximum;
use super::{ComputeLimits, LimitError, Limits, View, compute};
use crate::units::Bytes;
use crate::uuid::Uuid;

/// What holds on one device. Bytes, but for `compute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Ceiling of the container's charges; may be above the device's capacity. `None`: no ceiling but the device.
    pub limit: Option<u64>,
    /// Guaranteed part, at most the capacity. Defaults to the limit if there is one, else 0.
    pub request: u64,
    /// What the program is told is the device's total, at most the capacity.
    pub view_total: u64,
    /// Which of the two that is.
    pub view: View,
    /// Its time.
    pub compute: ComputeLimits,
}

pub(super) fn limits(
    limits: &Limits,
    ordinal: u32,
    uuid: &[u8; 16],
    capacity: u64,
) -> Result<DeviceLimits, LimitError> {
    let uuid = Uuid(*uuid);
    let (limit, request) = limits.memory.on(ordinal, uuid);
    let (most, most_request) = limits.maxima.memory_on(ordinal, uuid);
    for (asked, most) in [(&limit, most), (&request, most_request), (&request, most)] {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked.size.on(capacity) > most.size.on(capacity)
        {
            return Err(above_maximum(asked, most));
        }
    }
    let ceiling = limit.as_ref().or(most).map(|limit| limit.size.on(capacity));
    let shown_limit = ceiling.unwrap_or(capacity).min(capacity);
    let guaranteed = match &request {
        // Who names only a limit has that guaranteed; who names nothing has nothing.
        None => limit.as_ref().map_or(0, |_| {
            let most = most_request.map_or(u64::MAX, |most| most.size.on(capacity));
            shown_limit.min(most)
        }),
        Some(request) => {
            let bytes = request.size.on(capacity);
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
        compute: compute::limits(limits, ordinal, uuid)?,
    })
}
