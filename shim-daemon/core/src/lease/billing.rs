//! What time costs: whoever is in a turn pays for it, drain included.
//!
//! Containers that overlap because one did not drain split the time evenly, as the hardware does. Their caps pay all of
//! it: a ceiling must hold whatever the others do. No clock gets further ahead of its class than the most debt.

use super::clock::{Reading, WHOLE};
use super::entity::{Entity, Phase};
use super::schedule::Schedule;
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// A debt of who rests fades at this part of the time: after a pause of 100 s a second's debt is gone, and nobody gains
/// more than a hundredth of the time by it.
const FADE: u64 = 100;

impl Schedule {
    /// Lets time pass, and bills it.
    pub(super) fn pass(&mut self, now: Nanos) {
        let time = now - self.now;
        if time == Nanos::ZERO {
            return;
        }
        self.now = now;
        let payers = self
            .entities
            .values()
            .filter(|entity| entity.is_billed())
            .count();
        let share = Nanos(time.0 / u64::try_from(payers.max(1)).unwrap_or(1));
        let most_debt = self.policy.most_debt;
        for entity in self.entities.values_mut() {
            let (billed, whole) = if entity.is_billed() {
                (share, time)
            } else {
                (Nanos::ZERO, Nanos::ZERO)
            };
            entity.clock = entity.clock.after(billed, entity.weight);
            entity.held = entity.held + billed;
            if entity.rests(now) {
                let least = self.marks.of(entity.class).min(entity.clock);
                let faded = entity.clock.before(Nanos(time.0 / FADE), entity.weight);
                entity.clock = faded.max(least);
            }
            let waits = entity.wants();
            if let Some(bucket) = &mut entity.bucket {
                bucket.pass(time, whole, most_debt);
            }
            if let Some(promise) = &mut entity.promise {
                if waits || whole != Nanos::ZERO {
                    promise.pass(time, billed);
                } else {
                    promise.idles(time);
                }
            }
        }
        self.mark();
    }

    /// Moves the marks of the classes up to whoever is furthest behind, and keeps all clocks near them: not further ahead
    /// than the most debt, and not further behind than the turn that a cap may have cost.
    pub(super) fn mark(&mut self) {
        let mut behind: BTreeMap<u16, Reading> = BTreeMap::new();
        let counts =
            |entity: &Entity| matches!(entity.phase, Phase::Holding(_) | Phase::Closing { .. });
        let taking = self.entities.values().filter(|entity| counts(entity));
        let waiting = self.waiting().map(|(_, entity)| entity);
        for entity in taking.chain(waiting) {
            let least = behind.entry(entity.class).or_insert(entity.clock);
            *least = entity.clock.min(*least);
        }
        for (class, reading) in behind {
            let was = self.marks.reach(class, reading);
            self.keep_debts(class, was);
        }
        let held_back: Vec<(ContainerId, Nanos)> = self.held_back().collect();
        for (container, turn) in held_back {
            if let Some(entity) = self.entities.get_mut(&container) {
                let floor = self.marks.of(entity.class).before(turn, entity.weight);
                entity.clock = entity.clock.max(floor);
            }
        }
        self.forgive();
    }

    /// A class's mark moved: those of it that are idle and owe something go with it.
    fn keep_debts(&mut self, class: u16, was: Reading) {
        let (now, mark) = (self.now, self.marks.of(class));
        let idle = |entity: &&mut Entity| entity.class == class && entity.rests(now);
        for entity in self.entities.values_mut().filter(idle) {
            if entity.clock > was {
                entity.clock = entity.clock.moved(was, mark);
            }
        }
    }

    /// Debts above the most are forgiven, and who overran and owes that much pays no more.
    fn forgive(&mut self) {
        let most_debt = self.policy.most_debt;
        for entity in self.entities.values_mut() {
            let most = self.marks.of(entity.class).after(most_debt, entity.weight);
            let owes_all = entity.clock >= most;
            entity.clock = entity.clock.min(most);
            let dry = entity
                .bucket
                .is_some_and(|bucket| bucket.at_most_debt(most_debt));
            if let Phase::Overrun { billed, .. } = &mut entity.phase {
                *billed = *billed && !owes_all && !dry;
            }
        }
    }

    /// The turn a container would get now: the quantum by its weight among those of its class that work or wait.
    pub(super) fn length(&self, container: ContainerId) -> Nanos {
        let Some(own) = self.entities.get(&container) else {
            return self.policy.shortest;
        };
        let (mut count, mut sum) = (1, own.weight);
        for (other, entity) in &self.entities {
            let counts = entity.wants() || matches!(entity.phase, Phase::Holding(_));
            if *other != container && entity.class == own.class && counts {
                count += 1;
                sum += entity.weight;
            }
        }
        let part = u128::from(own.weight) * count * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(self.policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(self.policy.shortest)
    }
}
