//! As [`movable_faults`](super::movable_faults) where the memory is managed: each driver call that
//! a move makes fails, and the process or its daemon is killed there. Sets that fit the device, and
//! one that is larger.

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::sweep::Sweep;
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB";

/// A program with managed allocations of two chunks and of one, and others that do not move.
const SWEEP: Sweep = Sweep {
    how: Movability::Managed,
    spec: SPEC,
    lines: &[
        "alloc 0 82000000",
        "alloc 1 3000000",
        "alloc 2 1000",
        "pitch 3 700 100 4",
        "async 4 5000000 1",
        "fill 0 1",
        "fill 1 2",
        "fill 2 3",
        "fill 3 4",
        "fill 4 5",
    ],
    frees: &[
        "free 0", "free 1", "free 2", "free 3", "later 4", "sync 1", "sync 0",
    ],
    host: 0,
    surely: &[
        "cuCtxRecordEvent",
        "cuMemPrefetchAsync",
        "cuStreamCreate",
        "cuStreamSynchronize",
    ],
    all: 230 * MIB,
};

/// More than the device has: a return brings a part of it.
const LARGER: Sweep = Sweep {
    spec: "mem=64MiB,ctx=32MiB",
    lines: &[
        "alloc 0 24000000",
        "alloc 1 18000000",
        "fill 0 1",
        "fill 1 2",
    ],
    frees: &["free 0", "free 1"],
    all: 24 * MIB,
    ..SWEEP
};

#[test]
fn whatever_call_of_a_managed_move_fails_the_data_is_there() {
    SWEEP.each_call_fails(2);
}

#[test]
fn whatever_call_of_a_larger_sets_move_fails_the_data_is_there() {
    LARGER.each_call_fails(1);
}

#[test]
fn a_return_of_managed_memory_that_is_given_up_loses_no_byte() {
    SWEEP.each_call_of_a_return_in_parts_fails(1);
}

#[test]
fn a_process_killed_in_a_managed_move_leaves_nothing() {
    SWEEP.the_process_is_killed_at_each_call(2);
    LARGER.the_process_is_killed_at_each_call(1);
}

#[test]
fn a_daemon_killed_in_a_managed_move_costs_no_byte() {
    SWEEP.the_daemon_is_killed_at_each_call(1);
}

#[test]
fn a_driver_that_never_prefetches_or_waits_loses_no_byte() {
    for function in [
        "cuMemPrefetchAsync",
        "cuCtxRecordEvent",
        "cuMemAdvise",
        "cuEventQuery",
    ] {
        let fail = format!("{function}:*:CUDA_ERROR_UNKNOWN");
        let mut scene = SWEEP.scene(&fail);
        // A drain that asks a driver that never answers ends by its bound.
        scene.dealer.drains_within(500);
        for _ in 0..2 {
            let _ = scene.ordered(Order::Leave);
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
            SWEEP.has_every_byte(&mut scene);
        }
        scene.guest.finish().silently();
    }
}

#[test]
fn a_managed_allocation_that_fails_leaves_nothing_taken() {
    for (function, right) in [
        ("cuMemAllocManaged", "alloc 999"),
        ("cuMemAdvise", "alloc 0"),
    ] {
        for nth in 1..=3 {
            let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
            let mut scene = Scene::moving(Movability::Managed, SPEC, &[("SOFTGPU_FAIL", &fail)]);
            let mut failed = false;
            for slot in 0..3 {
                let line = format!("alloc {slot} 4000000");
                let answer = scene.guest.ask(&line);
                if answer != "alloc 0" {
                    failed = true;
                    assert_eq!(answer, right, "{fail}");
                    assert_eq!(scene.charged(), slot * 4 * MIB, "{fail}");
                    scene.does(&[&line]);
                }
                scene.does(&[&format!("fill {slot} {slot}")]);
            }
            assert_eq!(failed, right != "alloc 0", "{fail}");
            scene.leaves();
            scene.returns();
            for slot in 0..3 {
                scene.guest.answers(&format!("check {slot} {slot}"), "0");
            }
            scene.does(&["free 0", "free 1", "free 2"]);
            assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
            scene.guest.finish().silently();
        }
    }
}

#[test]
fn a_free_of_managed_memory_that_fails_changes_nothing() {
    let fail = "cuMemFree:1:CUDA_ERROR_UNKNOWN";
    for is_away in [false, true] {
        let mut scene = Scene::moving(Movability::Managed, SPEC, &[("SOFTGPU_FAIL", fail)]);
        scene.does(&[
            "alloc 0 4000000",
            "alloc 1 80000000",
            "fill 0 1",
            "fill 1 2",
        ]);
        if is_away {
            scene.leaves();
            scene.guest.send("free 0");
            scene.returns();
            assert_eq!(scene.guest.line(), "free 999");
        } else {
            scene.guest.answers("free 0", "999");
        }
        let charged = scene.charged();
        scene.leaves();
        scene.returns();
        scene.guest.answers("check 0 1", "0");
        scene.guest.answers("check 1 2", "0");
        scene.does(&["free 0"]);
        assert_eq!(charged - scene.charged(), 4 * MIB);
        scene.does(&["free 1"]);
        until("all is given back", || scene.on_device() == 0);
        assert_eq!(scene.charged(), 0);
        scene.guest.finish().silently();
    }
}
