//! The daemon's brain as the steering of the simulated device.

use std::cell::RefCell;
use std::collections::BTreeMap;

use gpushare_core::{
    Compute, DeviceTime, Input, Lease, LeaseKind, LeasePolicy, Mode, Nanos, ProcessId, TenantId,
    Work,
};

use super::{Gate, Sample, Steering, Who};

/// [`DeviceTime`] for the processes of a [`Rig`](super::Rig).
#[derive(Debug)]
pub struct Brain {
    pub device: RefCell<DeviceTime>,
    /// Class and share by tenant; 500 and an equal part where nothing is said.
    pub terms: BTreeMap<usize, (u16, Compute)>,
    /// The first violation that [`DeviceTime::check`] found.
    pub broken: Option<String>,
    /// How often a process said that it is idle.
    pub idles: u64,
}

impl Brain {
    /// A brain of this policy.
    pub fn new(policy: LeasePolicy) -> Self {
        Self {
            device: RefCell::new(DeviceTime::new(policy)),
            terms: BTreeMap::new(),
            broken: None,
            idles: 0,
        }
    }

    /// A tenant's terms.
    pub fn of(mut self, tenant: usize, class: u16, compute: Compute) -> Self {
        self.terms.insert(tenant, (class, compute));
        self
    }

    /// How often the mode changed.
    pub fn changes(&self) -> (Mode, u64) {
        let sharing = self.device.borrow().sharing(Nanos::ZERO);
        (sharing.mode.expect("a shared device"), sharing.changes)
    }

    fn tell(&mut self, now: u64, input: Input) {
        let mut device = self.device.borrow_mut();
        device.handle(Nanos(now), input);
        while device.poll().is_some() {}
        let broken = device.check().err();
        self.broken = self.broken.take().or(broken);
    }

    fn epoch(&self, who: Who) -> u64 {
        let lease = self.device.borrow().lease(tenant(who));
        lease.map_or(0, |lease| lease.epoch)
    }
}

fn tenant(who: Who) -> TenantId {
    TenantId(who.tenant as u64 + 1)
}

fn process(who: Who) -> ProcessId {
    ProcessId(who.process as u64 + 1)
}

impl Steering for Brain {
    fn joined(&mut self, now: u64, who: Who) {
        let usual = (500, Compute::default());
        let (class, compute) = self.terms.get(&who.tenant).copied().unwrap_or(usual);
        let joined = Input::Joined {
            tenant: tenant(who),
            process: process(who),
            gated: true,
            class,
            compute,
        };
        self.tell(now, joined);
    }

    fn left(&mut self, now: u64, who: Who) {
        let process = process(who);
        self.tell(now, Input::Left { process });
    }

    fn busy(&mut self, now: u64, who: Who) {
        let (process, epoch) = (process(who), self.epoch(who));
        self.tell(
            now,
            Input::Reported {
                process,
                epoch,
                report: gpushare_core::Report::Busy,
            },
        );
    }

    fn idle(&mut self, now: u64, who: Who) {
        self.idles += 1;
        let (process, epoch) = (process(who), self.epoch(who));
        self.tell(
            now,
            Input::Reported {
                process,
                epoch,
                report: gpushare_core::Report::Idle,
            },
        );
    }

    fn wanted(&mut self, now: u64, who: Who) {
        let (process, epoch) = (process(who), self.epoch(who));
        self.tell(
            now,
            Input::Reported {
                process,
                epoch,
                report: gpushare_core::Report::Wanted,
            },
        );
    }

    fn drained(&mut self, now: u64, who: Who) {
        let (process, epoch) = (process(who), self.epoch(who));
        self.tell(
            now,
            Input::Reported {
                process,
                epoch,
                report: gpushare_core::Report::Drained,
            },
        );
    }

    fn tick(&mut self, now: u64, samples: &[Sample]) {
        let work = |sample: &Sample| Work {
            service: sample.service,
            busy: sample.busy,
            since: sample.pending.map(Nanos),
            guessed: sample.guessed,
        };
        let works: Vec<_> = samples
            .iter()
            .map(|sample| (process(sample.who), work(sample)))
            .collect();
        let mut device = self.device.borrow_mut();
        device.sampled(Nanos(now), &works);
        while device.poll().is_some() {}
        let broken = device.check().err();
        self.broken = self.broken.take().or(broken);
    }

    fn ran(&mut self, now: u64, span: u64, ran: &[(Option<Who>, u64)]) {
        let ran = ran.iter().map(|(who, ran)| (who.map(process), Nanos(*ran)));
        let ran: Vec<_> = ran.collect();
        let mut device = self.device.borrow_mut();
        device.ran(Nanos(now), Nanos(span), &ran);
    }

    fn next(&self) -> Option<u64> {
        self.device.borrow().next_sample().map(|at| at.0)
    }

    fn gate(&self, who: Who) -> Gate {
        gate(self.device.borrow().lease(tenant(who)))
    }
}

/// What a lease admits.
pub fn gate(lease: Option<Lease>) -> Gate {
    match lease.map_or(LeaseKind::Free, |lease| lease.kind) {
        LeaseKind::Free => Gate::Free,
        LeaseKind::Open {
            window,
            contended,
            slice,
            ..
        } => Gate::Open {
            window: window.0,
            slice: slice.map(|slice| slice.0).filter(|slice| *slice > 0),
            contended,
        },
        LeaseKind::Closed { .. } => Gate::Closed,
    }
}
