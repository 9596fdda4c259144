//! The kill ladder: SIGTERM to a whole container, a grace, SIGKILL, a grace, then it counts as one that will not yield.
//!
//! Before each rung it is asked again whether it must be. A victim of a collision is spared once the ask it was to make
//! room for has ended, or once it no longer uses more than its request.

use super::World;
use crate::decision::{Decision, Notice, Signal, Why};
use crate::ids::{AskKey, ContainerId};
use crate::time::Nanos;
use crate::timers::Timer;

/// How far down the ladder a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    Terminated,
    Killed,
    WillNotYield,
}

/// A container being ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) why: Why,
    pub(super) rung: Rung,
    /// The ask it makes room for.
    pub(super) wanted_for: Option<AskKey>,
}

impl World {
    /// From SIGTERM until a victim's bytes should be back, at the latest.
    pub(super) fn ladder_length(&self) -> Nanos {
        self.policy.term_grace + self.policy.kill_grace
    }

    /// Puts a container on the ladder.
    pub(super) fn end(&mut self, container: ContainerId, why: Why, wanted_for: Option<AskKey>) {
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        if known.ending.is_some() {
            return;
        }
        known.ending = Some(Ending {
            why,
            rung: Rung::Terminated,
            wanted_for,
        });
        self.ladders.insert(container);
        self.timers
            .set(Timer::Ladder(container), self.now + self.policy.term_grace);
        self.decide(Decision::Signal {
            container,
            signal: Signal::Terminate,
            why,
        });
    }

    pub(super) fn next_rung(&mut self, container: ContainerId) {
        let Some(ending) = self
            .containers
            .get(&container)
            .and_then(|known| known.ending)
        else {
            return;
        };
        match ending.rung {
            Rung::Terminated if !self.still_due(container, &ending) => self.spare(container),
            Rung::Terminated => {
                self.climb(container, Rung::Killed);
                self.timers
                    .set(Timer::Ladder(container), self.now + self.policy.kill_grace);
                self.decide(Decision::Signal {
                    container,
                    signal: Signal::Kill,
                    why: ending.why,
                });
            }
            Rung::Killed => {
                self.climb(container, Rung::WillNotYield);
                self.notice(Notice::WillNotYield { container });
                for device in self.devices_of(container) {
                    self.settle(device);
                }
            }
            Rung::WillNotYield => (),
        }
    }

    fn climb(&mut self, container: ContainerId, rung: Rung) {
        if let Some(ending) = self
            .containers
            .get_mut(&container)
            .and_then(|known| known.ending.as_mut())
        {
            ending.rung = rung;
        }
    }

    fn still_due(&self, container: ContainerId, ending: &Ending) -> bool {
        let Why::Collision { device, .. } = ending.why else {
            return true;
        };
        let account = self
            .devices
            .get(&device)
            .and_then(|books| books.account(container));
        account.is_some_and(|account| account.over_request())
            && ending
                .wanted_for
                .is_some_and(|ask| self.asks.contains_key(&ask))
    }

    /// An ask ended: whoever was asked to go for it, and was not killed yet, may stay.
    pub(super) fn spare_victims_of(&mut self, ask: AskKey) {
        let waiting_for_it = self.ladders.iter().copied().filter(|container| {
            let ending = self
                .containers
                .get(container)
                .and_then(|known| known.ending);
            ending.is_some_and(|ending| {
                ending.wanted_for == Some(ask) && ending.rung == Rung::Terminated
            })
        });
        for container in waiting_for_it.collect::<Vec<_>>() {
            self.spare(container);
        }
    }

    pub(super) fn spare(&mut self, container: ContainerId) {
        self.step_down(container);
        self.notice(Notice::Spared { container });
        self.check_end(container);
        for device in self.devices_of(container) {
            self.timers.set_no_later(Timer::Settle(device), self.now);
        }
    }

    /// It is off the ladder: spared, or none of its processes is left.
    pub(super) fn step_down(&mut self, container: ContainerId) {
        self.ladders.remove(&container);
        self.timers.stop(Timer::Ladder(container));
        if let Some(known) = self.containers.get_mut(&container) {
            known.ending = None;
        }
    }
}
