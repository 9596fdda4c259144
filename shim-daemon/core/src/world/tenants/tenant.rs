//! One registered tenant: its limits, and its state from registration to end.

use crate::ids::{DeviceId, ProcessId};
use crate::spec::TenantSpec;
use crate::time::Nanos;
use crate::world::ladder::Ending;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeSet;

/// See the module's page. What lists depend on is changed by [`Tenants`](super::Tenants) only.
#[derive(Debug)]
pub(in crate::world) struct Tenant {
    pub(super) spec: TenantSpec,
    pub(super) registered: Nanos,
    /// `None` while it waits for admission.
    pub(super) admitted: Option<Nanos>,
    pub(super) processes: BTreeSet<ProcessId>,
    /// When it was last seen doing GPU work.
    pub(super) worked: Nanos,
    idle: bool,
    /// The end it was warned of.
    warned: Option<Nanos>,
    /// When it was last spared: at that very instant it is not chosen again.
    spared: Option<Nanos>,
    /// The kill ladder it is on.
    pub(super) ending: Option<Ending>,
    /// Whether what is left of it has outlived a whole ladder: its limits are judged again with its
    /// next process.
    outlived: bool,
}

impl Tenant {
    pub(super) fn new(spec: TenantSpec, now: Nanos) -> Self {
        Self {
            spec,
            registered: now,
            admitted: None,
            processes: BTreeSet::new(),
            worked: now,
            idle: false,
            warned: None,
            spared: None,
            ending: None,
            outlived: false,
        }
    }

    pub(in crate::world) fn spec(&self) -> &TenantSpec {
        &self.spec
    }

    pub(in crate::world) fn registered(&self) -> Nanos {
        self.registered
    }

    /// Since when it runs. `None` while it waits for admission.
    pub(in crate::world) fn admitted(&self) -> Option<Nanos> {
        self.admitted
    }

    /// When it was last seen doing GPU work.
    pub(in crate::world) fn worked(&self) -> Nanos {
        self.worked
    }

    pub(in crate::world) fn is_idle(&self) -> bool {
        self.idle
    }

    pub(in crate::world) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    pub(in crate::world) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// When it is idle if it does no GPU work until then.
    pub(in crate::world) fn idle_at(&self) -> Nanos {
        self.worked + self.spec.idle_after
    }

    /// It was seen doing GPU work. Whether it was idle.
    pub(in crate::world) fn work(&mut self, now: Nanos) -> bool {
        self.worked = now;
        std::mem::take(&mut self.idle)
    }

    /// It is idle from now on.
    pub(in crate::world) fn rest(&mut self) {
        self.idle = true;
    }

    /// Whether it is to be warned that it ends then: once for each such time.
    pub(in crate::world) fn warn(&mut self, at: Nanos) -> bool {
        self.warned.replace(at) != Some(at)
    }

    pub(in crate::world) fn spare(&mut self, now: Nanos) {
        self.spared = Some(now);
    }

    /// What is left of it has no process, and outlived the ladder.
    pub(in crate::world) fn outlive(&mut self) {
        self.outlived = true;
    }

    pub(in crate::world) fn has_outlived(&self) -> bool {
        self.outlived
    }

    /// A process of it starts. Whether it is the first since it outlived a ladder.
    pub(in crate::world) fn runs_again(&mut self) -> bool {
        std::mem::take(&mut self.outlived)
    }

    /// Whether it may be chosen as a victim now.
    pub(in crate::world) fn may_be_ended(&self, now: Nanos) -> bool {
        self.ending.is_none() && self.spared != Some(now)
    }

    /// Its request on a device is this from now on.
    pub(in crate::world) fn set_request(&mut self, device: DeviceId, request: Bytes) {
        for (_, quota) in self.spec.quotas.iter_mut().filter(|(on, _)| *on == device) {
            quota.request = request;
        }
    }
}
