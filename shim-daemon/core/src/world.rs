//! The world: all devices, tenants, processes and asks of a node, and the loop that moves them.
//!
//! Each file below this one is one subject. They share the parts of the world that are declared
//! here, each a type of its own whose state only its methods touch.

mod admission;
mod ask;
mod asks;
mod bands;
mod booking;
mod change;
mod collision;
mod compute;
mod cycle;
mod evidence;
mod first_look;
mod further;
mod ladder;
mod leases;
mod looks;
pub(crate) mod moves;
mod own_dead;
mod parts;
mod pending;
mod process;
mod reclaim;
mod registration;
mod sample;
mod settle;
mod tenants;
mod time_limits;
mod unlisted;
pub(crate) mod view;

use crate::decision::{Decision, Notice};
use crate::event::Event;
use crate::ids::{DeviceId, TenantId};
use crate::lease::Input;
use crate::ledger::Ledger;
use crate::overhead::Costs;
use crate::residency::Residency;
use crate::spec::Policy;
use crate::time::Nanos;
use crate::timers::{Timer, Timers};
use asks::Asks;
use first_look::Pauses;
use gpushare_protocol::units::Bytes;
use leases::Leases;
use std::collections::VecDeque;
use tenants::Tenants;

/// The brain. See the crate's page.
#[derive(Debug)]
pub struct World {
    policy: Policy,
    timers: Timers,
    ledger: Ledger,
    /// The compute schedule of each device.
    leases: Leases,
    tenants: Tenants,
    asks: Asks,
    pauses: Pauses,
    decisions: VecDeque<Decision>,
    costs: Costs,
    /// Which tenants' memory is on the card.
    residency: Residency,
    /// After a restart: until then clients present their holdings and no new memory is granted.
    recovering: bool,
    /// When that ended.
    recovered: Nanos,
}

impl World {
    /// An empty node.
    pub fn new(policy: Policy) -> Self {
        Self {
            leases: Leases::new(policy.lease),
            policy,
            timers: Timers::default(),
            ledger: Ledger::default(),
            tenants: Tenants::default(),
            asks: Asks::default(),
            pauses: Pauses::default(),
            decisions: VecDeque::new(),
            costs: Costs::default(),
            residency: Residency::new(&policy.swap),
            recovering: false,
            recovered: Nanos::ZERO,
        }
    }

    /// A node whose previous daemon died. Until `until` clients present their holdings, only
    /// tenants that already ran are admitted, and asks wait.
    pub fn recovering(policy: Policy, until: Nanos) -> Self {
        let mut world = Self::new(policy);
        world.recovering = true;
        world.timers.set(Timer::Recovered, until);
        world
    }

    /// The recovery ends then: clients cannot come before the daemon listens, however long it took
    /// to start. Nothing once it is over.
    pub fn recover_until(&mut self, until: Nanos) {
        if self.recovering {
            self.timers.set(Timer::Recovered, until);
        }
    }

