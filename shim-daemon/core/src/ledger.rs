//! The accounts of one device.
//!
//! Two sums are kept. *Taken* is memory that is or may be used now: grants, overhead, excess,
//! limbo, unmanaged. It must not exceed the usable memory (I1). *Firm* is memory that may not be
//! taken back: requests instead of the grants below them, and grants only as far as they cannot be
//! taken back. As long as firm fits too, a tenant within its request can always be served by taking
//! back borrowed memory.

mod account;
mod looks;
mod node;
mod returns;

pub(crate) use account::{Account, Lowering};
pub(crate) use looks::Looks;
pub(crate) use node::Ledger;

use crate::ids::{CostClass, ProcessId, TenantId};
use crate::limbo::Limbo;
use crate::room::Room;
use crate::spec::DeviceSpec;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// One device: its accounts and what else is on it.
#[derive(Debug)]
pub(crate) struct Device {
    spec: DeviceSpec,
    accounts: BTreeMap<TenantId, Account>,
    /// The sum over all accounts, kept as they change.
    sum: Room,
    /// The sum of the parts of them that cannot be moved to the host, kept as they change.
    fixed: Bytes,
    /// The loans of tenants that may be moved, and how many have each, kept as they change.
    loans: BTreeMap<Bytes, usize>,
    /// The memory that all accounts were granted and do not use, kept as they change.
    unused: Bytes,
    limbo: BTreeMap<ProcessId, Limbo>,
    /// The memory that accounts freed and that the device still showed in use, kept as they change.
    late: Bytes,
    /// When to look at the device again for a waiting ask.
    pub(crate) looks: Looks,
    /// Limbo of tenants that have ended.
    orphaned: Bytes,
    /// Memory of processes that belong to no tenant.
    unmanaged: Bytes,
    /// The part of it that no process was listed with.
    unlisted: Bytes,
    /// Memory that the last look showed in use of managed pages that have gone to the host: the
    /// driver gives it to whatever needs it.
    pub(crate) kept: Bytes,
    /// How far facts have pushed *taken* above the usable memory. Decisions never raise it.
    overdrawn: Bytes,
    /// When the last sample was taken, and how much memory the driver could still give.
    sampled: Option<(Nanos, Bytes)>,
    /// When a reclaim last found that the device still shows memory that its tenant has freed.
    lagged: Option<Nanos>,
}

impl Device {
    pub(crate) fn new(spec: DeviceSpec) -> Self {
        Self {
            spec,
            accounts: BTreeMap::new(),
            sum: Room::default(),
            fixed: Bytes::ZERO,
            loans: BTreeMap::new(),
            unused: Bytes::ZERO,
            late: Bytes::ZERO,
            looks: Looks::default(),
            limbo: BTreeMap::new(),
            orphaned: Bytes::ZERO,
            unmanaged: Bytes::ZERO,
            unlisted: Bytes::ZERO,
            kept: Bytes::ZERO,
            overdrawn: Bytes::ZERO,
            sampled: None,
            lagged: None,
        }
    }

    /// The memory that may be granted: capacity less reserve.
    pub(crate) fn usable(&self) -> Bytes {
        self.spec.usable()
    }

    pub(crate) fn capacity(&self) -> Bytes {
        self.spec.capacity
    }

    pub(crate) fn class(&self) -> CostClass {
        self.spec.class
    }

    /// Memory of processes that belong to no tenant.
    pub(crate) fn unmanaged(&self) -> Bytes {
        self.unmanaged
    }

    /// The part of it that no process was listed with at the last look.
    pub(crate) fn unlisted(&self) -> Bytes {
        self.unlisted
    }

    /// So much is unmanaged, of which no process is listed with so much.
    pub(crate) fn set_unmanaged(&mut self, bytes: Bytes, unlisted: Bytes) {
        (self.unmanaged, self.unlisted) = (bytes, unlisted);
    }

    /// When the last sample was taken, and how much memory the driver could still give: also what
    /// it keeps of managed pages that have left.
    pub(crate) fn sampled(&self) -> Option<(Nanos, Bytes)> {
        self.sampled.map(|(taken, free)| (taken, free + self.kept))
    }

