//! A move at each of whose steps something fails: a driver call, the process, the daemon.
//! Afterwards everything is as before, or every byte is there, or calls return an error; and no
//! memory of the device stays taken. The steps are read off the software GPU's trace of a move.

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::sweep::Sweep;
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB";

/// A program with allocations that can move: of a chunk each, parts of a slab, and of the pool.
const SWEEP: Sweep = Sweep {
    how: Movability::Swap,
    spec: SPEC,
    lines: &[
        "alloc 0 8388608",
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
    frees: &["free 0", "free 1", "free 2", "free 3", "later 4", "sync 1"],
    host: 46 * MIB,
    surely: &[
        "cuCtxRecordEvent",
        "cuMemcpyDtoHAsync_v2",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
    ],
    all: 230 * MIB,
};

#[test]
fn whatever_call_of_a_move_fails_the_data_is_there_in_the_end() {
    SWEEP.each_call_fails(2);
}

#[test]
fn whatever_call_of_a_return_in_parts_fails_the_data_is_there_in_the_end() {
    SWEEP.each_call_of_a_return_in_parts_fails(2);
}

#[test]
fn a_process_killed_at_any_step_leaves_nothing_on_the_device() {
    SWEEP.the_process_is_killed_at_each_call(1);
}

#[test]
fn no_byte_is_lost_when_the_daemon_is_killed_at_any_step() {
    SWEEP.the_daemon_is_killed_at_each_call(1);
}

#[test]
fn a_driver_that_fails_for_good_at_a_step_loses_no_byte() {
    // Functions that the program itself needs to show its bytes are left out.
    for function in [
        "cuMemcpyDtoHAsync",
        "cuMemUnmap",
        "cuCtxRecordEvent",
        "cuStreamCreate",
        "cuMemHostRegister",
    ] {
        let fail = if function == "cuStreamCreate" {
            // The first stream is the program's.
            "cuStreamCreate:2:CUDA_ERROR_UNKNOWN,cuStreamCreate:3:CUDA_ERROR_UNKNOWN,\
             cuStreamCreate:4:CUDA_ERROR_UNKNOWN"
                .to_owned()
        } else {
            format!("{function}:*:CUDA_ERROR_UNKNOWN")
        };
        let mut scene = SWEEP.scene(&fail);
        for _ in 0..2 {
            let _ = scene.ordered(Order::Leave);
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
            SWEEP.has_every_byte(&mut scene);
        }
        scene.guest.finish().silently();
    }
}

#[test]
fn an_allocation_that_fails_at_a_step_leaves_nothing_taken() {
    // The first block's calls are the first ones; the second allocation is of two chunks.
    for (function, nth) in [
        ("cuMemAddressReserve", 2),
        ("cuMemCreate", 2),
        ("cuMemCreate", 3),
        ("cuMemMap", 2),
        ("cuMemMap", 3),
        ("cuMemSetAccess", 2),
    ] {
        let fail = format!("{function}:{nth}:CUDA_ERROR_OUT_OF_MEMORY");
        let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
        scene.does(&["alloc 0 4194304", "fill 0 1"]);
        let before = scene.charged();
        let answer = scene.guest.ask("alloc 1 100000000");
        assert!(
            answer == "alloc 2" || answer == "alloc 0",
            "{fail}: {answer}"
        );
        if answer == "alloc 2" {
            assert_eq!(
                (scene.on_device(), scene.charged()),
                (4 * MIB, before),
                "{fail}"
            );
            scene.does(&["alloc 1 100000000"]);
        }
        scene.guest.answers("check 0 1", "0");
        scene.does(&["free 0", "free 1"]);
        assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
        scene.guest.finish().silently();
    }
}

#[test]
fn a_free_that_fails_at_a_step_gives_its_memory_back_later() {
    for function in ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"] {
        for calls in 1..=3 {
            let fail: Vec<String> = (1..=calls)
                .map(|nth| format!("{function}:{nth}:CUDA_ERROR_UNKNOWN"))
                .collect();
            let fail = fail.join(",");
            let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
            scene.does(&["alloc 0 4194304", "alloc 1 4194304", "fill 1 2", "free 0"]);
            until("it is given back", || scene.on_device() == 4 * MIB);
            scene.guest.answers("check 1 2", "0");
            scene.does(&["free 1"]);
            until("all is given back", || scene.on_device() == 0);
            assert_eq!(scene.charged(), 0, "{fail}");
            scene.guest.finish().silently();
        }
    }
}

/// One of its two mappings is undone, and neither that of the other nor its own again.
#[test]
fn memory_that_has_lost_a_mapping_to_a_failure_leaves_by_the_next_order() {
    let fail = "cuMemUnmap:3:CUDA_ERROR_UNKNOWN,cuMemMap:4:CUDA_ERROR_UNKNOWN";
    let mut scene = Scene::of("segments", SPEC, "init", &[("SOFTGPU_FAIL", fail)]);
    scene.does(&["make 0 4194304 0", "map 0", "again 0", "fill 0 1"]);
    scene.provided(4 * MIB);
    assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(0));
    assert_eq!(scene.on_device(), 4 * MIB);
    assert_eq!(scene.ordered(Order::Leave), Outcome::Away(4 * MIB));
    until("it is off the device", || scene.on_device() == 0);
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("through 0 1", "0");
    scene.guest.finish().silently();
}
