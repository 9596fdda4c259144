//! Devices of one daemon, on which gangs work.

use std::cell::RefCell;
use std::rc::Rc;

use super::steering::{Gate, Sample, Steering, Who};
use super::{NoSteering, Pace, Program, Report, Rig};
use crate::node::bare;
use gpushare_core::{
    Bytes, Compute, DeviceId, Event, Nanos, Policy, ProcessId, Quota, TenantId, TenantSpec, Work,
    World,
};

/// A tenant: its name if it is one of a gang, its class and share, and its program on each device.
#[derive(Clone, Debug)]
pub struct Member {
    pub gang: Option<&'static str>,
    pub class: u16,
    pub compute: Compute,
    pub programs: Vec<Option<Program>>,
}

/// The tenants of all devices.
#[derive(Clone, Debug)]
pub struct Devices {
    pub pace: Pace,
    pub members: Vec<Member>,
}

/// The daemon's world as the steering of one device.
#[derive(Debug)]
struct Side {
    world: Rc<RefCell<World>>,
    device: DeviceId,
    /// By number of process on this device.
    who: Vec<(TenantId, ProcessId)>,
}

impl Devices {
    /// What happens in `time` ns after `warm_up` on each device by the driver alone.
    pub fn bare(&self, warm_up: u64, time: u64) -> Vec<Report> {
        let rigs = (0..self.many()).map(|_| Rig::new(self.pace, NoSteering, 1));
        self.measured(rigs.collect(), warm_up, time)
    }

    /// The same under the daemon.
    pub fn steered(&self, warm_up: u64, time: u64) -> Vec<Report> {
        let world = Rc::new(RefCell::new(self.world()));
        let rigs = (0..self.many()).map(|at| {
            let here = |(_, member): &(usize, &Member)| member.is_on(at);
            let all = self.members.iter().enumerate().filter(here);
            let side = Side {
                world: Rc::clone(&world),
                device: device(at),
                who: all.map(|(number, _)| ids(number)).collect(),
            };
            Rig::new(self.pace, side, 1)
        });
        let reports = self.measured(rigs.collect(), warm_up, time);
        let checked = world.borrow().check();
        assert_eq!(checked, Ok(()));
        reports
    }

    /// How many devices there are.
    fn many(&self) -> usize {
        let all = self.members.iter().map(|member| member.programs.len());
        all.max().unwrap_or(0)
    }

    fn measured<B: Steering>(&self, mut rigs: Vec<Rig<B>>, warm_up: u64, time: u64) -> Vec<Report> {
        for member in &self.members {
            for (rig, program) in rigs.iter_mut().zip(&member.programs) {
                if let Some(program) = program {
                    rig.add(program.clone());
                }
            }
        }
        Rig::run_all(&mut rigs, warm_up);
        for rig in &mut rigs {
            rig.measure();
        }
        Rig::run_all(&mut rigs, time);
        rigs.iter_mut().map(Rig::measure).collect()
    }

    /// All tenants are registered, and their processes have started.
    fn world(&self) -> World {
        let mut policy = Policy::default();
        policy.lease.slice = Nanos(self.pace.slice);
        policy.lease.switch = Nanos(self.pace.switch);
        let mut world = World::new(policy);
        for at in 0..self.many() {
            bare::add_device(&mut world, device(at), Bytes::gib(64));
        }
        for (number, member) in self.members.iter().enumerate() {
            let (tenant, process) = ids(number);
            bare::register(&mut world, tenant, member.spec());
            bare::join(&mut world, tenant, process);
        }
        world
    }
}

impl Member {
    fn is_on(&self, at: usize) -> bool {
        self.programs.get(at).is_some_and(Option::is_some)
    }

    fn spec(&self) -> TenantSpec {
        let quota = Quota {
            request: Bytes::gib(1),
            limit: Bytes::gib(1),
        };
        let places = self.programs.iter().enumerate();
        let here = places.filter(|(_, program)| program.is_some());
        let here: Vec<DeviceId> = here.map(|(at, _)| device(at)).collect();
        let gang = self.gang.map(|name| gpushare_core::Gang {
            owner: Some(1000),
            namespace: None,
            name: name.to_owned(),
        });
        TenantSpec {
            quotas: here.iter().map(|device| (*device, quota)).collect(),
            compute: here.iter().map(|device| (*device, self.compute)).collect(),
            gang,
            priority: self.class,
            ..bare::spec(device(0), quota)
        }
    }
}

fn device(at: usize) -> DeviceId {
    DeviceId(at as u64 + 1)
}

fn ids(number: usize) -> (TenantId, ProcessId) {
    (TenantId(number as u64 + 1), ProcessId(number as u64 + 1))
}

impl Side {
    fn tell(&self, now: u64, event: Event) {
        let mut world = self.world.borrow_mut();
        world.handle(Nanos(now), event);
        while world.poll_decision().is_some() {}
        if let Err(broken) = world.check() {
            panic!("{broken}");
        }
    }

    fn says(&self, now: u64, who: Who, report: gpushare_core::Report) {
        let (tenant, process) = self.who[who.process];
        let lease = self.world.borrow().lease(tenant, self.device);
        let said = Event::Reported {
            process,
            device: self.device,
            epoch: lease.map_or(0, |lease| lease.epoch),
            report,
        };
        self.tell(now, said);
    }
}

impl Steering for Side {
    fn joined(&mut self, now: u64, who: Who) {
        let (_, process) = self.who[who.process];
        let open = Event::Open {
            process,
            device: self.device,
            ask: gpushare_core::AskId(0),
        };
        self.tell(now, open);
    }

    fn busy(&mut self, now: u64, who: Who) {
        self.says(now, who, gpushare_core::Report::Busy);
    }

    fn idle(&mut self, now: u64, who: Who) {
        self.says(now, who, gpushare_core::Report::Idle);
    }

    fn wanted(&mut self, now: u64, who: Who) {
        self.says(now, who, gpushare_core::Report::Wanted);
    }

    fn drained(&mut self, now: u64, who: Who) {
        self.says(now, who, gpushare_core::Report::Drained);
    }

    fn tick(&mut self, now: u64, samples: &[Sample]) {
        let due = self.world.borrow().due_samples(Nanos(now));
        if !due.iter().any(|(device, _)| *device == self.device) {
            return;
        }
        let works = samples.iter().map(|sample| {
            let work = Work {
                service: sample.service,
                busy: sample.busy,
                since: sample.pending.map(Nanos),
                guessed: sample.guessed,
            };
            (self.who[sample.who.process].1, work)
        });
        let served = Event::Served {
            device: self.device,
            works: works.collect(),
        };
        self.tell(now, served);
    }

    fn next(&self) -> Option<u64> {
        self.world.borrow().next_sample().map(|at| at.0)
    }

    fn gate(&self, who: Who) -> Gate {
        let lease = self
            .world
            .borrow()
            .lease(self.who[who.process].0, self.device);
        super::brain::gate(lease)
    }
}
