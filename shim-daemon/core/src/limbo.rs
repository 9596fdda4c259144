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
    /// The part of `bytes` that was charged: it counts against the tenant's limit until it is gone.
    pub(crate) charged: Bytes,
    /// What its page said of that.
    pub(crate) told: Bytes,
    /// What its contexts took beside its charges, as measured or as reserved for them.
    pub(crate) overhead: Bytes,
    /// When it died.
    pub(crate) since: Nanos,
    /// Whether it was being ended: somebody may wait for just these bytes.
    pub(crate) ended: bool,
}

impl Limbo {
    /// One more part of the same process is dead. What is said of it must not be older than that.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.charged += other.charged;
        self.told += other.told;
        self.overhead += other.overhead;
        self.since = self.since.max(other.since);
        self.ended |= other.ended;
    }

    /// The device shows that it still holds so much: charges beside its overhead, and no less of them than its page said.
    pub(crate) fn shows(&mut self, holds: Bytes) {
        self.bytes = holds;
        let most = (holds - self.overhead).max(self.told).min(holds);
        self.charged = self.charged.min(most);
    }
}
