//! Returns of which the daemon withholds a part: no more comes back than it leaves, all of it can
//! be given up at any time, and no byte is lost. A daemon that the test plays orders the moves.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB";
/// So many allocations, of a chunk each.
const MANY: u64 = 4;
const EACH: u64 = 8 * MIB;
const ALL: u64 = MANY * EACH;

/// A program with these, all of them out.
fn scene(fail: &str) -> Scene {
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", fail)]);
    for slot in 0..MANY {
        scene.does(&[
            &format!("alloc {slot} {EACH}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.provided(ALL);
    scene
}

fn has_every_byte(scene: &mut Scene) {
    for slot in 0..MANY {
        scene.guest.answers(&format!("check {slot} {slot}"), "0");
    }
}

/// Orders a return without so many bytes, and waits until the others are back.
fn returns_but(scene: &mut Scene, withheld: u64) {
    scene.dealer.withholds(withheld);
    scene.epoch += 1;
    scene.dealer.order(scene.epoch, Order::Return);
    until("the rest is back", || scene.on_device() == ALL - withheld);
}

#[test]
fn a_return_brings_what_is_not_withheld_and_the_rest_as_it_may() {
    let mut scene = scene("");
    scene.leaves();
    returns_but(&mut scene, 3 * EACH);
    // A part of a chunk brings nothing.
    scene.dealer.withholds(2 * EACH + 1);
    scene.guest.send("check 0 0");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    assert_eq!(scene.on_device(), EACH, "no more came");
    scene.dealer.withholds(EACH);
    until("two more came", || scene.on_device() == 3 * EACH);
    let said = scene.dealer.said();
    let back = said.iter().any(|said| matches!(said, Request::Back { .. }));
    assert!(!back, "{said:?}");
    scene.dealer.withholds(0);
    assert_eq!(scene.outcome(), Outcome::Back);
    assert_eq!(scene.guest.line(), "check 0");
    has_every_byte(&mut scene);
    assert_eq!(scene.on_device(), ALL);
}

#[test]
fn a_return_in_parts_can_be_taken_back_and_ordered_again() {
    let mut scene = scene("");
    scene.leaves();
    for order in [Order::Leave, Order::Out] {
        returns_but(&mut scene, EACH);
        if order == Order::Leave {
            assert_eq!(scene.ordered(order), Outcome::Away(ALL));
        } else {
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, order);
        }
        until("all is given up", || scene.on_device() == 0);
    }
    scene.dealer.withholds(0);
    scene.returns();
    has_every_byte(&mut scene);
}

#[test]
fn without_its_daemon_a_return_in_parts_takes_the_rest_or_gives_all_up() {
    for fits in [true, false] {
        let mut scene = scene("");
        scene.leaves();
        let mut other = scene.bare();
        if !fits {
            other.does(&format!("alloc 0 {}", 224 * MIB));
        }
        returns_but(&mut scene, if fits { EACH } else { 3 * EACH });
        if !fits {
            // The rest needs more than the device has free now.
            other.does(&format!("alloc 1 {}", 4 * MIB));
        }
        scene.guest.send("check 0 0");
        scene.dealer.leave();
        if !fits {
            until("it has given all up", || scene.on_device() == 0);
            other.does("free 0");
        }
        assert_eq!(scene.guest.line(), "check 0");
        has_every_byte(&mut scene);
        other.finish().silently();
    }
}

#[test]
fn whatever_copy_out_fails_nothing_is_taken_back_before_it_is_ordered() {
    for (function, nth) in [
        ("cuMemcpyDtoHAsync_v2", 1),
        ("cuMemcpyDtoHAsync_v2", 3),
        ("cuMemUnmap", 2),
        ("cuMemUnmap", 4),
    ] {
        let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
        let mut scene = scene(&fail);
        assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(0), "{fail}");
        // The last part that left may be on its way off the device.
        let mut left = scene.on_device();
        until("nothing leaves any more", || {
            let before = core::mem::replace(&mut left, scene.on_device());
            left == before
        });
        assert!(left > 0, "{fail}");
        scene.guest.send("check 0 0");
        scene.dealer.hears(&Request::WantIn { device_index: 0 });
        assert_eq!(scene.on_device(), left, "{fail}");
        // The daemon gives the room back in parts too.
        let away = ALL - left;
        if away > EACH {
            scene.dealer.withholds(EACH);
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, Order::Return);
            until("a part is back", || scene.on_device() == ALL - EACH);
            scene.dealer.withholds(0);
            assert_eq!(scene.outcome(), Outcome::Back, "{fail}");
        } else {
            scene.returns();
        }
        assert_eq!(scene.guest.line(), "check 0");
        has_every_byte(&mut scene);
        scene.leaves();
        scene.returns();
        has_every_byte(&mut scene);
    }
}

#[test]
fn a_process_that_its_daemon_counts_as_in_tries_until_it_is_back() {
    // A part has left, and for its return the driver has no memory once.
    let fail = "cuMemUnmap:2:CUDA_ERROR_UNKNOWN,cuMemCreate:5:CUDA_ERROR_OUT_OF_MEMORY";
    let mut scene = scene(fail);
    assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(0));
    scene.guest.send("check 0 0");
    let outcome = scene.ordered(Order::In);
    assert!(
        matches!(outcome, Outcome::NoRoom(bytes) if bytes > 0),
        "{outcome:?}"
    );
    assert_eq!(scene.guest.line(), "check 0");
    has_every_byte(&mut scene);
    assert_eq!(scene.on_device(), ALL);
}
