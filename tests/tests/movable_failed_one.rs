//! One of a program's two contexts on a device fails as memory comes back. Memory that belongs to
//! no context comes back through the one that lives.

use std::collections::BTreeSet;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB,driver=13050";
/// From there on `check` shows the driver's error.
const ERROR: u64 = 1_000_000_000;

/// The device has an error that cannot be corrected at the nth copy of a return.
fn at_copy(nth: u32, losing: &str) -> String {
    format!("cuMemcpyHtoDAsync:{nth}:CUDA_ERROR_ECC_UNCORRECTABLE{losing}")
}

/// A program with two contexts whose memory is out: slot 0 in the first one and slot 2 in the
/// second one, which is current, if they have `some`; slot 1 in a pool, and memory of its own. A
/// call waits.
fn waits(some: bool, fail: &str) -> Scene {
    let mut scene = Scene::with(SPEC, "init 1", &[("SOFTGPU_FAIL", fail)]);
    scene.does(&["async 1 4194304 1", "sync 1", "fill 1 4", "twofold 4194304"]);
    if some {
        scene.does(&["alloc 0 4194304", "fill 0 3"]);
    }
    scene.does(&["swaps"]);
    if some {
        scene.does(&["alloc 2 4194304", "fill 2 5"]);
    }
    scene.provided(16 * MIB);
    scene.leaves();
    scene.guest.send("check 1 4");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene
}

/// What the call answers that waited.
fn waited(scene: &mut Scene) -> u64 {
    let line = scene.guest.line();
    let wrong = line.strip_prefix("check ").expect("its answer");
    wrong.parse().expect("a number")
}

/// Whichever of the four copies of the return it is, in the first context or in the second one.
#[test]
fn memory_of_no_context_comes_back_through_the_context_that_lives() {
    let mut second_lives = BTreeSet::new();
    for nth in 1..=4 {
        let mut scene = waits(true, &at_copy(nth, "!!"));
        assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{nth}");
        let lives = waited(&mut scene) == 0;
        let right = |scene: &mut Scene, line| scene.guest.ask(line) == "check 0";
        assert_eq!(right(&mut scene, "check 2 5"), lives, "{nth}");
        scene.does(&["swaps"]);
        assert_eq!(right(&mut scene, "check 0 3"), !lives, "{nth}");
        assert_eq!(right(&mut scene, "check 1 4"), !lives, "{nth}");
        second_lives.insert(lives);
        scene.guest.finish().silently();
    }
    assert_eq!(second_lives.len(), 2, "each of the two has failed");
}

/// Nothing is given up with the context that fails.
#[test]
fn memory_comes_back_where_the_failed_context_has_none() {
    let mut scene = waits(false, &at_copy(1, "!!"));
    assert_eq!(scene.ordered(Order::Return), Outcome::Back);
    let wrong = waited(&mut scene);
    scene.does(&["swaps"]);
    let other: u64 = scene.guest.number("check 1 4");
    let (least, most) = (wrong.min(other), wrong.max(other));
    assert!(least == 0 && most > ERROR, "{wrong} and {other}");
    scene.guest.finish().silently();
}

#[test]
fn memory_of_no_context_is_given_up_where_both_contexts_fail() {
    for fail in [
        at_copy(1, "!"),
        format!("{},{}", at_copy(1, "!!"), at_copy(2, "!!")),
    ] {
        let mut scene = waits(false, &fail);
        assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
        let wrong = waited(&mut scene);
        assert!(wrong > ERROR, "{fail}: {wrong}");
        until("nothing of it is on the device", || scene.on_device() == 0);
        scene.guest.finish().silently();
    }
}

#[test]
fn memory_of_no_context_stays_on_the_host_where_a_copy_alone_fails() {
    let mut scene = waits(true, &at_copy(1, ""));
    assert_eq!(scene.ordered(Order::Return), Outcome::NoRoom(0));
    scene.returns();
    assert_eq!(waited(&mut scene), 0);
    scene.guest.answers("check 2 5", "0");
    scene.does(&["swaps"]);
    scene.guest.answers("check 0 3", "0");
    scene.guest.finish().silently();
}
