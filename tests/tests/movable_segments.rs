//! Physical memory that the program makes and maps itself moves too: every mapping comes back with
//! its rights, handles stay what they were, and what others may refer to stays on the device. By
//! the software GPU's own books, under a daemon that the test plays; beside it the bare driver,
//! which must answer the same.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene, same};
use gpushare_tests::{Dealer, Gpu, Guest, MIB, clients, gpu, until};

const SPEC: &str = "mem=1GiB,driver=13050";

fn scene() -> Scene {
    Scene::of("segments", SPEC, "init", &[])
}

/// The same program on the bare driver.
fn bare(gpu: &Gpu) -> Guest {
    let dealer = Dealer::start(gpu);
    let mut command = dealer.command(&clients::compile("segments", &[]));
    command
        .env("LD_LIBRARY_PATH", gpu::links())
        .env_remove("LD_PRELOAD");
    let mut guest = Guest::start(command);
    guest.does("init");
    guest
}

#[test]
fn segments_leave_and_come_back_with_every_byte() {
    let mut scene = scene();
    let sizes = [2, 20, 2, 40, 6].map(|mib: u64| mib * MIB);
    for (slot, bytes) in sizes.iter().enumerate() {
        scene.does(&[
            &format!("grow {slot} {bytes}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.does(&["plain 4194304"]);
    let all: u64 = sizes.iter().sum::<u64>() + 4 * MIB;
    scene.provided(all);
    scene.dealer.come_back();
    let told = scene.tells(|told| told.movable == all);
    assert_eq!(told.residue.total(), 0);
    for _ in 0..3 {
        scene.leaves();
        scene.returns();
        for slot in 0..sizes.len() {
            scene.guest.answers(&format!("check {slot} {slot}"), "0");
        }
    }
    for slot in 0..sizes.len() {
        scene.does(&[&format!("unmap {slot}")]);
    }
    scene.does(&["free"]);
    until("all is given back", || scene.on_device() == 0);
    assert_eq!(scene.charged(), 0);
    scene.guest.finish().silently();
}

#[test]
fn calls_on_segments_wait_while_they_are_away() {
    let mut scene = scene();
    scene.does(&["make 0 2097152 0", "map 0", "fill 0 1"]);
    scene.provided(2 * MIB);
    for line in [
        "check 0 1",
        "unreserve",
        "access 0",
        "make 1 2097152 0",
        "map 1",
        "retain 0",
        "unmap 1",
        "drop 1",
        "about 0",
        "drop 0",
        "unmap 0",
    ] {
        assert!(
            matches!(scene.ordered(Order::Leave), Outcome::Away(_)),
            "{line}"
        );
        scene.guest.send(line);
        scene.dealer.hears(&Request::WantIn { device_index: 0 });
        scene.returns();
        let answer = scene.guest.line();
        let right = match line {
            "access 0" => "access 3 1001",
            "retain 0" => "retain 1 0",
            "about 0" => "about 1 0 0",
            "unreserve" => "unreserve 1",
            line => &format!("{} 0", line.split(' ').next().expect("a word")),
        };
        assert_eq!(answer, right, "{line}");
    }
    // The reference that `retain` took.
    assert_eq!(scene.charged(), 2 * MIB);
    scene.does(&["drop 0"]);
    until("it is given back", || scene.on_device() == 0);
    assert_eq!(scene.charged(), 0);
    scene.guest.finish().silently();
}

#[test]
fn all_mappings_come_back_with_their_rights() {
    let mut scene = scene();
    scene.does(&["make 0 4194304 0", "map 0", "again 0", "fill 0 1", "drop 0"]);
    scene.provided(4 * MIB);
    for _ in 0..2 {
        assert_eq!(scene.guest.ask("access 0"), "access 3 1");
        scene.guest.answers("wait 0", "801");
        assert_eq!(scene.guest.ask("waits 0"), "waits 0");
        scene.guest.answers("through 0 1", "0");
        scene.leaves();
        scene.returns();
    }
    scene.does(&["fill 0 2"]);
    scene.guest.answers("through 0 2", "0");
    scene.does(&["unmap 0"]);
    scene.leaves();
    scene.returns();
    scene.guest.answers("through 0 2", "0");
    scene.guest.answers("write 0", "700");
    scene.guest.finish().silently();
}

#[test]
fn memory_that_is_mapped_nowhere_keeps_its_bytes() {
    let mut scene = scene();
    scene.does(&["make 0 4194304 0", "map 0", "fill 0 1", "unmap 0"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.returns();
    scene.does(&["map 0"]);
    scene.guest.answers("check 0 1", "0");
    scene.does(&["unmap 0", "drop 0"]);
    until("it is given back", || scene.on_device() == 0);
    scene.guest.finish().silently();
}

#[test]
fn handles_answer_as_the_drivers_do_before_and_after_a_move() {
    let plain = Gpu::new(SPEC);
    let mut bare = bare(&plain);
    let mut scene = scene();
    let before = [
        "make 0 2097152 1",
        "map 0",
        "about 0",
        "retain 0",
        "fill 0 3",
    ];
    let after = [
        "about 0",
        "retain 0",
        "check 0 3",
        "export 0",
        "drop 0",
        "drop 0",
        "drop 0",
        "drop 0",
        "check 0 3",
        "unmap 0",
        "check 0 3",
        "make 1 2097152 0",
        "unmap 1",
        "map 1",
        "map 1",
        "drop 1",
        "unmap 1",
        "map 1",
    ];
    same(&mut scene, &mut bare, &before);
    scene.provided(2 * MIB);
    scene.leaves();
    scene.returns();
    same(&mut scene, &mut bare, &after);
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn exported_memory_stays_on_the_device_and_says_so() {
    let mut scene = scene();
    scene.does(&[
        "make 0 4194304 1",
        "map 0",
        "fill 0 1",
        "grow 1 2097152",
        "fill 1 2",
    ]);
    scene.provided(6 * MIB);
    assert!(matches!(scene.ordered(Order::Leave), Outcome::Away(bytes) if bytes == 6 * MIB));
    scene.returns();
    scene.does(&["export 0"]);
    assert!(matches!(scene.ordered(Order::Leave), Outcome::Away(bytes) if bytes == 2 * MIB));
    assert_eq!(scene.on_device(), 4 * MIB);
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.dealer.come_back();
    let told = scene.tells(|told| told.movable == 2 * MIB);
    assert_eq!(told.residue.shared, 4 * MIB);
    scene.does(&["drop 0", "unmap 0", "unmap 1"]);
    assert_eq!(scene.charged(), 4 * MIB, "its import has it still");
    scene.does(&["unimport"]);
    until("all is given back", || scene.on_device() == 0);
    assert_eq!(scene.charged(), 0);
    scene.guest.finish().silently();
}

/// The further calls that can fail in the move of a segment.
#[test]
fn whatever_call_of_a_segments_move_fails_no_byte_is_lost() {
    let mut cases = 0;
    for (function, calls) in [
        ("cuMemMap", 4..=10),
        ("cuMemSetAccess", 4..=10),
        ("cuMemUnmap", 1..=7),
        ("cuMemGetAccess", 1..=3),
        ("cuMemCreate", 3..=4),
        ("cuMemRelease", 1..=4),
    ] {
        for nth in calls {
            let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
            let mut scene = Scene::of("segments", SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
            scene.does(&["make 0 4194304 0", "map 0", "again 0", "fill 0 1"]);
            scene.does(&["make 1 2097152 0", "map 1", "fill 1 2"]);
            scene.provided(6 * MIB);
            let mut last = Outcome::Busy;
            for _ in 0..3 {
                let _ = scene.ordered(Order::Leave);
                last = scene.ordered(Order::Return);
            }
            assert_eq!(last, Outcome::Back, "{fail}");
            scene.guest.answers("check 0 1", "0");
            scene.guest.answers("through 0 1", "0");
            scene.guest.answers("check 1 2", "0");
            assert_eq!(scene.guest.ask("access 0"), "access 3 1", "{fail}");
            scene.does(&["unmap 0", "unagain 0", "drop 0", "unmap 1", "drop 1"]);
            until("all is given back", || scene.on_device() == 0);
            assert_eq!(scene.charged(), 0, "{fail}");
            scene.guest.finish().silently();
            cases += 1;
        }
    }
    println!("{cases} failures");
}

/// Allocations of a training process with expandable segments: segments of 20 MiB pages and one of
/// 2 MiB pages, a library's workspaces, and a few small allocations that the runtime makes itself.
#[test]
fn little_of_a_frameworks_memory_stays_on_the_device() {
    let mut scene = scene();
    let mut slot = 0;
    let mut grow = |scene: &mut Scene, bytes: u64, times: u32| {
        for _ in 0..times {
            scene.does(&[&format!("grow {slot} {bytes}")]);
            slot += 1;
        }
    };
    // Weights, then the first step: activations, gradients, the optimiser's state.
    grow(&mut scene, 20 * MIB, 6);
    grow(&mut scene, 2 * MIB, 8);
    grow(&mut scene, 20 * MIB, 12);
    grow(&mut scene, 2 * MIB, 8);
    // Workspaces of cuBLAS and cuDNN, and what is too small to move.
    for bytes in [8_519_680, 33_554_432, 1_048_576, 512, 65_536, 4096, 131_072] {
        scene.does(&[&format!("plain {bytes}")]);
    }
    scene.provided(400 * MIB);
    scene.dealer.come_back();
    let charged = scene.charged();
    let told = scene.tells(|told| told.movable + told.residue.total() == charged);
    let stays = told.residue.total();
    let all = told.movable + stays;
    println!("residue {stays} of {all} bytes: {} ‰", stays * 1000 / all);
    assert!(stays * 20 <= all, "{told:?}");
    scene.guest.finish().silently();
}

/// Nothing can copy it: it stays, and the daemon does not count on it.
#[test]
fn memory_on_a_device_without_a_context_counts_as_staying() {
    let mut scene = scene();
    scene.does(&["make 0 4194304 0", "map 0", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.does(&["gone"]);
    let _ = scene.dealer.said();
    scene.dealer.come_back();
    scene.tells(|told| told.movable == 0);
    assert_eq!(scene.ordered(Order::Leave), Outcome::Away(0));
    scene.returns();
    scene.does(&["comes"]);
    scene.dealer.come_back();
    scene.tells(|told| told.movable == 4 * MIB);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}
