//! Allocations below 1 MiB and pitched ones move too, as parts of slabs. The program is told of
//! each as of plain memory; beside it runs the bare driver, which must answer the same.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene, failing_steps, same};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=1GiB,ctx=8MiB";

#[test]
fn small_allocations_leave_and_come_back_with_every_byte() {
    let mut scene = Scene::new(SPEC);
    // Of one granule to almost a slab's half, and so many that they take two slabs.
    let sizes = [1, 512, 513, 4096, 65_537, 700_001, 1_048_575, 1_000_000];
    for (slot, bytes) in sizes.iter().enumerate() {
        scene.does(&[
            &format!("alloc {slot} {bytes}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.all_comes_and_goes(4 * MIB, sizes.len());
    for slot in 0..sizes.len() {
        scene.guest.answers(&format!("same {slot}"), "1");
    }
    for slot in 0..sizes.len() {
        scene.does(&[&format!("free {slot}")]);
    }
    until("empty slabs are given back", || scene.charged() == 0);
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
}

#[test]
fn each_small_allocation_is_told_as_plain_memory() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let lines = [
        "alloc 0 1000",
        "alloc 1 1",
        "alloc 2 700000",
        "alloc 3 4194305",
        "fill 0 1",
    ];
    same(&mut scene, &mut bare, &lines);
    scene.provided(8 * MIB);
    for _ in 0..2 {
        for slot in 0..4 {
            for line in ["range S 0", "waits S"] {
                same(
                    &mut scene,
                    &mut bare,
                    &[line.replace('S', &slot.to_string())],
                );
            }
        }
        let lines = [
            "at 0 0",
            "at 0 999",
            "at 0 1000",
            "at 0 1023",
            "at 2 699999",
            "at 2 700001",
            "at 3 4194304",
            "at 3 4194305",
            "range 0 500",
            "inner 0 512",
            "inner 0 1",
            "inner 2 512",
            "free 15",
        ];
        same(&mut scene, &mut bare, &lines);
        scene.leaves();
        scene.returns();
    }
    let lines = [
        "waits 2",
        "wait 0 1023",
        "free 0",
        "free 0",
        "range 0 0",
        "at 0 10",
        "wait 0 10",
        "waits 0",
        "free 2",
        "free 1",
        "free 2",
        "free 3",
        "free 1",
    ];
    same(&mut scene, &mut bare, &lines);
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn a_number_asked_for_while_memory_is_away_is_that_of_its_return() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[
        "alloc 0 1000",
        "async 1 1000 1",
        "sync 1",
        "alloc 2 8388608",
    ]);
    scene.provided(12 * MIB);
    for slot in 0..3 {
        let line = format!("number {slot}");
        let before = scene.guest.number(&line);
        assert_eq!(before, scene.guest.number(&line), "nothing has moved");
        scene.leaves();
        scene.guest.send(&line);
        scene.dealer.hears(&Request::WantIn { device_index: 0 });
        scene.returns();
        let answer = scene.guest.line();
        let now = scene.guest.number(&line);
        assert_eq!(answer, format!("number {now}"), "slot {slot}");
        assert_ne!(now, before, "slot {slot}");
    }
    scene.guest.finish().silently();
}

#[test]
fn small_allocations_are_numbered_and_not_shared_like_larger_ones() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["alloc 0 1000", "alloc 1 1000", "alloc 2 8388608"]);
    scene.provided(8 * MIB);
    assert_eq!(scene.guest.ask("about 0"), "about 1 1 1 0 0");
    assert_eq!(scene.guest.ask("shares 0"), "shares 801 801");
    for pair in ["0 1", "1 2", "0 2"] {
        scene.guest.answers(&format!("differ {pair}"), "1");
    }
    let before: Vec<u64> = [0, 1, 2]
        .map(|slot| scene.guest.number(&format!("number {slot}")))
        .into();
    scene.guest.answers("wait 1", "801");
    scene.leaves();
    scene.returns();
    for slot in 0..3 {
        let now = scene.guest.number(&format!("number {slot}"));
        assert!(!before.contains(&now), "another memory has another number");
    }
    assert_eq!(scene.guest.ask("waits 1"), "waits 0 0");
    scene.guest.finish().silently();
}

