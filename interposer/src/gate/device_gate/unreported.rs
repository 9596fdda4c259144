//! Admitted launches that never report, because their calls were left by a jump: at an open gate,
//! which may stay open for long. A gate that closes drops them by itself.

use super::{DeviceGate, GateState, Inner, Quiet};
use crate::guest::clock;

/// How often it is looked for them at most (ns).
const LOOK: u64 = 100_000_000;

/// The admissions so far, and when it was last looked for such that never report.
#[derive(Debug, Default)]
pub(super) struct Unreported {
    pub(super) admitted: u64,
    looked: u64,
}

impl DeviceGate {
    /// Drops admissions whose calls are gone. Those that were seen before are no more if no call
    /// was inside afterwards, and none was admitted since.
    pub(super) fn drop_unreported(&self) {
        let now = clock::now();
        let admitted = {
            let mut inner = self.lock();
            let due = now.saturating_sub(inner.unreported.looked) >= LOOK;
            if !due || !inner.awaits_reports() {
                return;
            }
            inner.unreported.looked = now;
            inner.unreported.admitted
        };
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
}

impl Inner {
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
