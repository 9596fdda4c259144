//! Processes that complete nothing, and which of them are stuck.

use super::rules::Rules;
use crate::ids::ProcessId;
use crate::lease::arithmetic::{scaled, signed};
use crate::time::Nanos;
use std::collections::BTreeMap;

/// A process with work pending all the time, since it last completed something. It is stuck if its
/// work does not run, because it was stopped or waits for something other than the device. Then it
/// counts as asking for nothing, and others get the device's whole time, its own part included.
#[derive(Clone, Copy, Debug, Default)]
struct Still {
    /// How long it completes nothing at its open gate; and beside others.
    silent: Nanos,
    watched: Nanos,
    /// The part of that time that changes of contexts left, if it has not had the device, less the
    /// service of others and half of its own even part: if that is negative it cannot have had the
    /// half.
    spare: i64,
    /// The most contexts that were pending then, its own among them, in thousandths.
    crowd: u64,
    is_stuck: bool,
}

/// The processes of one tenant that complete nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct StillOnes(BTreeMap<ProcessId, Still>);

/// The facts of a span about processes that complete nothing in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// How long it was.
    pub(super) span: Nanos,
    /// The contexts that were pending in it, those processes' own among them, in thousandths.
    pub(super) contexts: u64,
    /// The service of all others in it (ns).
    pub(super) others: u64,
    /// The part that changes of contexts left of it, if these processes have not had the device, in
    /// thousandths.
    pub(super) left: u64,
}

impl StillOnes {
    /// Forgets processes that are not `there` any more, or not looked at.
    pub(super) fn keep(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.0.retain(|process, _| there(*process));
    }

    /// A process has been pending for so many thousandths of a span, and completed something in it
    /// or not. Whether it is stuck.
    pub(super) fn note(&mut self, process: ProcessId, pending: u64, completed: bool) -> bool {
        if completed || pending < Rules::ALWAYS {
            self.0.remove(&process);
            return false;
        }
        self.0.entry(process).or_default().is_stuck
    }

    /// Whether one of them may yet complete an operation that began before: it is not stuck, and it
    /// is not silent for so long that it is taken for stopped.
    pub(super) fn may_complete(&self) -> bool {
        let mut others = self.0.values().filter(|one| !one.is_stuck);
        others.any(|one| one.silent < Rules::SILENT)
    }

    /// Those of them that are not stuck have an open gate: whether the service of others excludes
    /// that each of them had half of its even part. Others of them may have had the device as well
    /// as this one, so their contexts do not count. Before each of the others has had a slice its
    /// turn may not have come.
    pub(super) fn watch(&mut self, rules: &Rules, watch: Watch) {
        let many = self.0.values().filter(|one| !one.is_stuck).count() as u64;
        let beside = watch.contexts.saturating_sub(many.saturating_sub(1) * 1000);
        for still in self.0.values_mut().filter(|one| !one.is_stuck) {
            still.watch(rules, (watch.span, beside), watch.others, watch.left);
        }
    }

    /// Their tenant yields, and its processes submit one after another: what they complete says
    /// nothing.
    pub(super) fn rest(&mut self) {
        for still in self.0.values_mut().filter(|one| !one.is_stuck) {
            *still = Still::default();
        }
    }
}