#[test]
fn a_small_allocation_waits_and_is_freed_like_a_large_one() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["alloc 0 1000", "fill 0 1"]);
    scene.provided(2 * MIB);
    for line in ["check 0 1", "set 0 7", "alloc 1 1000", "free 1"] {
        scene.leaves();
        scene.waits_for_return(line);
    }
    // In a stream's order nothing is waited for.
    scene.leaves();
    scene.does(&["later 0"]);
    scene.returns();
    scene.does(&["sync 1"]);
    // Nothing is in the slab: it is given back, not moved.
    assert_eq!(scene.ordered(Order::Leave), Outcome::Away(0));
    assert_eq!((scene.on_device(), scene.charged()), (0, 0));
    scene.returns();
    scene.does(&["alloc 0 1000", "fill 0 1"]);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_context_takes_its_small_allocations_with_it() {
    let mut scene = Scene::with(SPEC, "init 1", &[]);
    scene.does(&[
        "alloc 0 1000",
        "alloc 1 65536",
        "pitch 2 100 10 4",
        "free 0",
    ]);
    assert_eq!(scene.charged(), 2 * MIB);
    scene.does(&["destroy"]);
    assert_eq!((scene.on_device(), scene.charged()), (0, 0));
    scene.guest.finish().silently();
}

#[test]
fn at_the_limit_a_small_allocation_is_plain_and_stays() {
    let mut scene = Scene::new(SPEC);
    scene.dealer.usage().devices[0]
        .limit
        .store(5 * MIB, Ordering::Relaxed);
    // 1 MiB is left, which has no room for a slab.
    scene.does(&["alloc 0 4194304", "alloc 1 1000"]);
    assert_eq!(scene.charged(), 4 * MIB + 1024);
    scene.does(&["free 0", "alloc 2 1000"]);
    assert_eq!(scene.charged(), 2 * MIB + 1024);
    scene.does(&["free 2", "alloc 0 4194304"]);
    assert_eq!(scene.charged(), 4 * MIB + 1024, "the empty slab makes room");
    scene.does(&["free 0", "free 1"]);
    assert_eq!(scene.charged(), 0);
    scene.guest.finish().silently();
}

#[test]
fn pitched_memory_has_the_drivers_pitch_and_moves() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let shapes = [
        "1 1 4",
        "512 3 4",
        "513 100 8",
        "5000 1000 16",
        "1048576 2 4",
        "1000 0 4",
        "0 5 4",
        "100 100 5",
        "100 18446744073709551615 4",
        "100 1125899906842624 4",
    ];
    for (slot, shape) in shapes.iter().enumerate() {
        same(&mut scene, &mut bare, &[format!("pitch {slot} {shape}")]);
        same(&mut scene, &mut bare, &["row"]);
    }
    for slot in 0..5 {
        let lines = ["fill S S", "range S 0", "at S 0", "at S 512"];
        for line in lines {
            same(
                &mut scene,
                &mut bare,
                &[line.replace('S', &slot.to_string())],
            );
        }
    }
    scene.provided(14 * MIB);
    scene.dealer.come_back();
    let charged = scene.charged();
    let told = scene.tells(|told| told.movable == charged);
    assert_eq!(told.residue.total(), 0);
    until("the rows that taught the pitch are freed", || {
        let truth = scene.gpu.truth();
        let alive = truth
            .processes
            .iter()
            .find(|process| process.alive && u32::try_from(process.pid) == Ok(scene.guest.id()));
        alive.is_some_and(|process| process.requested[softgpu::world::Kind::Linear as usize] == 0)
    });
    for _ in 0..2 {
        scene.leaves();
        scene.returns();
        for slot in 0..5 {
            scene.guest.answers(&format!("check {slot} {slot}"), "0");
        }
    }
    for slot in 0..5 {
        same(&mut scene, &mut bare, &[format!("free {slot}")]);
    }
    until("all is given back", || scene.charged() == 0);
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn a_slab_that_fails_at_a_step_leaves_nothing_taken() {
    for (_, fail) in failing_steps() {
        let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
        let answer = scene.guest.ask("alloc 0 1000");
        // Without room the daemon is asked, and then the driver again; else it is plain memory.
        assert_eq!(answer, "alloc 0", "{fail}");
        scene.does(&["fill 0 1", "alloc 1 1000", "fill 1 2"]);
        scene.guest.answers("check 0 1", "0");
        scene.does(&["free 0", "free 1"]);
        assert_eq!(scene.ordered(Order::Leave), Outcome::Away(0), "{fail}");
        assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
        scene.guest.finish().silently();
    }
}
