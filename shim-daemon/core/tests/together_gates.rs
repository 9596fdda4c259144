//! The gates of the model that tests of steering use: windows, slices, closed gates, and reports to
//! the daemon.
#![allow(clippy::float_arithmetic, reason = "figures for people")]

use crate::together::{Gate, MS, Pace, Program, Rig, S, Sample, Steering, US, Who};

const WINDOW: u64 = 2 * MS;

fn open(slice: Option<u64>, contended: bool) -> Gate {
    Gate::Open {
        window: WINDOW,
        slice,
        contended,
    }
}

/// Gates as they are set by hand, and everything that was said.
struct Hand {
    gates: Vec<Gate>,
    said: Vec<(&'static str, usize, u64)>,
    ticks: Vec<(u64, Vec<Sample>)>,
    next: Option<u64>,
}

impl Hand {
    fn new(gates: &[Gate]) -> Self {
        Self {
            gates: gates.to_vec(),
            said: Vec::new(),
            ticks: Vec::new(),
            next: None,
        }
    }

    fn said(&self, what: &str, process: usize) -> Vec<u64> {
        let same = |said: &&(&str, usize, u64)| said.0 == what && said.1 == process;
        self.said.iter().filter(same).map(|said| said.2).collect()
    }
}

impl Steering for Hand {
    fn joined(&mut self, now: u64, who: Who) {
        self.said.push(("joined", who.process, now));
    }
    fn left(&mut self, now: u64, who: Who) {
        self.said.push(("left", who.process, now));
    }
    fn busy(&mut self, now: u64, who: Who) {
        self.said.push(("busy", who.process, now));
    }
    fn idle(&mut self, now: u64, who: Who) {
        self.said.push(("idle", who.process, now));
    }
    fn wanted(&mut self, now: u64, who: Who) {
        self.said.push(("wanted", who.process, now));
    }
    fn drained(&mut self, now: u64, who: Who) {
        self.said.push(("drained", who.process, now));
    }
    fn tick(&mut self, now: u64, samples: &[Sample]) {
        self.ticks.push((now, samples.to_vec()));
        self.next = None;
    }
    fn next(&self) -> Option<u64> {
        self.next
    }
    fn gate(&self, who: Who) -> Gate {
        self.gates[who.tenant]
    }
}

fn rig(gates: &[Gate], programs: &[Program]) -> Rig<Hand> {
    let mut rig = Rig::new(Pace::default(), Hand::new(gates), 1);
    for program in programs {
        rig.add(program.clone());
    }
    rig
}

/// Sets a gate and has it published by a tick.
fn set(rig: &mut Rig<Hand>, tenant: usize, gate: Gate) {
    rig.steering.gates[tenant] = gate;
    rig.steering.next = Some(rig.now());
    rig.run(rig.late + 1);
}

#[test]
fn a_slice_leaves_a_server_what_a_program_that_waits_leaves_it() {
    let gates = [open(Some(500 * US), true), Gate::Free];
    let report = rig(&gates, &[Program::trainer(), Program::server()]).measured(S, 5 * S);
    assert!((report.share(1) - 30.0).abs() < 0.1, "{}", report.share(1));
    assert!(report.used() > 98.0, "{}", report.used());
    assert!(report.tenants[1].wait(990) <= 805 * US);
}

#[test]
fn without_a_rival_a_slice_does_not_empty_the_queue() {
    let gates = [open(Some(500 * US), false), Gate::Free];
    let report = rig(&gates, &[Program::trainer(), Program::server()]).measured(S, 5 * S);
    assert!((report.share(1) - 13.0).abs() < 0.1, "{}", report.share(1));
}

#[test]
fn a_slice_of_short_kernels_holds_as_many_as_fit() {
    let gates = [open(Some(500 * US), true)];
    let mut rig = rig(&gates, &[Program::queue(60 * US)]);
    let report = rig.measured(S, S);
    // Eight of them, one launch ahead of the first, and a wake-up.
    let expected = 100.0 * 480.0 / 505.0;
    assert!(
        (report.share(0) - expected).abs() < 0.1,
        "{}",
        report.share(0)
    );
}

#[test]
fn a_window_bounds_what_goes_on_after_a_close() {
    let mut rig = rig(&[open(None, true)], &[Program::trainer()]);
    let report = rig.measured(S, S);
    assert!(report.used() > 99.9, "a window never empties the queue");
    set(&mut rig, 0, Gate::Closed);
    rig.measure();
    rig.run(S);
    let after = rig.measure();
    assert!(after.busy <= WINDOW, "{}", after.busy);
    assert!(after.busy >= MS, "{}", after.busy);
    assert_eq!(rig.steering.said("drained", 0).len(), 1);
    assert_eq!(rig.steering.said("wanted", 0).len(), 1);
    set(&mut rig, 0, open(None, false));
    assert!(rig.measured(0, S).used() > 99.9);
}

#[test]
fn a_free_gate_has_no_bound_and_a_closed_one_lets_nothing_through() {
    let mut rig = rig(
        &[Gate::Free, Gate::Closed],
        &[Program::trainer(), Program::server()],
    );
    rig.run(S);
    set(&mut rig, 0, Gate::Closed);
    rig.measure();
    rig.run(S);
    let report = rig.measure();
    assert!(report.busy > 90 * MS, "the deep queue's work");
    assert_eq!(report.tenants[1].given, 0);
    assert!(report.idle() > 85.0, "both wait at closed gates");
    assert!(report.longest_idle > 800 * MS);
}

#[test]
fn an_operation_longer_than_the_bounds_goes_alone() {
    let gates = [open(Some(500 * US), true)];
    let mut rig = rig(&gates, &[Program::queue(5 * MS)]);
    let report = rig.measured(S, S);
    let expected = 100.0 * 5_000.0 / 5_025.0;
    assert!(
        (report.share(0) - expected).abs() < 0.1,
        "{}",
        report.share(0)
    );
}

#[test]
fn a_program_that_ignores_its_gate_is_not_held() {
    let mut program = Program::trainer();
    program.ungated = true;
    let report = rig(&[Gate::Closed], &[program]).measured(S, S);
    assert_eq!(report.busy, report.time);
}

#[test]
fn a_process_says_when_it_becomes_busy_and_idle() {
    let program = Program::sync(MS, 0)
        .pauses(50 * MS, 50 * MS)
        .until(190 * MS);
    let mut rig = rig(&[open(None, true)], &[program.from(MS)]);
    rig.run(S);
    let hand = &rig.steering;
    assert_eq!(hand.said("joined", 0), [MS]);
    assert_eq!(hand.said("busy", 0), [101 * MS + 20 * US]);
    let idle = hand.said("idle", 0);
    assert!((70 * MS..74 * MS).contains(&idle[0]), "{idle:?}");
    let left = hand.said("left", 0)[0];
    assert!((150 * MS..220 * MS).contains(&left), "{left}");
}

#[test]
fn a_short_pause_is_not_said() {
    let mut rig = rig(&[open(None, true)], &[Program::every(10 * MS, MS)]);
    rig.run(S);
    assert_eq!(rig.steering.said("busy", 0).len(), 0);
    assert_eq!(rig.steering.said("idle", 0).len(), 0);
}

/// As in the library, where a gate that takes another position begins anew.
#[test]
fn a_gate_that_moves_voids_what_was_said_of_idleness() {
    let mut rig = rig(&[open(None, true)], &[Program::every(S, MS)]);
    rig.run(100 * MS);
    assert_eq!(rig.steering.said("idle", 0).len(), 1);
    set(&mut rig, 0, open(Some(MS), true));
    rig.run(100 * MS);
    assert_eq!(rig.steering.said("idle", 0).len(), 1, "it stays open");
    set(&mut rig, 0, Gate::Free);
    rig.run(900 * MS);
    assert_eq!(rig.steering.said("idle", 0).len(), 1, "nothing looks");
    assert_eq!(rig.steering.said("busy", 0).len(), 0, "it works unseen");
    set(&mut rig, 0, open(None, true));
    rig.run(100 * MS);
    assert_eq!(rig.steering.said("idle", 0).len(), 2);
}

#[test]
fn a_process_that_starts_is_not_idle_for_a_second() {
    let starts = Program::sync(MS, 0).starts(3 * S);
    let mut rig = rig(&[open(None, true)], &[starts.from(MS)]);
    rig.run(4 * S);
    assert_eq!(rig.steering.said("idle", 0), [S + MS + 20 * US]);
    assert_eq!(rig.steering.said("busy", 0), [3 * S + MS + 20 * US]);
}

#[test]
fn a_sample_tells_service_by_estimate_and_time_with_work_pending() {
    let programs = [Program::trainer(), Program::server().estimates(1_040)];
    let mut rig = rig(&[Gate::Free, Gate::Free], &programs);
    rig.late = 0;
    rig.run(S);
    rig.steering.next = Some(S + 7);
    rig.run(10 * US);
    let (now, samples) = rig.steering.ticks.pop().unwrap();
    assert_eq!(now, S + 7);
    let report = rig.measure();
    assert_eq!(samples[0].service, report.tenants[0].useful);
    assert_eq!(samples[1].service * 1_000, report.tenants[1].useful * 1_040);
    assert_eq!(
        samples[0].pending,
        Some(5 * US),
        "without a pause since its first launch"
    );
    let pending = samples[1].busy + samples[1].pending.map_or(0, |since| now - since);
    // It waits for a slice of the trainer's in each of its periods, and then runs.
    let requests = 1_000.0 / 2.3;
    let expected = requests * 1.7 * MS as f64;
    assert!(
        (pending as f64 / expected - 1.0).abs() < 0.05,
        "{pending}, {expected}"
    );
}

#[test]
fn a_launch_at_a_closed_gate_is_pending_and_a_lie_is_told() {
    let mut liar = Program::trainer();
    liar.lie = Some(|sample| sample.pending = None);
    let mut rig = rig(&[Gate::Closed, Gate::Closed], &[Program::trainer(), liar]);
    rig.run(S);
    let samples = rig.samples();
    assert_eq!(samples[0].pending, Some(0));
    assert_eq!((samples[1].pending, samples[1].busy), (None, 0));
}

#[test]
fn a_tick_comes_once_and_not_before_it_is_due() {
    let mut rig = rig(&[Gate::Free], &[Program::trainer()]);
    for due in (2..100).map(|ms| ms * MS) {
        rig.steering.next = Some(due);
        rig.run(due + MS - rig.now());
    }
    let ticks = &rig.steering.ticks;
    assert_eq!(ticks.len(), 98);
    for ((at, _), due) in ticks.iter().zip((2..100).map(|ms| ms * MS)) {
        assert!((due..=due + 50 * US).contains(at), "{at} for {due}");
    }
}
