//! The fence: a limit that the driver itself holds a cgroup to, on drivers from r615 on.
//!
//! The calls to the driver that set, move or remove a fence, in order. **Never run on hardware:**
//! written after the header, NVIDIA's documentation and the published kernel module of 615.71.09,
//! and tested on a double of these.

use std::path::Path;

use gpushare_protocol::units::Bytes;

use super::Devices;

/// A limit is set in whole pages of the device, so that it reads back as it was set.
const PAGE: u64 = 2 << 20;

/// The driver's limit of a cgroup on one device, and the memory that it counts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverLimit {
    /// The most its processes may hold, contexts included; `None` is no limit.
    pub hard: Option<Bytes>,
    /// The cgroup's memory by the driver's count. On kernels without the dmem controller, only
    /// memory allocated since a limit was set.
    pub used: Bytes,
}

/// Why the driver did not carry out an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// This driver, device or kernel has no such limit. NVML also says so of a cgroup that never
    /// had one.
    #[error("the driver has no limits for cgroups on this device")]
    NotSupported,
    /// Not as this user, or not without `CAP_SYS_ADMIN`.
    #[error("the driver lets only root with CAP_SYS_ADMIN set limits")]
    NotPermitted,
    /// The cgroup is gone, or its parent does not have the dmem controller.
    #[error("the cgroup is gone or has no dmem controller")]
    NotFound,
    /// Anything else: what NVML said.
    #[error("{0}")]
    Failed(String),
}

/// A fence as it shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The most the cgroup's processes may hold; `None` takes the fence away.
    pub hard: Option<Bytes>,
    /// Whether the limit that may be there is one of ours. Another's is left alone.
    pub ours: bool,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver's limit of the cgroup now: as ordered, or the memory in use if that was more.
    Stands(Option<Bytes>),
    /// Another program limits the cgroup, or an ancestor of it.
    Foreign(Bytes),
    /// The limit is unchanged, as far as is known.
    Failed(FenceError),
}

/// Carries out an order.
///
/// A driver with accounts of its own refuses a limit below the memory in use; the kernel's dmem
/// controller silently ignores such a limit. So the limit is never set below the memory in use, and
/// it is read back after it was set.
pub fn carry_out(devices: &mut dyn Devices, device: usize, cgroup: &Path, order: Order) -> Outcome {
    let known = match devices.driver_limit(device, cgroup) {
        Ok(known) => Some(known),
        Err(FenceError::NotSupported) => None,
        Err(error) => return Outcome::Failed(error),
    };
    if let Some(foreign) = known.and_then(|known| known.hard)
        && !order.ours
    {
        return Outcome::Foreign(foreign);
    }
    let used = known.map_or(0, |known| known.used.0.next_multiple_of(PAGE));
    let hard = order.hard.map(|hard| hard.max(Bytes(used)));
    if let Err(error) = devices.limit_driver(device, cgroup, hard) {
        return Outcome::Failed(error);
    }
    match devices.driver_limit(device, cgroup) {
        Ok(now) if now.hard == hard => Outcome::Stands(hard),
        Ok(now) => Outcome::Failed(FenceError::Failed(format!(
            "the driver shows {} where {} was set",
            shown(now.hard),
            shown(hard)
        ))),
        // A removed limit may look like one that never existed.
        Err(FenceError::NotSupported | FenceError::NotFound) if hard.is_none() => {
            Outcome::Stands(None)
        }
        Err(error) => Outcome::Failed(error),
    }
}

fn shown(hard: Option<Bytes>) -> String {
    hard.map_or_else(|| "no limit".to_owned(), Bytes::human)
}
