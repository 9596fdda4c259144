//! When turns end because of other devices, so that clients end them softly, and when the gangs are to be looked at again.

use super::{Gangs, Stage, bound, opens, parts};
use crate::ids::{ContainerId, DeviceId};
use crate::lease::gang::Stand;
use crate::lease::schedule::Schedule;
use crate::time::Nanos;
use std::borrow::BorrowMut;
use std::collections::BTreeMap;

/// A time for each device that has one: the earliest that was put there, and none that has come.
struct Times {
    now: Nanos,
    at: BTreeMap<DeviceId, Nanos>,
}

impl Times {
    fn put(&mut self, device: DeviceId, at: Nanos) {
        if at > self.now {
            let least = self.at.entry(device).or_insert(at);
            *least = at.min(*least);
        }
    }

    fn of(&self, device: DeviceId) -> Option<Nanos> {
        self.at.get(&device).copied()
    }
}

impl Gangs {
    /// Tells each device.
    pub(super) fn plan<S: BorrowMut<Schedule>>(
        &self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, S>,
    ) {
        let mut ends = self.come(now, devices);
        let alarms = self.alarms(&ends, devices);
        for (container, stage) in &self.stages {
            if *stage == Stage::In {
                end_together(&mut ends, devices, *container);
            }
        }
        for (device, schedule) in devices {
            let (ends, alarm) = (ends.of(*device), alarms.of(*device));
            schedule.borrow_mut().bound(now, ends, alarm);
        }
    }

    /// When gangs come to devices on which they have no turn.
    fn come<S: BorrowMut<Schedule>>(&self, now: Nanos, devices: &BTreeMap<DeviceId, S>) -> Times {
        let at = BTreeMap::new();
        let mut times = Times { now, at };
        for (_, (at, wanted)) in self.waiting(devices) {
            for device in at.iter().flat_map(|_| &wanted) {
                times.put(*device, at.unwrap_or_default());
            }
        }
        for (container, stage) in &self.stages {
            if !matches!(stage, Stage::In | Stage::Gathering) {
                continue;
            }
            for (device, part) in parts(devices, *container) {
                let joins = part.stand == Stand::Asks { allowed: true };
                if let (true, Some(opening)) = (joins, opens(devices, device, *container)) {
                    times.put(device, opening.allowed);
                }
            }
        }
        times
    }

    /// When something is due for a gang: where one comes, and where one waits to be stepped.
    fn alarms<S: BorrowMut<Schedule>>(
        &self,
        come: &Times,
        devices: &BTreeMap<DeviceId, S>,
    ) -> Times {
        let (now, at) = (come.now, come.at.clone());
        let mut alarms = Times { now, at };
        for (container, stage) in &self.stages {
            let Stage::Ending { since, patience } = *stage else {
                continue;
            };
            for (device, part) in parts(devices, *container) {
                if let Stand::Kept { since: kept, .. } = part.stand {
                    alarms.put(device, kept + patience);
                    alarms.put(device, since + bound(devices));
                }
            }
        }
        alarms
    }
}

/// A gang's turn ends on all its devices when it ends on the first.
fn end_together<S: BorrowMut<Schedule>>(
    ends: &mut Times,
    devices: &BTreeMap<DeviceId, S>,
    container: ContainerId,
) {
    let open = Stand::Open { step: false };
    let parts = parts(devices, container).into_iter();
    let open: Vec<DeviceId> = parts
        .filter(|(_, part)| part.stand == open)
        .map(|(device, _)| device)
        .collect();
    let end = |device: &DeviceId| {
        let own = devices.get(device)?.borrow().own_end(container);
        own.into_iter().chain(ends.of(*device)).min()
    };
    if let Some(end) = open.iter().filter_map(end).min() {
        open.iter().for_each(|device| ends.put(*device, end));
    }
}
