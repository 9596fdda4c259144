//! A context fails while its memory is out, or as it comes back: its program learns so at once, as
//! without gpushare. What it had stays charged until it frees it.

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB";
const BYTES: u64 = 4 << 20;
/// From there on `check` shows the driver's error.
const ERROR: u64 = 1_000_000_000;
/// What ends a context: an uncorrectable error of the memory.
const ECC: &str = "CUDA_ERROR_ECC_UNCORRECTABLE";

/// A program whose memory is out, and of which a call waits for it. A driver call of its return
/// will fail so.
fn waits(how: Movability, fail: &str) -> Scene {
    let mut scene = Scene::moving(how, SPEC, &[("SOFTGPU_FAIL", fail)]);
    scene.does(&[&format!("alloc 0 {BYTES}"), "fill 0 3"]);
    if how == Movability::Swap {
        scene.provided(BYTES);
    }
    scene.leaves();
    scene.guest.send("check 0 3");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene
}

/// What the call answers that waited.
fn wrong(scene: &mut Scene) -> u64 {
    let line = scene.guest.line();
    let wrong = line.strip_prefix("check ");
    let wrong = wrong.unwrap_or_else(|| panic!("{line}"));
    wrong.parse().expect("a number")
}

/// The driver's calls of a return, each with its number among those of the process.
const CALLS: [(&str, u32); 5] = [
    ("cuMemCreate", 2),
    ("cuMemMap", 2),
    ("cuMemSetAccess", 2),
    ("cuMemcpyHtoDAsync", 1),
    ("cuStreamSynchronize", 3),
];

#[test]
fn a_call_that_waits_for_a_failed_context_gets_the_drivers_error() {
    for (function, nth) in CALLS {
        let fail = format!("{function}:{nth}:{ECC}!");
        let mut scene = waits(Movability::Swap, &fail);
        assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
        let wrong = wrong(&mut scene);
        assert!(wrong > ERROR, "{fail}: {wrong}");
        until("nothing of it is on the device", || scene.on_device() == 0);
        // It is not asked for what is gone.
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, Order::Leave);
        assert_eq!(scene.outcome(), Outcome::Away(0), "{fail}");
        assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
        scene.guest.finish().silently();
    }
}

#[test]
fn memory_of_every_kind_is_given_up_with_a_failed_context() {
    let fail = format!("cuMemcpyHtoDAsync:1:{ECC}!");
    let mut scene = Scene::with(SPEC, "init 1", &[("SOFTGPU_FAIL", &fail)]);
    // Chunks, a part of a slab, of a pool, and memory that the program makes itself.
    scene.does(&[
        "alloc 0 8388608",
        "alloc 1 1000",
        "async 2 5000000 1",
        "handle 4194304",
        "fill 0 3",
    ]);
    scene.provided(16 * MIB);
    let charged = scene.charged();
    scene.leaves();
    scene.guest.send("check 0 3");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    assert_eq!(scene.ordered(Order::Return), Outcome::Back);
    assert!(wrong(&mut scene) > ERROR);
    until("nothing of it is on the device", || scene.on_device() == 0);
    assert_eq!(scene.charged(), charged, "as without gpushare");
    // The books of what is nowhere end with the context.
    scene.does(&["destroy"]);
    scene.tells(|told| told.movable == 0 && told.away == 0);
    assert!(scene.charged() < charged);
    scene.guest.finish().silently();
}

/// Physical memory at two addresses: the second unmapping fails, and then the mapping too, or not.
#[test]
fn memory_that_lost_a_mapping_on_its_way_out_is_given_up() {
    let unmap = format!("cuMemUnmap:3:{ECC}!");
    let both = format!("{unmap},cuMemMap:4+:{ECC}");
    for (fail, movable) in [(unmap, BYTES), (both, 0)] {
        let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
        scene.does(&[&format!("twofold {BYTES}")]);
        scene.provided(BYTES);
        assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(0), "{fail}");
        scene.returns();
        scene.dealer.come_back();
        scene.tells(|told| told.movable == movable && told.away == 0);
        scene.guest.finish().silently();
    }
}

#[test]
fn memory_whose_undoing_failed_too_is_unmapped_and_released() {
    let fail = format!("cuMemSetAccess:2:{ECC}!,cuMemUnmap:2:CUDA_ERROR_UNKNOWN");
    let mut scene = waits(Movability::Swap, &fail);
    assert_eq!(scene.ordered(Order::Return), Outcome::Back);
    assert!(wrong(&mut scene) > ERROR);
    until("nothing of it is on the device", || scene.on_device() == 0);
    scene.guest.finish().silently();
}

#[test]
fn an_error_after_which_the_context_lives_keeps_memory_on_the_host() {
    for (function, nth) in CALLS {
        let fail = format!("{function}:{nth}:{ECC}");
        let mut scene = waits(Movability::Swap, &fail);
        let first = scene.ordered(Order::Return);
        if first != Outcome::Back {
            assert!(matches!(first, Outcome::NoRoom(_)), "{fail}: {first:?}");
            scene.returns();
        }
        assert_eq!(wrong(&mut scene), 0, "{fail}");
        scene.guest.finish().silently();
    }
}

#[test]
fn managed_memory_of_a_failed_context_is_left_to_the_driver() {
    let fail = format!("cuMemPrefetchAsync:2:{ECC}");
    for (fail, fails) in [(format!("{fail}!"), true), (fail, false)] {
        let mut scene = waits(Movability::Managed, &fail);
        let first = scene.ordered(Order::Return);
        if !fails {
            assert_eq!(first, Outcome::NoRoom(0), "{fail}");
            scene.returns();
        }
        assert_eq!(first == Outcome::Back, fails, "{fail}");
        assert_eq!(wrong(&mut scene) > ERROR, fails, "{fail}");
        scene.guest.finish().silently();
    }
}
