//! What time costs: whoever is in a turn pays for it, drain included.
//!
//! Containers that overlap because one did not drain split the time evenly, as the hardware does. Their caps pay all of
//! it: a ceiling must hold whatever the others do. No clock gets further ahead of its class than the most debt.

use super::clock::WHOLE;
use super::entity::{Bill, Phase};
use super::index::Class;
use super::schedule::Schedule;
use crate::ids::ContainerId;
use crate::time::Nanos;

impl Schedule {
    /// Lets time pass, and bills it: those who pay are brought up to date, everybody else when it is needed.
    pub(super) fn pass(&mut self, now: Nanos) {
        let time = now - self.now;
        if time == Nanos::ZERO {
            return;
        }
        self.now = now;
        let payers: Vec<ContainerId> = self.index.payers().iter().copied().collect();
        let share = Nanos(time.0 / u64::try_from(payers.len().max(1)).unwrap_or(1));
        let overran = |container: &ContainerId| {
            let entity = self.entities.get(container);
            entity.is_some_and(|entity| matches!(entity.phase, Phase::Overrun { .. }))
        };
        // Who is about to have drained and who has just been let in have the time between them, whichever of the two the device works for.
        let between = payers.len() == 2 && !payers.iter().any(overran);
        let bill = Bill {
            share,
            whole: if between { share } else { time },
        };
        let most_debt = self.policy.most_debt;
        for container in &payers {
            if let Some(entity) = self.entities.get_mut(container) {
                let mark = self.marks.of(entity.class);
                entity.pass(now, mark, bill, most_debt);
                self.put(*container);
            }
        }
        for container in payers {
            self.forgive(container);
        }
        self.ripen();
    }

    /// Moves the mark of a class up to whoever of it is furthest behind of those that work or wait.
    pub(super) fn mark(&mut self, class: u16) {
        let waits = self.index.class(class).and_then(Class::furthest);
        let works = self.holder.and_then(|holder| self.entities.get(&holder));
        let works = works.filter(|entity| entity.class == class);
        let least = waits.map(|(clock, ..)| clock).into_iter();
        if let Some(least) = least.chain(works.map(|entity| entity.clock)).min() {
            self.marks.reach(class, least);
        }
    }

    /// What a container owes above the most is forgiven, and if it overran and owes that much it pays no more.
    pub(super) fn forgive(&mut self, container: ContainerId) {
        let Some(entity) = self.entities.get_mut(&container) else {
            return;
        };
        let most_debt = self.policy.most_debt;
        let mark = self.marks.of(entity.class);
        let most = mark.after(most_debt, entity.weight);
        let owes_all = entity.reading(self.now, mark) >= most;
        let dry = entity
            .bucket
            .is_some_and(|bucket| bucket.at_most_debt(most_debt));
        let stops =
            matches!(entity.phase, Phase::Overrun { billed: true, .. }) && (owes_all || dry);
        if !owes_all && !stops {
            return;
        }
        self.touch(container, |entity, _| {
            entity.clock = entity.clock.min(most);
            if let Phase::Overrun { billed, .. } = &mut entity.phase {
                *billed = *billed && !stops;
            }
        });
    }

    /// The turn a container would get now: the quantum by its weight among those of its class that work or wait.
    pub(super) fn length(&self, container: ContainerId) -> Nanos {
        let Some(own) = self.entities.get(&container) else {
            return self.policy.shortest;
        };
        let (mut count, mut sum) = self.index.class(own.class).map_or((0, 0), Class::active);
        if !self.index.is_active(container, own.class) {
            (count, sum) = (count + 1, sum + own.weight);
        }
        let part =
            u128::from(own.weight) * u128::from(count) * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(self.policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(self.policy.shortest)
    }
}
