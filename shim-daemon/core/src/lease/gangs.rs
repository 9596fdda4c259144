//! Containers that take turns on several devices: their turns begin and end together.
//!
//! A kernel that waits for its peer on another device occupies its own until the peer has run. So a container on several
//! devices, a *gang*, has one turn on all those on which it wants to work. It wins when it is next on one of them and not
//! far from it on the others; then all are called at once, their holders close, and the turn begins when the last has
//! drained. Nothing is acquired one by one, so gangs do not wait for each other in a circle.
//!
//! When the turn is over on one device it is over on all. What was launched on one and not on the other when the gates
//! closed would never drain: a device on which the gang has drained and a call waits is stepped, one launch at a time, until
//! the others have drained too. What it gives up by itself, because it is idle there, is given back at once.

mod one;
mod plan;

use super::gang::{NEAR, Opening, Part, Stand};
use super::schedule::Schedule;
use crate::ids::{ContainerId, DeviceId};
use crate::time::Nanos;
use one::One;
use std::borrow::BorrowMut;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How long one device of a gang is drained, and another is not, before the first is stepped: two reports about the same
/// moment are not further apart.
const PATIENCE: Nanos = Nanos::micros(500);

/// The same once it was stepped: then it is known that the others wait for it.
const AGAIN: Nanos = Nanos::micros(150);

/// Where a gang is in its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It has no turn.
    #[default]
    Out,
    /// It has won: its devices are being freed for it.
    Gathering,
    /// It has its turn.
    In,
    /// Its turn is over and it drains.
    Ending {
        /// Since when.
        since: Nanos,
        /// How long a drained device waits before it is stepped.
        patience: Nanos,
    },
}

/// The gangs among the containers of all devices. Call [`Self::settle`] after anything that happened to a schedule, and
/// [`Self::regroup`] before that when containers came to a device or left one.
#[derive(Debug, Default)]
pub struct Gangs {
    stages: BTreeMap<ContainerId, Stage>,
}

type Parts = Vec<(DeviceId, Part)>;

/// When a gang that waits could have its turn, and on which devices.
type Forecast = (Option<Nanos>, Vec<DeviceId>);

impl Gangs {
    /// Whether there is none, and [`Self::settle`] has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Finds out anew who takes turns on several devices, after containers came to `device` or left it, or their terms
    /// there changed; `came` is who did.
    pub fn regroup<S: BorrowMut<Schedule>>(
        &mut self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, S>,
        device: DeviceId,
        came: Option<ContainerId>,
    ) {
        let mut concerned: BTreeSet<ContainerId> = self.stages.keys().copied().collect();
        concerned.extend(came);
        if let Some(schedule) = devices.get(&device) {
            concerned.extend(schedule.borrow().few());
        }
        for container in concerned {
            let takes = |schedule: &&S| (*schedule).borrow().takes_turns(container);
            let gang = devices.values().filter(takes).count() > 1;
            if gang {
                self.stages.entry(container).or_default();
            } else if self.stages.remove(&container).is_none() {
                continue;
            }
            for schedule in devices.values_mut() {
                schedule.borrow_mut().bind(now, container, gang);
            }
        }
        if self.is_empty() {
            self.plan(now, devices);
        }
    }

    /// Brings all gangs to where they should be now.
    pub fn settle<S: BorrowMut<Schedule>>(
        &mut self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, S>,
    ) {
        if self.is_empty() {
            return;
        }
        while self.drive(now, devices) || self.elect(now, devices) || go_on(devices) {}
        self.plan(now, devices);
    }

