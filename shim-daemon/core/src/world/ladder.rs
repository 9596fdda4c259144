//! The kill ladder: SIGTERM to a whole tenant, a grace period, SIGKILL, a grace period; then it
//! counts as a tenant that does not yield.
//!
//! The need for it is rechecked again and again. A victim of a collision is spared once the asks
//! that may end it are met without it, or once it no longer uses more than its request. A tenant
//! without processes is a victim no longer. A limit of its own ends all of it; what outlives the
//! whole ladder and has no process is off it. Until SIGKILL a change of a tenant's terms reaches it
//! here too.

use super::World;
use super::view::EndView;
use crate::decision::{Decision, Notice, Signal, Why};
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

/// How far down the ladder a tenant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    Terminated,
    Killed,
    WillNotYield,
}

/// An ask for which a tenant may be ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// It is within its request: it may end any tenant that borrowed.
    pub(super) guaranteed: bool,
    pub(super) priority: u16,
}

impl Claim {
    fn may_end(&self, priority: u16, idle: bool) -> bool {
        self.guaranteed || idle || priority < self.priority
    }
}

/// A tenant being ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) why: Why,
    pub(super) rung: Rung,
}

impl World {
    /// Puts a tenant on the ladder.
    pub(super) fn end(&mut self, tenant: TenantId, why: Why) {
        let rung = Rung::Terminated;
        if !self.tenants.end(tenant, Ending { why, rung }) {
            return;
        }
        self.timers.set(
            Timer::Ladder(tenant),
            self.timers.now() + self.policy.term_grace,
        );
        self.decide(Decision::Signal {
            tenant,
            signal: Signal::Terminate,
            why,
        });
    }

    /// When it will be ended, by the current state, or is killed if it is being ended.
    pub(super) fn end_view(&self, tenant: TenantId) -> Option<EndView> {
        let Some(ending) = self.tenants.get(tenant)?.ending() else {
            let (at, why) = self.end_of(tenant)?;
            let told = false;
            return Some(EndView { at, why, told });
        };
        let kill = match ending.rung {
            Rung::Terminated => self.timers.due(Timer::Ladder(tenant)),
            Rung::Killed | Rung::WillNotYield => None,
        };
        Some(EndView {
            at: kill.unwrap_or_else(|| self.timers.now()),
            why: ending.why,
            told: true,
        })
    }

    pub(super) fn next_rung(&mut self, tenant: TenantId) {
        let Some(ending) = self.tenants.get(tenant).and_then(|known| known.ending()) else {
            return;
        };
        match ending.rung {
            Rung::Terminated if !self.still_due(tenant, &ending) => self.spare(tenant),
            Rung::Terminated => {
                self.tenants.climb(tenant, Rung::Killed);
                self.timers.set(
                    Timer::Ladder(tenant),
                    self.timers.now() + self.policy.kill_grace,
                );
                self.decide(Decision::Signal {
                    tenant,
                    signal: Signal::Kill,
                    why: ending.why,
                });
            }
            Rung::Killed => {
                self.tenants.climb(tenant, Rung::WillNotYield);
                self.notice(Notice::WillNotYield { tenant });
                let known = self.tenants.get(tenant);
                if known.is_some_and(|known| !known.has_processes()) {
                    self.outlives(tenant);
                }
                for device in self.devices_of(tenant) {
                    self.settle(device);
                }
            }
            Rung::WillNotYield => (),
        }
    }

    /// Whether what it is ended for still holds, by its terms as they are now.
    fn still_due(&self, tenant: TenantId, ending: &Ending) -> bool {
        match ending.why {
            Why::Collision { device, .. } => {
                let account = self.ledger.account(device, tenant);
                account.is_some_and(|account| account.loan.killable && account.over_request())
            }
            limit => {
                let at = self.limit_of(tenant, limit);
                at.is_some_and(|at| at <= self.timers.now())
            }
        }
    }

    /// Its terms have changed: a tenant that they let be ended no more is spared at once, so that
    /// no ask counts on its memory.
    pub(super) fn spare_unless_due(&mut self, tenant: TenantId) {
        let ending = self.tenants.get(tenant).and_then(|known| known.ending());
        let ending = ending.filter(|ending| ending.rung == Rung::Terminated);
        if ending.is_some_and(|ending| !self.still_due(tenant, &ending)) {
            self.spare(tenant);
        }
    }

    /// After all asks of a device were visited: spares unneeded victims there. `spare` are the
    /// bytes on their way, the victims' included, that no ask counted on; `claims` are the asks
    /// that may end tenants.
    pub(super) fn spare_unneeded(&mut self, device: DeviceId, mut spare: Bytes, claims: &[Claim]) {
        let here = |ending: &Ending| {
            let wanted = matches!(ending.why, Why::Collision { device: on, .. } if on == device);
            wanted && ending.rung == Rung::Terminated
        };
        let victims = self.tenants.ending().filter(|(.., ending)| here(ending));
        let victims: Vec<_> = victims
            .map(|(victim, known, _)| (victim, known.spec().priority, known.is_idle()))
            .collect();
        for (tenant, priority, idle) in victims {
            let account = self.ledger.account(device, tenant);
            let held = account.map_or(Bytes::ZERO, Account::held);
            let held = held - self.leaving_of(tenant, device) + self.comes_for(tenant, device);
            let wanted = claims.iter().any(|claim| claim.may_end(priority, idle));
            if !wanted || held <= spare {
                spare -= held;
                self.spare(tenant);
            }
        }
    }

    pub(super) fn spare(&mut self, tenant: TenantId) {
        self.step_down(tenant);
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.spare(self.timers.now());
        }
        self.notice(Notice::Spared { tenant });
        self.check_end(tenant);
        for device in self.devices_of(tenant) {
            self.timers
                .set_no_later(Timer::Settle(device), self.timers.now());
        }
    }

    /// Its last process is gone. The memory for which a victim was ended is free, or will be. An
    /// end by a limit of its own is for all that is there of it: a shell starts the next program.
    pub(super) fn has_no_process(&mut self, tenant: TenantId) {
        let Some(ending) = self.tenants.get(tenant).and_then(|known| known.ending()) else {
            return;
        };
        match (ending.why, ending.rung) {
            (Why::Collision { .. }, _) => {
                self.step_down(tenant);
                // A limit of its own may have come meanwhile.
                self.timers
                    .set_no_later(Timer::End(tenant), self.timers.now());
            }
            (_, Rung::WillNotYield) => self.outlives(tenant),
            _ => (),
        }
    }

    /// What is left of it after a whole ladder has no process: no signal reaches it, as in a
    /// container of which only the cgroup is known. Nothing more can be ended before its next
    /// process starts. Then an idle end begins anew, and a run limit is due at once.
    fn outlives(&mut self, tenant: TenantId) {
        self.step_down(tenant);
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.outlive();
        }
    }

    /// A process of it has started.
    pub(super) fn has_a_process(&mut self, tenant: TenantId) {
        let known = self.tenants.get_mut(tenant);
        if known.is_some_and(|known| known.runs_again()) {
            self.worked(tenant);
            self.check_end(tenant);
        }
    }

    /// It leaves the ladder.
    pub(super) fn step_down(&mut self, tenant: TenantId) {
        self.tenants.step_down(tenant);
        self.timers.stop(Timer::Ladder(tenant));
    }
}
