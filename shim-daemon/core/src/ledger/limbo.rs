//! Bytes of dead processes that the driver has not given back yet.

use crate::ids::ContainerId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// What one dead process still holds on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limbo {
    /// Whose process it was, as long as that is registered.
    pub(crate) container: Option<ContainerId>,
    /// What it held when it died, then what samples show.
    pub(crate) bytes: Bytes,
    /// When it died.
    pub(crate) since: Nanos,
    /// Whether it was being ended: somebody may wait for just these bytes.
    pub(crate) ended: bool,
}