    /// A sample was taken then. False: it is older than the last one.
    pub(crate) fn sample(&mut self, taken: Nanos, free: Bytes) -> bool {
        let old = self.sampled.is_some_and(|(last, _)| taken < last);
        if !old {
            self.sampled = Some((taken, free));
        }
        !old
    }

    /// Reserves this much of the memory that the last sample showed free, then of what the driver
    /// keeps.
    pub(crate) fn spend(&mut self, bytes: Bytes) {
        if let Some((_, free)) = &mut self.sampled {
            self.kept -= bytes - *free;
            *free -= bytes;
        }
    }

    /// When a reclaim last found that the device still shows memory that its tenant has freed.
    pub(crate) fn lagged(&self) -> Option<Nanos> {
        self.lagged
    }

    pub(crate) fn lag(&mut self, now: Nanos) {
        self.lagged = Some(now);
    }

    /// The memory that dead processes still hold.
    pub(crate) fn limbo(&self) -> impl Iterator<Item = (ProcessId, &Limbo)> {
        let limbo = self.limbo.iter();
        limbo.map(|(process, entry)| (*process, entry))
    }

    /// The sum of that memory.
    pub(crate) fn in_limbo(&self) -> Bytes {
        self.limbo.values().map(|entry| entry.bytes).sum()
    }

    /// Whether a dead process still holds anything.
    pub(crate) fn holds(&self, process: ProcessId) -> bool {
        self.limbo.contains_key(&process)
    }

