//! The rows of the page: taking one, and the sums over the processes of a tenant.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::{Line, MAX_DEVICES, MAX_SLOTS, NO_LIMIT, Page, Word};

use super::killpoint;
use super::membership::Membership;
use super::process::{self, Identity};

/// A process that died with bytes charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    /// Its row.
    pub(crate) slot: usize,
    /// Tells it from a later owner of the row.
    pub(crate) generation: u64,
    /// The identity of the process.
    pub(crate) identity: Identity,
    /// Where its pid means something.
    pub(crate) namespace: u64,
}

/// Writes a new owner into a slot whose lock byte this process holds. Under the tenant lock.
///
/// The former owner's charges are cleared first and the owner is written last, so that a crash in
/// between leaves a free slot.
pub(crate) fn occupy(page: &Page, index: usize, me: Identity, namespace: u64) {
    let slot = &page.slots[index];
    slot.taken.store(0, Ordering::Release);
    killpoint::hit();
    for line in (0..MAX_DEVICES).filter_map(|device_index| page.line(index, device_index)) {
        clear(line);
    }
    slot.pid.store(me.pid, Ordering::Relaxed);
    slot.start.store(me.start, Ordering::Relaxed);
    slot.pid_namespace.store(namespace, Ordering::Relaxed);
    let outer = u64::from(process::outer());
    slot.outer_pid.store(outer, Ordering::Relaxed);
    slot.largest_refused.store(0, Ordering::Relaxed);
    let generation = page.header.generation.fetch_add(1, Ordering::AcqRel) + 1;
    slot.generation.store(generation, Ordering::Relaxed);
    slot.taken.store(1, Ordering::Release);
    killpoint::hit();
}

/// The slots that are taken, by dead processes or live ones.
pub(super) fn taken(page: &Page) -> impl Iterator<Item = usize> {
    (0..MAX_SLOTS).filter(|slot| page.slots[*slot].taken.load(Ordering::Acquire) != 0)
}

/// Whether a slot's process is charged with memory on one device.
pub(super) fn is_charged(page: &Page, slot: usize, device_index: usize) -> bool {
    let line = page.line(slot, device_index);
    line.is_some_and(|line| line.word.load().charged > 0)
}

/// The process that has taken a slot.
pub(super) fn owner(page: &Page, index: usize) -> Dead {
    let slot = &page.slots[index];
    let (pid, start) = (
        slot.pid.load(Ordering::Relaxed),
        slot.start.load(Ordering::Relaxed),
    );
    Dead {
        slot: index,
        generation: slot.generation.load(Ordering::Relaxed),
        identity: Identity { pid, start },
        namespace: slot.pid_namespace.load(Ordering::Relaxed),
    }
}

/// Empties a line of a process that is gone. Under the tenant lock.
fn clear(line: &Line) {
    line.word.clear();
    killpoint::hit();
    for counter in [
        &line.overhead,
        &line.service,
        &line.refused,
        &line.busy,
        &line.submitted,
        &line.pending,
    ] {
        counter.store(0, Ordering::Relaxed);
    }
}

impl Membership {
    /// This process's line for a device.
    #[inline]
    pub(crate) fn line(&self, device_index: usize) -> Option<&'static Line> {
        self.row.get(device_index)
    }

    /// This process's word for a device has changed: invalidates the caches of other processes.
    #[inline]
    pub(crate) fn changed(&self, device_index: usize) {
        if let Some(device) = self.page.devices.get(device_index) {
            device.watch.changed(self.writer);
        }
    }

    /// Whether another process has a slot, dead or alive.
    pub(crate) fn has_others(&self) -> bool {
        self.others().next().is_some()
    }

    /// The slots that other processes have taken, dead or live.
    fn others(&self) -> impl Iterator<Item = usize> {
        taken(self.page).filter(|slot| *slot != self.slot)
    }

    /// The words of the other processes on one device.
    pub(crate) fn words(&self, device_index: usize) -> Vec<&'static Word> {
        self.others()
            .filter_map(|slot| self.page.line(slot, device_index))
            .map(|line| &line.word)
            .collect()
    }

    /// The tenant's ceiling on one device, or this process's own if that is lower. Bytes, or
    /// [`NO_LIMIT`].
    pub(crate) fn limit(&self, device_index: usize) -> u64 {
        let device = self.page.devices.get(device_index);
        let limit = device.map_or(0, |device| device.limit.load(Ordering::Relaxed));
        limit.min(self.own.get(device_index).map_or(NO_LIMIT, |own| own.limit))
    }

    /// Bytes guaranteed to the tenant on one device.
    pub(crate) fn request(&self, device_index: usize) -> u64 {
        let device = self.page.devices.get(device_index);
        device.map_or(0, |device| device.request.load(Ordering::Relaxed))
    }

    /// Units held on one device by all processes: their credit, and what bound ones have charged
    /// above it.
    pub(crate) fn credit(&self, device_index: usize) -> u64 {
        let own = self.line(device_index).map(|line| &line.word);
        let words = own.into_iter().chain(self.words(device_index));
        words.map(|word| u64::from(word.load().held())).sum()
    }

    /// Units charged on one device by all processes, dead ones included.
    pub(crate) fn charged(&self, device_index: usize) -> u64 {
        let own = self.line(device_index).map(|line| &line.word);
        own.into_iter()
            .chain(self.words(device_index))
            .map(|word| u64::from(word.load().charged))
            .sum()
    }

    /// The dead that still have bytes charged on one device. A system call for each slot with a
    /// charge.
    pub(crate) fn dead(&self, device_index: usize) -> Vec<Dead> {
        let charged = |slot: &usize| is_charged(self.page, *slot, device_index);
        let dead = |slot: &usize| !self.backend.is_alive(*slot);
        self.others()
            .filter(charged)
            .filter(dead)
            .map(|slot| self.owner(slot))
            .collect()
    }

    /// Pids of the processes that hold something on one device and live.
    pub(crate) fn living(&self, device_index: usize) -> Vec<u32> {
        let holds = |slot: &usize| is_charged(self.page, *slot, device_index);
        let others = self
            .others()
            .filter(holds)
            .filter(|slot| self.backend.is_alive(*slot));
        others
            .map(|slot| self.owner(slot).identity.pid)
            .chain([std::process::id()])
            .collect()
    }

    fn owner(&self, index: usize) -> Dead {
        owner(self.page, index)
    }

    /// Gives back a dead process's charges on one device. Under the tenant lock; no effect if the
    /// slot has a new owner.
    pub(crate) fn reap(&self, dead: &Dead, device_index: usize) {
        if self.owner(dead.slot) != *dead || self.backend.is_alive(dead.slot) {
            return;
        }
        if let Some(line) = self.page.line(dead.slot, device_index) {
            clear(line);
        }
        for device in &self.page.devices {
            device.watch.changed_by_another();
        }
        let holds = |device_index| is_charged(self.page, dead.slot, device_index);
        if !(0..MAX_DEVICES).any(holds) {
            for line in
                (0..MAX_DEVICES).filter_map(|device_index| self.page.line(dead.slot, device_index))
            {
                clear(line);
            }
            self.page.slots[dead.slot].taken.store(0, Ordering::Release);
            killpoint::hit();
        }
    }
}
