//! Host memory that a process asks for: for what is on its devices and is to leave, and no more.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::MIB;
use gpushare_tests::movable::{Outcome, Scene};

/// Less than the smallest range that is given.
const PART: u64 = 16 * MIB;

/// The next answer to an order about a device.
#[track_caller]
fn answered(scene: &Scene, device: u8) -> Outcome {
    scene.dealer.hears_some(|said| match *said {
        Request::Away {
            device_index, away, ..
        } if device_index == device => Some(Outcome::Away(away)),
        Request::Back { device_index, .. } if device_index == device => Some(Outcome::Back),
        Request::NoRoom {
            device_index,
            bytes,
            ..
        } if device_index == device => Some(Outcome::NoRoom(bytes)),
        _ => None,
    })
}

/// Has the range stored in which the memory that is away lies, and be given back.
#[track_caller]
fn stores(scene: &Scene) {
    scene.dealer.store().answers_at_once();
    scene.dealer.spills(1);
    let is_drop = |said: &Request| matches!(said, Request::HostDrop { .. }).then_some(());
    scene.dealer.hears_some(is_drop);
}

/// Has the library look a few times more at a device that is out. Its request comes first.
#[track_caller]
fn looks(scene: &Scene, device: u8) {
    for epoch in 2..5 {
        scene.dealer.order_on(device.into(), epoch, Order::Leave);
        assert!(matches!(answered(scene, device), Outcome::Away(_)));
    }
}

/// Only a part of a slab is stored, and its rest needs no memory while it is away.
#[test]
fn a_process_with_all_its_memory_in_files_asks_for_none_of_the_hosts() {
    let mut scene = Scene::new("mem=256MiB,ctx=8MiB");
    scene.does(&[&format!("alloc 0 {PART}"), "alloc 1 4096"]);
    scene.does(&["fill 0 1", "fill 1 2"]);
    scene.provided(PART);
    scene.leaves();
    let ranges = scene.dealer.store().ranges();
    stores(&scene);
    looks(&scene, 0);
    assert_eq!(scene.dealer.store().ranges(), ranges, "no more is given");
    scene.dealer.spills(0);
    scene.epoch = 5;
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

/// Room that another device of the process needs is asked for as soon as that device is to leave.
#[test]
fn host_memory_that_would_be_given_back_at_once_is_asked_for_at_a_move() {
    let mut scene = Scene::on_two("mem=256MiB,ctx=8MiB,count=2");
    scene.does(&["second", &format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.does(&[&format!("there 1 {PART}"), "fill 1 2"]);
    scene.provided(2 * PART);
    scene.dealer.order_on(0, 1, Order::Leave);
    assert_eq!(answered(&scene, 0), Outcome::Away(PART));
    let ranges = scene.dealer.store().ranges();
    stores(&scene);
    looks(&scene, 0);
    assert_eq!(scene.dealer.store().ranges(), ranges, "no more is given");
    scene.dealer.order_on(1, 1, Order::Leave);
    assert_eq!(answered(&scene, 1), Outcome::Away(PART));
    scene.dealer.spills(0);
    for device in [0, 1] {
        scene.dealer.order_on(device.into(), 9, Order::Return);
        assert_eq!(answered(&scene, device), Outcome::Back);
    }
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}