    /// What always holds between two inputs. `Err` says what does not; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check<S: BorrowMut<Schedule>>(
        &self,
        devices: &BTreeMap<DeviceId, S>,
    ) -> Result<(), String> {
        for (container, stage) in &self.stages {
            let parts = parts(devices, *container);
            let open = |(_, part): &(DeviceId, Part)| part.stand == Stand::Open { step: false };
            let kept = |(_, part): &(DeviceId, Part)| matches!(part.stand, Stand::Kept { .. });
            let right = match stage {
                Stage::Out => !parts.iter().any(|part| open(part) || kept(part)),
                Stage::Gathering => !parts.iter().any(open),
                Stage::In => parts.iter().all(|part| !kept(part)),
                Stage::Ending { .. } => !parts.iter().any(open),
            };
            let asks = |(_, part): &(DeviceId, Part)| part.stand == Stand::Asks { allowed: true };
            let found = waiting(devices).contains(container) || !parts.iter().any(asks);
            let seen = engaged(devices).contains(container)
                || !parts.iter().any(|at| open(at) || kept(at));
            if !right || !found || !seen {
                return Err(format!("{container:?} is {stage:?} and stands {parts:?}"));
            }
        }
        Ok(())
    }

    /// Does one thing that is due for a gang that has or gets a turn.
    fn drive<S: BorrowMut<Schedule>>(
        &mut self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, S>,
    ) -> bool {
        // Most gangs have nothing to do at most times.
        let engaged = engaged(devices);
        let concerned = self.stages.iter_mut();
        let mut concerned = concerned
            .filter(|(container, stage)| **stage != Stage::Out || engaged.contains(container));
        concerned.any(|(container, stage)| {
            let mut one = One {
                now,
                container: *container,
                parts: parts(devices, *container),
                devices: &mut *devices,
            };
            let next = match *stage {
                Stage::Out => one.out(),
                Stage::Gathering => one.gathering(),
                Stage::In => one.inside(),
                Stage::Ending { since, patience } => one.ending(since, patience),
            };
            if let Some(next) = next {
                *stage = next;
            }
            next.is_some()
        })
    }

    /// Those that wait, who should be first before who should be later: by guarantees that are due, by class, by where they stand worst, by who had a
    /// turn longest ago.
    fn waiting<S: BorrowMut<Schedule>>(
        &self,
        devices: &BTreeMap<DeviceId, S>,
    ) -> Vec<(ContainerId, Forecast)> {
        let mut order = Vec::new();
        for container in waiting(devices) {
            if self.stages.get(&container) != Some(&Stage::Out) {
                continue;
            }
            let parts = parts(devices, container);
            let asks: Vec<&(DeviceId, Part)> = parts
                .iter()
                .filter(|(_, part)| matches!(part.stand, Stand::Asks { .. }))
                .collect();
            let Some(lead) = asks.iter().map(|(_, part)| part.lead).max() else {
                continue;
            };
            let capped = Stand::Asks { allowed: false };
            let promoted = asks.iter().any(|(_, part)| part.promoted);
            let class = asks.iter().map(|(_, part)| part.class).max();
            let granted = asks.iter().map(|(_, part)| part.granted).max();
            let wanted: Vec<DeviceId> = asks.iter().map(|(device, _)| *device).collect();
            let at = if asks.iter().any(|(_, part)| part.stand == capped) {
                None
            } else {
                forecast(devices, container, &wanted)
            };
            order.push((
                (Reverse((promoted, class)), lead, granted, container),
                (at, wanted),
            ));
        }
        order.sort_unstable_by_key(|(key, _)| *key);
        order
            .into_iter()
            .map(|((.., container), forecast)| (container, forecast))
            .collect()
    }

    /// Calls the devices of the first gang that can have its turn.
    fn elect<S: BorrowMut<Schedule>>(
        &mut self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, S>,
    ) -> bool {
        let waiting = self.waiting(devices);
        let free = |device: &DeviceId| {
            let schedule = devices.get(device);
            schedule.is_some_and(|schedule| schedule.borrow().is_free())
        };
        let first = waiting.into_iter().find(|(_, (at, wanted))| {
            // A soft landing is a little early, and nobody else's turn would be worth it.
            let early = wanted.iter().any(free);
            at.is_some_and(|at| at <= now || early && at <= now + NEAR)
        });
        let Some((container, (_, wanted))) = first else {
            return false;
        };
        for device in wanted {
            if let Some(schedule) = devices.get_mut(&device) {
                schedule.borrow_mut().call(now, container);
            }
        }
        self.stages.insert(container, Stage::Gathering);
        true
    }
}

/// Whose a device is or will be, of all devices.
fn engaged<S: BorrowMut<Schedule>>(devices: &BTreeMap<DeviceId, S>) -> BTreeSet<ContainerId> {
    let of = |schedule: &S| schedule.borrow().engaged().collect::<Vec<_>>();
    devices.values().flat_map(of).collect()
}

/// The containers of gangs that wait on any device and may have a turn there.
fn waiting<S: BorrowMut<Schedule>>(devices: &BTreeMap<DeviceId, S>) -> BTreeSet<ContainerId> {
    let of = |schedule: &S| schedule.borrow().gangs_waiting().collect::<Vec<_>>();
    devices.values().flat_map(of).collect()
}

/// A gang on the devices where it takes turns.
fn parts<S: BorrowMut<Schedule>>(devices: &BTreeMap<DeviceId, S>, container: ContainerId) -> Parts {
    devices
        .iter()
        .filter_map(|(device, schedule)| Some((*device, schedule.borrow().gang_part(container)?)))
        .filter(|(_, part)| part.stand != Stand::Free)
        .collect()
}

/// The longest drained devices of a gang wait for the others.
fn bound<S: BorrowMut<Schedule>>(devices: &BTreeMap<DeviceId, S>) -> Nanos {
    let first = devices.values().next();
    first.map_or(Nanos::ZERO, |schedule| schedule.borrow().policy.overrun)
}

fn opens<S: BorrowMut<Schedule>>(
    devices: &BTreeMap<DeviceId, S>,
    device: DeviceId,
    container: ContainerId,
) -> Option<Opening> {
    devices.get(&device)?.borrow().opening(container)
}

/// When a gang could have its turn on these devices, as things stand: it is next on one of them, and near it on all.
fn forecast<S: BorrowMut<Schedule>>(
    devices: &BTreeMap<DeviceId, S>,
    container: ContainerId,
    wanted: &[DeviceId],
) -> Option<Nanos> {
    let (mut natural, mut allowed) = (None::<Nanos>, Nanos::ZERO);
    for device in wanted {
        let opening = opens(devices, *device, container)?;
        allowed = allowed.max(opening.allowed);
        natural = natural.into_iter().chain(opening.natural).min();
    }
    natural.map(|natural| natural.max(allowed))
}

/// Where nobody holds a device and no gang comes, whoever is next may.
fn go_on<S: BorrowMut<Schedule>>(devices: &mut BTreeMap<DeviceId, S>) -> bool {
    let mut any = false;
    for schedule in devices.values_mut() {
        let schedule = schedule.borrow_mut();
        if schedule.pauses() {
            schedule.go_on();
            any |= schedule.in_turn().is_some();
        }
    }
    any
}
