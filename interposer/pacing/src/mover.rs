//! The state machine by which a process seals itself, moves its memory to the host and brings it
//! back, for one device. It has no clock and no driver.
//!
//! The caller shows it the orders and the facts, does the one act that it answers, reports the
//! outcome, and asks again. A new order is seen between any two acts. The host's copy stays
//! valid until all memory is back on the device, so a return is all or nothing and can be given up
//! at any time. Why: ADR 83. A daemon may withhold a part of a return until the device has room for
//! it (ADR 148). So it may have given on what a process has moved out: what a failed move out has
//! left on the host stays there until the daemon orders it back.

use std::collections::VecDeque;

use gpushare_protocol::page::residency::{Order, Orders};
use gpushare_protocol::wire::Obstacle;

/// Pauses (ns) between attempts to return after which no daemon orders another: the first, and the
/// longest.
const RETURNS: (u64, u64) = (50_000_000, 2_000_000_000);
/// The announced pause before the next attempt to seal (ms): after the first refusal, and at most.
const RETRIES: (u32, u32) = (100, 60_000);
/// The interval between looks at a drain (ns).
const LOOK: u64 = 500_000;

/// The state of the process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// On the device, open.
    #[default]
    In,
    /// The seal is set, work is under way.
    Sealing,
    /// On the device, sealed and drained.
    Sealed,
    /// Sealed; chunks leave.
    Leaving,
    /// Sealed; all that can leave is on the host.
    Out,
    /// Sealed; chunks come back.
    Entering,
}

/// The facts about the process at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The order in force.
    pub orders: Orders,
    /// A daemon leads the process.
    pub is_led: bool,
    /// A call waits since the seal was set.
    pub is_wanted: bool,
    /// Bytes that can leave and are on the device.
    pub resident: u64,
    /// Bytes that cannot be used on the device: on the host, or without all of their mappings.
    pub away: u64,
    /// Bytes of host memory that are missing for all to leave.
    pub short: u64,
    /// The daemon was asked for host memory, and has not answered.
    pub is_asking: bool,
}

impl Facts {
    /// So many bytes of a return stay on the host for now. Without a daemon none do.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        if self.is_led { self.orders.withheld } else { 0 }
    }

    /// So many bytes of the tenant's managed memory are booked on the device; 0: not known.
    #[must_use]
    pub fn booked(&self) -> u64 {
        if self.is_led { self.orders.booked } else { 0 }
    }
}

/// The caller's next act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Wait until this time (ns), or until the orders change.
    Sleep(u64),
    /// Set the seal.
    Seal,
    /// Look at the drain, and report it ([`Mover::drain`]).
    Drain,
    /// Take the seal away.
    Open,
    /// Move some chunks to the host, and report it ([`Mover::left`]).
    Leave,
    /// Bring some chunks back, and report it ([`Mover::entered`]).
    Enter,
    /// Give up what was brought back since the last return began: the host's copy is the valid one.
    Undo,
    /// The device is lost: give up what is away, and what a return has brought, for good.
    GiveUp,
    /// Tell the daemon.
    Say(Answer),
}

/// An answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the messages")]
pub enum Answer {
    /// `Sealed`.
    Sealed { epoch: u32 },
    /// `SealBusy`.
    Busy {
        epoch: u32,
        why: Obstacle,
        retry_ms: u32,
    },
    /// `Moved`.
    Moved { epoch: u32, away: u64 },
    /// `Away`.
    Away { epoch: u32, away: u64 },
    /// `Back`.
    Back { epoch: u32 },
    /// `NoRoom`.
    NoRoom { epoch: u32, bytes: u64 },
}

/// The progress of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Not yet, because of this.
    No(Obstacle),
    /// Nothing is under way, and nothing can begin.
    Yes,
    /// Not before the deadline, because of this.
    Never(Obstacle),
}

