//! Memory that moves: it is plain memory to the program, leaves the device for the host and comes
//! back with every byte at its address. By the software GPU's own books, under a daemon that the
//! test plays.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Place, Request};
use gpushare_tests::movable::{Outcome, Scene, same};
use gpushare_tests::{Dealer, Gpu, MIB, until};

#[test]
fn memory_leaves_and_comes_back_with_every_byte() {
    let mut scene = Scene::new("mem=1GiB");
    // Of one chunk, of several, of an odd size, and a part of a slab.
    scene.does(&[
        "alloc 0 4194304",
        "alloc 1 70000001",
        "alloc 2 1048576",
        "alloc 3 1000",
    ]);
    scene.does(&["fill 0 1", "fill 1 2", "fill 2 3", "fill 3 4"]);
    scene.provided(128 * MIB);
    assert!(scene.on_device() >= 70 * MIB);
    for _ in 0..2 {
        scene.leaves();
        scene.returns();
        for (slot, seed) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
            scene.guest.answers(&format!("check {slot} {seed}"), "0");
            scene.guest.answers(&format!("same {slot}"), "1");
        }
    }
    scene.does(&["free 0", "free 1", "free 2", "free 3"]);
    until("all is given back", || scene.on_device() == 0);
    scene.guest.finish().silently();
}

#[test]
fn a_call_waits_for_memory_that_is_away_and_says_so() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    for line in [
        "check 0 1",
        "set 0 7",
        "values 0 7",
        "alloc 1 2000000",
        "free 0",
    ] {
        scene.waits_for_return(line);
        if line != "free 0" {
            scene.leaves();
        }
    }
    scene.guest.finish().silently();
}

#[test]
fn the_program_is_told_of_plain_memory() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 70000001", "fill 0 1"]);
    scene.provided(70 * MIB);
    for _ in 0..2 {
        assert_eq!(
            scene.guest.ask("range 0 70000000"),
            "range 70000000 70000001"
        );
        assert_eq!(scene.guest.ask("about 0"), "about 1 1 1 0 0");
        assert_eq!(scene.guest.ask("shares 0"), "shares 801 801");
        scene.leaves();
        scene.returns();
    }
    // It would not hold for the memory that comes back.
    scene.guest.answers("wait 0 70000000", "801");
    assert_eq!(scene.guest.ask("about 0"), "about 1 1 1 0 0");
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

/// The program may not change or read our mappings: of a chunk each, of several, and parts of a
/// slab.
#[test]
fn calls_about_mappings_are_refused_as_for_plain_memory() {
    let mut scene = Scene::new("mem=1GiB");
    let mut bare = scene.bare();
    for bytes in [4 * MIB, 70_000_001, 1000] {
        let lines = [format!("alloc 0 {bytes}"), "refuses 0".to_owned()];
        same(&mut scene, &mut bare, &lines);
        assert_eq!(scene.guest.ask("refuses 0"), "refuses 1 1 1 1 1 1 1");
        scene.does(&["fill 0 1"]);
        scene.provided(bytes);
        scene.leaves();
        scene.returns();
        same(&mut scene, &mut bare, &["refuses 0"]);
        scene.guest.answers("check 0 1", "0");
        same(&mut scene, &mut bare, &["free 0"]);
    }
    scene.guest.finish().silently();
    bare.finish().silently();
}

/// The driver knows of our mappings, and would agree to a range that begins in the program's own.
#[test]
fn calls_about_a_range_that_reaches_our_mappings_are_refused_too() {
    for bytes in [4 * MIB, 70_000_001, 1000] {
        let mut scene = Scene::new("mem=1GiB");
        scene.does(&[&format!("front 0 {bytes}")]);
        assert_eq!(scene.guest.ask("joins 0"), "joins 1");
        scene.does(&["fill 0 1"]);
        scene.provided(bytes + 2 * MIB);
        for _ in 0..2 {
            // To the end; and to the middle, where there is one.
            for line in ["reaches 0 0", "reaches 0 1"] {
                let is_all = bytes > 2 * MIB || line.ends_with('0');
                let refused = !is_all || scene.guest.ask(line) == "reaches 1 1 1 1 1 1 801";
                assert!(refused, "{line} of {bytes}");
            }
            scene.guest.answers("check 0 1", "0");
            scene.leaves();
            scene.returns();
        }
        // The program's own part is its own.
        scene.does(&["behind"]);
        scene.guest.answers("check 0 1", "0");
        scene.does(&["free 0"]);
        scene.guest.finish().silently();
    }
}

