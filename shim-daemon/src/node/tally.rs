//! A tenant's use and refusals over its life, for the event at its end and for `refused`.
//!
//! Pure: it is given counters, answers and the time. The counters are reports of the tenant's own
//! processes, so no decision depends on them.

mod totals;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gpushare_core::{AskKey, Denial, Nanos, ProcessId};
use gpushare_protocol::units::Bytes;

use super::refusals::{Denied, Refusals};
pub use totals::Totals;

/// The shortest time between two `refused` events of a tenant on a device.
const APART: Nanos = Nanos::secs(10);

/// The most refusals that one read of a process's counter adds. A program that does nothing else is
/// refused about so often between two reads; a counter that shows more is forged, and the count of
/// the device, which is that of all its tenants, is not to be filled by it.
const AT_ONCE: u64 = 1 << 20;

/// A process's counters on a device, as its page has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Allocations refused.
    pub(super) refused: u64,
    /// Nanoseconds of device time that its completed work takes, where that was counted.
    pub(super) service: u64,
    /// The largest of the allocations refused since the last read.
    pub(super) largest: Option<Largest>,
}

/// An allocation that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Largest {
    /// What it would have been charged, by its process's own word.
    pub(super) bytes: Bytes,
    /// The process, as the machine numbers it.
    pub(super) pid: u32,
}

/// A tenant on a device.
#[derive(Debug, Default)]
pub(super) struct DeviceTally {
    /// The most that was charged at a time, as far as it was seen: at every look, once a second,
    /// and at every ask.
    peak: Bytes,
    /// All refusals.
    refusals: Refusals,
    /// Nanoseconds of device time, where they were counted.
    service: u64,
    /// Nanoseconds in which NVML saw its kernels run.
    busy: u64,
    /// Those of them in which it was alone on the device.
    alone: u64,
    /// What it was billed when its kernels were last seen to run.
    billed: u64,
    /// Those that no event has told yet.
    untold: Refusals,
    /// The largest of them.
    largest: Option<Largest>,
    /// The most that was charged at the reads that showed them, and in the second before each.
    held: Bytes,
    /// The most that was charged at reads since the last second began, and in the one before.
    seen: (Bytes, Bytes),
    told: Option<Nanos>,
    /// The answers to each process that may explain refusals that its counters show next.
    denied: BTreeMap<ProcessId, Denied>,
}

/// An ask that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    device_index: usize,
    /// The bytes that its tenant would be charged.
    wanted: Bytes,
    /// Whether the driver had refused.
    driver: bool,
    /// Since when it waits.
    waits: Option<Nanos>,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tally {
    /// What earlier daemons counted.
    before: Totals,
    /// When it is time to store all of it.
    due: Nanos,
    devices: Vec<DeviceTally>,
    /// When the tenant was registered.
    since: Nanos,
    /// How long it waited for its admission.
    queued: Nanos,
    /// How long its allocations waited, all together.
    waited: Nanos,
    /// The exit status of the last command that kept it.
    status: Option<u8>,
    /// It was signalled to end.
    ended: bool,
    lines: BTreeMap<(ProcessId, usize), Counters>,
    asks: BTreeMap<AskKey, Open>,
}

impl Tally {
    pub(super) fn new(devices: usize, now: Nanos) -> Self {
        Self {
            before: Totals::default(),
            due: now + totals::EACH,
            devices: (0..devices).map(|_| DeviceTally::default()).collect(),
            since: now,
            queued: Nanos::ZERO,
            waited: Nanos::ZERO,
            status: None,
            ended: false,
            lines: BTreeMap::new(),
            asks: BTreeMap::new(),
        }
    }

    /// A process's counters, after what its tenant is [charged](Self::charged) then. The first ones
    /// are where its own begin: it may have a row that another process had.
    pub(super) fn read(&mut self, process: ProcessId, device_index: usize, now: Counters) {
        let Some(before) = self.lines.insert((process, device_index), now) else {
            return;
        };
        let Some(known) = self.devices.get_mut(device_index) else {
            return;
        };
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        known.service = known
            .service
            .saturating_add(more(now.service, before.service));
        let refused = more(now.refused, before.refused).min(AT_ONCE);
        known.refused(process, refused);
        known.largest = known.largest.max(now.largest);
        if refused > 0 {
            let (now, before) = known.seen;
            known.held = known.held.max(now).max(before);
        }
    }

