//! Large memsets and copies within a device pass the gate like kernels. Small ones, copies from and
//! to the host, and captured operations do not. A copy to the host does not delay the end of a
//! turn. The test publishes the turns.

use std::fs;

use gpushare_tests::moves::{Scene, wanted};
use gpushare_tests::until;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// The least that counts.
const LARGE: u64 = MIB;
/// Less, in whole rows.
const SMALL: u64 = MIB - 4096;

/// All operations within the device's linear memory by the driver's names, without their twins of
/// default streams.
const WITHIN: [&str; 26] = [
    "cuMemsetD8_v2",
    "cuMemsetD16_v2",
    "cuMemsetD32_v2",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD2D8_v2",
    "cuMemsetD2D16_v2",
    "cuMemsetD2D32_v2",
    "cuMemsetD2D8Async",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32Async",
    "cuMemcpy",
    "cuMemcpyAsync",
    "cuMemcpyWithAttributesAsync",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemcpy2D_v2",
    "cuMemcpy2DUnaligned_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy3D_v2",
    "cuMemcpy3DAsync_v2",
    "cuMemcpy3DPeer",
    "cuMemcpy3DPeerAsync",
];
/// The same with an array at an end, or at both.
const ARRAYS: [&str; 3] = ["cuMemcpyDtoA_v2", "cuMemcpyAtoD_v2", "cuMemcpyAtoA_v2"];
/// The same with addresses of 32 bits, which mean nothing on this device.
const OLD: [&str; 9] = [
    "cuMemsetD8",
    "cuMemsetD16",
    "cuMemsetD32",
    "cuMemsetD2D8",
    "cuMemsetD2D16",
    "cuMemsetD2D32",
    "cuMemcpyDtoD",
    "cuMemcpyDtoDAsync",
    "cuMemcpyAtoD",
];

/// Commands of so many bytes in stream 1, by these names and by those of their twins.
fn commands(
    names: impl IntoIterator<Item = &'static str>,
    bytes: u64,
) -> impl Iterator<Item = String> {
    names.into_iter().flat_map(move |name| {
        let twin = if name.contains("Async") {
            "ptsz"
        } else {
            "ptds"
        };
        [
            format!("{name} 1 {bytes}"),
            format!("{name}_{twin} 1 {bytes}"),
        ]
    })
}

/// All copies from or to the host for which the library need not wait.
const HOST: [&str; 6] = [
    "down 1",
    "up 1",
    "anyup 1",
    "anypage 1",
    "batchdown 1",
    "batchup 1",
];

#[track_caller]
fn waits_for_its_turn(scene: &mut Scene, epoch: u64, command: &str) {
    scene.dealer.close(epoch);
    scene.drains(epoch);
    scene.does(&[&format!("post {command}")]);
    scene.dealer.hears(&wanted(epoch));
    assert_eq!(scene.guest.ask("posted"), "posted -1", "{command} waits");
    scene.opens(epoch + 1);
}

#[test]
fn a_large_memset_or_copy_within_the_device_waits_for_its_turn() {
    let mut scene = Scene::new("");
    let all = commands(WITHIN.into_iter().chain(ARRAYS), LARGE);
    for (epoch, command) in (1..).zip(all) {
        waits_for_its_turn(&mut scene, epoch, &command);
        scene.is_posted();
    }
    scene.guest.finish().silently();
}

#[test]
fn a_large_memset_or_copy_by_an_old_name_waits_for_its_turn() {
    let mut scene = Scene::new("");
    for (epoch, name) in (1..).zip(OLD) {
        waits_for_its_turn(&mut scene, epoch, &format!("{name} 1 {LARGE}"));
        until("the driver refuses it", || {
            scene.guest.ask("posted") == "posted 1"
        });
    }
    scene.guest.finish().silently();
}

/// Copies that say nothing of their ends.
const ANY: [&str; 3] = ["any 1", "told 1", "united 1"];

#[test]
fn a_large_copy_within_memory_of_any_kind_waits_for_its_turn() {
    for kind in ["pool", "mapping"] {
        let mut scene = Scene::new("");
        scene.does(&[kind]);
        for (epoch, command) in (1..).zip(ANY) {
            waits_for_its_turn(&mut scene, epoch, &format!("{command} {LARGE}"));
            scene.is_posted();
        }
        scene.guest.finish().silently();
    }
}

/// It may be on the host.
#[test]
fn a_copy_of_managed_memory_waits_for_no_turn() {
    let mut scene = Scene::new("");
    scene.does(&["managed"]);
    scene.dealer.close(1);
    scene.drains(1);
    for command in ANY {
        scene.does(&[&format!("{command} {}", 4 * MIB)]);
    }
    assert_eq!(scene.dealer.said(), []);
    scene.guest.finish().silently();
}

