//! A gang's part on one device: what [`Gangs`](super::gangs::Gangs) sees of it, and what it does there.
//!
//! A container of a gang asks like any other and is not let in by the schedule. It is *called* when its gang has won:
//! then the device is kept for it as soon as the holder has drained, with its gates still closed, and *opened* when all
//! devices of the gang are kept. When it has drained the device is kept until it is *released*. Kept time is billed like
//! any turn.

use super::entity::{Entity, Phase, Turn};
use super::index::{self, Class, Order};
use super::schedule::Schedule;
use super::turns::allowance;
use super::word::Lease;
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::cmp::Ordering;

/// What a holder may be behind whom it gives way to: about what a soft landing is early by.
pub(super) const NEAR: Nanos = Nanos::millis(1);

/// What was decided for a device with others in view.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// Who is next, whoever else waits.
    pub(super) called: Option<ContainerId>,
    /// It was called before a higher class, for its guarantee.
    promoted: bool,
    /// The holder's turn ends then at the latest.
    pub(super) ends: Option<Nanos>,
    /// When the gangs are to be looked at again.
    pub(super) alarm: Option<Nanos>,
    /// No gang comes now: others may.
    go: bool,
}

/// What a gang's container does on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is alone there, and nothing binds it.
    Free,
    /// It neither has nor wants the device.
    Idle,
    /// It waits, and its cap lets it or not.
    Asks { allowed: bool },
    /// The device is its own as soon as the holder has drained.
    Called,
    /// The device is kept for it.
    Kept { since: Nanos, fresh: bool },
    /// It is in its turn, or, for one launch, in a step.
    Open { step: bool },
    /// It drains from a turn that it gave up itself, or that was ended.
    Closing { given_up: bool },
    /// It did not drain in the bound.
    Overrun { closed: Nanos },
}

/// A gang's container on one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) stand: Stand,
    pub(super) wants: bool,
    /// Its last turn was ended, not given up.
    pub(super) interrupted: bool,
    /// Its guarantee is due, and a higher class is before it.
    pub(super) promoted: bool,
    pub(super) class: u16,
    /// How far its clock is ahead of its class's mark, in virtual nanoseconds; negative if behind.
    pub(super) lead: i128,
    /// When it last got a turn.
    pub(super) granted: Nanos,
}

/// When a device would be a waiting container's, as things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// In its own order.
    pub(super) natural: Option<Nanos>,
    /// From when on it may be let in with its gang, a little out of its order.
    pub(super) allowed: Nanos,
}

impl Opening {
    /// Then, and not before.
    fn at(at: Nanos) -> Self {
        Self {
            natural: Some(at),
            allowed: at,
        }
    }
}

impl Schedule {
    /// Whether anybody waits.
    pub(super) fn is_contended(&self) -> bool {
        self.index.first().is_some() || self.index.has_gangs()
    }

    /// Whether no gang has to be looked at before somebody is let in.
    pub(super) fn is_left_to_itself(&self) -> bool {
        self.gang.called.is_none() && (self.gang.go || !self.index.has_gangs())
    }

    /// Somebody may be let in here and waits for the gangs to be looked at.
    pub(super) fn pauses(&self) -> bool {
        self.holder.is_none() && !self.is_left_to_itself() && self.gang.called.is_none()
    }

    /// No gang comes now: lets in whoever is next.
    pub(super) fn go_on(&mut self) {
        self.gang.go = true;
        self.settle();
        self.gang.go = false;
    }

    /// Whether nobody holds the device.
    pub(super) fn is_free(&self) -> bool {
        self.holder.is_none()
    }

    /// The most un-drained work of a turn: for a gang less, because what its devices are apart by when their gates close has
    /// to be stepped.
    pub(super) fn window_of(&self, entity: &Entity, turn: &Turn) -> Nanos {
        let window = self.window(entity.class);
        if turn.step {
            Lease::STEP
        } else if entity.gang {
            window.min(Nanos(self.policy.window.0 / 4))
        } else {
            window
        }
    }

