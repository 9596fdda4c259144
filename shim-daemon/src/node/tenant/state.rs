//! A tenant's state, and the only ways to change it.

use std::collections::BTreeMap;

use gpushare_core::{Compute, DeviceId, Nanos, ProcessId, TenantSpec};
use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::MAX_SLOTS;

use super::{Registration, Tenant};
use crate::node::awaited::{Awaited, Member};
use crate::node::injected::Contained;
use crate::node::measures::Measures;
use crate::node::refusals::Refusals;
use crate::node::shares::Past;
use crate::node::standing::Standing;
use crate::node::tally::Tally;
use crate::node::{ConnId, Reaped, Remembered};
use crate::pages::{ControlPages, UsagePage};

/// Names and values.
type Variables = Vec<(String, String)>;

/// Whether `gpushare doctor` names its trial so: `doctor-` and its pid. A user who names a tenant
/// so hides refusals of its own alone.
fn is_trial(name: &str) -> bool {
    let pid = name.strip_prefix("doctor-").unwrap_or_default();
    !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())
}

impl Tenant {
    pub(in crate::node) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(in crate::node) fn name(&self) -> &str {
        &self.registration.name
    }

    /// The node's defaults when it was registered, and its maxima: see
    /// [`Registration::all_maxima`].
    pub(in crate::node) fn terms(&self) -> (Variables, [Variables; 2]) {
        let defaults = self.registration.defaults.clone();
        let maxima = self.registration.all_maxima().map(<[_]>::to_vec);
        (defaults.unwrap_or_default(), maxima)
    }

    /// The limits in their stable form.
    pub(in crate::node) fn limits(&self) -> &str {
        &self.limits
    }

    /// The device of each `device_index` of the pages.
    pub(in crate::node) fn device_ids(&self) -> &[DeviceId] {
        &self.device_ids
    }

    pub(in crate::node) fn usage(&self) -> &UsagePage {
        &self.usage
    }

    pub(in crate::node) fn control(&self) -> &ControlPages {
        &self.control
    }

    /// Its shares of the devices' time, by device.
    pub(in crate::node) fn compute(&self) -> &[Compute] {
        &self.compute
    }

    pub(in crate::node) fn set_compute(&mut self, spec: &TenantSpec) {
        let shares = self.device_ids.iter().map(|device| spec.compute(*device));
        self.compute = shares.collect();
    }

    /// The recent use of each device.
    pub(in crate::node) fn shares(&self) -> &[Past] {
        &self.shares
    }

    pub(in crate::node) fn shares_mut(&mut self) -> impl Iterator<Item = (&DeviceId, &mut Past)> {
        self.device_ids.iter().zip(&mut self.shares)
    }

    /// Its counts since its registration.
    pub(in crate::node) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Its refused allocations, by device, for the sum of each device. None of the trial of
    /// `gpushare doctor`, which is to be refused: the alert on that sum would tell of each one.
    pub(in crate::node) fn refusals(&self) -> impl Iterator<Item = (DeviceId, &Refusals)> {
        let devices = self.device_ids().iter().enumerate();
        let devices = devices.filter(|_| !is_trial(self.name()));
        devices.filter_map(|(at, device)| Some((*device, self.tally.device(at)?.refusals())))
    }

    pub(in crate::node) fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Its measurements, by device.
    pub(in crate::node) fn measures(&self) -> &[Measures] {
        &self.measures
    }

    pub(in crate::node) fn measures_mut(&mut self, device_index: usize) -> Option<&mut Measures> {
        self.measures.get_mut(device_index)
    }

    /// Whether it has done GPU work since the last question.
    pub(in crate::node) fn worked(&mut self) -> bool {
        let work = self.work();
        std::mem::replace(&mut self.worked, work) != work
    }
}

/// Its commands, and its admission.
impl Tenant {
    /// The connections of commands that keep it.
    pub(in crate::node) fn owners(&self) -> impl Iterator<Item = ConnId> {
        self.owners.iter().copied()
    }

    pub(in crate::node) fn is_kept_by(&self, command: ConnId) -> bool {
        self.owners.contains(&command)
    }

    /// The command that keeps it, if only one does.
    pub(in crate::node) fn only_keeper(&self) -> Option<ConnId> {
        let first = self.owners.iter().next().copied();
        first.filter(|_| self.owners.len() == 1)
    }

    pub(in crate::node) fn keep_for(&mut self, command: ConnId) {
        self.owners.insert(command);
    }

    /// A command has hung up: it keeps nothing and gets no answer.
    pub(in crate::node) fn forget_command(&mut self, command: ConnId) {
        self.owners.remove(&command);
        self.pending.retain(|(to, _)| *to != command);
    }

    /// Requests that are answered when it is admitted.
    pub(in crate::node) fn pending(&self) -> &[(ConnId, u32)] {
        &self.pending
    }

    pub(in crate::node) fn take_pending(&mut self) -> Vec<(ConnId, u32)> {
        std::mem::take(&mut self.pending)
    }

