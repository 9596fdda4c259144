//! A tenant's bills for its work on a shared device.

use super::done::Done;
use super::rules::Rules;
use crate::lease::arithmetic::{scaled, signed};
use crate::lease::terms::LeasePolicy;
use crate::time::Nanos;

/// Whether a tenant reports pending work that does not run, because its process was stopped or
/// waits for something other than the device. Its neighbours then get the device's whole time, its
/// own part included.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck {
    is: bool,
    /// How long it has been open, silent and beside other tenants.
    watched: Nanos,
    /// What changes of contexts left of that time, if it has not had the device, less the service
    /// of others and half of its own even part: if that is negative it cannot have had the half.
    spare: i64,
}

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Nanoseconds billed by time that no completed operation has claimed: in the silence since the
    /// last completion, and before it. The latter are at most as much as is remembered of a debt.
    present: u64,
    advance: u64,
    /// The most service that it can have had since the last completion: the time less what others
    /// had, also at its closed gate, behind which submitted work runs.
    could: u64,
    /// How long it has been pending without completing anything.
    silent: Nanos,
    /// Its even part of the time since, as far as that is not billed; and the most tenants that
    /// were pending then, in thousandths.
    even: u64,
    crowd: u64,
    stuck: Stuck,
    /// The most service it may still claim: it grows with the time.
    room: u64,
    /// Nanoseconds in flight that its cap has paid for and that are not claimed as service yet.
    paid: u64,
    /// The same that its cap has not paid for, because its gate was closed.
    unpaid: u64,
}

/// How a tenant's work was in flight in a span, as its cap sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// Beside others' work.
    Beside,
    /// Alone, for so long.
    Alone(Nanos),
    /// The same behind its gate, which its cap has closed.
    Behind(Nanos),
}

impl Meter {
    /// Sampling begins: claims count from here.
    pub(super) fn begin(&mut self) {
        self.room = Rules::MOST.0;
        self.speaks();
        self.advance = 0;
    }

    /// How long it has been pending without completing anything.
    pub(super) fn silent(&self) -> Nanos {
        self.silent
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.is
    }

    fn speaks(&mut self) {
        (self.silent, self.even, self.crowd) = (Nanos::ZERO, 0, 0);
        self.advance = (self.advance + self.present).min(Rules::MOST.0);
        (self.present, self.could) = (0, 0);
    }

    /// The believed part of its pages: a stuck tenant has nothing pending until it completes an
    /// operation.
    pub(super) fn believe(&mut self, done: &mut Done) {
        if done.service > 0 || done.pending < Rules::ALWAYS {
            self.stuck = Stuck::default();
        } else if self.stuck.is {
            (done.pending, done.works) = (0, false);
        }
    }

    /// Its bill for a `span`: at most the time since it arrived. It is `shut` while its gate is
    /// closed.
    pub(super) fn bill(
        &mut self,
        done: Done,
        rules: &Rules,
        (span, beside): (Nanos, u64),
        shut: bool,
    ) -> u64 {
        let bill = if done.service > 0 {
            done.service - self.repay(done.service, span)
        } else if done.pending < Rules::ALWAYS {
            self.speaks();
            0
        } else {
            self.could += span.0;
            match shut {
                true => 0,
                false => self.by_time(rules, (span, beside)),
            }
        };
        self.charge(bill, span)
    }

    /// No more than the time since it arrived.
    fn charge(&mut self, bill: u64, span: Nanos) -> u64 {
        let room = (self.room + span.0).min(Rules::MOST.0);
        let bill = bill.min(room);
        self.room = room - bill;
        bill
    }

    /// The part of completed `service` that was billed by time. An operation of another stream or
    /// process may be complete while a long one runs on, so what was billed for the long one stays.
    /// What was billed before the last completion pays only for service that cannot have been had
    /// since, because it may also be no service at all: its work waited on the device.
    fn repay(&mut self, service: u64, span: Nanos) -> u64 {
        let present = service.min(self.present);
        let could = self.could + span.0;
        let before = service.saturating_sub(could).min(service - present);
        let before = before.min(self.advance);
        self.present -= present;
        self.advance -= before;
        self.speaks();
        present + before
    }

