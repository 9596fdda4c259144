//! The brain's audit of a shared device: whether bills agree with the clock, and how often the mode
//! changed.

use crate::together::{Brain, MS, Pace, Program, Rig, S, US};
use gpushare_core::{Compute, LeasePolicy, Mode, Nanos, Permille, SharingView};

/// The audit after ten seconds.
fn sharing(brain: Brain, programs: &[Program]) -> SharingView {
    let mut rig = Rig::new(Pace::default(), brain, 1);
    for program in programs {
        rig.add(program.clone());
    }
    rig.run(10 * S);
    let now = rig.now();
    assert_eq!(rig.steering.broken, None);
    rig.steering.device.borrow().sharing(Nanos(now))
}

fn brain() -> Brain {
    Brain::new(LeasePolicy::default())
}

#[test]
fn true_bills_agree_with_the_clock_also_beside_pauses_and_holds() {
    let request = |part| Compute {
        request: Permille::new(part),
        limit: None,
    };
    let server = Program::every(MS, 300 * US);
    let yields = sharing(brain(), &[Program::trainer(), server]);
    let parts = brain().of(0, 500, request(700)).of(1, 500, request(300));
    let holds = sharing(parts, &[Program::trainer(), Program::trainer()]);
    let long = sharing(brain(), &[Program::queue(20 * MS), Program::trainer()]);
    for view in [yields, holds, long] {
        assert!(view.off.is_some_and(|off| off.abs() <= 20), "{view:?}");
    }
    assert!(yields.mode > Some(Mode::Together) && yields.changes > 0);
    assert_eq!(u64::from(yields.lately), yields.changes);
}

#[test]
fn bills_of_wrong_estimates_are_seen_to_be_off() {
    for (estimate, expected) in [(1_200, 200), (800, -200)] {
        let mut wrong = Program::trainer();
        wrong.estimate = estimate;
        let view = sharing(brain(), &[wrong.clone(), wrong]);
        let off = view.off.unwrap_or(0);
        assert!((off - expected).abs() <= 30, "{estimate}: {view:?}");
    }
}

#[test]
fn work_past_the_gates_is_seen_as_time_nobody_is_billed_for() {
    let mut hides = Program::trainer();
    hides.ungated = true;
    hides.lie = Some(|sample| (sample.service, sample.pending) = (0, None));
    let view = sharing(brain(), &[Program::trainer(), hides]);
    assert!(view.off.is_some_and(|off| off < -300), "{view:?}");
}

#[test]
fn a_device_with_gaps_says_nothing_of_its_books() {
    let half = Program::every(500 * US, 200 * US);
    let view = sharing(brain(), &[half.clone(), half]);
    assert_eq!((view.mode, view.off), (Some(Mode::Together), None));
    assert_eq!((view.changes, view.lately), (0, 0));
}
