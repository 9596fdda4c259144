//! The books of one device.
//!
//! Two sums are kept. *Taken* is what is or may be used now: grants, overhead, excess, limbo, unmanaged. It must not pass
//! the usable memory (I1). *Firm* is what may not be taken back: requests instead of the grants below them, grants
//! only as far as they cannot be taken back. As long as it fits too, a container within its request can always be
//! served by taking back what others only borrowed.

mod account;
mod looks;

pub(crate) use account::{Account, Lowering};
pub(crate) use looks::Looks;

use crate::ids::{AskKey, ContainerId, ProcessId};
use crate::limbo::Limbo;
use crate::room::Room;
use crate::spec::DeviceSpec;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// One device: its accounts and what else is on it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) spec: DeviceSpec,
    accounts: BTreeMap<ContainerId, Account>,
    /// The sum over all accounts, kept as they change.
    sum: Room,
    /// What all accounts were granted and do not use, kept as they change.
    unused: Bytes,
    pub(crate) limbo: BTreeMap<ProcessId, Limbo>,
    /// What accounts freed that the device still showed in use, kept as they change.
    late: Bytes,
    /// When the device is looked at again for somebody who waits.
    pub(crate) looks: Looks,
    /// Limbo of containers that are gone.
    orphaned: Bytes,
    /// Memory of processes that are none of ours.
    pub(crate) unmanaged: Bytes,
    /// How far facts have pushed *taken* above the usable memory. Decisions never raise it.
    overdrawn: Bytes,
    /// When the last sample was taken, and what the driver could still give.
    pub(crate) sampled: Option<(Nanos, Bytes)>,
    /// When a reclaim last found that the device still shows as used what its container has freed.
    pub(crate) lagged: Option<Nanos>,
    /// Asks that are not answered yet.
    pub(crate) waiting: BTreeSet<AskKey>,
}

impl Device {
    pub(crate) fn new(spec: DeviceSpec) -> Self {
        Self {
            spec,
            accounts: BTreeMap::new(),
            sum: Room::default(),
            unused: Bytes::ZERO,
            late: Bytes::ZERO,
            looks: Looks::default(),
            limbo: BTreeMap::new(),
            orphaned: Bytes::ZERO,
            unmanaged: Bytes::ZERO,
            overdrawn: Bytes::ZERO,
            sampled: None,
            lagged: None,
            waiting: BTreeSet::new(),
        }
    }

    pub(crate) fn account(&self, container: ContainerId) -> Option<&Account> {
        self.accounts.get(&container)
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = (ContainerId, &Account)> {
        self.accounts
            .iter()
            .map(|(container, account)| (*container, account))
    }

    /// The one way to change an account: the sums follow.
    pub(crate) fn change<R>(
        &mut self,
        container: ContainerId,
        change: impl FnOnce(&mut Account) -> R,
    ) -> Option<R> {
        let account = self.accounts.get_mut(&container)?;
        let (before, unused, late) = (account.room(), account.unused(), account.late);
        let result = change(account);
        self.late = self.late - late + account.late;
        self.sum = self.sum - before + account.room();
        self.unused = self.unused - unused + account.unused();
        Some(result)
    }

    pub(crate) fn open(&mut self, container: ContainerId, account: Account) {
        self.sum += account.room();
        self.unused += account.unused();
        let old = self.accounts.insert(container, account);
        debug_assert!(old.is_none(), "containers are admitted once");
    }

    /// Closes an account whose grant and overhead were given up; its limbo stays on the device.
    pub(crate) fn close(&mut self, container: ContainerId) {
        if let Some(account) = self.accounts.remove(&container) {
            self.sum = self.sum - account.room();
            self.unused -= account.unused();
            self.late -= account.late;
            self.orphaned += account.limbo;
            for entry in self
                .limbo
                .values_mut()
                .filter(|entry| entry.container == Some(container))
            {
                entry.container = None;
            }
        }
    }

    /// Both sums, over all that is on the device.
    pub(crate) fn total(&self) -> Room {
        self.sum + Room::both(self.orphaned + self.unmanaged)
    }

    /// What its accounts were granted and do not use.
    pub(crate) fn unused(&self) -> Bytes {
        self.unused
    }

    /// What could still be booked.
    pub(crate) fn slack(&self) -> Room {
        Room::both(self.spec.usable()) - self.total()
    }

    /// How much more is taken than may be.
    pub(crate) fn deficit(&self) -> Bytes {
        self.total().taken - self.spec.usable()
    }

    /// Facts changed: takes over the deficit they made. Says whether the device became or ceased to be overdrawn.
    pub(crate) fn facts_changed(&mut self) -> Option<Bytes> {
        let (before, after) = (self.overdrawn, self.deficit());
        self.overdrawn = after;
        (before.is_zero() != after.is_zero()).then_some(after)
    }

    /// Forgets a deficit as far as it is gone. Says whether the books hold again.
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
            .container;
        self.change_limbo(owner, (Bytes::ZERO, entry.bytes), |account| {
            account.limbo_charged += entry.charged;
        });
    }

    /// The device shows what it still holds of a dead process; nothing ends its limbo.
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
        self.change_limbo(old.container, (old.bytes, now.bytes), |account| {
            account.limbo_charged = account.limbo_charged - old.charged + now.charged;
        });
    }

    /// What was `before` in limbo is now `after`: of a container, whose account may change by more, or of those that are gone.
    fn change_limbo(
        &mut self,
        owner: Option<ContainerId>,
        (before, after): (Bytes, Bytes),
        more: impl Fn(&mut Account),
    ) {
        let of_account = owner.and_then(|container| {
            self.change(container, |account| {
                account.limbo = account.limbo - before + after;
                more(account);
            })
        });
        if of_account.is_none() {
            self.orphaned = self.orphaned - before + after;
        }
    }

    /// Whether bytes are on the device that its books say are free or will be: a look may show them gone.
    pub(crate) fn may_return(&self) -> bool {
        !self.late.is_zero() || !self.limbo.is_empty()
    }

    /// Recomputes the books from their parts and compares: `Err` says what is wrong. I1 is part of it.
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
        let unused: Bytes = self.accounts.values().map(Account::unused).sum();
        if unused != self.unused {
            return Err(format!(
                "unused are {:?}, the accounts make {unused:?}",
                self.unused
            ));
        }
        let limbo: Bytes = self.limbo.values().map(|entry| entry.bytes).sum();
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
        self.accounts.iter().try_for_each(|(container, account)| {
            account
                .check()
                .map_err(|broken| format!("{container:?}: {broken}"))
        })
    }

    /// What each account has of charged limbo is what its dead make.
    fn check_limbo_charged(&self) -> Result<(), String> {
        self.accounts.iter().try_for_each(|(container, account)| {
            let own = |entry: &&Limbo| entry.container == Some(*container);
            let dead = self.limbo.values().filter(own);
            let charged: Bytes = dead.map(|entry| entry.charged).sum();
            if charged == account.limbo_charged {
                Ok(())
            } else {
                let booked = account.limbo_charged;
                Err(format!(
                    "{container:?}: its dead were charged {charged:?}, booked are {booked:?}"
                ))
            }
        })
    }
}