    /// Once a second, after the counters of all its processes were read.
    pub(super) fn second(&mut self) {
        for device in &mut self.devices {
            device.seen = (Bytes::ZERO, device.seen.0);
            device.denied.retain(|_, denied| {
                denied.age();
                !denied.is_empty()
            });
        }
    }

    /// A process has ended; its counters were read.
    pub(super) fn left(&mut self, process: ProcessId) {
        self.lines.retain(|(known, _), _| *known != process);
        self.asks.retain(|(known, _), _| *known != process);
        for device in &mut self.devices {
            device.denied.remove(&process);
        }
    }

    /// NVML saw its kernels run so many nanoseconds more.
    pub(super) fn ran(&mut self, device_index: usize, nanos: u64) {
        if let Some(known) = self.devices.get_mut(device_index) {
            known.busy = known.busy.saturating_add(nanos);
        }
    }

    /// So many nanoseconds of all its processes came with a look, until which it was `billed` so
    /// many on the device, over all of its processes, also those that have ended. Where that has
    /// not grown since the look before, it had them alone. The state at the moment of the look
    /// would not tell: a server without a request counts as idle after 20 ms.
    pub(super) fn ran_until(&mut self, device_index: usize, nanos: u64, billed: u64) {
        let Some(known) = self.devices.get_mut(device_index) else {
            return;
        };
        if billed == known.billed {
            known.alone = known.alone.saturating_add(nanos);
        }
        known.billed = billed;
    }

    /// So much is charged.
    pub(super) fn charged(&mut self, device_index: usize, bytes: Bytes) {
        if let Some(known) = self.devices.get_mut(device_index) {
            known.peak = known.peak.max(bytes);
            known.seen.0 = known.seen.0.max(bytes);
        }
    }

    /// An ask has come; `wanted` is what would be charged.
    pub(super) fn asks(&mut self, ask: AskKey, device_index: usize, wanted: Bytes, driver: bool) {
        let open = Open {
            device_index,
            wanted,
            driver,
            waits: None,
        };
        self.asks.insert(ask, open);
    }

    /// It waits; this may be said again of the same wait. Returns how long it has waited, if it was
    /// said before.
    pub(super) fn waits(&mut self, ask: AskKey, now: Nanos) -> Option<Nanos> {
        let open = self.asks.get_mut(&ask)?;
        let before = open.waits.map(|since| now - since);
        open.waits.get_or_insert(now);
        if let Some(device) = self.devices.get_mut(open.device_index) {
            // It was denied at once only to wait.
            if let Some(denied) = device.denied.get_mut(&ask.0) {
                denied.at_once_is_over();
            }
        }
        before
    }

    /// It is over: how long it had waited, if it had.
    pub(super) fn settled(
        &mut self,
        ask: AskKey,
        now: Nanos,
        denied: Option<Denial>,
    ) -> Option<(usize, Nanos)> {
        let open = self.asks.remove(&ask)?;
        let waited = open.waits.map(|since| now - since);
        self.waited = self.waited + waited.unwrap_or(Nanos::ZERO);
        let device = self.devices.get_mut(open.device_index)?;
        match denied {
            None => device.peak = device.peak.max(open.wanted),
            Some(denial) => {
                let answers = device.denied.entry(ask.0).or_default();
                answers.add(&denial, open.driver, waited.is_some());
            }
        }
        waited.map(|waited| (open.device_index, waited))
    }

    /// Its asker has given up.
    pub(super) fn given_up(&mut self, ask: AskKey, now: Nanos) {
        if let Some(since) = self.asks.remove(&ask).and_then(|open| open.waits) {
            self.waited = self.waited + (now - since);
        }
    }

