//! Turns: who is next, how long, and when a turn is over.

use super::clock::Reading;
use super::entity::{Entity, Phase, Turn};
use super::index::Class;
use super::schedule::{Output, Schedule};
use super::word::LeaseKind;
use crate::ids::ContainerId;
use crate::time::Nanos;

/// How long a gate is open for one launch, at most.
const STEP: Nanos = Nanos::millis(1);

/// How long a device is kept for who just had a turn, is next again, and has not said that it wants.
const BACK: Nanos = Nanos::micros(100);

/// An end that would move later by less than this part of a turn stays: it would be a new grant, and its container gets the rest in
/// its next turn.
const SLIGHT: u64 = 16;

impl Schedule {
    /// Does the next thing that is due now, if there is any.
    pub(super) fn step(&mut self) -> bool {
        if let Some(late) = self.index.late() {
            self.end(late);
            return true;
        }
        if let Some((closed, container)) = self.index.ending()
            && self.now >= closed + self.policy.overrun
        {
            self.overran(container, self.now - closed);
            return true;
        }
        if self.make_way() {
            return true;
        }
        let Some(holder) = self.holder else {
            let next = self.next();
            if let Some((container, promoted)) = next {
                self.grant(container, promoted);
            }
            return next.is_some();
        };
        let Some(entity) = self.entities.get(&holder) else {
            self.holder = None;
            return true;
        };
        match entity.phase {
            Phase::Holding(_) | Phase::Closing { .. } if entity.is_drained() && entity.gang => {
                self.keep(holder);
            }
            Phase::Holding(_) | Phase::Closing { .. } if entity.is_drained() => self.end(holder),
            Phase::Holding(_) | Phase::Closing { .. } if self.hands_on(entity) => {
                self.hand_on(holder);
            }
            Phase::Holding(turn) if self.is_over(holder, entity, &turn) => self.close(holder),
            Phase::Closing { closed } if self.now >= closed + self.policy.overrun => {
                self.overran(holder, self.now - closed);
            }
            _ => return false,
        }
        true
    }

    /// Who is next, and whether before a higher class for its guarantee. Nobody, while who just had a turn and is still
    /// behind the first who waits may be back any moment: between two kernels its calls have not met the gate yet.
    pub(super) fn next(&self) -> Option<(ContainerId, bool)> {
        if !self.is_left_to_itself() {
            return None;
        }
        let (container, promoted) = self.first()?;
        let first = self.entities.get(&container)?;
        let back = self.expected(first.class);
        let waits_for = back.filter(|(_, clock)| !promoted && *clock < first.clock);
        waits_for.is_none().then_some((container, promoted))
    }

    /// Until when the furthest behind of those is expected back who had a turn just now and did not give it up, and its
    /// clock.
    pub(super) fn expected(&self, class: u16) -> Option<(Nanos, Reading)> {
        self.index
            .back(self.now - BACK)
            .filter_map(|(ended, container)| Some((ended, self.entities.get(&container)?)))
            .filter(|(ended, entity)| {
                entity.class == class && entity.interrupted && self.now < *ended + BACK
            })
            .map(|(ended, entity)| (ended + BACK, entity.clock))
            .min_by_key(|(_, clock)| *clock)
    }

    fn first(&self) -> Option<(ContainerId, bool)> {
        let (_, (.., first)) = self.index.first()?;
        let top = self.index.highest_waiting()?;
        let due = self.index.due_below(top, self.now);
        Some(due.map_or((first, false), |due| (due, true)))
    }

    /// Lets a container in.
    pub(super) fn grant(&mut self, container: ContainerId, promoted: bool) {
        let length = self.length(container);
        self.epochs += 1;
        let (now, epoch, policy) = (self.now, self.epochs, self.policy);
        self.holder = Some(container);
        self.touch(container, |entity, _| {
            let promise = entity.promise.filter(|_| promoted);
            entity.phase = Phase::Holding(Turn {
                since: now,
                from: entity.clock,
                read: now,
                length: promise.map_or(length, |promise| {
                    promise.turn(policy.quantum, policy.shortest)
                }),
                runs_dry: entity.bucket.map(|bucket| now + bucket.lasts()),
                promoted,
                step: false,
            });
            (entity.epoch, entity.granted) = (epoch, now);
            entity.turns += 1;
            entity.reopen();
            for member in entity.members.values_mut() {
                member.idle = false;
            }
        });
        self.pass_over(container);
    }

    /// Whether a turn must end now.
    fn is_over(&self, container: ContainerId, entity: &Entity, turn: &Turn) -> bool {
        if turn.step {
            return turn.since + STEP <= self.now;
        }
        let first = self.index.first();
        let preempted = !turn.promoted && first.is_some_and(|(class, _)| class > entity.class);
        let given_up = entity.is_quiet() && (entity.bucket.is_some() || first.is_some());
        let expired = self
            .until(container, turn)
            .is_some_and(|until| until <= self.now);
        preempted || given_up || expired
    }

    /// When a turn ends by itself, here or because of another device.
    pub(super) fn until(&self, container: ContainerId, turn: &Turn) -> Option<Nanos> {
        if turn.step {
            return Some(turn.since + STEP);
        }
        let ends = self.gang.ends.filter(|_| !turn.promoted);
        let until = self.until_here(container, turn).into_iter().chain(ends);
        let until = until.min()?;
        let said = self.said_until(container);
        let stays = |said: &Nanos| *said < until && until <= *said + Nanos(turn.length.0 / SLIGHT);
        Some(said.filter(stays).unwrap_or(until))
    }

