//! The end of a drain, said before it comes: the next is let in, the two share what is left, and who says it wrongly gains nothing.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine::{Length, Machine, Program};
use gpushare_core::lease::{Input, Output, Schedule};
use gpushare_core::{Compute, ContainerId, LeaseKind, LeasePolicy, Nanos, Permille, ProcessId};

const ONE: ContainerId = ContainerId(1);
const TWO: ContainerId = ContainerId(2);
const THREE: ContainerId = ContainerId(3);
const PRIORITY: u16 = 500;
const EQUAL: Compute = Compute {
    request: None,
    limit: None,
};

/// A device by hand. The process of a container has its number and ten.
struct Device {
    schedule: Schedule,
    now: Nanos,
}

impl Device {
    fn new(weights: [Option<u16>; 3]) -> Self {
        let mut device = Self {
            schedule: Schedule::new(LeasePolicy::turns()),
            now: Nanos::ZERO,
        };
        for (container, percent) in [ONE, TWO, THREE].into_iter().zip(weights) {
            let request = percent.and_then(|percent| Permille::new(percent * 10));
            let compute = Compute { request, ..EQUAL };
            device.joins(container, first(container), compute);
        }
        device
    }

    fn joins(&mut self, container: ContainerId, process: ProcessId, compute: Compute) {
        self.tell(Input::Joined {
            container,
            process,
            gated: true,
            class: PRIORITY,
            compute,
        });
    }

    fn tell(&mut self, input: Input) {
        self.schedule.handle(self.now, input);
        assert_eq!(self.schedule.check(), Ok(()), "after {input:?}");
    }

    fn lease(&self, container: ContainerId) -> LeaseKind {
        self.schedule.lease(container).expect("it is here").kind
    }

    fn is_open(&self, container: ContainerId) -> bool {
        matches!(self.lease(container), LeaseKind::Open { .. })
    }

    fn epoch(&self, container: ContainerId) -> u64 {
        self.schedule.lease(container).expect("it is here").epoch
    }

    fn wants(&mut self, container: ContainerId) {
        let (process, epoch) = (first(container), self.epoch(container));
        self.tell(Input::Wanted { process, epoch });
    }

    fn drained(&mut self, container: ContainerId) {
        let (process, epoch) = (first(container), self.epoch(container));
        self.tell(Input::Drained { process, epoch });
    }

    fn ends_in(&mut self, container: ContainerId, process: ProcessId, left: Nanos) {
        let epoch = self.epoch(container);
        self.tell(Input::Ending {
            process,
            epoch,
            left,
        });
    }

    fn ends(&mut self, container: ContainerId) {
        self.ends_in(container, first(container), Nanos::micros(200));
    }

    fn wait(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(at) = self.schedule.next_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.schedule.advance(at);
            assert_eq!(self.schedule.check(), Ok(()));
        }
        self.now = end;
        self.schedule.advance(end);
    }

    fn held(&self, container: ContainerId) -> Nanos {
        let share = self.schedule.share(container, self.now);
        share.expect("it is here").held
    }

    fn overruns(&mut self) -> Vec<ContainerId> {
        let mut overruns = Vec::new();
        while let Some(output) = self.schedule.poll() {
            if let Output::Overrun { container, .. } = output {
                overruns.push(container);
            }
        }
        overruns
    }
}

fn first(container: ContainerId) -> ProcessId {
    ProcessId(10 + container.0)
}

/// The first has had its turn, is closed and wants another one; the second waits.
fn closing() -> Device {
    let mut device = Device::new([None; 3]);
    assert!(device.is_open(ONE));
    device.wants(TWO);
    device.wait(Nanos::millis(25));
    assert_eq!(device.lease(ONE), LeaseKind::Closed);
    device.wants(ONE);
    assert!(!device.is_open(TWO), "the first has not drained");
    device
}

#[test]
fn the_next_is_let_in_when_the_holder_is_about_to_have_drained() {
    let mut device = closing();
    device.ends(ONE);
    assert!(device.is_open(TWO) && !device.is_open(ONE));
    let epoch = device.epoch(TWO);
    device.wait(Nanos::micros(200));
    device.drained(ONE);
    assert!(device.is_open(TWO) && !device.is_open(ONE));
    assert_eq!(device.epoch(TWO), epoch, "its turn goes on as it was given");
    assert_eq!(device.overruns(), []);
}

#[test]
fn an_end_beyond_the_lead_or_of_another_turn_lets_nobody_in() {
    let mut device = closing();
    let lead = LeasePolicy::turns().lead;
    device.ends_in(ONE, first(ONE), lead + Nanos(1));
    let (process, epoch) = (first(ONE), device.epoch(ONE) - 1);
    let left = Nanos::ZERO;
    device.tell(Input::Ending {
        process,
        epoch,
        left,
    });
    assert!(!device.is_open(TWO));
    device.ends_in(ONE, first(ONE), lead);
    assert!(device.is_open(TWO));
}

