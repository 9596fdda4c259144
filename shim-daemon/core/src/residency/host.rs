//! The one count of the host budget: of the memory into which tenants are moved, and of the files
//! behind it.
//!
//! Each tenant counts with what is reserved for its moves or with what the store has given it,
//! whichever is more. So a victim is asked only if the store can give what its move needs, and the
//! store gives in advance only what no move needs. The store itself decides nothing: it asks
//! before it gives, and tells what it has given.

use crate::ids::TenantId;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// What the store gives is a multiple of this.
pub(crate) const STORED: Bytes = Bytes::mib(2);

/// What the store has given a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Host memory.
    pub memory: Bytes,
    /// Bytes in files of the node's folder.
    pub files: Bytes,
    /// The part of both sums that is the same bytes, on their way from one to the other.
    pub both: Bytes,
}

impl Held {
    /// The room that it takes, each byte once.
    pub fn total(self) -> Bytes {
        self.memory + self.files - self.both.min(self.memory).min(self.files)
    }
}

/// The host budget and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    /// The memory and the files that may be used.
    pub budget: Bytes,
    /// The sum over all tenants: of each what is reserved or what it has, whichever is more.
    pub counted: Bytes,
    /// What is reserved for moves.
    pub reserved: Bytes,
    /// What the store has given.
    pub held: Held,
}

impl HostView {
    /// What no tenant counts with.
    pub fn free(&self) -> Bytes {
        self.budget - self.counted
    }
}

/// One tenant's part.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    reserved: Bytes,
    held: Held,
}

impl Share {
    fn counts(&self) -> Bytes {
        self.reserved.max(self.held.total())
    }

    /// The same with `after` reserved instead of `before`.
    fn exchanged(mut self, before: Bytes, after: Bytes) -> Self {
        self.reserved = self.reserved - before + after;
        self
    }
}

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Host {
    memory: Bytes,
    files: Bytes,
    shares: BTreeMap<TenantId, Share>,
    all: Sum,
}

/// The sums over all tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    counted: Bytes,
    reserved: Bytes,
    held: Held,
}

impl Sum {
    fn replace(&mut self, before: &Share, after: &Share) {
        self.counted = self.counted + after.counts() - before.counts();
        self.reserved = self.reserved + after.reserved - before.reserved;
        let (was, is) = (before.held, after.held);
        self.held.memory = self.held.memory + is.memory - was.memory;
        self.held.files = self.held.files + is.files - was.files;
        self.held.both = self.held.both + is.both - was.both;
    }
}

impl Host {
    pub(crate) fn new(memory: Bytes, files: Bytes) -> Self {
        Self {
            memory,
            files,
            ..Self::default()
        }
    }

    /// The bytes that may be away at a time: on the host or in files.
    pub(crate) fn budget(&self) -> Bytes {
        match self.memory.is_zero() {
            true => Bytes::ZERO,
            false => self.memory + self.files,
        }
    }

    /// What is not reserved.
    pub(crate) fn unreserved(&self) -> Bytes {
        self.budget() - self.all.reserved
    }

    /// What no tenant counts with.
    pub(crate) fn free(&self) -> Bytes {
        self.budget() - self.all.counted
    }

    pub(crate) fn view(&self) -> HostView {
        HostView {
            budget: self.budget(),
            counted: self.all.counted,
            reserved: self.all.reserved,
            held: self.all.held,
        }
    }

    fn share(&self, tenant: TenantId) -> Share {
        self.shares.get(&tenant).copied().unwrap_or_default()
    }

    fn set(&mut self, tenant: TenantId, share: Share) {
        let before = self.share(tenant);
        self.all.replace(&before, &share);
        let is_nothing = share.reserved.is_zero() && share.held == Held::default();
        match is_nothing {
            true => drop(self.shares.remove(&tenant)),
            false => drop(self.shares.insert(tenant, share)),
        }
    }

    /// How much more a tenant would count with if `bytes` were reserved instead of `before`.
    pub(super) fn more(&self, tenant: TenantId, before: Bytes, bytes: Bytes) -> Bytes {
        let share = self.share(tenant);
        share.exchanged(before, bytes).counts() - share.counts()
    }

    /// Reserves `bytes` instead of `before`, both of the same tenant. `false`: the budget does not
    /// allow it, and nothing changed. A smaller reservation is always allowed.
    pub(super) fn exchange(&mut self, tenant: TenantId, before: Bytes, bytes: Bytes) -> bool {
        if bytes > before && self.more(tenant, before, bytes) > self.free() {
            return false;
        }
        self.set(tenant, self.share(tenant).exchanged(before, bytes));
        true
    }

    /// Reserves for memory that is away already, whatever the budget: a tenant of the previous
    /// daemon.
    pub(super) fn found(&mut self, tenant: TenantId, before: Bytes, bytes: Bytes) {
        self.set(tenant, self.share(tenant).exchanged(before, bytes));
    }

    pub(crate) fn held(&self, tenant: TenantId) -> Held {
        self.share(tenant).held
    }

    /// What the store has given a tenant is this from now on. Returns whether others may have more
    /// room.
    pub(crate) fn holds(&mut self, tenant: TenantId, held: Held) -> bool {
        let (before, free) = (self.share(tenant), self.free());
        self.set(tenant, Share { held, ..before });
        self.free() > free || held.memory < before.held.memory
    }