    /// Whether a container has processes here and is not alone.
    pub(super) fn takes_turns(&self, container: ContainerId) -> bool {
        let entity = self.entities.get(&container);
        entity.is_some_and(|entity| entity.phase != Phase::Free)
    }

    /// Who is here, where so few are that one who came or left makes another alone or not.
    pub(super) fn few(&self) -> Vec<ContainerId> {
        let few = self.entities.len() <= 2;
        self.entities.keys().copied().filter(|_| few).collect()
    }

    /// A container is of a gang from now on, or no longer.
    pub(super) fn bind(&mut self, now: Nanos, container: ContainerId, gang: bool) {
        let is_so = |entity: &Entity| entity.gang == gang;
        if self.entities.get(&container).is_none_or(is_so) {
            return;
        }
        self.pass(now);
        let kept = self.touch(container, |entity, _| {
            entity.gang = gang;
            matches!(entity.phase, Phase::Kept { .. })
        });
        if !gang {
            self.gang.called = self.gang.called.filter(|called| *called != container);
            if kept == Some(true) {
                self.end(container);
            }
        }
        self.settle();
    }

    /// Its gang has won: whoever holds the device closes.
    pub(super) fn call(&mut self, now: Nanos, container: ContainerId) {
        self.pass(now);
        self.gang.called = Some(container);
        let own = self.entities.get(&container);
        self.gang.promoted = own.is_some_and(|own| self.is_promoted(own));
        self.settle();
    }

    /// It is not called any more, and the device is not kept for it.
    pub(super) fn release(&mut self, now: Nanos, container: ContainerId) {
        self.pass(now);
        self.gang.called = self.gang.called.filter(|called| *called != container);
        if self.is_kept(container) {
            self.end(container);
        }
        self.settle();
    }

    /// Its turn begins, on the device that is kept for it; for one launch only if it is a `step`.
    pub(super) fn open(&mut self, now: Nanos, container: ContainerId, step: bool) {
        self.pass(now);
        let called = self.gang.called == Some(container);
        let promoted = called && !step && self.gang.promoted;
        self.gang.called = self.gang.called.filter(|called| *called != container);
        if self.is_kept(container) {
            self.grant(container, promoted);
            self.touch(container, |entity, _| {
                if let Phase::Holding(turn) = &mut entity.phase {
                    turn.step = step;
                }
                entity.turns -= u64::from(step);
            });
        }
        self.settle();
    }

    /// Its turn is over because it is on another device.
    pub(super) fn stop(&mut self, now: Nanos, container: ContainerId) {
        self.pass(now);
        let holds = |entity: &Entity| matches!(entity.phase, Phase::Holding(_));
        if self.entities.get(&container).is_some_and(holds) {
            self.close(container);
            self.touch(container, |entity, _| entity.interrupted = true);
        }
        self.settle();
    }

    /// When the holder's turn ends at the latest, and when the gangs want to be looked at again.
    pub(super) fn bound(&mut self, now: Nanos, ends: Option<Nanos>, alarm: Option<Nanos>) {
        if (self.gang.ends, self.gang.alarm) != (ends, alarm) {
            self.pass(now);
            (self.gang.ends, self.gang.alarm) = (ends, alarm);
            self.settle();
        }
    }

    /// What comes before all else: who is called gets the device, and the holder makes way.
    pub(super) fn make_way(&mut self) -> bool {
        let here = |called: &ContainerId| self.entities.contains_key(called);
        self.gang.called = self.gang.called.filter(here);
        let (Some(called), holder) = (self.gang.called, self.holder) else {
            return false;
        };
        match holder.and_then(|holder| Some((holder, self.entities.get(&holder)?.phase))) {
            None => self.keep(called),
            Some((holder, Phase::Holding(turn))) if holder != called && !turn.step => {
                self.close(holder);
            }
            Some(_) => return false,
        }
        true
    }