impl Still {
    fn watch(&mut self, rules: &Rules, (span, beside): (Nanos, u64), others: u64, left: u64) {
        self.silent = self.silent + span;
        self.crowd = self.crowd.max(beside);
        if beside < Rules::CROWDED {
            return;
        }
        let left = scaled(span.0, left, 1000);
        let half = scaled(left, 500, beside);
        self.watched = self.watched + span;
        self.spare += signed(Nanos(left)) - signed(Nanos(half)) - signed(Nanos(others));
        let long = Rules::STUCK.max(rules.round(self.crowd));
        self.is_stuck = self.watched >= long && self.spare < 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Nanos = Nanos::millis(2);
    const RULES: Rules = Rules {
        slice: SPAN,
        switch: Nanos::ZERO,
    };
    const ONE: ProcessId = ProcessId(1);
    const TWO: ProcessId = ProcessId(2);

    fn watch(contexts: u64, others: u64, left: u64) -> Watch {
        Watch {
            span: SPAN,
            contexts,
            others: SPAN.0 * others / 1000,
            left,
        }
    }

    /// After so many spans in which these processes complete nothing: which of them are stuck.
    fn after(processes: &[ProcessId], spans: u64, watch: Watch) -> Vec<bool> {
        let mut still = StillOnes::default();
        for _ in 0..spans {
            for process in processes {
                still.note(*process, 1000, false);
            }
            still.watch(&RULES, watch);
        }
        let all = processes.iter();
        all.map(|process| still.note(*process, 1000, false))
            .collect()
    }

    #[test]
    fn one_that_cannot_have_had_half_of_its_part_is_stuck() {
        // Of three, with changes of contexts that leave 800 thousandths: 5 of 6 are 667.
        for (others, is_stuck) in [(700, true), (640, false)] {
            let found = after(&[ONE], 20, watch(3000, others, 800));
            assert_eq!(found, [is_stuck], "{others}");
        }
    }

    /// Two contexts beside one of another tenant: 3 of 4, for each of them as for one alone.
    #[test]
    fn several_are_stuck_where_not_one_of_them_can_have_had_the_half() {
        for (others, is_stuck) in [(800, true), (700, false)] {
            let found = after(&[ONE, TWO], 20, watch(3000, others, 1000));
            assert_eq!(found, [is_stuck; 2], "{others}");
        }
    }

    /// Of 20 each waits for 38 ms between two of its slices.
    #[test]
    fn one_whose_turn_has_not_come_is_not_stuck() {
        for spans in 1..=40 {
            let found = after(&[ONE], spans, watch(20_000, 1000, 1000));
            assert_eq!(found, [spans >= 21], "{spans}");
        }
    }

    /// It has not had the device, but no other wanted it either.
    #[test]
    fn one_that_is_alone_is_not_stuck() {
        assert_eq!(after(&[ONE], 100, watch(1000, 1000, 1000)), [false]);
        assert_eq!(after(&[ONE], 100, watch(2000, 0, 1000)), [false]);
    }

    #[test]
    fn a_stuck_process_asks_again_once_it_completes_something_or_rests() {
        for (pending, completed) in [(1000, true), (0, false)] {
            let mut still = StillOnes::default();
            for _ in 0..20 {
                still.note(ONE, 1000, false);
                still.watch(&RULES, watch(2000, 1000, 1000));
            }
            assert!(still.note(ONE, 1000, false));
            assert!(!still.note(ONE, pending, completed));
            assert!(!still.note(ONE, 1000, false), "from the beginning");
        }
    }

    #[test]
    fn a_process_that_waits_in_its_tenants_line_is_not_stuck() {
        let mut still = StillOnes::default();
        for _ in 0..40 {
            still.note(ONE, 1000, false);
            still.watch(&RULES, watch(2000, 1000, 1000));
            still.rest();
        }
        assert!(!still.note(ONE, 1000, false));
    }

    #[test]
    fn an_operation_may_yet_complete_for_a_while() {
        let of = |others: u64| {
            let mut still = StillOnes::default();
            assert!(!still.may_complete(), "there is none");
            let spans = (0..200).filter(|_| {
                still.note(ONE, 1000, false);
                let may = still.may_complete();
                still.watch(&RULES, watch(2000, others, 1000));
                may
            });
            Nanos(SPAN.0 * spans.count() as u64)
        };
        assert_eq!(of(0), Rules::SILENT);
        // A stuck process completes nothing.
        assert_eq!(of(1000), Rules::STUCK);
    }

    #[test]
    fn processes_that_have_ended_are_forgotten() {
        let mut still = StillOnes::default();
        for _ in 0..20 {
            still.note(ONE, 1000, false);
            still.watch(&RULES, watch(2000, 1000, 1000));
        }
        assert!(still.note(ONE, 1000, false));
        still.keep(|process| process != ONE);
        assert!(!still.note(ONE, 1000, false));
    }
}
