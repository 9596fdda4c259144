//! Memsets and copies of movable memory while a context on another device is current. Of plain
//! memory the driver makes them; the second program here is that on the bare driver, which must
//! answer the same.

use std::fs;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene, same};
use gpushare_tests::{Guest, until};

const SPEC: &str = "mem=1GiB,ctx=8MiB,count=2";
/// Drivers before 12.5 cannot put an event behind all of a context.
const OLD: &str = "mem=1GiB,ctx=8MiB,count=2,driver=12040";
/// An allocation of chunks of its own, and a part of a slab.
const SIZES: [u64; 2] = [4 << 20, 4096];

const PEER_ACCESS_UNSUPPORTED: &str = "217";

/// A program with slot 0 on device 0 and slot 1 on device 1, and the same on the bare driver.
fn two(spec: &str, bytes: u64) -> (Scene, Guest) {
    let mut scene = Scene::moving_on_two(Movability::Swap, spec);
    let mut bare = scene.bare();
    let lines = [
        "second".to_owned(),
        format!("alloc 0 {bytes}"),
        format!("there 1 {bytes}"),
    ];
    same(&mut scene, &mut bare, &lines);
    (scene, bare)
}

fn ended(scene: Scene, bare: Guest) {
    scene.guest.finish().silently();
    bare.finish().silently();
}

/// A command that has this answer on both.
#[track_caller]
fn both(scene: &mut Scene, bare: &mut Guest, line: &str, answer: &str) {
    bare.answers(line, answer);
    scene.guest.answers(line, answer);
}

#[test]
fn another_devices_memory_is_set_and_copied_as_plain_memory() {
    for bytes in SIZES {
        let (mut scene, mut bare) = two(SPEC, bytes);
        for round in 0..2 {
            let mut value = 10 * round;
            for how in 0..3 {
                value += 1;
                both(
                    &mut scene,
                    &mut bare,
                    &format!("stamp 0 {value} {how}"),
                    "0",
                );
                both(&mut scene, &mut bare, &format!("pull 0 {value} 0"), "0 0");
                both(&mut scene, &mut bare, &format!("values 0 {value}"), "0");
            }
            for later in 0..2 {
                value += 1;
                both(
                    &mut scene,
                    &mut bare,
                    &format!("push 0 {value} {later}"),
                    "0",
                );
                both(&mut scene, &mut bare, &format!("values 0 {value}"), "0");
                both(
                    &mut scene,
                    &mut bare,
                    &format!("pull 0 {value} {later}"),
                    "0 0",
                );
            }
            // It leaves and comes back.
            scene.provided(bytes);
            let outcome = scene.ordered(Order::Leave);
            assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
            scene.returns();
        }
        ended(scene, bare);
    }
}

/// Copies between memory of two devices by every function, and again after it left and came back.
fn is_copied_between(spec: &str) {
    for bytes in SIZES {
        let (mut scene, mut bare) = two(spec, bytes);
        for how in 0..5 {
            let (one, two) = (2 * how + 1, 2 * how + 2);
            both(&mut scene, &mut bare, &format!("stamp 0 {one} 0"), "0");
            both(&mut scene, &mut bare, &format!("carry 1 0 {how}"), "0");
            both(&mut scene, &mut bare, &format!("pull 1 {one} 0"), "0 0");
            both(&mut scene, &mut bare, &format!("stamp 1 {two} 0"), "0");
            both(&mut scene, &mut bare, &format!("carry 0 1 {how}"), "0");
            both(&mut scene, &mut bare, &format!("values 0 {two}"), "0");
            if how == 1 {
                scene.provided(bytes);
                let outcome = scene.ordered(Order::Leave);
                assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
                scene.returns();
            }
        }
        ended(scene, bare);
    }
}

#[test]
fn a_copy_between_two_devices_needs_no_peer_access() {
    is_copied_between(SPEC);
}

#[test]
fn devices_that_cannot_reach_each_other_are_copied_between() {
    is_copied_between(&format!("{SPEC},peer=off"));
}

#[test]
fn a_peer_that_cannot_be_given_access_is_refused_as_by_the_driver() {
    let (mut scene, mut bare) = two(&format!("{SPEC},peer=off"), SIZES[0]);
    both(&mut scene, &mut bare, "reach", PEER_ACCESS_UNSUPPORTED);
    both(&mut scene, &mut bare, "stamp 0 1 0", "0");
    scene.provided(SIZES[0]);
    let outcome = scene.ordered(Order::Leave);
    assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
    scene.returns();
    both(&mut scene, &mut bare, "values 0 1", "0");
    both(&mut scene, &mut bare, "pull 0 1 1", "0 0");
    ended(scene, bare);
}

#[test]
fn a_copy_within_another_device_is_made_there() {
    let (mut scene, mut bare) = two(SPEC, SIZES[0]);
    same(&mut scene, &mut bare, &[format!("alloc 2 {}", SIZES[0])]);
    for how in 0..5 {
        both(&mut scene, &mut bare, &format!("stamp 0 {how} 0"), "0");
        both(&mut scene, &mut bare, &format!("carry 2 0 {how}"), "0");
        both(&mut scene, &mut bare, &format!("values 2 {how}"), "0");
    }
    ended(scene, bare);
}