    /// Refusals on a device to be told now: some have not been, and the last telling was long
    /// enough ago. At the tenant's `end` all that is left is told.
    pub(super) fn take_untold(
        &mut self,
        device_index: usize,
        now: Nanos,
        end: bool,
    ) -> Option<Refusals> {
        let known = self.devices.get_mut(device_index)?;
        let due = known.told.is_none_or(|told| now - told >= APART) || end;
        if known.untold.sum() == 0 || !due {
            return None;
        }
        known.told = Some(now);
        Some(std::mem::take(&mut known.untold))
    }

    /// The largest of the refused allocations that are told now, and the most that was charged when
    /// they were refused, as far as it was seen: it was read up to two seconds before. What was
    /// allocated and freed between two reads is not in it.
    pub(super) fn take_sizes(&mut self, device_index: usize) -> (Option<Largest>, Bytes) {
        self.devices.get_mut(device_index).map_or_else(
            || (None, Bytes::ZERO),
            |known| (known.largest.take(), std::mem::take(&mut known.held)),
        )
    }

    /// It is admitted now. Returns how long it waited for that.
    pub(super) fn admitted(&mut self, now: Nanos) -> Nanos {
        self.queued = now - self.since;
        self.queued
    }

    /// How long it waited for its admission.
    pub(super) fn queued(&self) -> Nanos {
        self.queued
    }

    /// How long its allocations waited, all together.
    pub(super) fn waited(&self) -> Nanos {
        self.waited
    }

    /// It is signalled to end. Returns whether for the first time since it [lives
    /// on](Self::lives_on).
    pub(super) fn is_ended(&mut self) -> bool {
        !std::mem::replace(&mut self.ended, true)
    }

    /// It is not ended: it is spared, or its first process has come, as after an end that the
    /// tenant outlived. The next signal is another end.
    pub(super) fn lives_on(&mut self) {
        self.ended = false;
    }

    /// The last command that kept it has ended with this exit status.
    pub(super) fn exited(&mut self, status: u8) {
        self.status = Some(status);
    }

    /// The exit status of the last command that kept it.
    pub(super) fn status(&self) -> Option<u8> {
        self.status
    }

    /// Its counts on one device.
    pub(super) fn device(&self, device_index: usize) -> Option<&DeviceTally> {
        self.devices.get(device_index)
    }

    /// The most that was charged at a time on one device.
    pub(super) fn peak(&self) -> Bytes {
        let all = self.devices.iter().map(|device| device.peak);
        all.max().unwrap_or(Bytes::ZERO)
    }

    /// Nanoseconds of device time on all devices, where they were counted.
    pub(super) fn service(&self) -> u64 {
        sum(self.devices.iter().map(|device| device.service))
    }

    /// Nanoseconds in which NVML saw its kernels run, on all devices together.
    pub(super) fn busy(&self) -> u64 {
        sum(self.devices.iter().map(|device| device.busy))
    }

    /// All refusals on all devices.
    pub(super) fn refused(&self) -> u64 {
        let all = self.devices.iter();
        sum(all.map(|device| device.refusals.sum()))
    }
}

impl DeviceTally {
    /// The most that was charged at a time, as far as it was seen.
    pub(super) fn peak(&self) -> Bytes {
        self.peak
    }

    /// Nanoseconds in which NVML saw its kernels run.
    pub(super) fn busy(&self) -> u64 {
        self.busy
    }

    /// Nanoseconds of these while it was alone on the device.
    pub(super) fn alone(&self) -> u64 {
        self.alone
    }

    /// All refusals.
    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// So many more allocations of a process were refused. Each is explained by an answer of the
    /// daemon's to it, or it was over the limit: of that a process knows by itself.
    fn refused(&mut self, process: ProcessId, count: u64) {
        let mut now = Refusals::default();
        if let Entry::Occupied(mut denied) = self.denied.entry(process) {
            now = denied.get_mut().explain(count);
            if denied.get().is_empty() {
                denied.remove();
            }
        }
        now.over_limit += count - now.sum();
        self.refusals.add(now);
        self.untold.add(now);
    }
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
