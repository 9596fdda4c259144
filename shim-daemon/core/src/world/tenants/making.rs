//! What is set aside for contexts that a process makes beside those it has, or has had.
//!
//! Such a reservation is not replaced by a look while the call that makes the context has not
//! returned: the look may show half of the context. A look after the return shows all of it, or
//! that there is none. What such a call never reports lapses ([`Policy::open_grace`]).
//!
//! [`Policy::open_grace`]: crate::Policy::open_grace

use crate::ids::AskId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// One context that is being made, or was and is not measured yet.
#[derive(Clone, Copy, Debug)]
struct One {
    ask: AskId,
    cost: Bytes,
    /// When it was set aside for.
    since: Nanos,
    /// Since when the call could have returned.
    due: Nanos,
    /// When the call returned.
    done: Option<Nanos>,
}

/// See the module's page.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Making {
    all: Vec<One>,
    /// Whether there ever was one.
    ever: bool,
}

impl One {
    /// Whether a look that was taken then shows all of it.
    fn is_shown(&self, taken: Nanos) -> bool {
        self.done.is_some_and(|done| done <= taken)
    }
}

impl Making {
    /// What is set aside for all of them.
    pub(in crate::world) fn bytes(&self) -> Bytes {
        self.all.iter().map(|one| one.cost).sum()
    }

    pub(in crate::world) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the process ever made one.
    pub(in crate::world) fn ever(&self) -> bool {
        self.ever
    }

    /// Whether this ask has its reservation.
    pub(in crate::world) fn has(&self, ask: AskId) -> bool {
        self.all.iter().any(|one| one.ask == ask)
    }

    /// Those whose calls have not returned.
    fn under_way(&self) -> impl Iterator<Item = &One> {
        self.all.iter().filter(|one| one.done.is_none())
    }

    /// How many those are.
    pub(in crate::world) fn count(&self) -> usize {
        self.under_way().count()
    }

    /// What is set aside for the dearest of them.
    pub(in crate::world) fn awaited(&self) -> Bytes {
        let costs = self.under_way().map(|one| one.cost);
        costs.max().unwrap_or_default()
    }

    /// Memory is set aside for one more.
    pub(in crate::world) fn begin(&mut self, ask: AskId, cost: Bytes, now: Nanos) {
        self.ever = true;
        self.all.push(One {
            ask,
            cost,
            since: now,
            due: now,
            done: None,
        });
    }

    /// The call has returned. False: that was known, or nothing is set aside for it.
    pub(in crate::world) fn done(&mut self, ask: AskId, now: Nanos) -> bool {
        let mut open = self.all.iter_mut().filter(|one| one.done.is_none());
        let one = open.find(|one| one.ask == ask);
        one.map(|one| one.done = Some(now)).is_some()
    }

    /// They cannot be there yet: the grace begins anew.
    pub(in crate::world) fn is_expected(&mut self, now: Nanos) {
        let open = self.all.iter_mut().filter(|one| one.done.is_none());
        open.for_each(|one| one.due = now);
    }

    /// Whether one was set aside for after `then`: it may be measured any moment.
    pub(super) fn is_fresh(&self, then: impl Fn(Nanos) -> bool) -> bool {
        self.all.iter().any(|one| then(one.since))
    }

    /// A context costs this: higher estimates are lowered to it. Returns the difference.
    pub(super) fn correct(&mut self, cost: Bytes) -> Bytes {
        let less = |one: &mut One| {
            let less = one.cost - cost;
            one.cost -= less;
            less
        };
        self.all.iter_mut().map(less).sum()
    }

    /// A look that was taken then shows the process with `shown` beyond its charges, of which
    /// `known` were booked. Returns what is to be booked beside the reservations that stay. As much
    /// of it as those may have taken already is counted once.
    pub(super) fn measure(&mut self, known: Bytes, shown: Bytes, taken: Nanos) -> Bytes {
        let complete = self.bytes();
        self.drop_shown(taken);
        let complete = complete - self.bytes();
        (known + complete).clamp(shown - self.bytes(), shown)
    }

    /// A look that was taken then shows what those took whose calls had returned: it is booked
    /// otherwise. Returns what was set aside for them.
    pub(in crate::world) fn drop_shown(&mut self, taken: Nanos) -> Bytes {
        let before = self.bytes();
        self.all.retain(|one| !one.is_shown(taken));
        before - self.bytes()
    }

    /// Gives up those that were due longer than the grace before a look. Returns what that gives
    /// back of the calls that never returned, and of those that did.
    pub(super) fn lapse(&mut self, taken: Nanos, grace: Nanos) -> (Bytes, Bytes) {
        let is_late = |one: &One| one.due + grace <= taken;
        let late = self.all.iter().filter(|one| is_late(one));
        let (done, open): (Vec<&One>, Vec<&One>) = late.partition(|one| one.done.is_some());
        let cost = |all: Vec<&One>| all.iter().map(|one| one.cost).sum();
        let both = (cost(open), cost(done));
        self.all.retain(|one| !is_late(one));
        both
    }

    /// Gives all up. Returns what that gives back.
    pub(super) fn give_up(&mut self) -> Bytes {
        let bytes = self.bytes();
        self.all.clear();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Bytes = Bytes(64);

    fn making(asks: &[u64]) -> Making {
        let mut making = Making::default();
        for ask in asks {
            making.begin(AskId(*ask), COST, Nanos(10));
        }
        making
    }

    #[test]
    fn a_half_made_context_is_counted_once() {
        let mut one = making(&[1]);
        for shown in [64, 80, 100, 128] {
            let booked = one.measure(Bytes(64), Bytes(shown), Nanos(20));
            assert_eq!(booked + one.bytes(), Bytes(128), "{shown} are shown");
        }
    }

    #[test]
    fn other_memory_that_comes_meanwhile_is_booked_too() {
        let mut one = making(&[1]);
        let booked = one.measure(Bytes(64), Bytes(200), Nanos(20));
        assert_eq!(booked + one.bytes(), Bytes(200));
    }

    #[test]
    fn memory_that_went_meanwhile_is_given_back() {
        let mut one = making(&[1]);
        let booked = one.measure(Bytes(64), Bytes(30), Nanos(20));
        assert_eq!(booked, Bytes(30));
    }

    #[test]
    fn a_look_after_the_return_replaces_what_is_set_aside_one_before_not() {
        let mut two = making(&[1, 2]);
        assert!(two.done(AskId(1), Nanos(30)));
        assert_eq!(two.measure(COST, Bytes(128), Nanos(29)), COST);
        assert_eq!(two.bytes(), Bytes(128), "the look was before it");
        assert_eq!(two.measure(COST, Bytes(128), Nanos(30)), Bytes(128));
        assert_eq!(two.bytes(), COST, "the other one is being made");
        assert!(!two.done(AskId(1), Nanos(31)), "it is no longer known");
    }

    #[test]
    fn what_lapses_is_told_by_whether_the_call_returned() {
        let mut two = making(&[1, 2]);
        assert!(two.done(AskId(1), Nanos(30)));
        assert_eq!(two.lapse(Nanos(19), Nanos(10)), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!(two.lapse(Nanos(20), Nanos(10)), (COST, COST));
        assert!(two.is_empty());
    }
}