#[test]
fn all_processes_of_a_container_must_be_about_to_have_drained() {
    let mut device = Device::new([None; 3]);
    let other = ProcessId(99);
    device.joins(ONE, other, EQUAL);
    device.wants(TWO);
    device.wait(Nanos::millis(25));
    device.ends(ONE);
    assert!(!device.is_open(TWO), "its other process has not said so");
    device.ends_in(ONE, other, Nanos::ZERO);
    assert!(device.is_open(TWO));
}

#[test]
fn what_is_left_of_a_drain_is_paid_by_halves() {
    let mut device = closing();
    let before = (device.held(ONE), device.held(TWO));
    device.ends(ONE);
    device.wait(Nanos::micros(300));
    device.drained(ONE);
    let after = (device.held(ONE), device.held(TWO));
    assert_eq!(after.0 - before.0, Nanos::micros(150));
    assert_eq!(after.1 - before.1, Nanos::micros(150));
}

#[test]
fn who_would_be_next_itself_is_waited_for() {
    let mut device = closing();
    device.wait(Nanos::millis(8));
    device.drained(ONE);
    assert!(device.is_open(TWO));
    device.wait(Nanos::millis(1));
    device.wants(TWO);
    device.ends(TWO);
    assert!(!device.is_open(ONE), "the second is far behind the first");
    device.drained(TWO);
    assert!(device.is_open(TWO) && !device.is_open(ONE));
}

#[test]
fn the_next_but_one_waits_until_the_first_has_drained() {
    let mut device = closing();
    device.wants(THREE);
    device.ends(ONE);
    let (second, third) = if device.is_open(TWO) {
        (TWO, THREE)
    } else {
        (THREE, TWO)
    };
    device.wait(Nanos::millis(2));
    device.ends(second);
    assert!(!device.is_open(third), "two have not drained");
    device.drained(ONE);
    assert!(device.is_open(third));
}

#[test]
fn who_has_not_drained_in_the_bound_has_overrun_whatever_it_foretold() {
    let mut device = closing();
    device.ends(ONE);
    device.wait(Nanos::millis(4));
    assert_eq!(device.overruns(), []);
    device.wait(Nanos::millis(10));
    assert_eq!(device.overruns(), [ONE]);
    device.drained(ONE);
    let share = device.schedule.share(ONE, device.now).expect("it is here");
    assert_eq!(share.overruns, 1);
}

/// Two deep queues for ten seconds: the first's part, and of the time in which the device was wanted what it was idle for.
fn figures(foresees: bool, micros: u64) -> (f64, f64) {
    let mut machine = Machine::new(7);
    let length = Length::Fixed(Nanos::micros(micros));
    for container in [1, 2] {
        let at = machine.start(container, PRIORITY, EQUAL, Program::Deep(length));
        machine.clients[at].foresees = foresees;
    }
    machine.run(Nanos::secs(10));
    let wasted = machine.meter.wasted as f64 / machine.meter.wanted as f64;
    (machine.meter.share(ONE), wasted)
}

#[test]
fn a_device_whose_drains_are_foretold_is_hardly_idle_between_two_turns() {
    for micros in [50, 500, 5_000, 20_000] {
        let (before, after) = (figures(false, micros), figures(true, micros));
        println!(
            "kernels of {micros} us: {:.2} % and idle for {:.3} % without, {:.2} % and idle for {:.3} % with",
            100.0 * before.0,
            100.0 * before.1,
            100.0 * after.0,
            100.0 * after.1
        );
        assert!((after.0 - 0.5).abs() < 0.01, "the shares stay");
        // What kernels last, their library knows to a tenth only.
        let most = if micros < 1_000 { 0.1 } else { 0.7 };
        assert!(after.1 < before.1 * most);
    }
}

#[test]
fn who_always_says_that_its_drain_ends_gains_nothing() {
    let mut machine = Machine::new(3);
    let length = Length::Fixed(Nanos::micros(500));
    for container in [1, 2] {
        machine.start(container, PRIORITY, EQUAL, Program::Deep(length));
    }
    let process = machine.clients[0].process;
    for _ in 0..10_000 {
        machine.run(Nanos::millis(1));
        let epoch = machine.schedule.lease(ONE).expect("it is here").epoch;
        let left = Nanos::ZERO;
        machine.input(Input::Ending {
            process,
            epoch,
            left,
        });
    }
    let share = machine.meter.share(TWO);
    println!(
        "beside a tenant that always says so: {:.2} %",
        100.0 * share
    );
    assert!(share > 0.49);
}
