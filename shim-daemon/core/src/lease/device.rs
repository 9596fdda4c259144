//! One device's time: shared, or dealt in exclusive turns.
//!
//! A device is shared unless the node's settings say turns. While a gang works on a device, and for
//! a while after, it is shared in any case. A kernel of a gang may occupy its device until a peer
//! on another device has run, so no device can give exclusive turns to a part of the gang (ADR 73).
//! In both regimes the clients see one control page and epochs that only rise, and tenants keep
//! their accounts.

use super::input::{Input, Output};
use super::page::Lease;
use super::shared::{Joint, Part, Shared};
use super::terms::{LeasePolicy, Sharing};
use super::turns::Schedule;
use super::view::{DeviceTally, ShareView, SharingView};
use super::work::Work;
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use std::collections::BTreeMap;

/// How long a device in turns stays shared after the last gang has left it. A tenant that joins and
/// leaves gangs sheds its debt at most this often.
const AFTER_A_GANG: Nanos = Nanos::secs(60);

#[derive(Debug)]
enum Regime {
    Shared(Box<Shared>),
    Turns(Box<Schedule>),
}

/// What is the same in both regimes: `$one` is the present one.
macro_rules! either {
    ($regime:expr, $one:ident => $what:expr) => {
        match $regime {
            Regime::Shared($one) => $what,
            Regime::Turns($one) => $what,
        }
    };
}

/// See the module's page.
#[derive(Debug)]
pub struct DeviceTime {
    policy: LeasePolicy,
    regime: Regime,
    /// The tenants that belong to gangs, and what is decided for all devices of these.
    bound: BTreeMap<TenantId, Joint>,
    /// When the last of them left.
    unbound: Option<Nanos>,
}

impl DeviceTime {
    /// A device without tenants.
    pub fn new(policy: LeasePolicy) -> Self {
        let regime = match policy.sharing {
            Sharing::Together => Regime::Shared(Box::new(Shared::new(policy))),
            Sharing::Turns => Regime::Turns(Box::new(Schedule::new(policy))),
        };
        Self {
            policy,
            regime,
            bound: BTreeMap::new(),
            unbound: None,
        }
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        either!(&mut self.regime, regime => {
            regime.pass(now);
            match input {
                Input::Joined { tenant, process, gated, class, compute } => {
                    regime.joined((tenant, process, gated), (class, compute));
                }
                Input::Away { process, away } => {
                    regime.set_there(process, |members| members.set_away(process, away));
                }
                Input::Sealed { process, sealed } => {
                    regime.set_there(process, |members| members.set_sealed(process, sealed));
                }
                Input::Left { process } => regime.left(process),
                Input::Set { tenant, class, compute } => regime.set(tenant, (class, compute)),
                Input::Reported { process, epoch, report } => {
                    regime.reported(process, epoch, report);
                }
            }
            regime.settle();
        });
        self.follow(now);
    }

    /// Lets time pass without an input: call it when [`Self::next_timeout`] has come.
    pub fn advance(&mut self, now: Nanos) {
        if let Regime::Turns(turns) = &mut self.regime {
            turns.pass(now);
            turns.settle();
        }
        self.follow(now);
    }

    /// When to read the pages of its processes next. `None` while that is not needed.
    pub fn next_sample(&self) -> Option<Nanos> {
        self.shared().and_then(Shared::next_sample)
    }

    /// The processes whose pages are read.
    pub fn processes(&self) -> Vec<ProcessId> {
        either!(&self.regime, regime => regime.roster.processes())
    }

    /// The contents of the processes' pages at `now`.
    pub fn sampled(&mut self, now: Nanos, works: &[(ProcessId, Work)]) {
        if let Regime::Shared(shared) = &mut self.regime {
            shared.sample(now, works);
        }
    }

    /// In the last `span` these processes had so much of the device, as the driver's samples say
    /// it: those whose gates the daemon moves, those that it does not, and some that are not known.
    pub fn ran(&mut self, now: Nanos, span: Nanos, ran: &[(Option<ProcessId>, Nanos)]) {
        if let Regime::Shared(shared) = &mut self.regime {
            shared.ran(now, span, ran);
        }
    }

    /// When to call `advance` if no event comes before. A shared device needs
    /// [samples](Self::next_sample), and a call when it returns to turns.
    pub fn next_timeout(&self) -> Option<Nanos> {
        match &self.regime {
            Regime::Shared(_) => self.unbound.map(|at| at + AFTER_A_GANG),
            Regime::Turns(turns) => turns.next_timeout(),
        }
    }

    /// The next output, in order.
    pub fn poll(&mut self) -> Option<Output> {
        either!(&mut self.regime, regime => regime.roster.outputs.pop_front())
    }

    /// The content of a tenant's page.
    pub fn lease(&self, id: TenantId) -> Option<Lease> {
        either!(&self.regime, regime => regime.roster.lease(id))
    }

    /// A tenant's share, with the time up to `now` billed as it will be.
    pub fn share(&self, id: TenantId, now: Nanos) -> Option<ShareView> {
        match &self.regime {
            Regime::Shared(shared) => shared.share(id),
            Regime::Turns(turns) => turns.share(id, now),
        }
    }