/// The stream's device does not do it, or not alone.
#[test]
fn work_on_another_devices_memory_waits_for_no_turn_of_this_one() {
    let mut scene = Scene::on_two();
    scene.does(&["far"]);
    scene.dealer.close(1);
    scene.drains(1);
    for command in ANY {
        scene.does(&[&format!("{command} {LARGE}")]);
    }
    commands(WITHIN, LARGE).for_each(|command| scene.does(&[&command]));
    assert_eq!(scene.dealer.said(), []);
    scene.guest.finish().silently();
}

#[test]
fn a_small_memset_or_copy_within_the_device_waits_for_no_turn() {
    let mut scene = Scene::new("");
    scene.dealer.close(1);
    scene.drains(1);
    let all = commands(WITHIN.into_iter().chain(ARRAYS), SMALL);
    all.for_each(|command| scene.does(&[&command]));
    assert_eq!(scene.dealer.said(), []);
    scene.guest.finish().silently();
}

#[test]
fn a_copy_from_or_to_the_host_waits_for_no_turn() {
    let mut scene = Scene::new("");
    scene.dealer.close(1);
    scene.drains(1);
    for command in HOST {
        scene.does(&[&format!("{command} {}", 16 * MIB)]);
    }
    scene.does(&["downnow 16777216"]);
    assert_eq!(scene.dealer.said(), []);
    scene.guest.finish().silently();
}

/// Tools show a failed call as the program's.
#[test]
fn where_a_copy_of_host_memory_works_is_asked_without_an_error() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("text");
    let mut scene = Scene::traced(path);
    for command in ["anyup 1", "anypage 1"] {
        fs::write(path, "").expect("writable");
        scene.does(&[&format!("{command} {}", 16 * MIB)]);
        let text = fs::read_to_string(path).expect("readable");
        let questions = || text.lines().filter(|line| line.contains(" cuPointer"));
        assert_ne!(questions().count(), 0, "{command}: {text}");
        let failed: Vec<&str> = questions().filter(|line| !line.ends_with(" 0")).collect();
        assert_eq!(failed, [""; 0], "{command}");
    }
    scene.guest.finish().silently();
}

#[test]
fn captured_operations_wait_for_no_turn() {
    let mut scene = Scene::new("");
    scene.dealer.close(1);
    scene.drains(1);
    let large = 4 * MIB;
    for command in [
        "set 2",
        "setrect 2",
        "within 2",
        "any 2",
        "told 2",
        "rect 2",
    ] {
        scene.does(&["begin 2", &format!("{command} {large}"), "end 2"]);
    }
    assert_eq!(scene.dealer.said(), []);
    scene.guest.finish().silently();
}

#[test]
fn a_turn_ends_when_its_large_memsets_and_copies_are_complete() {
    // 64 MiB take 100 ms.
    let mut scene = Scene::new("bw=640MiB/s");
    for (epoch, command) in (1..).zip(["set 2", "within 2", "setnow"]) {
        let before = scene.gpu.served();
        scene.does(&[&format!("{command} {}", 64 * MIB)]);
        scene.dealer.close(epoch);
        scene.drains(epoch);
        let served = scene.gpu.served() - before;
        assert!(served >= 100 * MS, "{served} ns of {command}");
        scene.opens(epoch + 1);
    }
    scene.guest.finish().silently();
}

#[test]
fn a_turn_does_not_end_later_because_of_a_copy_behind_its_kernels() {
    // 64 MiB take 16 s.
    for copy in ["down 2", "up 2", "anyup 2", "batchdown 2", "batchup 2"] {
        let mut scene = Scene::measured("link=4MiB/s");
        scene.does(&["launch 2 1000", &format!("{copy} {}", 64 * MIB)]);
        scene.dealer.close(1);
        scene.drains(1);
        assert_eq!(scene.guest.ask("ask 2"), "ask 600", "{copy} still runs");
        scene.guest.kill();
    }
}

#[test]
fn a_turn_does_not_end_later_because_of_a_synchronous_copy() {
    // 64 MiB take 16 s. Stream 1 waits for the legacy one.
    for stream in [0, 1] {
        let mut scene = Scene::measured("link=4MiB/s");
        let launch = format!("launch {stream} 1000");
        scene.does(&[&launch, &format!("post downnow {}", 64 * MIB)]);
        scene.dealer.close(1);
        scene.drains(1);
        assert_eq!(
            scene.guest.ask("posted"),
            "posted -1",
            "the copy still runs"
        );
        scene.guest.kill();
    }
}

#[test]
fn a_turn_ends_behind_the_kernel_that_waits_for_a_copy() {
    // 8 MiB take 200 ms.
    for copy in ["up 2", "batchup 2"] {
        let mut scene = Scene::measured("link=40MiB/s");
        let work = 50 * MS;
        let before = scene.gpu.served();
        scene.does(&[&format!("{copy} {}", 8 * MIB), &format!("launch 2 {work}")]);
        scene.dealer.close(1);
        scene.drains(1);
        assert!(scene.gpu.served() - before >= work, "{copy}");
        until("it is done", || scene.guest.ask("ask 2") == "ask 0");
        scene.guest.finish().silently();
    }
}
