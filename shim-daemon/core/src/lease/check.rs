//! What always holds between two inputs.

use super::entity::{Entity, Phase};
use super::index::{Index, Stand};
use super::schedule::Schedule;
use super::word::LeaseKind;
use crate::ids::ContainerId;

impl Schedule {
    /// Recomputes what must hold. `Err` says what does not; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.check_holder()?;
        self.check_index()?;
        if let (None, Some((container, _))) = (self.holder, self.next()) {
            return Err(format!("{container:?} is next and nobody holds the device"));
        }
        for (container, entity) in &self.entities {
            self.check_entity(*container, entity)
                .map_err(|broken| format!("{container:?}: {broken}, {entity:?}"))?;
        }
        for (process, container) in &self.owners {
            let known = self.entities.get(container);
            if !known.is_some_and(|entity| entity.members.contains_key(process)) {
                return Err(format!("{process:?} is not in {container:?}"));
            }
        }
        Ok(())
    }

    fn check_holder(&self) -> Result<(), String> {
        let holders: Vec<ContainerId> = self
            .entities
            .iter()
            .filter(|(_, entity)| entity.takes())
            .map(|(container, _)| *container)
            .collect();
        if holders != self.holder.into_iter().collect::<Vec<_>>() {
            return Err(format!("{holders:?} hold, {:?} is known to", self.holder));
        }
        let Some((entity, turn)) = self
            .holder
            .and_then(|holder| self.entities.get(&holder))
            .and_then(|entity| match entity.phase {
                Phase::Holding(turn) => Some((entity, turn)),
                _ => None,
            })
        else {
            return Ok(());
        };
        match self.index.first() {
            Some((class, (.., container)))
                if class > entity.class && !turn.promoted && !turn.step =>
            {
                Err(format!("{container:?} is of a higher class and waits"))
            }
            _ => Ok(()),
        }
    }

    /// The index is what everybody's place makes it, and those who pay are billed up to now.
    fn check_index(&self) -> Result<(), String> {
        let mut anew = Index::default();
        for (container, entity) in &self.entities {
            let place = entity.place(self.now, &self.policy);
            if entity.rests != (place.stand == Stand::Rests) {
                return Err(format!("{container:?} rests or does not: {entity:?}"));
            }
            if entity.is_billed() && entity.passed != self.now {
                return Err(format!(
                    "{container:?} was not billed up to now: {entity:?}"
                ));
            }
            anew.put(*container, Some(place));
        }
        if anew == self.index {
            Ok(())
        } else {
            Err(format!("the index is {:?}, should be {anew:?}", self.index))
        }
    }

    fn check_entity(&self, container: ContainerId, entity: &Entity) -> Result<(), String> {
        let alone = self.entities.len() == 1 && entity.bucket.is_none();
        if alone != (entity.phase == Phase::Free) {
            return Err("it is free only if alone and without a cap".to_owned());
        }
        if entity.members.is_empty() {
            return Err("it has no process here".to_owned());
        }
        let right = match (entity.said.kind, entity.phase) {
            (LeaseKind::Free, Phase::Free) => true,
            (LeaseKind::Open { deadline, .. }, Phase::Holding(turn)) => {
                deadline == self.until(container, &turn)
                    && deadline.is_none_or(|deadline| deadline > self.now)
            }
            (
                LeaseKind::Closed,
                Phase::Out
                | Phase::Kept { .. }
                | Phase::Closing { .. }
                | Phase::Ending { .. }
                | Phase::Overrun { .. },
            ) => true,
            _ => false,
        };
        if !right || entity.said.epoch != entity.epoch {
            return Err("its page says something else".to_owned());
        }
        let mark = self.marks.of(entity.class);
        let reading = entity.reading(self.now, mark);
        if reading.since(mark, entity.weight) > self.policy.most_debt {
            return Err("it owes more than can be owed".to_owned());
        }
        Ok(())
    }
}