    /// How many of `bytes` of new memory the store may give a tenant, once others' memory is in
    /// files if need be: what is reserved for it, and beyond that what leaves `kept` free.
    pub(crate) fn may_give(&self, tenant: TenantId, bytes: Bytes, kept: Bytes) -> Bytes {
        let share = self.share(tenant);
        let own = share.reserved - share.held.total();
        let may = bytes.min(own + (self.free() - kept));
        Bytes(may.0 / STORED.0 * STORED.0)
    }

    /// Memory that is not given.
    pub(crate) fn free_memory(&self) -> Bytes {
        self.memory - self.all.held.memory
    }

    /// Whether the files may take so much more.
    pub(crate) fn may_store(&self, bytes: Bytes) -> bool {
        self.all.held.files + bytes <= self.files
    }

    pub(super) fn check(&self, reserved: Bytes) -> Result<(), String> {
        let mut all = Sum::default();
        for share in self.shares.values() {
            all.replace(&Share::default(), share);
        }
        if all != self.all {
            return Err(format!("the host's sums are {:?}, not {all:?}", self.all));
        }
        if reserved == all.reserved {
            return Ok(());
        }
        let kept = all.reserved;
        Err(format!(
            "{kept:?} of the host are reserved, the tenants have {reserved:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const OTHER: TenantId = TenantId(2);

    fn mib(count: u64) -> Bytes {
        Bytes::mib(count)
    }

    fn memory(count: u64) -> Held {
        Held {
            memory: mib(count),
            ..Held::default()
        }
    }

    #[test]
    fn a_reservation_beyond_the_budget_changes_nothing() {
        let mut host = Host::new(Bytes(10), Bytes::ZERO);
        assert!(host.exchange(ONE, Bytes(0), Bytes(6)));
        assert!(!host.exchange(OTHER, Bytes(0), Bytes(5)));
        assert_eq!(host.free(), Bytes(4));
        assert!(host.exchange(OTHER, Bytes(0), Bytes(4)));
    }

    #[test]
    fn memory_found_beyond_the_budget_can_be_given_up() {
        let mut host = Host::new(Bytes(10), Bytes::ZERO);
        host.found(ONE, Bytes(0), Bytes(30));
        assert!(!host.exchange(OTHER, Bytes(0), Bytes(1)));
        let less = host.exchange(ONE, Bytes(30), Bytes(20));
        assert!(less, "it is less than before");
        host.found(ONE, Bytes(20), Bytes(0));
        assert_eq!(host.free(), Bytes(10));
    }

    #[test]
    fn a_reservation_and_what_was_given_for_it_count_once() {
        let mut host = Host::new(mib(100), Bytes::ZERO);
        assert!(host.exchange(ONE, Bytes::ZERO, mib(60)));
        assert_eq!(host.may_give(ONE, mib(60), mib(40)), mib(60));
        host.holds(ONE, memory(60));
        assert_eq!((host.free(), host.unreserved()), (mib(40), mib(40)));
        host.exchange(ONE, mib(60), Bytes::ZERO);
        assert_eq!((host.free(), host.unreserved()), (mib(40), mib(100)));
        assert_eq!(host.more(ONE, Bytes::ZERO, mib(60)), Bytes::ZERO);
        assert_eq!(host.more(OTHER, Bytes::ZERO, mib(60)), mib(60));
        assert!(
            !host.exchange(OTHER, Bytes::ZERO, mib(60)),
            "given is given"
        );
        assert!(host.holds(ONE, memory(20)), "others have more room");
        assert!(host.exchange(OTHER, Bytes::ZERO, mib(60)));
    }

    #[test]
    fn in_advance_only_what_leaves_the_rest_free_is_given() {
        let mut host = Host::new(mib(100), Bytes::ZERO);
        assert_eq!(host.may_give(ONE, mib(64), mib(60)), mib(40));
        host.holds(ONE, memory(40));
        assert_eq!(host.may_give(OTHER, mib(64), mib(60)), Bytes::ZERO);
        host.exchange(OTHER, Bytes::ZERO, mib(30));
        assert_eq!(host.may_give(OTHER, mib(64), mib(60)), mib(30));
        assert_eq!(host.may_give(OTHER, mib(64), mib(20)), mib(40));
        assert_eq!(host.may_give(OTHER, Bytes(3 << 20), Bytes::ZERO), mib(2));
    }

    #[test]
    fn bytes_on_their_way_to_a_file_count_once() {
        let mut host = Host::new(mib(64), mib(64));
        let held = |memory, files, both| Held {
            memory: mib(memory),
            files: mib(files),
            both: mib(both),
        };
        host.holds(ONE, held(64, 0, 0));
        let left = (
            host.free_memory(),
            host.may_give(OTHER, mib(99), Bytes::ZERO),
        );
        assert_eq!(left, (Bytes::ZERO, mib(64)));
        assert!(host.may_store(mib(64)) && !host.may_store(mib(66)));
        host.holds(ONE, held(64, 32, 32));
        assert_eq!(host.free(), mib(64));
        assert!(host.may_store(mib(32)) && !host.may_store(mib(34)));
        host.holds(ONE, held(32, 32, 0));
        assert_eq!((host.free(), host.free_memory()), (mib(64), mib(32)));
        host.holds(ONE, Held::default());
        assert!(host.check(Bytes::ZERO).is_ok());
    }

    #[test]
    fn without_memory_files_are_no_room() {
        assert_eq!(Host::new(Bytes::ZERO, mib(64)).budget(), Bytes::ZERO);
    }
}
