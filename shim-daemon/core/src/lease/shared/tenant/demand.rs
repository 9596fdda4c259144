//! Whether a tenant wants the device now, and whether it may have it.

use super::super::bond::Bond;
use super::super::rules::Rules;
use super::Tenant;
use crate::time::Nanos;

impl Tenant {
    /// Its membership of a gang that uses more than one place.
    pub(crate) fn bond(&self) -> Option<Bond> {
        self.own.bond.filter(|bond| !bond.joint.loose)
    }

    /// Whether it counts among those that share the device: a process of it has not said that it is
    /// idle.
    pub(crate) fn is_active(&self) -> bool {
        self.members.is_active()
    }

    /// Whether it is not known whether it uses the device, and that is asked: see
    /// [`Joint::asked`](super::super::bond::Joint::asked).
    pub(crate) fn is_asked(&self, now: Nanos) -> bool {
        let asked = self.own.bond.is_some_and(|bond| bond.joint.asked);
        asked && !self.own.habit.was_pending(Rules::ASKED, now)
    }

    /// Whether its gang is closed: no tenant is held for it, and it fills no gaps.
    pub(crate) fn is_barred(&self) -> bool {
        self.bond().is_some_and(|bond| bond.joint.shut)
    }

    /// Whether it may not run whatever others do: its cap is used up, or its gang is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.account.is_throttled() || self.is_barred()
    }

    /// Whether others yield or are held for it where it is behind; `classes`: some rank below it.
    /// Held for a gang on one device, they would give their time to kernels that wait for peers on
    /// another. So without a guarantee a gang has what the driver gives it beside its equals.
    pub(crate) fn is_helped(&self, classes: bool) -> bool {
        let asks = classes || self.bond().is_none() || self.account.has_promise();
        asks && !self.is_barred()
    }

    /// Whether it asks for the device, or did a moment ago.
    pub(crate) fn is_pending(&self, now: Nanos) -> bool {
        self.members.waits() || self.own.habit.was_pending(Rules::LATELY, now)
    }

    /// Whether it asked for the device not long ago.
    pub(crate) fn is_recent(&self, now: Nanos) -> bool {
        self.own.habit.was_pending(Rules::RECENT, now)
    }

    /// Whether it may be back any moment, because it asked for the device not long ago. One that
    /// starts, and has launched nothing yet, is not yielded to; nor is one that was stopped between
    /// two launches, which says nothing of its idleness.
    pub(crate) fn is_expected(&self, now: Nanos) -> bool {
        let since = self.own.began.max(self.own.since);
        self.members.waits() || self.own.habit.is_expected(since, now)
    }

    /// Whether its work may run on the device now, or did a moment ago.
    pub(crate) fn may_run(&self, now: Nanos) -> bool {
        !self.is_kept() && self.is_pending(now)
    }

    /// Whether its gate is closed, and all that it has submitted is complete.
    fn is_kept(&self) -> bool {
        self.is_shut() && self.members.is_drained()
    }
}
