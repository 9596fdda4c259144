//! The messages from a process with movable memory to its daemon. It reports the bytes that cannot
//! move, each with its reason; it asks for host memory in bounded pieces and gives back what it no
//! longer needs. And the access of a peer on another device to memory that has moved.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Request, Residency, Residue};
use gpushare_tests::MIB;
use gpushare_tests::movable::{Outcome, Scene};

/// The process's report after these lines. An allocation of movable memory makes it report.
fn residue_after(lines: &[&str]) -> Residency {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(lines);
    scene.does(&["alloc 15 134217728"]);
    let told = scene.tells(|told| told.movable == 128 * MIB);
    // The daemon is told the same when it comes anew.
    scene.dealer.come_back();
    let again = scene.tells(|_| true);
    assert_eq!(again.residue, told.residue);
    scene.guest.finish().silently();
    told
}

#[test]
fn what_cannot_move_is_told_by_its_reason() {
    let none = Residue::default();
    let cases: [(&[&str], Residue); 8] = [
        (&["alloc 0 4194304"], none),
        (
            // Made during a capture: by the driver.
            &["begin 2", "alloc 0 65536", "alloc 1 1000", "end"],
            Residue {
                small: 65_536 + 1024,
                ..none
            },
        ),
        (
            &["begin 2", "pitched 4194304", "end"],
            Residue {
                arrays: 4 * MIB,
                ..none
            },
        ),
        (
            &["array 4194304"],
            Residue {
                arrays: 4 * MIB,
                ..none
            },
        ),
        (
            &["pool 1 1 0", "from 0 4194304 1 1"],
            Residue {
                pools: 32 * MIB,
                ..none
            },
        ),
        (
            &["tiles 4194304"],
            Residue {
                handles: 4 * MIB,
                ..none
            },
        ),
        (
            &["handle 4194304", "share"],
            Residue {
                shared: 4 * MIB,
                ..none
            },
        ),
        (
            &["managed 4194304"],
            Residue {
                managed: 4 * MIB,
                ..none
            },
        ),
    ];
    for (lines, wanted) in cases {
        let mut told = {
            let movable = u64::from(lines[0] == "alloc 0 4194304") * 4 * MIB;
            let mut scene = Scene::new("mem=1GiB");
            scene.does(lines);
            scene.does(&["alloc 15 134217728"]);
            let told = scene.tells(|told| told.movable == 128 * MIB + movable);
            scene.guest.finish().silently();
            told.residue
        };
        if wanted.pools > 0 {
            // The driver chooses the size of a pool.
            assert!(told.pools >= 4 * MIB, "{told:?}");
            told.pools = wanted.pools;
        }
        assert_eq!(told, wanted, "{lines:?}");
    }
}

#[test]
fn the_next_daemon_is_told_the_reasons_too() {
    let told = residue_after(&["begin 2", "alloc 0 65536", "end", "array 4194304"]);
    assert_eq!((told.residue.small, told.residue.arrays), (65_536, 4 * MIB));
}

#[test]
fn memory_that_stays_is_told_when_it_has_changed_much() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304"]);
    let _ = scene.tells(|told| told.movable == 4 * MIB);
    scene.does(&["array 134217728"]);
    let told = scene.tells(|told| told.residue.arrays > 0);
    assert_eq!((told.movable, told.residue.arrays), (4 * MIB, 128 * MIB));
    scene.guest.finish().silently();
}

#[test]
fn host_memory_is_asked_for_in_bounded_pieces() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 580000000"]);
    scene.provided(580_000_000);
    let ranges = scene.dealer.store().ranges();
    assert!(ranges.iter().all(|bytes| *bytes <= 256 * MIB), "{ranges:?}");
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    scene.leaves();
    scene.returns();
    scene.guest.finish().silently();
}

#[test]
fn host_memory_that_is_too_much_is_given_back() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 200000000"]);
    scene.provided(200_000_000);
    scene.does(&["alloc 1 4194304", "fill 1 2"]);
    scene.leaves();
    scene.returns();
    let given = scene.dealer.store().given();
    scene.does(&["alloc 2 200000000"]);
    scene.provided(404 * 1_000_000);
    let more = scene.dealer.store().given() - given;
    scene.does(&["free 2"]);
    let dropped = scene.dealer.hears_some(|said| match *said {
        Request::HostDrop { bytes, .. } => Some(bytes),
        _ => None,
    });
    assert!(dropped <= more && dropped > 0, "{dropped} of {more}");
    // The host memory that is kept is enough.
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_peer_reaches_memory_that_has_moved_as_long_as_it_may() {
    let mut scene = Scene::on_two("mem=256MiB,count=2");
    scene.does(&[
        "alloc 0 4194304",
        "fill 0 1",
        "second",
        "reach",
        "across 0 5",
    ]);
    scene.provided(4 * MIB);
    scene.guest.answers("values 0 5", "0");
    scene.leaves();
    // A call on the other device waits: it may touch this one's memory.
    scene.guest.send("across 0 6");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene.returns();
    assert_eq!(scene.guest.line(), "across 0");
    scene.guest.answers("values 0 6", "0");
    scene.does(&["alloc 1 4194304", "across 1 7"]);
    scene.guest.answers("values 1 7", "0");
    scene.does(&["unreach"]);
    assert!(matches!(scene.ordered(Order::Leave), Outcome::Away(_)));
    scene.returns();
    scene.guest.answers("values 0 6", "0");
    // An illegal address, which ends the second context.
    scene.guest.answers("across 0 9", "700");
    scene.guest.finish().silently();
}
