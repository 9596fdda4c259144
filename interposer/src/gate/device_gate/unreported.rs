//! Admitted launches that never report, because their calls were left by a jump: at an open gate,
//! which may stay open for long. A gate that closes drops them by itself.

use super::{DeviceGate, GateState, Inner, Ledger, Quiet, all};
use crate::gate::word::Record;
use crate::guest::clock;

/// How often it is looked for them at most (ns).
const LOOK: u64 = 100_000_000;

/// The admissions so far, and when it was last looked for such that never report.
#[derive(Debug, Default)]
pub(super) struct Unreported {
    pub(super) admitted: u64,
    pub(super) looked: u64,
}

/// A ledger, and the number of the launch in progress there.
type InProgress = (&'static Ledger, u64);

/// The thread of `record` has died. A launch that it was inside of may have been submitted and is
/// not recorded. Called before the record steps out: until then no close of the device comes to an
/// end, so that each puts a mark behind that launch.
pub(in crate::gate) fn has_died(record: &Record) {
    let gates = all().iter();
    gates
        .filter(|gate| record.may_submit_to(gate.index))
        .for_each(DeviceGate::was_left);
}

impl DeviceGate {
    /// Drops admissions whose calls are gone. Those that were seen before are no more if no call
    /// was inside afterwards, and none was admitted since.
    pub(super) fn drop_unreported(&self) {
        let now = clock::now();
        let (in_progress, awaits_reports, admitted) = {
            let mut inner = self.lock();
            let due = now.saturating_sub(inner.unreported.looked) >= LOOK;
            if !due || inner.window.awaited() == 0 && inner.loading == 0 {
                return;
            }
            inner.unreported.looked = now;
            let unreported = inner.unreported.admitted;
            (inner.in_progress(), inner.awaits_reports(), unreported)
        };
        self.drop_left(&in_progress);
        if !awaits_reports {
            return;
        }
        // The calls that are known to be left are asked for anew: at an open gate others begin.
        let inside = crate::gate::quiet(self.index, &mut Vec::new());
        let mut inner = self.lock();
        let is_same = inner.unreported.admitted == admitted;
        if inside == Quiet::No || !is_same || inner.follower.stand() != GateState::Open {
            return;
        }
        inner.none_reports();
        if inside == Quiet::Left {
            // Their threads have not said so: what they may have submitted is not known.
            inner.unseen = Some(0);
        }
    }

    /// Drops launches without the lock that were in progress before, and whose threads have died or
    /// left them by a jump: those that are still shown in progress after that was seen. What was
    /// submitted is not known.
    fn drop_left(&self, in_progress: &[InProgress]) {
        let left = |(ledger, _): &&InProgress| crate::gate::has_left(self.index, ledger);
        let left: Vec<&InProgress> = in_progress.iter().filter(left).collect();
        if left.is_empty() {
            return;
        }
        let mut inner = self.lock();
        let still = inner.in_progress();
        for (ledger, number) in left {
            let is_it = |(other, now): &InProgress| core::ptr::eq(*other, *ledger) && now == number;
            if still.iter().any(is_it) {
                ledger.abandon();
                inner.unseen = Some(0);
            }
        }
        inner.gather();
        self.settle(&mut inner, clock::now());
    }
}

impl Inner {
    /// The launches without the lock that are in progress.
    fn in_progress(&self) -> Vec<InProgress> {
        let ledgers = self.ledgers.iter();
        ledgers
            .filter_map(|ledger| Some((*ledger, ledger.in_progress()?)))
            .collect()
    }

    /// Whether a launch is between its admission and its report, but for those without the lock.
    fn awaits_reports(&self) -> bool {
        self.window.awaited() > self.launching.0 || self.loading > 0
    }

    /// No admission has a later report, but of launches without the lock.
    fn none_reports(&mut self) {
        let (count, ns) = self.launching;
        self.window.nobody_inside();
        self.window.set_aside(count, ns);
        self.loading = 0;
    }
}

#[cfg(test)]
mod tests;