    /// Whether a tenant has a process here.
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.lease(id).is_some()
    }

    /// How the part of a gang stands on the device.
    pub(super) fn gang_part(&self, now: Nanos, id: TenantId, mates: &[TenantId]) -> Option<Part> {
        self.shared()?.gang_part(now, id, mates)
    }

    /// A tenant belongs to a gang of which this is decided, or to no gang.
    pub(super) fn bind(&mut self, now: Nanos, id: TenantId, joint: Option<Joint>) {
        match joint {
            Some(joint) => {
                self.bound.insert(id, joint);
            }
            None => {
                let was = self.bound.remove(&id);
                if was.is_some() && self.bound.is_empty() {
                    self.unbound = Some(now);
                }
            }
        }
        self.follow(now);
        if let Regime::Shared(shared) = &mut self.regime {
            shared.bind(now, id, joint);
        }
    }

    /// How the device is shared, for people to look at.
    pub fn sharing(&self, now: Nanos) -> SharingView {
        let shared = self.shared();
        shared.map_or_else(SharingView::default, |shared| shared.sharing(now))
    }

    /// The counters of the device since it was added.
    pub fn tally(&self) -> DeviceTally {
        either!(&self.regime, regime => regime.roster.tally)
    }

    /// Other settings from now on.
    pub fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.policy = policy;
        either!(&mut self.regime, regime => regime.set_policy(now, policy));
        self.follow(now);
    }

    fn shared(&self) -> Option<&Shared> {
        match &self.regime {
            Regime::Shared(shared) => Some(shared),
            Regime::Turns(_) => None,
        }
    }

    /// Changes to the regime that the settings and the gangs require. Work in flight continues
    /// beside the first turn.
    fn follow(&mut self, now: Nanos) {
        let over = |at: Nanos| now >= at + AFTER_A_GANG;
        if self.unbound.is_some_and(over)
            || !self.bound.is_empty()
            || self.policy.sharing == Sharing::Together
        {
            self.unbound = None;
        }
        let gangs = !self.bound.is_empty() || self.unbound.is_some();
        let together = gangs || self.policy.sharing == Sharing::Together;
        if together == self.shared().is_some() {
            return;
        }
        let left = Regime::Turns(Box::new(Schedule::new(self.policy)));
        match std::mem::replace(&mut self.regime, left) {
            Regime::Turns(turns) => {
                let mut shared = Shared::with(now, self.policy, turns.into_roster(now));
                for (id, joint) in &self.bound {
                    shared.bind(now, *id, Some(*joint));
                }
                self.regime = Regime::Shared(Box::new(shared));
            }
            Regime::Shared(shared) => {
                let turns = Schedule::with(now, self.policy, shared.into_roster(now));
                self.regime = Regime::Turns(Box::new(turns));
            }
        }
    }

    /// Recomputes the invariants. `Err` names a violated one; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub fn check(&self) -> Result<(), String> {
        either!(&self.regime, regime => regime.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Report;
    use crate::lease::terms::Compute;
    use gpushare_protocol::units::Permille;

    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);

    /// A device in turns: A has its turn, and B is idle.
    fn turns() -> DeviceTime {
        let mut device = DeviceTime::new(LeasePolicy::turns());
        for (tenant, process) in [(A, ProcessId(1)), (B, ProcessId(2))] {
            let joined = Input::Joined {
                tenant,
                process,
                gated: true,
                class: 500,
                compute: Compute::default(),
            };
            device.handle(Nanos::ZERO, joined);
        }
        device
    }

    fn is_closed(device: &DeviceTime) -> bool {
        let lease = device.lease(A).expect("it is here");
        lease.kind.is_closed()
    }

    /// Of A, alone on a shared device.
    fn terms(limit: Option<Permille>) -> Compute {
        Compute {
            request: None,
            limit,
        }
    }

    #[test]
    fn a_cap_that_is_lifted_on_a_shared_device_opens_the_gate_at_once() {
        let (process, tenth) = (ProcessId(1), Permille::new(100));
        for (limit, opens) in [(None, true), (tenth, false)] {
            let mut device = DeviceTime::new(LeasePolicy::default());
            let joined = Input::Joined {
                tenant: A,
                process,
                gated: true,
                class: 500,
                compute: terms(tenth),
            };
            device.handle(Nanos::ZERO, joined);
            let works = Work {
                since: Some(Nanos::ZERO),
                ..Work::default()
            };
            let mut now = Nanos::ZERO;
            while !is_closed(&device) {
                now = device.next_sample().expect("it has a cap");
                assert!(now < Nanos::secs(1), "it uses its cap up");
                device.sampled(now, &[(process, works)]);
            }
            let set = Input::Set {
                tenant: A,
                class: 500,
                compute: terms(limit),
            };
            device.handle(now, set);
            assert_eq!(!is_closed(&device), opens);
        }
    }

    fn held(device: &DeviceTime, now: Nanos) -> Nanos {
        device.share(A, now).expect("it is here").held
    }

    /// A counter of the metrics, which took a fall for a new tenant, and added its whole past.
    #[test]
    fn the_time_of_a_turn_is_kept_when_a_gang_ends_turns() {
        let (mut device, now) = (turns(), Nanos::secs(3));
        let before = held(&device, now);
        assert_eq!(before, now);
        device.bind(now, B, Some(Joint::default()));
        assert!(device.sharing(now).mode.is_some(), "it is shared");
        assert_eq!(held(&device, now), before);
    }

    #[test]
    fn the_time_waited_is_kept_when_a_gang_ends_turns() {
        let mut device = turns();
        let lease = device.lease(B).expect("it is here");
        let wanted = Input::Reported {
            process: ProcessId(2),
            epoch: lease.epoch,
            report: Report::Wanted,
        };
        device.handle(Nanos::millis(1), wanted);
        device.bind(Nanos::millis(3), B, Some(Joint::default()));
        let share = device.share(B, Nanos::millis(3)).expect("it is here");
        let waits = (share.waits.count(), share.waits.sum_ns, share.waiting);
        assert_eq!(waits, (1, Nanos::millis(2).0, None));
    }
}
