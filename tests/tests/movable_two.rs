//! A process with memory on two devices: they share its host memory, and move at a time.

use std::fs;
use std::path::PathBuf;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=512MiB,ctx=8MiB,count=2";
/// Two of these are a part of a move.
const PART: u64 = 16 * MIB;

/// Two contexts, and the calls of a function of the driver's that are held.
struct Held {
    scene: Scene,
    folder: tempfile::TempDir,
}

impl Held {
    fn new(function: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let hold = format!("{function}:{}", folder.path().join("held").display());
        let environment = [("SOFTGPU_HOLD", &*hold)];
        let mut scene = Scene::on_two_with(Movability::Swap, SPEC, &environment);
        scene.does(&["second"]);
        Self { scene, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("held")
    }

    /// From now on each call of the function is held.
    fn holds(&self) {
        fs::write(self.file(), "").expect("writable");
    }

    /// The function is called, and held.
    fn is_called(&self) {
        until("the call is held", || {
            fs::metadata(self.file()).expect("a file").len() > 0
        });
    }

    fn goes_on(&self) {
        fs::remove_file(self.file()).expect("it is held");
    }
}

/// The next answer about any device.
#[track_caller]
fn answered(scene: &Scene) -> (u8, Outcome) {
    scene.dealer.hears_some(|said| match *said {
        Request::Away {
            device_index, away, ..
        } => Some((device_index, Outcome::Away(away))),
        Request::Back { device_index, .. } => Some((device_index, Outcome::Back)),
        Request::NoRoom {
            device_index,
            bytes,
            ..
        } => Some((device_index, Outcome::NoRoom(bytes))),
        _ => None,
    })
}

/// Slots of the second device, and then one of the first, each filled with its number.
#[track_caller]
fn fills(scene: &mut Scene, slots: std::ops::Range<u64>, word: &str) {
    for slot in slots {
        scene.does(&[
            &format!("{word} {slot} {PART}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
}

#[track_caller]
fn come_back(mut scene: Scene, epoch: u32, slots: u64) {
    for device_index in [0, 1] {
        scene.dealer.order_on(device_index, epoch, Order::Return);
    }
    for slot in 0..slots {
        scene.guest.answers(&format!("check {slot} {slot}"), "0");
    }
    scene.guest.finish().silently();
}

/// The room on the host is the other one's, which is on its way: more is coming.
#[test]
fn a_device_waits_for_room_that_another_on_its_way_out_needs() {
    let mut held = Held::new("cuMemcpyDtoHAsync");
    let scene = &mut held.scene;
    scene.dealer.store().shortens(4 * PART);
    fills(scene, 0..4, "there");
    scene.provided(4 * PART);
    scene.dealer.store().gives_late();
    fills(scene, 4..5, "alloc");
    scene.dealer.order_on(0, 1, Order::Seal);
    scene.dealer.hears(&Request::Sealed {
        device_index: 0,
        epoch: 1,
    });
    held.holds();
    held.scene.dealer.order_on(1, 1, Order::Leave);
    held.is_called();
    held.scene.dealer.order_on(0, 2, Order::Leave);
    held.goes_on();
    assert_eq!(answered(&held.scene), (1, Outcome::Away(4 * PART)));
    held.scene.dealer.store().answers();
    assert_eq!(answered(&held.scene), (0, Outcome::Away(PART)));
    come_back(held.scene, 3, 5);
}

/// The memory of the first device is on its way back, and held there; that of the second is in.
/// Others lack host memory.
fn returning() -> Held {
    let mut held = Held::new("cuMemcpyHtoDAsync");
    let scene = &mut held.scene;
    fills(scene, 0..1, "alloc");
    fills(scene, 1..2, "there");
    scene.provided(2 * PART);
    scene.dealer.order_on(0, 1, Order::Leave);
    assert_eq!(answered(scene), (0, Outcome::Away(PART)));
    held.holds();
    held.scene.dealer.order_on(0, 2, Order::Return);
    held.is_called();
    held.scene.dealer.spills(1);
    held
}

#[test]
fn a_return_gives_no_room_away_that_a_device_on_its_way_out_needs() {
    for first in [Order::Leave, Order::Seal] {
        let held = returning();
        held.scene.dealer.order_on(1, 1, first);
        held.goes_on();
        let mut all = vec![answered(&held.scene)];
        if first == Order::Seal {
            held.scene.dealer.order_on(1, 2, Order::Leave);
        }
        all.push(answered(&held.scene));
        all.sort_by_key(|(device_index, _)| *device_index);
        assert_eq!(all, [(0, Outcome::Back), (1, Outcome::Away(PART))]);
        held.scene.dealer.spills(0);
        come_back(held.scene, 3, 2);
    }
}

#[test]
fn a_return_gives_host_memory_back_that_no_device_needs_at_once() {
    let held = returning();
    held.goes_on();
    is_given_back(&held.scene);
    assert_eq!(answered(&held.scene), (0, Outcome::Back));
    held.scene.dealer.spills(0);
    come_back(held.scene, 3, 2);
}

#[track_caller]
fn is_given_back(scene: &Scene) {
    let is_drop = |said: &Request| matches!(said, Request::HostDrop { .. }).then_some(());
    scene.dealer.hears_some(is_drop);
}

/// Each range is in the host's memory once, whatever device it is for.
#[test]
fn two_devices_that_return_from_files_fetch_each_range_once() {
    let mut scene = Scene::on_two(SPEC);
    scene.does(&["second"]);
    scene.dealer.store().shortens(4 * PART);
    scene.dealer.store().answers_at_once();
    fills(&mut scene, 0..4, "alloc");
    fills(&mut scene, 4..8, "there");
    scene.provided(8 * PART);
    for device_index in [0, 1] {
        scene.dealer.order_on(device_index.into(), 1, Order::Leave);
        assert_eq!(answered(&scene), (device_index, Outcome::Away(4 * PART)));
    }
    scene.dealer.spills(1);
    let ranges = scene.dealer.store().ranges();
    ranges.iter().for_each(|_| is_given_back(&scene));
    scene.dealer.spills(0);
    for device_index in [0, 1] {
        scene.dealer.order_on(device_index, 2, Order::Return);
    }
    let (mut fetched, mut back) = (0, 0);
    while back < 2 {
        let is_fetch = scene.dealer.hears_some(|said| match said {
            Request::HostFetch(_) => Some(true),
            Request::Back { .. } => Some(false),
            _ => None,
        });
        match is_fetch {
            true => fetched += 1,
            false => back += 1,
        }
    }
    assert_eq!(fetched, ranges.len());
    come_back(scene, 3, 8);
}