/// The outcome of a step of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Some chunks have moved, or are on their way.
    Some,
    /// No more are to be moved.
    All,
    /// The rest of a return is withheld.
    Withheld,
    /// The step failed for lack of this many bytes; 0 if the cause is another. On the way back
    /// everything that this return brought is undone.
    Failed(u64),
}

/// One device's state.
#[derive(Debug, Default)]
pub struct Mover {
    place: Where,
    /// The epoch of the last order seen.
    seen: u32,
    /// That order has its final answer.
    answered: bool,
    /// `Sealed` has been said under it.
    sealed: bool,
    /// That order cannot be carried out; the process stays in its state.
    refused: bool,
    /// The deadline of the drain (ns).
    until: u64,
    /// The last look at the drain, and when the next is due (ns).
    drained: Option<Drained>,
    look: u64,
    /// Attempts to seal that failed one after the other, and when the next may be (ns).
    failures: u32,
    retry: u64,
    /// A return has brought all but so many bytes, which were withheld then.
    withheld: u64,
    /// Attempts to return that failed, and when the next is due without another order (ns).
    alone: (u32, u64),
    /// It has returned without a daemon since the last order.
    strayed: bool,
    /// The device is lost, for the rest of the process's life.
    lost: bool,
    says: VecDeque<Answer>,
}

impl Mover {
    /// The state of the process's memory.
    #[must_use]
    pub fn place(&self) -> Where {
        self.place
    }

    /// Whether a return goes on that waits for nothing of the daemon's.
    #[must_use]
    pub fn is_bringing(&self) -> bool {
        self.place == Where::Entering && self.withheld == 0
    }