    /// Keeps the device for a container: before its turn, or after it has drained.
    pub(super) fn keep(&mut self, container: ContainerId) {
        let (now, fresh) = (self.now, self.gang.called == Some(container));
        self.holder = Some(container);
        self.touch(container, |entity, _| {
            if let Phase::Holding(_) = entity.phase {
                // It closed by itself at its deadline.
                entity.interrupted = true;
            }
            entity.phase = Phase::Kept { since: now, fresh };
        });
        if fresh {
            self.pass_over(container);
        }
    }

    /// Somebody is let in: gangs that were before it and could not come may be a turn behind it, no more.
    pub(super) fn pass_over(&mut self, by: ContainerId) {
        let Some((class, clock)) = self.entities.get(&by).map(|by| (by.class, by.clock)) else {
            return;
        };
        let passed: Vec<ContainerId> = self.index.class(class).map_or(Vec::new(), |class| {
            let behind = class.gangs_behind(clock);
            behind.filter(|container| *container != by).collect()
        });
        for container in passed {
            let turn = self.length(container);
            self.touch(container, |entity, _| {
                entity.clock = entity.clock.max(clock.before(turn, entity.weight));
            });
        }
    }

    fn is_kept(&self, container: ContainerId) -> bool {
        let kept = |entity: &Entity| matches!(entity.phase, Phase::Kept { .. });
        self.entities.get(&container).is_some_and(kept)
    }

    /// Whether its cap allows it a turn.
    fn may(&self, container: ContainerId) -> bool {
        let place = self.index.place(container);
        place.is_some_and(|place| !matches!(place.stand, index::Stand::Capped(_)))
    }

    /// A gang's container as it is here.
    pub(super) fn gang_part(&self, container: ContainerId) -> Option<Part> {
        let entity = self.entities.get(&container)?;
        let called = self.gang.called == Some(container);
        let stand = match entity.phase {
            Phase::Free => Stand::Free,
            Phase::Kept { since, fresh } => Stand::Kept { since, fresh },
            Phase::Holding(turn) => Stand::Open { step: turn.step },
            Phase::Closing { .. } => Stand::Closing {
                given_up: !entity.interrupted,
            },
            Phase::Out | Phase::Ending { .. } | Phase::Overrun { .. } if called => Stand::Called,
            Phase::Out if entity.wants() => Stand::Asks {
                allowed: self.may(container),
            },
            Phase::Ending { .. } | Phase::Overrun { .. }
                if entity.wants() && self.may(container) =>
            {
                Stand::Asks { allowed: true }
            }
            // What does not let it drain may be that its others devices have to go on.
            Phase::Ending { closed } | Phase::Overrun { closed, .. } => Stand::Overrun { closed },
            Phase::Out => Stand::Idle,
        };
        let mark = self.marks.of(entity.class);
        Some(Part {
            stand,
            wants: entity.wants(),
            interrupted: entity.interrupted,
            promoted: self.is_promoted(entity),
            class: entity.class,
            lead: i128::from(entity.clock.0) - i128::from(mark.0),
            granted: entity.granted,
        })
    }

    /// Whether its guarantee is due and somebody of a higher class, who has the device or waits for it, is not before it for that.
    fn is_promoted(&self, own: &Entity) -> bool {
        let holder = self.holder.and_then(|holder| self.entities.get(&holder));
        let highest = self.index.highest_waiting();
        let highest = highest.max(holder.map(|holder| holder.class));
        highest > Some(own.class) && own.due(&self.policy).is_some_and(|at| at <= self.now)
    }

    /// When the turn of the gang's container would end if it were alone on this device.
    pub(super) fn own_end(&self, container: ContainerId) -> Option<Nanos> {
        match self.entities.get(&container)?.phase {
            Phase::Holding(turn) if !turn.step => self.until_here(container, &turn),
            _ => None,
        }
    }

    /// Whose the device is, and whose it will be.
    pub(super) fn engaged(&self) -> impl Iterator<Item = ContainerId> {
        self.holder.into_iter().chain(self.gang.called)
    }

    /// Containers of gangs that wait here and may have a turn.
    pub(super) fn gangs_waiting(&self) -> impl Iterator<Item = ContainerId> {
        self.index.gangs()
    }

