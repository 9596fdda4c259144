//! Who stands where, so that no event needs a look at everybody.
//!
//! Each container has one [`Place`], which follows from its entity and the time. [`Schedule::touch`] is the only way to
//! change an entity: it brings up to now what changes with time alone, lets the change be made, and puts the container
//! where it stands afterwards. `check` builds the index anew and compares.

use super::clock::Reading;
use super::entity::{Bill, Entity, GRACE, Phase};
use super::schedule::Schedule;
use super::terms::LeasePolicy;
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// A container in the order of its class: by clock, among equals who had a turn longest ago.
pub(super) type Order = (Reading, Nanos, ContainerId);

/// What a container does, of what the index distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is in a turn, or drains, and asks for nothing.
    Works,
    /// It waits for a turn and may have one.
    Waits {
        clock: Reading,
        granted: Nanos,
        /// It has not drained from its last turn, and nobody knows when it will.
        beside: bool,
        /// When its guarantee is due, if it has one.
        due: Option<Nanos>,
    },
    /// It waits for a turn with its gang, and may have one.
    Gang { clock: Reading, granted: Nanos },
    /// It waits for a turn and its cap allows none before this.
    Capped(Nanos),
    /// Its turn ended at this time, so recently that it is not taken for idle.
    Back(Nanos),
    /// It is idle.
    Rests,
}

/// Where a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) class: u16,
    pub(super) stand: Stand,
    /// Its weight, if it counts among those that work or want.
    active: Option<u64>,
    /// It is billed for time.
    pays: bool,
    /// Since when it is closed, if the next was let in before it had drained.
    ending: Option<Nanos>,
    /// It has drained since others were let in.
    late: bool,
}

/// Those of a class who work or wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    count: u64,
    weight: u64,
    /// Who waits and has drained, and who waits and has not.
    out: BTreeSet<Order>,
    beside: BTreeSet<Order>,
    /// Who waits with a gang.
    gangs: BTreeSet<Order>,
    /// When guarantees of those who wait are due.
    due: BTreeSet<(Nanos, ContainerId)>,
}

impl Class {
    /// Who waits and is furthest behind.
    pub(super) fn first(&self) -> Option<Order> {
        let firsts = [self.out.first(), self.beside.first()];
        firsts.into_iter().flatten().min().copied()
    }

    /// Who waits and is furthest behind, those of gangs among them.
    pub(super) fn furthest(&self) -> Option<Order> {
        self.first()
            .into_iter()
            .chain(self.gangs.first().copied())
            .min()
    }

    /// Who waits with a gang, and is further behind than this.
    pub(super) fn gangs_behind(&self, clock: Reading) -> impl Iterator<Item = ContainerId> {
        let behind = self.gangs.iter().take_while(move |(own, ..)| *own < clock);
        behind.map(|(.., container)| *container)
    }

    /// The same among those who have drained.
    pub(super) fn first_out(&self) -> Option<Order> {
        self.out.first().copied()
    }

    /// How many work or want, and their weights.
    pub(super) fn active(&self) -> (u64, u64) {
        (self.count, self.weight)
    }

    fn is_empty(&self) -> bool {
        self.count == 0
            && self.out.is_empty()
            && self.beside.is_empty()
            && self.gangs.is_empty()
            && self.due.is_empty()
    }

    fn set(&mut self, container: ContainerId, place: &Place, there: bool) {
        if let Some(weight) = place.active {
            let (count, sum) = (self.count, self.weight);
            (self.count, self.weight) = if there {
                (count + 1, sum + weight)
            } else {
                (count.saturating_sub(1), sum.saturating_sub(weight))
            };
        }
        if let Stand::Gang { clock, granted } = place.stand {
            put(&mut self.gangs, (clock, granted, container), there);
        }
        if let Stand::Waits {
            clock,
            granted,
            beside,
            due,
        } = place.stand
        {
            let order = if beside {
                &mut self.beside
            } else {
                &mut self.out
            };
            put(order, (clock, granted, container), there);
            if let Some(due) = due {
                put(&mut self.due, (due, container), there);
            }
        }
    }
}

/// See the module's page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    places: BTreeMap<ContainerId, Place>,
    /// How many containers are in each class.
    members: BTreeMap<u16, u64>,
    classes: BTreeMap<u16, Class>,
    capped: BTreeSet<(Nanos, ContainerId)>,
    back: BTreeSet<(Nanos, ContainerId)>,
    payers: BTreeSet<ContainerId>,
    ending: BTreeSet<(Nanos, ContainerId)>,
    late: BTreeSet<ContainerId>,
}

impl Index {
    /// Puts a container somewhere else, or nowhere. Says where it was.
    pub(super) fn put(&mut self, container: ContainerId, place: Option<Place>) -> Option<Place> {
        let was = self.places.get(&container).copied();
        if was == place {
            return was;
        }
        if let Some(was) = was {
            self.set(container, &was, false);
        }
        match place {
            Some(place) => {
                self.set(container, &place, true);
                self.places.insert(container, place)
            }
            None => self.places.remove(&container),
        }
    }