#[test]
fn it_keeps_the_order_of_its_stream() {
    for bytes in SIZES {
        let (mut scene, mut bare) = two(SPEC, bytes);
        both(&mut scene, &mut bare, "stamp 0 1 0", "0");
        both(&mut scene, &mut bare, "queue 0 2", "0");
        both(&mut scene, &mut bare, "status", "600");
        // Nothing of it is done before the stream goes on.
        both(&mut scene, &mut bare, "values 0 1", "0");
        both(&mut scene, &mut bare, "goes", "2 0");
        both(&mut scene, &mut bare, "values 0 2", "0");
        ended(scene, bare);
    }
}

#[test]
fn a_free_waits_for_it() {
    for spec in [SPEC, OLD] {
        let (mut scene, bare) = two(spec, SIZES[0]);
        scene.does(&["stamp 0 1 0", "queue 0 2", "freeing 0"]);
        scene.guest.answers("goes", "2 0");
        until("it is freed", || scene.guest.ask("freed") == "freed 0");
        scene.does(&["alloc 0 4194304", "fill 0 3"]);
        ended(scene, bare);
    }
}

#[test]
fn it_waits_while_the_memory_is_away() {
    let (mut scene, bare) = two(SPEC, SIZES[0]);
    scene.does(&["stamp 0 1 0"]);
    scene.provided(SIZES[0]);
    scene.leaves();
    scene.guest.send("stamp 0 2 0");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene.returns();
    assert_eq!(scene.guest.line(), "stamp 0");
    scene.guest.answers("values 0 2", "0");
    ended(scene, bare);
}

#[test]
fn a_peer_copies_from_its_own_context() {
    let (mut scene, mut bare) = two(SPEC, SIZES[0]);
    both(&mut scene, &mut bare, "reach", "0");
    both(&mut scene, &mut bare, "stamp 0 1 1", "0");
    both(&mut scene, &mut bare, "carry 1 0 1", "0");
    both(&mut scene, &mut bare, "pull 1 1 1", "0 0");
    ended(scene, bare);
}

/// As the driver's (ADR 84), whether or not that device has access to the memory.
#[test]
fn a_free_waits_for_no_work_of_another_device() {
    for bytes in SIZES {
        let (mut scene, mut bare) = two(SPEC, bytes);
        for value in 2..4 {
            // The work waits for a word of the host's.
            both(&mut scene, &mut bare, &format!("queue 1 {value}"), "0");
            both(&mut scene, &mut bare, "free 0", "0");
            both(&mut scene, &mut bare, "status", "600");
            both(&mut scene, &mut bare, "goes", &format!("{value} 0"));
            if value == 2 {
                both(&mut scene, &mut bare, "reach", "0");
                same(&mut scene, &mut bare, &[format!("alloc 0 {bytes}")]);
            }
        }
        ended(scene, bare);
    }
}

/// Stated in ADR 84: what a capture records is not made for another context.
#[test]
fn in_a_capture_it_is_left_to_the_driver() {
    let (mut scene, mut bare) = two(SPEC, SIZES[0]);
    bare.answers("recorded 1 0", "0 0");
    scene.guest.answers("recorded 1 0", "1 0");
    both(&mut scene, &mut bare, "recorded 1 1", "0 0");
    both(&mut scene, &mut bare, "stamp 0 1 0", "0");
    both(&mut scene, &mut bare, "carry 1 0 1", "0");
    ended(scene, bare);
}

/// How often a program asks an event in vain before an upload of this kind (see `push` of the
/// client) is given to the driver, by the driver's own account.
#[track_caller]
fn asks_before_an_upload(spec: &str, later: u32) -> usize {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let trace_to = [("SOFTGPU_TRACE", path)];
    let mut scene = Scene::on_two_with(Movability::Swap, spec, &trace_to);
    scene.does(&["second", "alloc 0 4096", "there 1 4096"]);
    scene.does(&[&format!("push 0 7 {later}")]);
    let own = format!("{0} {0} ", scene.guest.id());
    scene.guest.finish().silently();
    let text = fs::read_to_string(trace.path()).expect("readable");
    let calls: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&own))
        .collect();
    let copies: Vec<usize> = (0..calls.len())
        .filter(|at| calls[*at] == "cuMemcpyHtoDAsync_v2 0")
        .collect();
    let [copy] = copies[..] else {
        panic!("{calls:#?}");
    };
    let asked = calls[..copy].iter();
    asked.filter(|call| **call == "cuEventQuery 600").count()
}

/// The driver may wait for the stream before it takes such bytes, and would do so while a context
/// of the library's choice is current.
#[test]
fn an_upload_of_pageable_bytes_is_made_once_its_stream_is_idle() {
    for spec in [SPEC, &format!("{SPEC},stage=waits")] {
        assert!(asks_before_an_upload(spec, 2) > 0, "{spec}");
        assert_eq!(asks_before_an_upload(spec, 3), 0, "{spec}");
    }
}

#[test]
fn a_driver_that_waits_before_an_upload_is_answered_the_same() {
    let (mut scene, mut bare) = two(&format!("{SPEC},stage=waits"), SIZES[0]);
    both(&mut scene, &mut bare, "push 0 1 2", "0");
    both(&mut scene, &mut bare, "values 0 1", "0");
    both(&mut scene, &mut bare, "push 0 2 1", "0");
    both(&mut scene, &mut bare, "pull 0 2 1", "0 0");
    ended(scene, bare);
}