    /// Others had so much service in a span: see [`could`](Self::could).
    pub(super) fn leave(&mut self, others: u64) {
        self.could = self.could.saturating_sub(others);
    }

    /// Its bill for a `span` in which its service is unknown, of which it `had` this part. `waits`:
    /// it is closed, and need not complete anything.
    pub(super) fn rest(&mut self, had: u64, (done, waits): (Done, bool), span: Nanos) -> u64 {
        (self.present, self.advance) = (0, 0);
        if done.service > 0 || done.pending < Rules::ALWAYS {
            self.speaks();
        } else if !waits {
            self.silent = self.silent + span;
        }
        self.charge(had, span)
    }

    /// The even part of the time, once no operation has completed for long; the first time for all
    /// of it. Others may have gone meanwhile: of the time until then it had its part beside them.
    /// It is no more than what the others' bills leave: one of them may have several processes.
    fn by_time(&mut self, rules: &Rules, (span, beside): (Nanos, u64)) -> u64 {
        self.silent = self.silent + span;
        let even = rules.even(span, beside);
        self.even += even;
        self.crowd = self.crowd.max(beside);
        // Before each of the others has had a slice its turn may not have come.
        if self.silent < rules.silent().max(rules.round(self.crowd)) {
            return 0;
        }
        // What the others had of this span is not known yet.
        let could = self.could.saturating_sub(span.0 - even);
        let least = could.saturating_sub(self.present);
        let even = std::mem::take(&mut self.even).min(least);
        self.present += even;
        even
    }

    /// While it completes nothing at an open gate: whether the service of others (`others` of
    /// `span`) excludes that it got half of its even part. `beside` are the pending tenants, in
    /// thousandths; so much is `left` by changes of contexts if it has not had the device. Before
    /// each of the others has had a slice its turn may not have come.
    pub(super) fn watch(
        &mut self,
        rules: &Rules,
        (span, beside): (Nanos, u64),
        others: u64,
        left: u64,
    ) {
        if self.silent == Nanos::ZERO || beside < Rules::CROWDED {
            return;
        }
        self.crowd = self.crowd.max(beside);
        let long = Rules::STUCK.max(rules.round(self.crowd));
        let left = scaled(span.0, left, 1000);
        let half = scaled(left, 500, beside);
        let stuck = &mut self.stuck;
        stuck.watched = stuck.watched + span;
        stuck.spare += signed(Nanos(left)) - signed(Nanos(half)) - signed(Nanos(others));
        stuck.is = stuck.watched >= long && stuck.spare < 0;
    }

