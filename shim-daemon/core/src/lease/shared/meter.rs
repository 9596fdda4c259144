//! A tenant's bills for its work on a shared device.

use super::done::Done;
use super::rules::Rules;
use crate::lease::terms::LeasePolicy;
use crate::time::Nanos;

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
    /// Its even part of the time since, as far as that is not billed; and the most contexts that
    /// were pending then, one of its own among them, in thousandths.
    even: u64,
    crowd: u64,
    /// The most service it may still claim: it grows with the time.
    room: u64,
    /// Nanoseconds in flight that its cap has paid for and that are not claimed as service yet.
    paid: u64,
    /// Nanoseconds of the device that it can have had, that its cap has not paid for, and that are
    /// not claimed as service yet: behind the gate that its cap closed, or beside others.
    unpaid: u64,
    /// The part of the service claimed in the last span that was billed by time before.
    repaid: u64,
    /// What others had while it was in flight beside them, and is not taken from its time yet.
    others: u64,
}

/// What a tenant's cap is told of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Its bill (ns).
    pub(super) bill: u64,
    /// The service that its completed operations claim (ns).
    pub(super) service: u64,
    /// Some work of it, other than what has ended, was in flight all the time, or may have been.
    pub(super) goes_on: bool,
}

/// How a tenant's work was in flight in a span, as its cap sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// Beside others' work, for so long. Zero also where its bills are parts of the time, so that
    /// no operation has more to pay as it ends.
    Beside(Nanos),
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

    fn speaks(&mut self) {
        (self.silent, self.even, self.crowd) = (Nanos::ZERO, 0, 0);
        self.advance = (self.advance + self.present).min(Rules::MOST.0);
        (self.present, self.could) = (0, 0);
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
        self.repaid = 0;
        let bill = if done.service > 0 {
            self.repaid = self.repay(done.service, span);
            done.service - self.repaid
        } else if done.pending < Rules::ALWAYS {
            self.speaks();
            0
        } else {
            self.could += span.0;
            match shut {
                true => 0,
                false => self.by_time(rules, (span, beside), done.contexts),
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
        self.others = (self.others + others).min(Rules::MOST.0);
    }

    /// Its bill for a `span` in which its service is unknown, of which it `had` this part. `waits`:
    /// it is closed, and need not complete anything.
    pub(super) fn rest(&mut self, had: u64, (done, waits): (Done, bool), span: Nanos) -> u64 {
        (self.present, self.advance, self.repaid) = (0, 0, 0);
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
    /// It has so many thousandths of `contexts` of those that are pending.
    fn by_time(&mut self, rules: &Rules, (span, beside): (Nanos, u64), contexts: u64) -> u64 {
        self.silent = self.silent + span;
        let own = contexts.max(1000);
        let even = rules.even(span, (own, beside));
        self.even += even;
        self.crowd = self.crowd.max(1000 + beside.saturating_sub(own));
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

    /// Nothing of it is in flight, so nothing of it is unpaid.
    pub(super) fn pauses(&mut self) {
        self.unpaid = 0;
    }

    /// The time that its cap pays for a `span`: the service, or while it is alone the time in
    /// flight. Time in flight that the cap has paid for is not billed again as service. What ran
    /// behind the closed gate is paid when it is complete: until then it may be a process that was
    /// stopped, or work that waits for a launch which the gate keeps, and would keep for ever. What
    /// ends pays its own part of that, and the rest stays while something else goes on. The paid
    /// time that is remembered is at most the time since the last end of an operation, and a
    /// sample's.
    ///
    /// The bill of a tenant whose claims are guesses is the time that the span leaves it, so it
    /// says nothing of an operation that began before. The service, which completed operations
    /// claim, does: as far as the time in flight allows it. So it does of an operation that is
    /// longer than the most that a bill may be.
    pub(super) fn capped(&mut self, span: Nanos, cost: Cost, flight: Flight) -> Nanos {
        let ended = cost.service > 0;
        // What the time of a late look was used for is not known.
        let known = |time: Nanos| time.min(Rules::MOST).0;
        let others = std::mem::take(&mut self.others);
        let could = match flight {
            Flight::Alone(_) | Flight::Beside(Nanos::ZERO) => 0,
            Flight::Behind(time) => known(time),
            Flight::Beside(time) => {
                // An operation of others is claimed when it ends.
                self.others = others.saturating_sub(known(time));
                known(time).saturating_sub(others)
            }
        };
        self.unpaid = (self.unpaid + could).min(LeasePolicy::MOST_CAP_DEBT.0);
        let claimed = cost.service.saturating_sub(self.repaid);
        let bill = match self.unpaid {
            0 => cost.bill,
            unpaid => cost.bill.max(claimed.min(self.paid + unpaid)),
        };
        let (by_time, late) = if let Flight::Alone(flight) = flight {
            let paid = self.paid + flight.0;
            self.paid = paid.saturating_sub(bill);
            (flight.0, bill.saturating_sub(paid).min(self.unpaid))
        } else if matches!(flight, Flight::Behind(_)) && !ended {
            (0, 0)
        } else {
            let again = bill.min(self.paid);
            self.paid -= again;
            (0, bill - again)
        };
        if bill > 0 {
            self.paid = self.paid.min(span.0);
        }
        self.unpaid = match ended && !cost.goes_on {
            true => 0,
            false => self.unpaid.saturating_sub(late),
        };
        Nanos(by_time + late)
    }
}

#[cfg(test)]
mod tests;
