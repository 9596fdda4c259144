//! Bytes of dead processes that the driver has not given back yet.

use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// Memory that one dead process still holds on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limbo {
    /// The process's tenant, as long as that is registered.
    pub(crate) tenant: Option<TenantId>,
    /// Its memory when it died; later the memory that samples show.
    pub(crate) bytes: Bytes,
    /// The part of `bytes` that was charged: it counts against the tenant's limit until it is gone.
    pub(crate) charged: Bytes,
    /// The part of it that its page showed.
    pub(crate) told: Bytes,
    /// Its contexts' memory beside its charges, as measured or as reserved.
    pub(crate) overhead: Bytes,
    /// The most of it that counts. Of managed memory more may be on the card than was booked there:
    /// the driver evicts that for any other, as while the process lived.
    pub(crate) most: Bytes,
    /// The memory beyond that which may be on the card: managed, and not booked there.
    pub(crate) evictable: Bytes,
    /// When it died.
    pub(crate) since: Nanos,
    /// Whether it was being ended: an ask may wait for just these bytes.
    pub(crate) ended: bool,
}

impl Limbo {
    /// Another part of the same process is dead. Samples about it must not be older.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.charged += other.charged;
        self.told += other.told;
        self.overhead += other.overhead;
        self.most += other.most;
        self.evictable += other.evictable;
        self.since = self.since.max(other.since);
        self.ended |= other.ended;
    }

    /// The device shows how much the process still holds: its charges beside its overhead, and at
    /// least the charges in its page.
    pub(crate) fn shows(&mut self, holds: Bytes) {
        let holds = holds.min(self.most);
        self.bytes = holds;
        let most = (holds - self.overhead).max(self.told).min(holds);
        self.charged = self.charged.min(most);
    }
}
