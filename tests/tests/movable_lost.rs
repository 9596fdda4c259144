//! A device is lost while memory of a program is out of it: no call waits for what never comes
//! back.

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};

const SPEC: &str = "mem=1GiB,ctx=8MiB,count=2";
const BYTES: u64 = 4 << 20;
/// What host memory is asked for alone.
const LARGE: u64 = 128 << 20;
/// From there on `check` shows the driver's error.
const ERROR: u64 = 1_000_000_000;

/// A program with slot 0 on device 0 and slot 1 on device 1, whose memory is off device 0.
fn out(how: Movability) -> Scene {
    let mut scene = Scene::moving_on_two(how, SPEC);
    scene.does(&[
        "second",
        &format!("alloc 0 {BYTES}"),
        "fill 0 3",
        &format!("there 1 {BYTES}"),
        "stamp 1 9 0",
    ]);
    if how == Movability::Swap {
        scene.provided(BYTES);
    }
    let outcome = scene.ordered(Order::Leave);
    assert!(matches!(outcome, Outcome::Away(BYTES)), "{outcome:?}");
    scene
}

fn lost(scene: &mut Scene, device_index: usize) {
    scene.epoch += 1;
    scene
        .dealer
        .order_on(device_index, scene.epoch, Order::Lost);
}

/// A program with so much on device 0 and nothing on device 1, and host memory for that.
fn large() -> Scene {
    let mut scene = Scene::moving_on_two(Movability::Swap, SPEC);
    scene.does(&["second", &format!("alloc 0 {LARGE}"), "fill 0 3"]);
    scene.provided(LARGE);
    scene
}

fn drops(scene: &Scene) -> u64 {
    scene.dealer.hears_some(|said| match said {
        Request::HostDrop { bytes, .. } => Some(*bytes),
        _ => None,
    })
}

/// A call on the second device waits, because memory is off the first one.
fn waits(scene: &mut Scene) {
    scene.guest.send("stamp 1 11 0");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
}

#[test]
fn a_call_that_waits_for_a_lost_device_goes_on_at_the_others() {
    let mut scene = out(Movability::Swap);
    waits(&mut scene);
    lost(&mut scene, 0);
    assert_eq!(scene.guest.line(), "stamp 0");
    scene.guest.answers("pull 1 11 0", "0 0");
    // What was out is gone: an error at once, and never other bytes.
    let wrong: u64 = scene.guest.number("check 0 3");
    assert!(wrong > ERROR, "{wrong}");
    assert_ne!(scene.guest.ask("fill 0 4"), "fill 0");
    scene.does(&["free 0"]);
    // Without its daemon it is not sealed again.
    scene.dealer.leave();
    scene.guest.answers("pull 1 11 0", "0 0");
    scene.guest.finish().silently();
}

#[test]
fn a_call_waits_on_where_another_device_is_lost() {
    let mut scene = out(Movability::Swap);
    waits(&mut scene);
    lost(&mut scene, 1);
    scene.returns();
    assert_eq!(scene.guest.line(), "stamp 0");
    scene.guest.answers("check 0 3", "0");
    scene.guest.finish().silently();
}

#[test]
fn managed_memory_of_a_lost_device_is_left_to_the_driver() {
    let mut scene = out(Movability::Managed);
    waits(&mut scene);
    lost(&mut scene, 0);
    assert_eq!(scene.guest.line(), "stamp 0");
    scene.guest.answers("check 0 3", "0");
    scene.guest.finish().silently();
}

/// Memory that the program makes itself, and not at an address, is counted as other memory is.
#[test]
fn own_memory_that_was_off_a_lost_device_leaves_the_books_once_released() {
    let mut scene = Scene::moving_on_two(Movability::Swap, SPEC);
    scene.does(&["second", &format!("handle {BYTES}")]);
    scene.provided(BYTES);
    scene.leaves();
    lost(&mut scene, 0);
    scene.does(&["drops"]);
    scene.tells(|told| told.movable == 0 && told.away == 0);
    scene.guest.finish().silently();
}

#[test]
fn host_memory_for_what_a_lost_device_has_is_given_back() {
    for is_out in [true, false] {
        let mut scene = large();
        if is_out {
            scene.leaves();
        }
        lost(&mut scene, 0);
        assert_eq!(drops(&scene), LARGE);
        scene.does(&["there 1 4096"]);
        scene.provided(LARGE + 4096);
        // What the second device needs is asked for, and no more.
        assert!(scene.dealer.store().given() < 2 * LARGE);
        scene.guest.finish().silently();
    }
}

#[test]
fn host_memory_is_kept_where_another_device_is_lost() {
    let mut scene = large();
    scene.leaves();
    lost(&mut scene, 1);
    scene.returns();
    scene.guest.answers("check 0 3", "0");
    let dropped = |said: &Request| matches!(said, Request::HostDrop { .. });
    assert!(!scene.dealer.said().iter().any(dropped));
    // It is enough for the next move, and goes with the memory alone.
    scene.leaves();
    assert_eq!(scene.dealer.store().given(), LARGE);
    scene.returns();
    scene.does(&["free 0"]);
    assert_eq!(drops(&scene), LARGE);
    scene.guest.finish().silently();
}