#[test]
fn a_graph_captured_before_a_move_replays_after_it() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1", "graph 0 77"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.does(&["launch"]);
    scene.guest.answers("values 0 77", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_capture_refuses_as_it_would_with_plain_memory() {
    let plain = Gpu::new("mem=1GiB");
    let bare = Dealer::start(&plain);
    let mut bare = bare.client("movable");
    let mut scene = Scene::new("mem=1GiB");
    bare.does("init");
    let lines = [
        "alloc 0 4194304",
        "alloc 1 4194304",
        "begin 0",
        "alloc 2 4194304",
        "end",
        "begin 0",
        "free 0",
        "end",
        "begin 2",
        "alloc 3 4194304",
        "free 1",
        "end",
        "free 0",
        "free 3",
    ];
    same(&mut scene, &mut bare, &lines);
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn a_free_while_a_stream_captures_waits_for_memory_that_is_away() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.does(&["begin 0"]);
    // The driver is asked whether the capture refuses it: not while memory is away.
    scene.guest.send("free 0");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene.returns();
    // The driver's error for a call that a capture forbids.
    assert_eq!(scene.guest.line(), "free 900");
    // That has ended the capture with an error.
    scene.guest.answers("end", "901");
    scene.guest.answers("check 0 1", "0");
    scene.does(&["free 0"]);
    scene.guest.finish().silently();
}

#[test]
fn of_two_frees_of_one_address_at_once_one_is_refused() {
    let mut scene = Scene::new("mem=1GiB");
    let mut bare = scene.bare();
    // Of chunks of its own, and of a part of a slab.
    for bytes in [4 * MIB, 1000] {
        let lines = [format!("alloc 0 {bytes}"), "twice 0".to_owned()];
        same(&mut scene, &mut bare, &lines);
        let lines = ["alloc 1 4096".to_owned(), format!("alloc 0 {bytes}")];
        same(&mut scene, &mut bare, &lines);
        scene.provided(4 * MIB);
        scene.leaves();
        scene.guest.send("twice 0");
        scene.dealer.hears(&Request::WantIn { device_index: 0 });
        scene.returns();
        assert_eq!(scene.guest.line(), "twice 0 1");
        scene.does(&["free 1"]);
    }
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn memory_ends_with_its_context_and_in_a_streams_order() {
    let mut scene = Scene::with("mem=1GiB", "init 1", &[]);
    scene.does(&["alloc 0 4194304", "alloc 1 8388608", "fill 0 1", "later 0"]);
    scene.does(&["sync 1"]);
    // The mover's thread may be giving it back at this moment.
    until("what was freed is given back", || {
        scene.on_device() == 8 * MIB
    });
    scene.does(&["destroy"]);
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
}

#[test]
fn without_host_memory_a_process_stays_and_says_what_is_missing() {
    let mut scene = Scene::new("mem=1GiB");
    scene.dealer.store().bound(0);
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(4 * MIB));
    scene.guest.answers("check 0 1", "0");
    scene.dealer.store().bound(1 << 30);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_return_without_room_on_the_device_stays_out_whole() {
    let mut scene = Scene::new("mem=256MiB,ctx=8MiB");
    scene.does(&[
        "alloc 0 90000000",
        "alloc 1 90000000",
        "fill 0 1",
        "fill 1 2",
    ]);
    scene.provided(180_000_000);
    scene.leaves();
    let mut other = scene.bare();
    other.does("alloc 0 100000000");
    let outcome = scene.ordered(Order::Return);
    assert!(
        matches!(outcome, Outcome::NoRoom(bytes) if bytes > 0),
        "{outcome:?}"
    );
    assert!(scene.on_device() <= 100_000_000 + 4 * MIB, "all or nothing");
    other.does("free 0");
    other.finish().silently();
    // The device has the freed memory back only some time later.
    until("there is room", || {
        scene.ordered(Order::Return) == Outcome::Back
    });
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn the_next_daemon_is_told_who_is_out_and_orders_the_return() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.dealer.come_back();
    let told = scene.dealer.hears_some(|said| match said {
        Request::Residency(told) => Some(*told),
        _ => None,
    });
    assert_eq!(
        (told.place, told.away, told.movable),
        (Place::Out, 4 * MIB, 4 * MIB)
    );
    assert!(told.host >= told.away);
    scene.guest.send("check 0 1");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    assert_eq!(scene.on_device(), 0, "it waits for the order");
    scene.epoch = 0;
    scene.returns();
    assert_eq!(scene.guest.line(), "check 0");
    scene.guest.finish().silently();
}
