//! The service that a window reports for complete work of a kind that was never measured.

use super::*;
use crate::estimate::Service;

/// The time that nobody has measured yet.
const TOOK: u64 = 300 * MS;

/// The time between two looks (ns): 5 ms.
const LOOKS: usize = 5_000_000;

/// Submits the first operation of a kind, and puts a mark behind it.
fn first(window: &mut Window<u64>, now: u64, stream_key: StreamKey, waits: bool) {
    let ns = admit(window, now, BOUNDS, 1).expect("there is room");
    let op = Op {
        key: 1,
        count: 1,
        expected: Expected {
            ns,
            in_stream: 0,
            known: false,
        },
        waits,
        first: true,
    };
    assert!(window.submitted(now, BOUNDS, stream_key, op));
    let number = window.close_batch(stream_key, now).expect("it has work");
    window.marked(number, MS + TOOK).expect("it is there");
}

/// Looks each 5 ms, until a look finds the marks passed.
fn look_on(window: &mut Window<u64>, from: u64) {
    let last = MS + TOOK;
    for now in (from..last).step_by(LOOKS).chain([last]) {
        window.look(now, |mark| *mark <= now, |_| None);
    }
    assert!(window.is_drained());
}

fn all(window: &mut Window<u64>) -> u64 {
    window.take_service().all()
}

#[test]
fn a_first_operation_is_said_to_take_as_long_as_it_was_seen_to_run() {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, false);
    look_on(&mut window, MS);
    let said = window.take_service();
    let all = said.all();
    assert!((TOOK - 6 * MS..=TOOK).contains(&all), "{said:?}");
    assert_eq!(said.measured, 0, "no kind was measured");
    assert_eq!(window.expected(BOUNDS, 1).ns, MS / 2, "nor learned");
}

#[test]
fn a_first_operation_is_said_in_full_to_a_thread_that_waited_for_it() {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, false);
    let stamp = window.stamp();
    window.waited_for(MS + TOOK, |_| true, stamp, true, |_| None);
    assert_eq!(all(&mut window), TOOK);
}

#[test]
fn what_nobody_saw_run_is_said_to_take_what_is_assumed() {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, false);
    // The process was stopped meanwhile.
    window.look(MS + TOOK, |_| true, |_| None);
    assert_eq!(all(&mut window), MS / 2);
}

#[test]
fn what_ran_beside_another_tenant_is_said_to_take_what_is_assumed() {
    let mut window = Window::default();
    window.contends(0, true);
    first(&mut window, MS, STREAM, false);
    look_on(&mut window, MS);
    assert_eq!(all(&mut window), MS / 2);
}

/// Another tenant's work is on the device for `beside` of each 20 ms: what is said then of an
/// operation.
fn said_beside_pauses(beside: u64) -> u64 {
    let mut window = Window::default();
    window.contends(0, beside > 0);
    first(&mut window, MS, STREAM, false);
    let last = MS + TOOK;
    for now in (MS..last).step_by(LOOKS).chain([last]) {
        window.contends(now, now % (20 * MS) < beside);
        window.look(now, |mark| *mark <= now, |_| None);
    }
    assert_eq!(window.expected(BOUNDS, 1).ns, MS / 2, "it is not learned");
    all(&mut window)
}

#[test]
fn what_ran_in_the_pauses_of_another_tenant_is_said_to_take_those() {
    assert!(said_beside_pauses(0) >= TOOK - 6 * MS);
    // A look at 1 ms of 20 finds the other one: the 5 ms before it and those after it do not count.
    let said = said_beside_pauses(2 * MS);
    assert!(
        (TOOK / 2 - 15 * MS..=TOOK / 2 + MS).contains(&said),
        "{said}"
    );
    assert_eq!(said_beside_pauses(20 * MS), MS / 2);
}

#[test]
fn what_waited_for_no_device_is_said_to_take_what_is_assumed() {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, true);
    look_on(&mut window, MS);
    assert_eq!(all(&mut window), MS / 2);
}

/// The service reported for an operation that ends `after` a launch which the closed gate had kept.
fn said_after_a_kept_launch(after: u64) -> Service {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, false);
    window.keeps();
    let goes = MS + TOOK - after;
    for now in (MS..goes).step_by(LOOKS) {
        window.look(now, |_| false, |_| None);
    }
    window.begin_turn();
    let _ = admit(&mut window, goes, BOUNDS, 1).expect("it goes");
    let number = window.close_blindly(
        StreamKey {
            stream: 9,
            ..STREAM
        },
        goes,
    );
    window.marked(number, u64::MAX).expect("it is there");
    let _ = window.take_service();
    for now in (goes..MS + TOOK).step_by(LOOKS) {
        window.look(now, |_| false, |_| None);
    }
    let last = MS + TOOK;
    window.look(last, |mark| *mark <= last, |_| None);
    window.take_service()
}

#[test]
fn what_ended_once_the_gate_let_a_kept_launch_go_had_waited_for_it() {
    let said = |after| said_after_a_kept_launch(after).all();
    assert_eq!(said(MS), MS / 2, "it may have waited");
    let long = said(50 * MS);
    assert!(long >= TOOK / 2 - 6 * MS, "it had not: {long}");
}

#[test]
fn what_ended_while_the_gate_still_kept_a_launch_had_not_waited_for_it() {
    let mut window = Window::default();
    first(&mut window, MS, STREAM, false);
    window.keeps();
    look_on(&mut window, MS);
    assert!(all(&mut window) >= TOOK - 6 * MS);
}

#[test]
fn streams_that_ran_side_by_side_had_the_device_together_only_once() {
    let mut window = Window::default();
    for stream in 2..6 {
        first(&mut window, MS, StreamKey { stream, ..STREAM }, false);
    }
    look_on(&mut window, MS);
    let all = all(&mut window);
    assert!(all <= TOOK + 2 * MS, "{all}");
}
