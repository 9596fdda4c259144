//! One gang's way through its turn. Each step does what is due and says the stage it leads to.

use super::{AGAIN, PATIENCE, Parts, Stage, bound};
use crate::ids::{ContainerId, DeviceId};
use crate::lease::gang::{Part, Stand};
use crate::lease::schedule::Schedule;
use crate::time::Nanos;
use std::borrow::BorrowMut;
use std::collections::BTreeMap;

/// A gang while it is driven. Each step says the stage it leads to, or `None` if nothing is to be done.
pub(super) struct One<'a, S> {
    pub(super) now: Nanos,
    pub(super) container: ContainerId,
    pub(super) parts: Parts,
    pub(super) devices: &'a mut BTreeMap<DeviceId, S>,
}

impl<S: BorrowMut<Schedule>> One<'_, S> {
    /// A turn may begin without an election: the container was alone on the device until now.
    pub(super) fn out(&mut self) -> Option<Stage> {
        let holds = |part: &Part| {
            matches!(
                part.stand,
                Stand::Open { .. } | Stand::Kept { .. } | Stand::Called
            )
        };
        self.parts
            .iter()
            .any(|(_, part)| holds(part))
            .then_some(Stage::In)
    }

    pub(super) fn gathering(&mut self) -> Option<Stage> {
        if self.join(Stage::Gathering).is_some() {
            return Some(Stage::Gathering);
        }
        let asks = |part: &Part| matches!(part.stand, Stand::Asks { .. });
        if self.parts.iter().any(|(_, part)| asks(part)) {
            // It came to want a device that it cannot have now: what it launched elsewhere would wait for that.
            self.each(
                |part| matches!(part.stand, Stand::Called | Stand::Kept { .. }),
                Schedule::release,
            );
            return Some(Stage::Out);
        }
        let called = |part: &Part| part.stand == Stand::Called;
        if self.parts.iter().any(|(_, part)| called(part)) {
            return None;
        }
        self.each(
            |part| matches!(part.stand, Stand::Kept { .. }),
            |schedule, now, container| schedule.open(now, container, false),
        );
        Some(Stage::In)
    }

    pub(super) fn inside(&mut self) -> Option<Stage> {
        let now = self.now;
        let over = |part: &Part| match part.stand {
            Stand::Closing { given_up } => !given_up,
            Stand::Kept { fresh, .. } => !fresh && part.interrupted,
            _ => false,
        };
        if self.parts.iter().any(|(_, part)| over(part)) {
            self.each(
                |part| matches!(part.stand, Stand::Open { .. }),
                Schedule::stop,
            );
            return Some(Stage::Ending {
                since: now,
                patience: PATIENCE,
            });
        }
        let kept = |part: &Part, was: bool| matches!(part.stand, Stand::Kept { fresh, .. } if fresh == was);
        let opened = self.each(
            |part| kept(part, true),
            |schedule, now, container| schedule.open(now, container, false),
        );
        let released = self.each(|part| kept(part, false), Schedule::release);
        if opened || released {
            return Some(Stage::In);
        }
        let works = |part: &Part| {
            matches!(
                part.stand,
                Stand::Open { .. } | Stand::Called | Stand::Closing { .. }
            )
        };
        if !self.parts.iter().any(|(_, part)| works(part)) {
            return Some(Stage::Out);
        }
        self.join(Stage::In)
    }

    pub(super) fn ending(&mut self, since: Nanos, patience: Nanos) -> Option<Stage> {
        let now = self.now;
        let stays = Some(Stage::Ending { since, patience });
        let stopped = self.each(
            |part| part.stand == Stand::Open { step: false },
            Schedule::stop,
        );
        let uncalled = self.each(
            |part| matches!(part.stand, Stand::Called | Stand::Kept { fresh: true, .. }),
            Schedule::release,
        );
        if stopped || uncalled {
            return stays;
        }
        let drains = |part: &Part| matches!(part.stand, Stand::Closing { .. } | Stand::Open { .. });
        let overran =
            |part: &Part| matches!(part.stand, Stand::Overrun { closed } if closed >= since);
        let waits = self.parts.iter().any(|(_, part)| drains(part));
        let given_up =
            self.parts.iter().any(|(_, part)| overran(part)) || now >= since + bound(self.devices);
        let kept = |part: &Part| matches!(part.stand, Stand::Kept { .. });
        let released = self.each(
            |part| kept(part) && (!part.wants || !waits || given_up),
            Schedule::release,
        );
        if released {
            return stays;
        }
        let due = |part: &Part| matches!(part.stand, Stand::Kept { since, .. } if now >= since + patience);
        let stepped = self.each(due, |schedule, now, container| {
            schedule.open(now, container, true);
        });
        if stepped {
            return Some(Stage::Ending {
                since,
                patience: AGAIN,
            });
        }
        let rests = !self
            .parts
            .iter()
            .any(|(_, part)| kept(part) || drains(part));
        rests.then_some(Stage::Out)
    }

    /// Calls a device on which the gang came to want work after it had won.
    fn join(&mut self, stage: Stage) -> Option<Stage> {
        for (device, part) in &self.parts {
            let Some(schedule) = self.devices.get_mut(device) else {
                continue;
            };
            let schedule = schedule.borrow_mut();
            let opening = schedule.opening(self.container);
            if part.stand == (Stand::Asks { allowed: true })
                && opening.is_some_and(|opening| opening.allowed <= self.now)
            {
                schedule.call(self.now, self.container);
                return Some(stage);
            }
        }
        None
    }

    /// Does something on each device on which the gang stands so. `true` if there was any.
    fn each(
        &mut self,
        stands: impl Fn(&Part) -> bool,
        act: impl Fn(&mut Schedule, Nanos, ContainerId),
    ) -> bool {
        let mut any = false;
        for (device, _) in self.parts.iter().filter(|(_, part)| stands(part)) {
            if let Some(schedule) = self.devices.get_mut(device) {
                act(schedule.borrow_mut(), self.now, self.container);
                any = true;
            }
        }
        any
    }
}