    /// Takes in an event. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.advance(now);
        match event {
            Event::DeviceAdded { device, spec } => self.device_added(device, spec),
            Event::DeviceLost { device } => self.device_lost(device),
            Event::Register {
                tenant,
                spec,
                running,
            } => self.register(tenant, spec, running),
            Event::Set { tenant, spec } => self.set(tenant, spec),
            Event::TenantGone { tenant } => self.tenant_gone(tenant),
            Event::ProcessStarted {
                process,
                tenant,
                adopted,
                gated,
            } => {
                self.process_started(process, tenant, adopted, gated);
            }
            Event::Presented {
                process,
                device,
                charged,
                credit,
                grant,
            } => {
                self.presented(process, device, charged, credit, grant);
            }
            Event::Adopted { process } => self.adopted(process),
            Event::Late { process } => self.is_late(process),
            Event::Away { process, away } => self.away(process, away),
            Event::Vacated {
                process,
                device,
                charged,
            } => self.vacated(process, device, charged),
            Event::Remembered {
                process,
                tenant,
                device,
                bytes,
                charged,
            } => self.remembered(process, tenant, device, (bytes, charged)),
            Event::Unseen {
                process,
                tenant,
                device,
                charged,
            } => self.unseen(process, tenant, device, charged),
            Event::ProcessGone { process, charged } => self.process_gone(process, &charged),
            Event::ProcessReplaced { process, charged } => {
                self.process_replaced(process, &charged);
            }
            Event::Open {
                process,
                device,
                ask,
            } => self.open(process, device, ask),
            Event::ContextMade { process, device } => self.context_made(process, device),
            Event::OpenMore {
                process,
                device,
                ask,
                patience,
            } => self.open_more(process, device, ask, patience),
            Event::OpenAgain {
                process,
                device,
                ask,
            } => self.open_again(process, device, ask),
            Event::OpenDone {
                process,
                device,
                ask,
            } => self.open_done(process, device, ask),
            Event::NoContext { process, device } => self.no_context(process, device),
            Event::Ask {
                process,
                device,
                ask,
                held,
                bytes,
                patience,
            } => {
                self.credit_asked(process, device, ask, (held, bytes), patience);
            }
            Event::DriverRefused {
                process,
                device,
                ask,
                held,
                bytes,
                patience,
            } => {
                self.driver_refused(process, device, ask, (held, bytes), patience);
            }
            Event::Cancel { process, ask } => self.cancel((process, ask)),
            Event::Usage {
                tenant,
                device,
                in_use,
            } => self.usage(tenant, device, in_use),
            Event::Reclaimed {
                reclaim_id,
                tenant,
                device,
                held,
                used,
            } => {
                self.reclaimed(reclaim_id, tenant, device, held, used);
            }
            Event::Reported {
                process,
                device,
                epoch,
                report,
            } => {
                let reported = Input::Reported {
                    process,
                    epoch,
                    report,
                };
                self.tell_device(device, reported);
            }
            Event::Served { device, works } => self.served(device, &works),
            Event::Ran { device, span, ran } => self.ran(device, span, &ran),
            Event::Movable { process } => self.movable(process),
            Event::Moved {
                process,
                device,
                epoch,
                told,
            } => self.moved(process, device, epoch, told),
            Event::Stays {
                process,
                device,
                bytes,
            } => self.stays(process, device, bytes),
            Event::WantsIn { process, device } => self.wants_in(process, device),
            Event::Shown {
                process,
                device,
                shown,
            } => self.shown(process, device, shown),
            Event::Suspend { tenant } => self.suspend(tenant),
            Event::Elsewhere { tenant } => self.is_elsewhere(tenant),
            Event::Held { tenant, held } => self.holds(tenant, held),
            Event::Resume { tenant } => self.resume(tenant),
            Event::Worked { tenant } => self.worked(tenant),
            Event::Sampled { device, sample } => self.sampled(device, sample),
        }
    }

    /// Lets time pass without an event: call it when [`Self::next_timeout`] has come.
    pub fn advance(&mut self, now: Nanos) {
        while self.advance_once(now) {}
    }

    /// Carries out the first timer that is due, as [`Self::advance`] does until none is. `false`:
    /// none is due.
    pub fn advance_once(&mut self, now: Nanos) -> bool {
        self.timers.pass(now);
        let Some(timer) = self.timers.take_due() else {
            return false;
        };
        match timer {
            Timer::Recovered => self.recovery_over(),
            Timer::Patience(ask) => self.patience_over(ask),
            Timer::Idle(tenant) => self.check_idle(tenant),
            Timer::End(tenant) => self.check_end(tenant),
            Timer::Ladder(tenant) => self.next_rung(tenant),
            Timer::Settle(device) => self.freed(device),
            Timer::Look(device) => self.look_again(device),
            Timer::Cycle => self.check_cycles(),
            Timer::Guess(device) => self.guess_due(device),
            Timer::Turn(device) => self.device_due(device),
            Timer::Move(device, tenant) => self.move_due(device, tenant),
            Timer::Silent(device, tenant) => self.silence_due(device, tenant),
        }
        true
    }

    /// When to call `advance` if no event comes before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// The next decision, in order.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// Recomputes everything and compares it with the kept state. `Err` describes a difference; for
    /// tests and for `doctor`.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub fn check(&self) -> Result<(), String> {
        self.tenants.check()?;
        self.asks.check()?;
        self.residency.check()?;
        for device in self.ledger.devices() {
            self.check_device(device)?;
        }
        Ok(())
    }

    /// [`Self::check`] for one device.
    ///
    /// # Errors
    /// As there.
    pub fn check_device(&self, device: DeviceId) -> Result<(), String> {
        let Some(books) = self.ledger.get(device) else {
            return Ok(());
        };
        let leases = || self.leases.check(device);
        let both = books.check().and_then(|()| leases());
        both.map_err(|broken| format!("{device:?}: {broken}"))?;
        let mut accounts = books.accounts();
        accounts.try_for_each(|(tenant, account)| {
            self.tenants.check_one(tenant)?;
            self.tenants
                .check_overhead(tenant, device, account.overhead)
        })?;
        self.check_places(device)?;
        self.asks.check_on(device)
    }

    fn decide(&mut self, decision: Decision) {
        self.decisions.push_back(decision);
    }

    fn notice(&mut self, notice: Notice) {
        self.decide(Decision::Notice(notice));
    }

    /// Facts about a device changed: reports if its accounts broke or recovered, and serves the
    /// asks that fit.
    fn facts_changed(&mut self, device: DeviceId) {
        self.book_what_fits(device);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let unmanaged = books.unmanaged();
        match books.facts_changed() {
            Some(Bytes::ZERO) => self.notice(Notice::Balanced { device }),
            Some(by) => self.notice(Notice::Overdrawn {
                device,
                by,
                unmanaged,
            }),
            None => (),
        }
        self.freed(device);
    }

    /// Something on the device may have become free.
    fn freed(&mut self, device: DeviceId) {
        self.settle(device);
        if self.may_admit(device) {
            self.admit_waiting();
        }
    }

    /// The devices a tenant has a quota on.
    fn devices_of(&self, tenant: TenantId) -> Vec<DeviceId> {
        let known = self.tenants.get(tenant);
        let quotas = known.map(|known| &known.spec().quotas);
        quotas
            .into_iter()
            .flatten()
            .map(|(device, _)| *device)
            .collect()
    }

    /// Whether clients of a previous daemon may still present their holdings.
    fn is_recovering(&self) -> bool {
        self.recovering
    }

    fn recovery_over(&mut self) {
        (self.recovering, self.recovered) = (false, self.timers.now());
        self.gather();
        let all = self.tenants.all().map(|(tenant, _)| tenant);
        for tenant in all.collect::<Vec<_>>() {
            self.check_end(tenant);
            self.forget_above(tenant);
        }
        for device in self.ledger.devices() {
            self.settle(device);
        }
        self.admit_waiting();
    }
}
