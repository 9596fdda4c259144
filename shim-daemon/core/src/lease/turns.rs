//! Turns: who is next, how long, and when a turn is over.

use super::clock::Reading;
use super::entity::{Entity, Phase, Turn};
use super::schedule::{Output, Schedule};
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::cmp::Reverse;

/// How long a device is kept for who just had a turn, is next again, and has not said that it wants.
const BACK: Nanos = Nanos::micros(100);

impl Schedule {
    /// Containers that wait for a turn and may have one.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (ContainerId, &Entity)> {
        self.asking().filter(|(container, entity)| {
            entity
                .bucket
                .is_none_or(|bucket| bucket.allows(self.length(*container)))
        })
    }

    /// Containers that wait for a turn and may not have one for their cap, with the turn they would get.
    pub(super) fn held_back(&self) -> impl Iterator<Item = (ContainerId, Nanos)> {
        self.asking().filter_map(|(container, entity)| {
            let bucket = entity.bucket?;
            let turn = self.length(container);
            (!bucket.allows(turn)).then_some((container, turn))
        })
    }

    fn asking(&self) -> impl Iterator<Item = (ContainerId, &Entity)> {
        let may = |entity: &Entity| matches!(entity.phase, Phase::Out | Phase::Overrun { .. });
        self.entities
            .iter()
            .filter(move |(_, entity)| may(entity) && entity.wants())
            .map(|(container, entity)| (*container, entity))
    }

    /// Does the next thing that is due now, if there is any.
    pub(super) fn step(&mut self) -> bool {
        if let Some(late) = self.late_drained() {
            self.end(late);
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
            Phase::Holding(_) | Phase::Closing { .. } if entity.is_drained() => self.end(holder),
            Phase::Holding(turn) if self.is_over(holder, entity, &turn) => self.close(holder),
            Phase::Closing { closed } if self.now >= closed + self.policy.overrun => {
                self.overran(holder, self.now - closed);
            }
            _ => return false,
        }
        true
    }

    fn late_drained(&self) -> Option<ContainerId> {
        let late =
            |entity: &Entity| matches!(entity.phase, Phase::Overrun { .. }) && entity.is_drained();
        self.entities
            .iter()
            .find(|(_, entity)| late(entity))
            .map(|(container, _)| *container)
    }

    /// Who is next, and whether before a higher class for its guarantee. Nobody, while who just had a turn and is still
    /// behind the first who waits may be back any moment: between two kernels its calls have not met the gate yet.
    pub(super) fn next(&self) -> Option<(ContainerId, bool)> {
        let (container, promoted) = self.first()?;
        let first = self.entities.get(&container)?;
        let back = self.expected(first.class);
        let waits_for = back.filter(|(_, clock)| !promoted && *clock < first.clock);
        waits_for.is_none().then_some((container, promoted))
    }

    /// Until when the furthest behind of those is expected back who had a turn just now and did not give it up, and its
    /// clock.
    fn expected(&self, class: u16) -> Option<(Nanos, Reading)> {
        self.entities
            .values()
            .filter(|entity| entity.class == class && entity.phase == Phase::Out)
            .filter(|entity| entity.interrupted && !entity.wants())
            .map(|entity| (entity.ended + BACK, entity.clock))
            .filter(|(until, _)| self.now < *until)
            .min_by_key(|(_, clock)| *clock)
    }

    fn first(&self) -> Option<(ContainerId, bool)> {
        let top = self.waiting().map(|(_, entity)| entity.class).max()?;
        let order = |container: ContainerId, entity: &Entity| {
            (
                Reverse(entity.class),
                entity.clock,
                entity.granted,
                container,
            )
        };
        let due = self
            .waiting()
            .filter(|(_, entity)| entity.class < top && self.is_due(entity))
            .min_by_key(|(container, entity)| order(*container, entity));
        let first = || {
            self.waiting()
                .min_by_key(|(container, entity)| order(*container, entity))
        };
        due.map(|(container, _)| (container, true))
            .or_else(|| first().map(|(container, _)| (container, false)))
    }

    /// Whether it is a whole turn behind its guarantee.
    fn is_due(&self, entity: &Entity) -> bool {
        self.due_in(entity) == Some(Nanos::ZERO)
    }

    fn due_in(&self, entity: &Entity) -> Option<Nanos> {
        let promise = entity.promise?;
        Some(promise.wait(promise.turn(self.policy.quantum, self.policy.shortest)))
    }

    /// Lets a container in.
    pub(super) fn grant(&mut self, container: ContainerId, promoted: bool) {
        let length = self.length(container);
        self.epochs += 1;
        let (now, epoch, policy) = (self.now, self.epochs, self.policy);
        let Some(entity) = self.entities.get_mut(&container) else {
            return;
        };
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
        });
        (entity.epoch, entity.granted) = (epoch, now);
        entity.turns += 1;
        entity.reopen();
        for member in entity.members.values_mut() {
            member.idle = false;
        }
        self.holder = Some(container);
    }

    /// Whether a turn must end now.
    fn is_over(&self, container: ContainerId, entity: &Entity, turn: &Turn) -> bool {
        let preempted =
            !turn.promoted && self.waiting().any(|(_, other)| other.class > entity.class);
        let given_up =
            entity.is_quiet() && (entity.bucket.is_some() || self.waiting().next().is_some());
        let expired = self
            .until(container, turn)
            .is_some_and(|until| until <= self.now);
        preempted || given_up || expired
    }

    /// When a turn ends by itself: when its allowance is used up, or others of its class wait and it is a turn ahead of
    /// one of them, or one of a lower class is due.
    pub(super) fn until(&self, container: ContainerId, turn: &Turn) -> Option<Nanos> {
        let own = self.entities.get(&container)?;
        let full = turn.since + turn.length;
        let rivals = || {
            self.waiting()
                .filter(|(_, other)| other.class == own.class)
                .map(|(_, other)| other)
        };
        let due = turn.promoted
            || self
                .waiting()
                .any(|(_, other)| other.class < own.class && self.is_due(other));
        let allowed = rivals()
            .filter(|other| other.phase == Phase::Out)
            .map(|other| allowance(turn, own.weight, other.clock))
            .min();
        let fair = if due {
            Some(full)
        } else {
            allowed.or_else(|| rivals().next().map(|_| full))
        };
        fair.into_iter().chain(turn.runs_dry).min()
    }

    /// Tells a container to stop.
    fn close(&mut self, container: ContainerId) {
        let now = self.now;
        if let Some(entity) = self.entities.get_mut(&container) {
            entity.interrupted = !entity.is_quiet();
            entity.phase = Phase::Closing { closed: now };
        }
    }

    /// A container has drained.
    fn end(&mut self, container: ContainerId) {
        let (turn, now) = (self.length(container), self.now);
        if let Some(entity) = self.entities.get_mut(&container) {
            if let Phase::Holding(_) = entity.phase {
                // It closed by itself at its deadline.
                entity.interrupted = true;
            }
            (entity.phase, entity.ended) = (Phase::Out, now);
            if let Some(bucket) = &mut entity.bucket {
                bucket.turn_over(turn);
            }
        }
        if self.holder == Some(container) {
            self.holder = None;
        }
    }

    /// A container has not drained: others no longer wait for it.
    fn overran(&mut self, container: ContainerId, after: Nanos) {
        self.holder = None;
        let (now, pause) = (self.now, self.policy.notice_every);
        let shared = self.waiting().any(|(other, _)| other != container);
        let Some(entity) = self.entities.get_mut(&container) else {
            return;
        };
        entity.phase = Phase::Overrun {
            closed: now - after,
            billed: true,
        };
        entity.overruns += 1;
        if shared && entity.told.is_none_or(|told| now >= told + pause) {
            entity.told = Some(now);
            self.outputs.push_back(Output::Overrun { container, after });
        }
    }

    /// When something is due that no input tells.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        let refilled = self.held_back().filter_map(|(container, turn)| {
            let entity = self.entities.get(&container)?;
            let bucket = entity.bucket.filter(|_| !entity.is_billed())?;
            Some(self.now + bucket.wait(turn))
        });
        let Some((container, holder)) = self
            .holder
            .and_then(|container| Some((container, self.entities.get(&container)?)))
        else {
            let first = self
                .first()
                .and_then(|(container, _)| self.entities.get(&container));
            let back = first.and_then(|first| self.expected(first.class));
            return refilled.chain(back.map(|(until, _)| until)).min();
        };
        let over = match holder.phase {
            Phase::Holding(turn) => self.until(container, &turn),
            Phase::Closing { closed } => Some(closed + self.policy.overrun),
            _ => None,
        };
        let due = self
            .waiting()
            .filter(|(_, entity)| entity.class < holder.class)
            .filter_map(|(_, entity)| self.due_in(entity))
            .filter(|wait| *wait > Nanos::ZERO)
            .map(|wait| self.now + wait);
        refilled.chain(over).chain(due).min()
    }
}

/// How long a turn may last beside a rival: its length, and longer if the holder is behind the rival, until it has caught
/// up. A holder that is ahead was let in because the rival did not want; it has as much less as it is ahead.
fn allowance(turn: &Turn, weight: u64, rival: Reading) -> Nanos {
    let (behind, ahead) = (
        rival.since(turn.from, weight),
        turn.from.since(rival, weight),
    );
    let full = turn.since + (turn.length - ahead);
    full.max(turn.read + behind)
}