    pub(crate) fn account(&self, tenant: TenantId) -> Option<&Account> {
        self.accounts.get(&tenant)
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = (TenantId, &Account)> {
        self.accounts
            .iter()
            .map(|(tenant, account)| (*tenant, account))
    }

    /// The one way to change an account: the sums follow.
    pub(crate) fn change<R>(
        &mut self,
        tenant: TenantId,
        change: impl FnOnce(&mut Account) -> R,
    ) -> Option<R> {
        let account = self.accounts.get_mut(&tenant)?;
        let (before, unused, late) = (account.room(), account.unused(), account.late);
        let (fixed, loan) = (account.fixed(), account.movable());
        let result = change(account);
        self.late = self.late - late + account.late;
        self.sum = self.sum - before + account.room();
        self.unused = self.unused - unused + account.unused();
        self.fixed = self.fixed - fixed + account.fixed();
        let after = account.movable();
        self.lend(loan, after);
        Some(result)
    }

    pub(crate) fn open(&mut self, tenant: TenantId, account: Account) {
        self.sum += account.room();
        self.unused += account.unused();
        self.fixed += account.fixed();
        self.lend(None, account.movable());
        let old = self.accounts.insert(tenant, account);
        debug_assert!(old.is_none(), "tenants are admitted once");
    }

    /// Closes an account whose grant and overhead were given up; its limbo stays on the device.
    pub(crate) fn close(&mut self, tenant: TenantId) {
        if let Some(account) = self.accounts.remove(&tenant) {
            self.sum = self.sum - account.room();
            self.unused -= account.unused();
            self.fixed -= account.fixed();
            self.lend(account.movable(), None);
            self.late -= account.late;
            self.orphaned += account.limbo;
            for entry in self
                .limbo
                .values_mut()
                .filter(|entry| entry.tenant == Some(tenant))
            {
                entry.tenant = None;
            }
        }
    }

    /// A loan changed.
    fn lend(&mut self, before: Option<Bytes>, after: Option<Bytes>) {
        if before == after {
            return;
        }
        if let Some(before) = before
            && let Some(many) = self.loans.get_mut(&before)
        {
            *many -= 1;
            if *many == 0 {
                self.loans.remove(&before);
            }
        }
        if let Some(after) = after {
            *self.loans.entry(after).or_default() += 1;
        }
    }

    /// The largest loan of a tenant that may be moved, but for one loan of size `but`. `None`: no
    /// tenant may be moved.
    fn largest_loan(&self, but: Option<Bytes>) -> Option<Bytes> {
        let mut all = self.loans.iter().rev();
        all.find_map(|(loan, many)| (*many > 1 || Some(*loan) != but).then_some(*loan))
    }

    /// Both sums, over all that is on the device.
    pub(crate) fn total(&self) -> Room {
        self.sum + Room::both(self.orphaned + self.unmanaged)
    }

    /// The memory that the device must hold so that each tenant with a loan can come back, one at a
    /// time: all that cannot be moved and the largest loan. Zero: no tenant has such a loan.
    pub(crate) fn rotates_in(&self) -> Bytes {
        let largest = self.largest_loan(None);
        largest.map_or(Bytes::ZERO, |loan| self.beside_loan(self.fixed, loan))
    }

    fn beside_loan(&self, fixed: Bytes, loan: Bytes) -> Bytes {
        fixed + loan + self.orphaned + self.unmanaged
    }

    /// The same if this tenant's account were `after`.
    fn rotates_with(&self, tenant: TenantId, after: &Account) -> Bytes {
        let before = self.accounts.get(&tenant);
        let (fixed, loan) = before.map_or((Bytes::ZERO, None), |account| {
            (account.fixed(), account.movable())
        });
        let largest = self.largest_loan(loan).max(after.movable());
        let fixed = self.fixed - fixed + after.fixed();
        largest.map_or(Bytes::ZERO, |loan| self.beside_loan(fixed, loan))
    }

    /// The bytes that the device lacks so that each tenant with a loan can come back, if this
    /// tenant's account becomes `after` instead of `before`. Zero where that takes no more.
    pub(crate) fn short_for_returns(
        &self,
        tenant: TenantId,
        before: &Account,
        after: &Account,
    ) -> Bytes {
        let room = self.rotates_with(tenant, after);
        match after.fixed() > before.fixed() && room > self.rotates_with(tenant, before) {
            true => room - self.usable(),
            false => Bytes::ZERO,
        }
    }

    /// The most of a tenant's grant that can be booked on the device, if all that can be moved for
    /// it were: all, where its memory is not managed.
    pub(crate) fn bookable(&self, tenant: TenantId) -> Bytes {
        let Some(account) = self.accounts.get(&tenant).filter(|one| one.loan.paged) else {
            return Bytes::MAX;
        };
        let others = self.fixed - account.fixed() + self.orphaned + self.unmanaged;
        let own = account.overhead.max(account.promise) + account.excess + account.limbo;
        self.usable() - others - own
    }

    /// The room that the sums give back if this tenant's account becomes `after`. A part that
    /// tenants need to come back counts as firm.
    pub(crate) fn given_by(&self, tenant: TenantId, after: &Account) -> Room {
        let Some(before) = self.accounts.get(&tenant) else {
            return Room::default();
        };
        let mut given = before.room() - after.room();
        if !self.loans.is_empty() {
            let room = self.rotates_in() - self.rotates_with(tenant, after);
            given.firm = given.firm.max(room);
        }
        given
    }

    /// The granted and unused memory of its accounts.
    pub(crate) fn unused(&self) -> Bytes {
        self.unused
    }

    /// The room that could still be booked.
    pub(crate) fn slack(&self) -> Room {
        Room::both(self.spec.usable()) - self.total()
    }

    /// How much more is taken than may be.
    pub(crate) fn deficit(&self) -> Bytes {
        self.total().taken - self.spec.usable()
    }

    /// How much more is promised than the device has: facts may do that, decisions do not.
    pub(crate) fn over_promised(&self) -> Bytes {
        self.total().firm - self.spec.usable()
    }

    /// Facts changed: takes over the deficit they made. Says whether the device became or ceased to
    /// be overdrawn.
    pub(crate) fn facts_changed(&mut self) -> Option<Bytes> {
        let (before, after) = (self.overdrawn, self.deficit());
        self.overdrawn = after;
        (before.is_zero() != after.is_zero()).then_some(after)
    }

    /// Reduces a deficit by the part that is gone. Returns whether the accounts fit again.
    pub(crate) fn mended(&mut self) -> bool {
        let before = self.overdrawn;
        self.overdrawn = before.min(self.deficit());
        !before.is_zero() && self.overdrawn.is_zero()
    }

    /// Moves bytes of a dead process out of its account.
    pub(crate) fn reap(&mut self, process: ProcessId, entry: Limbo) {
        let owner = self
            .limbo
            .entry(process)
            .and_modify(|held| held.add(entry))
            .or_insert(entry)
            .tenant;
        self.change_limbo(owner, (Bytes::ZERO, entry.bytes), |account| {
            account.limbo_charged += entry.charged;
        });
    }

    /// Limbo of a dead process that the device shows to persist; no timer ends it.
    pub(crate) fn exhume(&mut self, process: ProcessId, holds: Bytes) {
        let Some(entry) = self.limbo.get_mut(&process) else {
            return;
        };
        let old = *entry;
        entry.shows(holds);
        let now = *entry;
        if holds.is_zero() {
            self.limbo.remove(&process);
        }
        self.change_limbo(old.tenant, (old.bytes, now.bytes), |account| {
            account.limbo_charged = account.limbo_charged - old.charged + now.charged;
        });
    }

    /// Limbo changes from `before` to `after`: of a tenant, whose account may grow, or of tenants
    /// that have ended.
    fn change_limbo(
        &mut self,
        owner: Option<TenantId>,
        (before, after): (Bytes, Bytes),
        more: impl Fn(&mut Account),
    ) {
        let of_account = owner.and_then(|tenant| {
            self.change(tenant, |account| {
                account.limbo = account.limbo - before + after;
                more(account);
            })
        });
        if of_account.is_none() {
            self.orphaned = self.orphaned - before + after;
        }
    }

    /// Whether the device holds bytes that its accounts show as free, or will: a look may show them
    /// gone.
    pub(crate) fn may_return(&self) -> bool {
        !self.late.is_zero() || !self.limbo.is_empty()
    }

    /// Recomputes the accounts from their parts and compares: `Err` describes a difference.
    /// Includes I1.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sum = self
            .accounts
            .values()
            .fold(Room::default(), |sum, account| sum + account.room());
        if sum != self.sum {
            return Err(format!(
                "sums are {:?}, the accounts make {sum:?}",
                self.sum
            ));
        }
        let fixed: Bytes = self.accounts.values().map(Account::fixed).sum();
        let loans = self.accounts.values().filter_map(Account::movable).max();
        if (fixed, loans) != (self.fixed, self.largest_loan(None)) {
            let kept = (self.fixed, self.largest_loan(None));
            return Err(format!(
                "fixed and the largest loan are {kept:?}, the accounts make {:?}",
                (fixed, loans)
            ));
        }
        let unused: Bytes = self.accounts.values().map(Account::unused).sum();
        if unused != self.unused {
            return Err(format!(
                "unused are {:?}, the accounts make {unused:?}",
                self.unused
            ));
        }
        let limbo = self.in_limbo();
        let booked = self.orphaned + self.accounts.values().map(|account| account.limbo).sum();
        if limbo != booked {
            return Err(format!("limbo is {limbo:?}, booked are {booked:?}"));
        }
        let late: Bytes = self.accounts.values().map(|account| account.late).sum();
        if late != self.late {
            return Err(format!(
                "late are {:?}, the accounts make {late:?}",
                self.late
            ));
        }
        self.check_limbo_charged()?;
        if self.deficit() > self.overdrawn {
            return Err(format!(
                "I1: {:?} of {:?} taken, facts explain {:?}",
                self.total().taken,
                self.spec.usable(),
                self.overdrawn
            ));
        }
        self.accounts.iter().try_for_each(|(tenant, account)| {
            account
                .check()
                .map_err(|broken| format!("{tenant:?}: {broken}"))
        })
    }

    /// Each account's charged limbo is the sum over its dead processes.
    fn check_limbo_charged(&self) -> Result<(), String> {
        self.accounts.iter().try_for_each(|(tenant, account)| {
            let own = |entry: &&Limbo| entry.tenant == Some(*tenant);
            let dead = self.limbo.values().filter(own);
            let charged: Bytes = dead.map(|entry| entry.charged).sum();
            if charged == account.limbo_charged {
                Ok(())
            } else {
                let booked = account.limbo_charged;
                Err(format!(
                    "{tenant:?}: its dead were charged {charged:?}, booked are {booked:?}"
                ))
            }
        })
    }
}