    pub(in crate::node) fn answer_later(&mut self, request: (ConnId, u32)) {
        self.pending.push(request);
    }

    /// A command has registered it; the request is answered at its admission.
    pub(in crate::node) fn created(&mut self, request: (ConnId, u32), now: Nanos) {
        self.keep_for(request.0);
        self.answer_later(request);
        self.created = Some(now);
    }

    pub(in crate::node) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// It may run. Returns how long it was queued, if a command of this daemon registered it.
    pub(in crate::node) fn admit(&mut self, now: Nanos) -> Option<Nanos> {
        self.admitted = true;
        // After a reboot the clock starts anew, and the tenant's time with it.
        let began = self.registration.began.unwrap_or(now.0).min(now.0);
        self.registration.began = Some(began);
        self.created.take().map(|created| now - created)
    }

    /// It has other limits.
    pub(in crate::node) fn change(&mut self, environment: Vec<(String, String)>, limits: &Limits) {
        self.registration.environment = environment;
        self.limits = limits.to_string();
    }
}

/// Facts that the next daemon reads in its registration.
impl Tenant {
    /// The cgroup of a command that made or joined it. `false` if it was noted before.
    pub(in crate::node) fn note_command(&mut self, group: String) -> bool {
        let is_new = !self.registration.commands.contains(&group);
        if is_new {
            self.registration.commands.push(group);
        }
        is_new
    }

    /// The cgroup of its first process in one that a container runtime made.
    pub(in crate::node) fn note_cgroup(&mut self, group: String) {
        self.registration.cgroup = Some(group);
    }

    /// Whether the driver keeps this limit.
    pub(in crate::node) fn note_fence(&mut self, fence: Remembered, stands: bool) {
        let fences = &mut self.registration.fences;
        fences.retain(|other| *other != fence);
        if stands {
            fences.push(fence);
        }
    }

    /// Its dead processes that still hold memory. `false` if they are the same as before.
    pub(in crate::node) fn note_dead(&mut self, dead: Vec<Reaped>) -> bool {
        let changed = self.registration.dead != dead;
        self.registration.dead = dead;
        changed
    }

    /// Its processes. `false` if they are the same as before.
    pub(in crate::node) fn note_members(&mut self, members: Vec<Member>) -> bool {
        let changed = self.registration.members != members;
        self.registration.members = members;
        changed
    }

    /// What was counted of it. `false` if it is the same as before.
    pub(in crate::node) fn note_totals(&mut self) -> bool {
        let now = self.totals();
        std::mem::replace(&mut self.registration.so_far, now) != now
    }

    /// What the brain knows of it. `false` if it is the same as before.
    pub(in crate::node) fn stands(&mut self, now: Standing) -> bool {
        let changed = self.registration.standing != now;
        self.registration.standing = now;
        changed
    }

    /// It was a previous daemon's.
    pub(in crate::node) fn restored(&mut self) {
        self.restored = true;
    }

    pub(in crate::node) fn is_restored(&self) -> bool {
        self.restored
    }

    /// Takes the usage page that a process of the previous daemon presents. Its rows may belong to
    /// processes that have not presented them yet. Returns the page before: a process may have
    /// presented that, too, and its close takes long then.
    ///
    /// The dead of a page that comes after another one do not count: a process may present page
    /// after page, and each would tell of other dead.
    #[must_use]
    pub(in crate::node) fn adopt(&mut self, page: UsagePage) -> UsagePage {
        let before = std::mem::replace(&mut self.usage, page);
        self.counts_dead = !self.has_page;
        self.has_page = true;
        self.note_rows();
        before
    }

    /// Whether its page is the previous daemon's, which knows all rows.
    pub(in crate::node) fn has_page(&self) -> bool {
        self.has_page
    }

    /// Processes of the previous daemon that have not come back.
    pub(in crate::node) fn awaited(&self) -> &BTreeMap<ProcessId, Awaited> {
        &self.awaited
    }

    pub(in crate::node) fn awaited_mut(&mut self) -> &mut BTreeMap<ProcessId, Awaited> {
        &mut self.awaited
    }

    /// This process is not registered again. `false` if that was noted, or enough are.
    pub(in crate::node) fn note_refused(&mut self, pid: u32) -> bool {
        self.refused.len() < MAX_SLOTS && self.refused.insert(pid)
    }

    /// This process has registered: if it is refused later, that is told again.
    pub(in crate::node) fn accepted(&mut self, pid: u32) {
        self.refused.remove(&pid);
    }

    /// The living container that it is.
    pub(in crate::node) fn contained(&self) -> Option<&Contained> {
        self.contained.as_ref()
    }

    /// Its container lives: the tenant is kept.
    pub(in crate::node) fn contain(&mut self, contained: Contained) {
        self.contained = Some(contained);
    }

    /// Its container has ended. `false` if that was known.
    pub(in crate::node) fn contained_no_longer(&mut self) -> bool {
        self.contained.take().is_some()
    }
}
