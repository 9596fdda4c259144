//! After a restart: registers tenants again from the stored registrations; processes present the
//! page they have.

use std::sync::atomic::Ordering;

use gpushare_core::{Event, Nanos, Oversubscribe, ProcessId, TenantId};
use gpushare_protocol::page::{MAX_SLOTS, Split, UNIT};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::commands::limits_under;
use super::reaped::Unseen;
use super::residency;
use super::specs::Whose;
use super::tenant::Registration;
use super::{Effect, Node, Row};
use crate::foreign::Foreign;
use crate::pages::UsagePage;

impl Node {
    /// Registers a tenant of the previous daemon unchanged, however little room there is.
    ///
    /// # Errors
    /// If its limits or devices do not hold on this node any more. It is kept as it is stored.
    pub fn restore(
        &mut self,
        now: Nanos,
        registration: &Registration,
    ) -> Result<TenantId, WireError> {
        self.try_restore(now, registration)
            .inspect_err(|error| self.keep_unrestored(registration, error))
    }

    fn try_restore(
        &mut self,
        now: Nanos,
        registration: &Registration,
    ) -> Result<TenantId, WireError> {
        let mut registration = registration.clone();
        let defaults = registration.defaults.get_or_insert_with(|| {
            // One of an earlier version, which read them anew at each start.
            self.defaults.clone()
        });
        let defaults = defaults.clone();
        let (began, dead) = (registration.began, registration.dead.clone());
        let (members, standing) = (registration.members.clone(), registration.standing.clone());
        let mut environment = registration.environment.clone();
        if !residency::is_chosen(&environment) {
            // The daemon that registered it could not move memory.
            residency::choose(&mut environment, Oversubscribe::Off);
        }
        let limits = limits_under(&environment, &defaults, registration.all_maxima())?;
        let device_ids = self.device_ids(&registration.devices)?;
        let whose = Whose::of(registration.owner, registration.pod());
        let spec = self.spec_of_running(&limits, &device_ids, &whose)?;
        self.claim_again(&device_ids);
        let running = standing.running(began.map_or(now, Nanos), &device_ids);
        let tenant = self.add(now, registration, &limits, device_ids, &spec)?;
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.restored();
            known.tally_mut().spread(tenant);
        }
        self.refused = None;
        self.happened(
            now,
            Event::Register {
                tenant,
                spec,
                running: Some(running),
            },
        );
        if !self.tenants.contains_key(&tenant) {
            let why = self.refused.take().unwrap_or_default();
            self.let_go();
            return Err(WireError::new(ErrorCode::BadLimits, why));
        }
        self.find_container(tenant);
        self.inherit_fences(tenant);
        self.inherit_dead(now, tenant, &dead);
        self.await_members(tenant, &members);
        Ok(tenant)
    }

    /// The recovery time begins: the sockets listen. It ends with [`Node::recovered`].
    pub fn recovers(&mut self) {
        self.world.recover_until(Nanos::MAX);
    }

    /// The recovery time for processes of the previous daemon has ended: new processes may
    /// register.
    pub fn recovered(&mut self, now: Nanos) {
        self.end_recovery();
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.clear_free_rows(now, tenant);
            self.seat_late(now, tenant);
            self.end_if_ended(now, tenant);
        }
        // Only now, when all that is held is counted, is anything granted.
        self.world.recover_until(now);
        self.advance(now);
        self.tell_queued_after_recovery();
        self.change_later(now);
    }

    /// Rows of processes that died while there was no daemon become limbo, where nobody has their
    /// pids. The others are looked at in the next tick.
    fn clear_free_rows(&mut self, now: Nanos, tenant: TenantId) {
        let known = self.tenants.get_mut(&tenant);
        let dead = known.map(super::Tenant::clear_free_rows);
        self.reap_rows(now, tenant, dead.into_iter().flatten());
    }

    /// Has the rows looked at that no process has presented, unless that is under way.
    pub(super) fn look_at_rows(&mut self, tenant: TenantId) {
        let known = self.tenants.get_mut(&tenant);
        let rows = known.map_or_else(Vec::new, super::Tenant::rows_to_look_at);
        if !rows.is_empty() {
            let lane = self.lane(tenant);
            self.effect(Effect::LookAtRows { tenant, rows, lane });
        }
    }

    /// Rows of a tenant were looked at, and the processes of these have ended.
    pub fn rows_seen(&mut self, now: Nanos, tenant: TenantId, dead: &[Row]) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        known.rows_looked_at();
        let cleared = known.clear_rows(dead);
        self.reap_rows(now, tenant, cleared);
    }

    fn reap_rows(&mut self, now: Nanos, tenant: TenantId, dead: impl IntoIterator<Item = Unseen>) {
        for unseen in dead {
            self.reap_unseen(now, tenant, &unseen);
        }
    }

    /// A container of the previous daemon that ended while there was none, and of which no process
    /// lives, is over: nothing can claim it, and another one may need its part.
    fn end_if_ended(&mut self, now: Nanos, tenant: TenantId) {
        let known = self.tenants.get(&tenant);
        let ended = known.is_some_and(|known| {
            known.registration().container.is_some() && known.contained().is_none()
        });
        if ended {
            self.end_if_unused(now, tenant);
        }
    }

    /// Tenants of the previous daemon that neither a process nor a command has claimed are over,
    /// unless a process of theirs lives and may still come.
    pub fn forget_unclaimed(&mut self, now: Nanos) {
        self.claimed = true;
        let all: Vec<TenantId> = self.tenants.keys().copied().collect();
        for tenant in all {
            self.end_if_unused(now, tenant);
        }
        self.tell_awaited();
    }

    /// Takes the page a process of the previous daemon presents as its tenant's, or sees that it
    /// is the one already taken. Returns the slot the process holds in it.
    pub(super) fn adopt_page(
        &mut self,
        tenant: TenantId,
        presented: Foreign,
        slot: Option<u16>,
    ) -> Result<usize, WireError> {
        let refuse = |why: &str| WireError::new(ErrorCode::BadPage, why);
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return Err(WireError::new(ErrorCode::NotFound, "the tenant has ended"));
        };
        if !known.is_restored() {
            // The daemon would have to believe the presented holdings, up to the limit, although
            // no daemon granted them.
            return Err(refuse("the tenant has had no other daemon than this one"));
        }
        let slot = slot
            .map(usize::from)
            .filter(|slot| *slot < MAX_SLOTS && known.seated(*slot).is_none());
        let slot = slot.ok_or_else(|| refuse("the slot is not the presenter's to claim"))?;
        if known.usage().is(presented.file()) {
            return Ok(slot);
        }
        if known.has_members() {
            return Err(refuse("the tenant's processes share another page"));
        }
        let page = UsagePage::adopt(presented).map_err(|error| refuse(&error.to_string()))?;
        let before = known.adopt(page);
        self.lane(tenant).run(move || drop(before));
        self.limit_page(tenant);
        Ok(slot)
    }

    /// Writes a tenant's limits into the page of the previous daemon, and holds its processes to
    /// them: they may have changed while this daemon had not seen that page.
    fn limit_page(&self, tenant: TenantId) {
        let known = self.tenants.get(&tenant);
        let Some((known, spec)) = known.zip(self.world.spec(tenant)) else {
            return;
        };
        // Where they are what its page says, the total that its programs see stays as it is: that
        // may follow what contexts took when they began.
        if known.usage().view().header.text() != known.limits() {
            let (defaults, [maxima, node_maxima]) = known.terms();
            let environment = &known.registration().environment;
            match limits_under(environment, &defaults, [&maxima, &node_maxima]) {
                Ok(limits) => known.found(
                    spec,
                    (self.devices.as_slice(), self.capacity),
                    &limits,
                    self.guarantee,
                ),
                Err(error) => tracing::error!(%error, "a tenant's limits cannot be read again"),
            }
        }
        let ceilings = self.ceilings(tenant, known.device_ids()).into_iter();
        let ceilings = ceilings.enumerate();
        let ceilings = ceilings.filter_map(|(at, ceiling)| Some((at, ceiling?)));
        known.bind_all_above(&ceilings.collect::<Vec<_>>());
    }

    /// Tells the brain the holdings of a process of the previous daemon.
    pub(super) fn present(&mut self, now: Nanos, process: ProcessId) {
        let Some(known) = self.processes.get(process) else {
            return;
        };
        let Some(tenant) = self.tenants.get(&known.tenant()) else {
            return;
        };
        let mut held = Vec::new();
        for (device_index, device) in tenant.device_ids().iter().enumerate() {
            if let Some(line) = tenant.usage().view().line(known.slot(), device_index) {
                let word = line.word.load();
                let unused = word == Split::default() && line.overhead.load(Ordering::Relaxed) == 0;
                if unused {
                    continue;
                }
                let bytes = |units: u32| Bytes(u64::from(units) * UNIT);
                held.push((
                    *device,
                    bytes(word.charged),
                    bytes(word.credit),
                    tenant.held(device_index),
                ));
            }
        }
        for (device, charged, credit, grant) in held {
            let event = Event::Presented {
                process,
                device,
                charged,
                credit,
                grant,
            };
            self.happened(now, event);
        }
    }
}