    /// The time that its cap pays for a `span`: the service, or while it is alone the time in
    /// flight. Time in flight that the cap has paid for is not billed again as service. What ran
    /// behind the closed gate is paid when it is complete: until then it may be a process that was
    /// stopped, or work that waits for a launch which the gate keeps, and would keep for ever. The
    /// time that is remembered is at most the time since the last end of an operation,
    /// and a sample's.
    ///
    /// The bill of a tenant whose claims are guesses is the time that the span leaves it, so it
    /// says nothing of an operation that began before. `service`, which completed operations claim,
    /// does: as far as the time in flight allows it.
    pub(super) fn capped(
        &mut self,
        span: Nanos,
        (bill, service): (u64, u64),
        flight: Flight,
    ) -> Nanos {
        let ended = service > 0;
        let bill = match self.unpaid {
            0 => bill,
            unpaid => bill.max(service.min(self.paid + unpaid)),
        };
        let held = if let Flight::Alone(flight) = flight {
            let paid = self.paid + flight.0;
            self.paid = paid.saturating_sub(bill);
            flight + Nanos(bill.saturating_sub(paid).min(self.unpaid))
        } else if matches!(flight, Flight::Behind(_)) && !ended {
            Nanos::ZERO
        } else {
            let again = bill.min(self.paid);
            self.paid -= again;
            Nanos(bill - again)
        };
        if bill > 0 {
            self.paid = self.paid.min(span.0);
        }
        self.unpaid = match flight {
            _ if ended => 0,
            Flight::Behind(time) => (self.unpaid + time.0).min(LeasePolicy::MOST_CAP_DEBT.0),
            _ => self.unpaid,
        };
        held
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

    /// Its bills for so many spans with work pending and so much service in each, beside another
    /// tenant that has so many thousandths of the time.
    fn beside(meter: &mut Meter, spans: u64, service: u64, others: u64) -> u64 {
        let done = Done {
            service,
            pending: 1000,
            works: true,
            ..Done::default()
        };
        let bill = |_| {
            let bill = meter.bill(done, &RULES, (SPAN, 2000), false);
            meter.leave(SPAN.0 * others / 1000);
            meter.watch(&RULES, (SPAN, 2000), SPAN.0 * others / 1000, 1000);
            bill
        };
        (0..spans).map(bill).sum()
    }

    /// The same with half of the time.
    fn bills(meter: &mut Meter, spans: u64, service: u64) -> u64 {
        beside(meter, spans, service, 500)
    }

    #[test]
    fn an_operation_that_was_billed_by_time_is_not_billed_again() {
        let mut meter = Meter::default();
        let by_time = bills(&mut meter, 100, 0);
        assert_eq!(by_time, SPAN.0 * 50);
        assert_eq!(bills(&mut meter, 1, by_time), 0);
        assert_eq!(bills(&mut meter, 10, SPAN.0), SPAN.0 * 10);
    }

    /// Its work waited, and had nothing of the device.
    #[test]
    fn time_that_no_operation_took_is_no_credit() {
        let mut meter = Meter::default();
        bills(&mut meter, 5_000, 0);
        assert_eq!(bills(&mut meter, 1, SPAN.0), 0);
        assert_eq!(bills(&mut meter, 10, SPAN.0), SPAN.0 * 10);
        // Nor for operations that are longer than a span.
        for _ in 0..10 {
            assert_eq!(beside(&mut meter, 2, 0, 0), 0);
            assert_eq!(beside(&mut meter, 1, SPAN.0 * 3, 0), SPAN.0 * 3);
        }
        // Nor for those that are so long that they are billed by time.
        for _ in 0..10 {
            let by_time = beside(&mut meter, 9, 0, 0);
            let all = by_time + beside(&mut meter, 1, SPAN.0 * 10, 0);
            assert_eq!(all, SPAN.0 * 10);
        }
    }

    /// What it has submitted runs on while its gate is closed.
    #[test]
    fn service_behind_a_closed_gate_is_billed_after_a_stall() {
        let (mut meter, service) = (Meter::default(), SPAN.0 * 10);
        bills(&mut meter, 5_000, 0);
        bills(&mut meter, 1, SPAN.0);
        let pending = Done {
            pending: 1000,
            ..Done::default()
        };
        for _ in 0..9 {
            assert_eq!(meter.bill(pending, &RULES, (SPAN, 1000), true), 0);
        }
        let ends = Done { service, ..pending };
        assert_eq!(meter.bill(ends, &RULES, (SPAN, 1000), true), service);
    }

    /// Another stream or process of the tenant completes something meanwhile.
    #[test]
    fn a_long_operation_is_billed_once_beside_a_short_one() {
        let (mut meter, short) = (Meter::default(), 50_000);
        let before = bills(&mut meter, 100, 0) + bills(&mut meter, 1, short);
        let by_time = before + bills(&mut meter, 10, 0);
        let all = by_time + bills(&mut meter, 1, by_time);
        let service = short + by_time;
        assert!(all.abs_diff(service) <= 2 * SPAN.0, "{all} of {service}");
    }

    /// One process beside two of another tenant has a third. Its completions show every 12 ms.
    #[test]
    fn what_is_billed_in_a_silence_is_no_more_than_others_leave() {
        let (mut meter, mut billed) = (Meter::default(), 0);
        for _ in 0..50 {
            billed += beside(&mut meter, 5, 0, 667);
            billed += beside(&mut meter, 1, SPAN.0 * 2, 667);
        }
        let served = 50 * SPAN.0 * 2;
        assert!(
            billed.abs_diff(served) <= served / 10,
            "{billed} of {served}"
        );
    }

    /// Of the time that two have, changes of contexts take a tenth.
    #[test]
    fn changes_of_contexts_are_not_billed_in_a_silence() {
        let (mut meter, rules) = (
            Meter::default(),
            Rules {
                switch: Nanos(SPAN.0 / 9),
                ..RULES
            },
        );
        let silent = Done {
            pending: 1000,
            works: true,
            ..Done::default()
        };
        let bill = |_| meter.bill(silent, &rules, (SPAN, 2000), false);
        let billed: u64 = (0..100).map(bill).sum();
        assert!(billed.abs_diff(SPAN.0 * 45) <= SPAN.0, "{billed}");
    }

    #[test]
    fn one_that_cannot_have_had_half_of_its_part_is_stuck() {
        // Of three, with changes of contexts that leave 800 thousandths: 5 of 6 are 667.
        for (others, is_stuck) in [(700, true), (640, false)] {
            let mut meter = Meter::default();
            bills(&mut meter, 1, 0);
            for _ in 0..20 {
                meter.watch(&RULES, (SPAN, 3000), SPAN.0 * others / 1000, 800);
            }
            assert_eq!(meter.is_stuck(), is_stuck, "{others}");
        }
    }

    /// 28 of its 29 neighbours pause together while its turn has not come.
    #[test]
    fn a_silence_is_billed_by_those_that_were_there() {
        let (mut meter, mut billed) = (Meter::default(), 0);
        bills(&mut meter, 1, SPAN.0);
        let silent = Done {
            pending: 1000,
            works: true,
            ..Done::default()
        };
        for at in 0..40 {
            let (beside, others) = if at < 28 {
                (30_000, SPAN.0)
            } else {
                (2_000, 0)
            };
            billed += meter.bill(silent, &RULES, (SPAN, beside), false);
            meter.leave(others);
            meter.watch(&RULES, (SPAN, beside), others, 1000);
            assert!(!meter.is_stuck(), "{at}");
            // All of the time once it is alone with one other.
            let most = 28 * SPAN.0 / 30 + (at + 1_u64).saturating_sub(28) * SPAN.0 / 2;
            assert!(billed <= most, "{at}: {billed} of {most}");
        }
        assert!(billed >= 12 * SPAN.0 / 2, "{billed}");
    }

    /// Of 20 each waits for 38 ms between two of its slices.
    #[test]
    fn one_whose_turn_has_not_come_is_not_stuck() {
        let mut meter = Meter::default();
        // The first span.
        bills(&mut meter, 1, 0);
        for at in 2..=40 {
            meter.watch(&RULES, (SPAN, 20_000), SPAN.0, 1000);
            assert_eq!(meter.is_stuck(), at >= 21, "{at}");
        }
    }

    #[test]
    fn work_behind_the_gate_that_a_cap_closed_is_paid_once_it_is_complete() {
        let (mut meter, span) = (Meter::default(), Nanos::millis(2));
        let behind = Flight::Behind(span);
        for _ in 0..50 {
            // Of a tenant that was not measured the time in flight is its bill.
            assert_eq!(meter.capped(span, (span.0, 0), behind), Nanos::ZERO);
        }
        let bill = Nanos::millis(8);
        assert_eq!(meter.capped(span, (bill.0, bill.0), behind), bill);
        assert_eq!(meter.capped(span, (0, 0), behind), Nanos::ZERO);
    }

    /// What a guess that ends behind the closed gate, or as that has just opened, costs after 100
    /// ms there and 4 ms before, if it claims so many milliseconds.
    fn cost_of_a_guess(claims: u64, opened: bool) -> Nanos {
        let (mut meter, span) = (Meter::default(), Nanos::millis(2));
        let mut paid = Nanos::ZERO;
        let before = [Flight::Alone(span); 2];
        let behind = [Flight::Behind(span); 50];
        for flight in before.into_iter().chain(behind) {
            paid = paid + meter.capped(span, (span.0, 0), flight);
        }
        let flight = if opened {
            Flight::Alone
        } else {
            Flight::Behind
        };
        paid + meter.capped(span, (span.0, claims * 1_000_000), flight(span))
    }

    #[test]
    fn a_guess_of_work_behind_the_gate_is_paid_as_far_as_time_allows() {
        for opened in [false, true] {
            let cost = |claims| cost_of_a_guess(claims, opened).0 / 1_000_000;
            assert!((5..=8).contains(&cost(1)), "{}", cost(1));
            assert!((90..=98).contains(&cost(90)), "{}", cost(90));
            assert!((104..=108).contains(&cost(104)), "{}", cost(104));
            assert_eq!(cost(5_000), cost(104), "no more than was in flight");
        }
    }
}