    fn set(&mut self, container: ContainerId, place: &Place, there: bool) {
        let members = self.members.entry(place.class).or_default();
        *members = if there { *members + 1 } else { *members - 1 };
        if *members == 0 {
            self.members.remove(&place.class);
        }
        let class = self.classes.entry(place.class).or_default();
        class.set(container, place, there);
        if class.is_empty() {
            self.classes.remove(&place.class);
        }
        match place.stand {
            Stand::Capped(ready) => put(&mut self.capped, (ready, container), there),
            Stand::Back(ended) => put(&mut self.back, (ended, container), there),
            _ => (),
        }
        if place.pays {
            put(&mut self.payers, container, there);
        }
        if let Some(closed) = place.ending {
            put(&mut self.ending, (closed, container), there);
        }
        if place.late {
            put(&mut self.late, container, there);
        }
    }

    /// Where a container stands.
    pub(super) fn place(&self, container: ContainerId) -> Option<Place> {
        self.places.get(&container).copied()
    }

    /// Whether a container counts among those of this class that work or want.
    pub(super) fn is_active(&self, container: ContainerId, class: u16) -> bool {
        let place = self.places.get(&container);
        place.is_some_and(|place| place.class == class && place.active.is_some())
    }

    /// Those of a class who work or wait, if there are any.
    pub(super) fn class(&self, class: u16) -> Option<&Class> {
        self.classes.get(&class)
    }

    /// The highest class that anybody is in.
    pub(super) fn highest(&self) -> Option<u16> {
        self.members.last_key_value().map(|(class, _)| *class)
    }

    /// The highest class of which somebody waits, and who of it is furthest behind.
    pub(super) fn first(&self) -> Option<(u16, Order)> {
        let mut classes = self.classes.iter().rev();
        classes.find_map(|(class, all)| Some((*class, all.first()?)))
    }

    /// The highest class of which somebody waits, alone or with a gang.
    pub(super) fn highest_waiting(&self) -> Option<u16> {
        let mut classes = self.classes.iter().rev();
        classes.find_map(|(class, all)| all.furthest().map(|_| *class))
    }

    /// Whether anybody waits with a gang.
    pub(super) fn has_gangs(&self) -> bool {
        self.classes.values().any(|class| !class.gangs.is_empty())
    }

    /// Who waits with a gang.
    pub(super) fn gangs(&self) -> impl Iterator<Item = ContainerId> {
        let all = self.classes.values().flat_map(|class| &class.gangs);
        all.map(|(.., container)| *container)
    }

    /// Who of a class below this is due by now: of the highest such class the furthest behind.
    pub(super) fn due_below(&self, class: u16, now: Nanos) -> Option<ContainerId> {
        let below = self.classes.range(..class).rev();
        let order = |container: ContainerId| match self.places.get(&container)?.stand {
            Stand::Waits { clock, granted, .. } => Some((clock, granted, container)),
            _ => None,
        };
        below
            .filter_map(|(_, all)| {
                let due = all.due.iter().take_while(|(at, _)| *at <= now);
                due.filter_map(|(_, container)| order(*container)).min()
            })
            .map(|(.., container)| container)
            .next()
    }

    /// When the next one of a class below this is due that is not yet.
    pub(super) fn next_due_below(&self, class: u16, now: Nanos) -> Option<Nanos> {
        let after = (now + Nanos(1), ContainerId(0));
        let below = self.classes.range(..class);
        let next = below.filter_map(|(_, all)| all.due.range(after..).next());
        next.map(|(at, _)| *at).min()
    }

    /// Who is billed.
    pub(super) fn payers(&self) -> &BTreeSet<ContainerId> {
        &self.payers
    }

    /// Who is about to have drained while the next has begun, and since when its gates are closed.
    pub(super) fn ending(&self) -> Option<(Nanos, ContainerId)> {
        self.ending.first().copied()
    }

    /// Who has drained since others were let in.
    pub(super) fn late(&self) -> Option<ContainerId> {
        self.late.first().copied()
    }

    /// Whose turns ended after this time and who has not said anything since.
    pub(super) fn back(&self, after: Nanos) -> impl Iterator<Item = (Nanos, ContainerId)> {
        self.back
            .range((after + Nanos(1), ContainerId(0))..)
            .copied()
    }

    /// When the first of those whose cap allows no turn may have one, and who.
    pub(super) fn capped(&self) -> Option<(Nanos, ContainerId)> {
        self.capped.first().copied()
    }

    fn first_back(&self) -> Option<(Nanos, ContainerId)> {
        self.back.first().copied()
    }
}