    /// The end of the present turn as the container's page has it.
    fn said_until(&self, container: ContainerId) -> Option<Nanos> {
        let entity = self.entities.get(&container)?;
        match entity.said.kind {
            LeaseKind::Open { deadline, .. } if entity.said.epoch == entity.epoch => deadline,
            _ => None,
        }
    }

    /// When a turn ends by itself as far as this device goes: when its allowance is used up, or others of its class wait
    /// and it is a turn ahead of one of them, or one of a lower class is due.
    pub(super) fn until_here(&self, container: ContainerId, turn: &Turn) -> Option<Nanos> {
        let own = self.entities.get(&container)?;
        let full = turn.since + turn.length;
        let rivals = self.index.class(own.class);
        let due = turn.promoted || self.index.due_below(own.class, self.now).is_some();
        let allowed = rivals
            .and_then(Class::first_out)
            .map(|(clock, ..)| allowance(turn, own.weight, clock));
        let fair = if due {
            Some(full)
        } else {
            allowed.or_else(|| rivals.and_then(Class::first).map(|_| full))
        };
        fair.into_iter().chain(turn.runs_dry).min()
    }

    /// Tells a container to stop.
    pub(super) fn close(&mut self, container: ContainerId) {
        let now = self.now;
        self.touch(container, |entity, _| {
            entity.interrupted = !entity.is_quiet();
            entity.phase = Phase::Closing { closed: now };
        });
    }

    /// A container has drained.
    pub(super) fn end(&mut self, container: ContainerId) {
        let now = self.now;
        if self.holder == Some(container) {
            self.holder = None;
        }
        self.touch(container, |entity, _| {
            if let Phase::Holding(_) = entity.phase {
                // It closed by itself at its deadline.
                entity.interrupted = true;
            }
            (entity.phase, entity.ended) = (Phase::Out, now);
            if let Some(bucket) = &mut entity.bucket {
                bucket.turn_over(entity.interrupted);
            }
        });
    }

    /// Whether the next is let in before the holder has drained: that one is about to, alone so, and would not be next itself.
    fn hands_on(&self, holder: &Entity) -> bool {
        if holder.gang || !holder.is_ending() || self.index.ending().is_some() {
            return false;
        }
        let Some((next, promoted)) = self.next() else {
            return false;
        };
        let Some(next) = self.entities.get(&next) else {
            return false;
        };
        let may = holder.bucket.is_none_or(|bucket| bucket.allows());
        let back = may && (holder.class, next.clock) > (next.class, holder.clock);
        promoted || !back
    }

    /// The holder is about to have drained: others no longer wait for it.
    fn hand_on(&mut self, container: ContainerId) {
        self.holder = None;
        let now = self.now;
        self.touch(container, |entity, _| {
            let closed = match entity.phase {
                Phase::Closing { closed } => closed,
                _ => {
                    // It closed by itself at its deadline.
                    entity.interrupted = true;
                    now
                }
            };
            entity.phase = Phase::Ending { closed };
        });
    }

    /// A container has not drained: others no longer wait for it.
    fn overran(&mut self, container: ContainerId, after: Nanos) {
        self.holder = self.holder.filter(|holder| *holder != container);
        let (now, pause) = (self.now, self.policy.notice_every);
        let shared = self.index.first().is_some();
        let told = self.touch(container, |entity, _| {
            entity.phase = Phase::Overrun {
                closed: now - after,
                billed: true,
            };
            entity.overruns += 1;
            let tells = shared && entity.told.is_none_or(|told| now >= told + pause);
            if tells {
                entity.told = Some(now);
            }
            tells
        });
        if told == Some(true) {
            self.outputs.push_back(Output::Overrun { container, after });
        }
    }

    /// When something is due that no input tells.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        let refilled = self.index.capped().map(|(at, _)| at);
        let refilled = refilled.filter(|at| *at < Nanos::MAX).into_iter();
        let ending = self.index.ending();
        let refilled = refilled.chain(ending.map(|(closed, _)| closed + self.policy.overrun));
        let Some((container, holder)) = self
            .holder
            .and_then(|container| Some((container, self.entities.get(&container)?)))
        else {
            let first = self
                .first()
                .and_then(|(container, _)| self.entities.get(&container));
            let back = first.and_then(|first| self.expected(first.class));
            return refilled
                .chain(back.map(|(until, _)| until))
                .chain(self.gang.alarm)
                .min();
        };
        let over = match holder.phase {
            Phase::Holding(turn) => self.until(container, &turn),
            Phase::Closing { closed } => Some(closed + self.policy.overrun),
            _ => None,
        };
        let due = self.index.next_due_below(holder.class, self.now);
        refilled.chain(over).chain(due).chain(self.gang.alarm).min()
    }
}

/// How long a turn may last beside a rival: its length, and longer if the holder is behind the rival, until it has caught
/// up. A holder that is ahead was let in because the rival did not want; it has as much less as it is ahead.
pub(super) fn allowance(turn: &Turn, weight: u64, rival: Reading) -> Nanos {
    let (behind, ahead) = (
        rival.since(turn.from, weight),
        turn.from.since(rival, weight),
    );
    let full = turn.since + (turn.length - ahead);
    full.max(turn.read + behind)
}