    /// The epoch of the last order seen.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.seen
    }

    /// Another daemon leads the process. Its orders are numbered from the beginning.
    pub fn forget(&mut self) {
        self.seen = 0;
        self.answered = false;
        self.sealed = false;
        self.strayed = false;
        self.says.clear();
        if self.place != Where::Entering {
            self.refused = false;
        }
    }

    /// A look at the drain.
    pub fn drain(&mut self, now: u64, drained: Drained) {
        self.drained = Some(drained);
        self.look = now.saturating_add(LOOK);
    }

    /// The outcome of [`Act::Leave`]; `away` bytes are on the host now.
    pub fn left(&mut self, moved: Moved, away: u64) {
        let epoch = self.seen;
        // Others may have been given the room of what has left: the daemon orders it back, and
        // learns of it before it hears that the rest stays.
        let failed = matches!(moved, Moved::Failed(_)) && away > 0;
        if moved == Moved::Some || failed {
            self.says.push_back(Answer::Moved { epoch, away });
        }
        if let Moved::Failed(bytes) = moved {
            self.refused = true;
            self.place = Where::Out;
            self.finally(Answer::NoRoom { epoch, bytes });
        }
    }

    /// The outcome of [`Act::Enter`], under these facts.
    pub fn entered(&mut self, now: u64, facts: &Facts, moved: Moved) {
        self.withheld = 0;
        match moved {
            Moved::Some => {}
            Moved::Withheld => self.withheld = facts.withheld(),
            Moved::All => {
                self.refused = false;
                self.place = Where::Sealed;
                self.alone = (0, 0);
                self.strayed |= !facts.is_led;
            }
            Moved::Failed(bytes) => {
                self.place = Where::Out;
                self.refused = true;
                let (first, longest) = RETURNS;
                let pause = first << self.alone.0.min(16);
                self.alone = (
                    self.alone.0.saturating_add(1),
                    now.saturating_add(pause.min(longest)),
                );
                self.finally(Answer::NoRoom {
                    epoch: self.seen,
                    bytes,
                });
            }
        }
    }

    /// The next thing to do.
    pub fn step(&mut self, now: u64, facts: &Facts) -> Act {
        self.lost |= facts.is_led && facts.orders.word.order() == Order::Lost;
        if self.lost {
            return self.lets_go(facts);
        }
        if let Some(answer) = self.says.pop_front() {
            return Act::Say(answer);
        }
        let word = facts.orders.word;
        if word.epoch() != self.seen {
            self.seen = word.epoch();
            self.answered = false;
            self.sealed = false;
            self.refused = false;
            self.strayed = false;
        }
        match self.wanted(now, facts) {
            Order::In | Order::Return | Order::Lost => self.towards_in(now, facts),
            order => self.towards_out(now, facts, order),
        }
    }

    /// The order in force: the daemon's, or the default without a daemon.
    fn wanted(&self, now: u64, facts: &Facts) -> Order {
        if facts.is_led && facts.orders.word.epoch() != 0 {
            return facts.orders.word.order();
        }
        if facts.is_led {
            // The daemon has ordered nothing yet; it will learn what is away.
            return if facts.away == 0 {
                Order::In
            } else {
                Order::Out
            };
        }
        match (facts.away, facts.is_wanted) {
            (0, _) => Order::In,
            (_, true) if now >= self.alone.1 => Order::Return,
            (_, true) if self.place == Where::Entering => Order::Return,
            _ => Order::Out,
        }
    }

    /// The device is lost: the process opens, and is not sealed for it again. Nothing is said: no
    /// daemon asks for anything there.
    fn lets_go(&mut self, facts: &Facts) -> Act {
        self.says.clear();
        match self.place {
            Where::In => Act::Sleep(u64::MAX),
            Where::Sealing => self.opens(None),
            Where::Sealed if facts.away == 0 => self.opens(None),
            // Next it opens, as one that has only sealed.
            Where::Sealed | Where::Leaving | Where::Out | Where::Entering => {
                self.place = Where::Sealing;
                Act::GiveUp
            }
        }
    }

    fn towards_in(&mut self, now: u64, facts: &Facts) -> Act {
        match self.place {
            Where::In => {
                if facts.is_led && !self.answered && facts.orders.word.order() == Order::Return {
                    self.answered = true;
                    return Act::Say(Answer::Back { epoch: self.seen });
                }
                Act::Sleep(u64::MAX)
            }
            Where::Sealing => self.opens(None),
            Where::Sealed if facts.away == 0 => {
                self.refused = false;
                let returned = facts.orders.word.order() == Order::Return;
                let answer = (facts.is_led && returned && !self.answered)
                    .then_some(Answer::Back { epoch: self.seen });
                self.opens(answer)
            }
            // Another order to return follows. None follows the order to be in: there it is tried
            // until it succeeds.
            Where::Out if self.refused && self.is_answered(facts) => Act::Sleep(u64::MAX),
            Where::Out if self.refused && now < self.alone.1 => Act::Sleep(self.alone.1),
            Where::Sealed | Where::Leaving | Where::Out => {
                self.place = Where::Entering;
                self.withheld = 0;
                Act::Enter
            }
            Where::Entering if self.withheld > 0 && self.withheld == facts.withheld() => {
                Act::Sleep(u64::MAX)
            }
            Where::Entering => Act::Enter,
        }
    }

    /// Whether a daemon orders another attempt after a return that fails: only where it ordered it.
    fn is_answered(&self, facts: &Facts) -> bool {
        facts.is_led && facts.orders.word.order() == Order::Return
    }

    /// Whether it has come back without the daemon that leads it again, whose last word is to stay
    /// out. That daemon takes it for out, and orders nothing while no call waits.
    fn strays(&self, facts: &Facts, order: Order) -> bool {
        self.strayed && facts.is_led && order == Order::Out
    }

    fn towards_out(&mut self, now: u64, facts: &Facts, order: Order) -> Act {
        let strays = self.strays(facts, order);
        match self.place {
            Where::In if self.refused && strays && now < self.retry => Act::Sleep(self.retry),
            Where::In if self.refused && strays => {
                self.refused = false;
                Act::Sleep(now)
            }
            Where::In if self.refused => Act::Sleep(u64::MAX),
            Where::In => {
                let patience = u64::from(facts.orders.drain_ms) * 1_000_000;
                self.until = now.saturating_add(patience);
                self.drained = None;
                self.place = Where::Sealing;
                Act::Seal
            }
            Where::Sealing => self.drains(now),
            Where::Sealed if !self.sealed && order != Order::Out => {
                self.sealed = true;
                Act::Say(Answer::Sealed { epoch: self.seen })
            }
            Where::Sealed | Where::Out
                if strays && !self.refused && facts.resident > 0 && facts.short == 0 =>
            {
                self.place = Where::Leaving;
                Act::Leave
            }
            Where::Sealed | Where::Out if order == Order::Seal || order == Order::Out => {
                Act::Sleep(self.next_return(facts))
            }
            Where::Sealed | Where::Leaving if facts.resident == 0 => {
                self.place = Where::Out;
                self.gone(facts)
            }
            Where::Sealed if facts.short > 0 && facts.is_asking => {
                Act::Sleep(now.saturating_add(LOOK))
            }
            Where::Sealed if facts.short > 0 => {
                self.refused = true;
                let bytes = facts.short;
                self.opens(Some(Answer::NoRoom {
                    epoch: self.seen,
                    bytes,
                }))
            }
            // The order is taken back: memory that has left stays on the host.
            Where::Leaving if order != Order::Leave && !strays => {
                self.place = Where::Out;
                Act::Sleep(self.next_return(facts))
            }
            // Another device of the process needs what is left of its host memory.
            Where::Leaving | Where::Out if !self.refused && facts.short > 0 && facts.is_asking => {
                Act::Sleep(now.saturating_add(LOOK))
            }
            Where::Sealed | Where::Leaving => {
                self.place = Where::Leaving;
                Act::Leave
            }
            Where::Out if facts.resident > 0 && !self.refused => {
                self.place = Where::Leaving;
                Act::Leave
            }
            Where::Out if self.answered || self.refused => Act::Sleep(u64::MAX),
            Where::Out => self.gone(facts),
            Where::Entering => {
                self.place = Where::Out;
                Act::Undo
            }
        }
    }

    fn next_return(&self, facts: &Facts) -> u64 {
        if facts.is_led || !facts.is_wanted {
            u64::MAX
        } else {
            self.alone.1
        }
    }

    fn drains(&mut self, now: u64) -> Act {
        match self.drained {
            Some(Drained::Yes) => {
                self.place = Where::Sealed;
                self.failures = 0;
                Act::Sleep(now)
            }
            Some(Drained::Never(why)) => self.is_busy(now, why),
            Some(Drained::No(why)) if now >= self.until => self.is_busy(now, why),
            Some(Drained::No(_)) if now < self.look => Act::Sleep(self.look),
            Some(Drained::No(_)) | None => Act::Drain,
        }
    }

    fn is_busy(&mut self, now: u64, why: Obstacle) -> Act {
        let (first, longest) = RETRIES;
        let retry_ms = first
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        self.retry = now.saturating_add(u64::from(retry_ms) * 1_000_000);
        self.refused = true;
        self.opens(Some(Answer::Busy {
            epoch: self.seen,
            why,
            retry_ms,
        }))
    }

    fn gone(&mut self, facts: &Facts) -> Act {
        self.answered = true;
        Act::Say(Answer::Away {
            epoch: self.seen,
            away: facts.away,
        })
    }

    /// Opens, then reports this.
    fn opens(&mut self, answer: Option<Answer>) -> Act {
        self.place = Where::In;
        if let Some(answer) = answer {
            self.finally(answer);
        }
        Act::Open
    }

    fn finally(&mut self, answer: Answer) {
        self.answered = true;
        self.says.push_back(answer);
    }
}

#[cfg(test)]
mod tests;