impl Entity {
    /// Where it stands at a time. What changes with time alone is taken as of when it was last brought up to date.
    pub(super) fn place(&self, now: Nanos, policy: &LeasePolicy) -> Place {
        let wants = self.wants();
        let ending = match self.phase {
            Phase::Ending { closed } => Some(closed),
            _ => None,
        };
        let overran = matches!(self.phase, Phase::Overrun { .. });
        Place {
            class: self.class,
            stand: self.stand(now, policy, wants),
            active: (wants || matches!(self.phase, Phase::Holding(_))).then_some(self.weight),
            pays: self.is_billed(),
            ending,
            late: (overran || ending.is_some()) && self.is_drained(),
        }
    }

    fn stand(&self, now: Nanos, policy: &LeasePolicy, wants: bool) -> Stand {
        match self.phase {
            Phase::Out | Phase::Ending { .. } | Phase::Overrun { .. } if wants => {
                let ready = self.ready();
                if ready > now {
                    return Stand::Capped(ready);
                }
                if self.gang {
                    return Stand::Gang {
                        clock: self.clock,
                        granted: self.granted,
                    };
                }
                Stand::Waits {
                    clock: self.clock,
                    granted: self.granted,
                    beside: matches!(self.phase, Phase::Overrun { .. }),
                    due: self.due(policy),
                }
            }
            Phase::Out if now < self.ended + GRACE => Stand::Back(self.ended),
            Phase::Out => Stand::Rests,
            _ => Stand::Works,
        }
    }

    /// From when on its cap allows it a turn, if it takes nothing meanwhile.
    fn ready(&self) -> Nanos {
        match self.bucket {
            Some(bucket) if bucket.allows() => self.passed,
            Some(_) if self.is_billed() => Nanos::MAX,
            Some(bucket) => self.passed + bucket.wait(),
            None => self.passed,
        }
    }

    /// From when on it is a turn behind its guarantee, if it goes on waiting.
    pub(super) fn due(&self, policy: &LeasePolicy) -> Option<Nanos> {
        let promise = self.promise?;
        let turn = promise.turn(policy.quantum, policy.shortest);
        Some(self.passed + promise.wait(turn))
    }
}

impl Schedule {
    /// Changes a container, which is brought up to date before and put where it stands after. The change is told the mark
    /// of the container's class.
    pub(super) fn touch<R>(
        &mut self,
        container: ContainerId,
        change: impl FnOnce(&mut Entity, Reading) -> R,
    ) -> Option<R> {
        let entity = self.entities.get_mut(&container)?;
        let mark = self.marks.of(entity.class);
        entity.pass(self.now, mark, Bill::default(), self.policy.most_debt);
        let changed = change(entity, mark);
        self.put(container);
        Some(changed)
    }

    /// Puts a container where it stands now.
    pub(super) fn put(&mut self, container: ContainerId) {
        let Some(mut place) = self.place(container) else {
            self.index.put(container, None);
            return;
        };
        let was = self.index.place(container);
        if was == Some(place) {
            // A holder's clock is not in its place and moves its mark all the same.
            self.placed(container, place);
            return;
        }
        let held_back = was.is_some_and(|was| matches!(was.stand, Stand::Capped(_)));
        if held_back && matches!(place.stand, Stand::Waits { .. } | Stand::Gang { .. }) {
            self.catch_up(container);
            place = self.place(container).unwrap_or(place);
        }
        if let Some(entity) = self.entities.get_mut(&container) {
            entity.rests = place.stand == Stand::Rests;
        }
        self.index.put(container, Some(place));
        self.placed(container, place);
    }

    fn place(&self, container: ContainerId) -> Option<Place> {
        let entity = self.entities.get(&container)?;
        Some(entity.place(self.now, &self.policy))
    }

    fn placed(&mut self, container: ContainerId, place: Place) {
        if self.touched.last() != Some(&container) {
            self.touched.push(container);
        }
        self.mark(place.class);
    }

    /// Its cap allows it a turn again. It may be as far behind its mark as a turn, which its cap may have cost it.
    fn catch_up(&mut self, container: ContainerId) {
        let turn = self.length(container);
        if let Some(entity) = self.entities.get_mut(&container) {
            let floor = self.marks.of(entity.class).before(turn, entity.weight);
            entity.clock = entity.clock.max(floor);
        }
    }

    /// Puts everybody anew: after a change of what concerns all.
    pub(super) fn put_all(&mut self) {
        for container in self.entities.keys().copied().collect::<Vec<_>>() {
            self.touch(container, |_, _| ());
        }
    }

    /// Moves those whose place changes with time alone.
    pub(super) fn ripen(&mut self) {
        while let Some((ended, container)) = self.index.first_back() {
            if self.now < ended + GRACE {
                break;
            }
            self.touch(container, |_, _| ());
        }
        while let Some((ready, container)) = self.index.capped() {
            if self.now < ready {
                break;
            }
            self.touch(container, |_, _| ());
        }
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, item: T, there: bool) {
    if there {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}