    /// Who holds the device in an ordinary turn.
    pub(super) fn in_turn(&self) -> Option<ContainerId> {
        let holds = |holder: &ContainerId| {
            let entity = self.entities.get(holder);
            entity.is_some_and(|entity| matches!(entity.phase, Phase::Holding(_)))
        };
        self.holder.filter(holds)
    }

    /// When the device would be the container's. `None`: others are before it, or it is another gang's.
    pub(super) fn opening(&self, container: ContainerId) -> Option<Opening> {
        let own = self.entities.get(&container)?;
        if self.gang.called.is_some_and(|called| called != container) {
            return None;
        }
        let due_at = own.due(&self.policy);
        let due = due_at.is_some_and(|at| at <= self.now);
        let higher = |(class, _): (u16, Order)| class > own.class;
        let before = self.index.first().is_some_and(higher)
            || self.index.due_below(own.class, self.now).is_some()
            || self.is_due_again(own.class);
        if before && !due {
            // It comes when its guarantee is due.
            return due_at.map(Opening::at);
        }
        let slack = Nanos(self.length(container).0 / 2);
        let rival = self.index.class(own.class).and_then(Class::first);
        let ahead = rival.map_or(Nanos::ZERO, |(clock, ..)| {
            own.clock.since(clock, own.weight)
        });
        if ahead > slack && !before {
            return None;
        }
        let first = before || ahead <= NEAR;
        let (natural, allowed) = self.given_way(own, due, slack)?;
        Some(Opening {
            natural: natural.filter(|_| first),
            allowed,
        })
    }

    /// Whether the holder of a lower class, which drains, is next again for its guarantee.
    fn is_due_again(&self, class: u16) -> bool {
        let holder = self.holder.and_then(|holder| self.entities.get(&holder));
        let holder = holder.filter(|holder| matches!(holder.phase, Phase::Closing { .. }));
        let due = |holder: &Entity| holder.due(&self.policy).is_some_and(|at| at <= self.now);
        holder.is_some_and(|holder| holder.class < class && holder.wants() && due(holder))
    }

    /// When the holder gives way: in its own time, and for a gang that may be ahead of it by as much as `slack`.
    fn given_way(&self, own: &Entity, due: bool, slack: Nanos) -> Option<(Option<Nanos>, Nanos)> {
        let now = self.now;
        let at_once = Some((Some(now), now));
        let Some(holder) = self.holder.and_then(|holder| self.entities.get(&holder)) else {
            let back = self.expected(own.class).filter(|_| !due);
            let back = back.filter(|(_, clock)| *clock < own.clock);
            return Some((Some(back.map_or(now, |(until, _)| until)), now));
        };
        let Phase::Holding(turn) = holder.phase else {
            let taken = matches!(holder.phase, Phase::Kept { fresh: true, .. });
            return at_once.filter(|_| !taken);
        };
        if turn.step || holder.is_quiet() {
            return at_once;
        }
        let full = turn.since + turn.length;
        if turn.promoted {
            // Its turn ends by itself, and it may be due again: nobody comes a little early.
            let after = full + NEAR;
            return Some((Some(after), after));
        }
        match own.class.cmp(&holder.class) {
            Ordering::Greater => at_once,
            Ordering::Less => {
                let at = own.due(&self.policy)?.max(full);
                Some((Some(at), at))
            }
            Ordering::Equal if own.phase != Phase::Out => Some((Some(full), full)),
            Ordering::Equal => Some(self.meets(&turn, holder, own, slack)),
        }
    }

    fn meets(
        &self,
        turn: &Turn,
        holder: &Entity,
        own: &Entity,
        slack: Nanos,
    ) -> (Option<Nanos>, Nanos) {
        let natural = allowance(turn, holder.weight, own.clock);
        let level = own.clock.before(slack, own.weight);
        let caught_up = turn.read + level.since(turn.from, holder.weight);
        let allowed = caught_up.max(turn.since + self.policy.shortest);
        (
            Some(natural.max(self.now)),
            allowed.max(self.now).min(natural.max(self.now)),
        )
    }
}
