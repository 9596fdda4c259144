//! To its program, memory that moves is plain memory, before a move and after it: of chunks of its
//! own, parts of slabs, parts of a pool's segments, and managed memory under `uvm`. Beside each
//! program runs the bare driver, which must answer the same. The program's own mappings are in
//! `movable_segments.rs`.

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::Guest;
use gpushare_tests::movable::{Outcome, Scene, same};

const SPEC: &str = "mem=1GiB,ctx=8MiB";

/// A way of making memory of slot 0: these lines, and its bytes.
struct Making {
    how: Movability,
    lines: &'static [&'static str],
    bytes: u64,
}

const SWAPPED: [Making; 3] = [
    Making {
        how: Movability::Swap,
        lines: &["alloc 0 14000000"],
        bytes: 14_000_000,
    },
    Making {
        how: Movability::Swap,
        lines: &["alloc 0 1000"],
        bytes: 1000,
    },
    Making {
        how: Movability::Swap,
        lines: &["async 0 3000000 1", "sync 1"],
        bytes: 3_000_000,
    },
];
/// Smaller ones are the driver's there.
const MANAGED: [Making; 1] = [Making {
    how: Movability::Managed,
    lines: &["alloc 0 14000000"],
    bytes: 14_000_000,
}];

fn all() -> impl Iterator<Item = &'static Making> {
    SWAPPED.iter().chain(&MANAGED)
}

impl Making {
    /// The program, and the same on the bare driver, before the memory is made.
    fn begins(&self) -> (Scene, Guest) {
        let scene = Scene::moving(self.how, SPEC, &[]);
        let bare = scene.bare();
        (scene, bare)
    }

    fn made(&self) -> (Scene, Guest) {
        let (mut scene, mut bare) = self.begins();
        same(&mut scene, &mut bare, self.lines);
        same(&mut scene, &mut bare, &["fill 0 1"]);
        (scene, bare)
    }

    fn is_managed(&self) -> bool {
        self.how == Movability::Managed
    }

    /// It leaves and comes back.
    fn moves(&self, scene: &mut Scene) {
        if !self.is_managed() {
            scene.provided(self.bytes);
        }
        let outcome = scene.ordered(Order::Leave);
        assert!(
            matches!(outcome, Outcome::Away(bytes) if bytes >= self.bytes),
            "{outcome:?}"
        );
        scene.returns();
    }
}

/// The facts that differ: each as the driver's, and as ours.
fn differ(scene: &mut Scene, bare: &mut Guest, line: &str) -> Vec<(String, String)> {
    let (ours, plain) = (scene.guest.ask(line), bare.ask(line));
    let pairs = plain.split(' ').zip(ours.split(' '));
    let differ = pairs.filter(|(plain, ours)| plain != ours);
    differ
        .map(|(plain, ours)| (plain.to_owned(), ours.to_owned()))
        .collect()
}

/// It cannot be opened by another process, and says so; a pool's never could.
const NOT_OPENED: (&str, &str) = ("10=0:1,0:1", "10=0:0,0:0");

#[test]
fn every_attribute_is_as_of_plain_memory_before_and_after_a_move() {
    for making in all() {
        let (mut scene, mut bare) = making.made();
        let is_pools = making.lines[0].starts_with("async");
        let wanted = match is_pools {
            true => vec![],
            false => vec![(NOT_OPENED.0.to_owned(), NOT_OPENED.1.to_owned())],
        };
        for round in 0..3 {
            for offset in [0, 1, making.bytes / 2, making.bytes - 1] {
                let line = format!("facts 0 {offset}");
                let found = differ(&mut scene, &mut bare, &line);
                assert_eq!(found, wanted, "{:?}, {line}, {round}", making.lines);
            }
            making.moves(&mut scene);
        }
        scene.guest.answers("check 0 1", "0");
        scene.guest.finish().silently();
        bare.finish().silently();
    }
}

/// What a pool was not made for is not.
#[test]
fn a_decompression_engine_takes_memory_before_and_after_a_move() {
    for making in &SWAPPED {
        let spec = format!("{SPEC},decompress=on");
        let mut scene = Scene::moving(making.how, &spec, &[]);
        let mut bare = scene.bare();
        same(&mut scene, &mut bare, making.lines);
        let takes = match making.lines[0].starts_with("async") {
            true => "21=0:0,0:0",
            false => "21=0:1,0:1",
        };
        for _ in 0..2 {
            for guest in [&mut scene.guest, &mut bare] {
                let facts = guest.ask("facts 0 0");
                assert!(facts.contains(takes), "{:?}: {facts}", making.lines);
            }
            making.moves(&mut scene);
        }
        scene.guest.finish().silently();
        bare.finish().silently();
    }
}

/// Some driver may tell of an engine that a part of the card does not have.
#[test]
fn where_memory_for_decompression_is_refused_it_is_made_without() {
    let spec = format!("{SPEC},decompress=on");
    for (fail, takes) in [
        (
            "cuMemGetAllocationGranularity:1:CUDA_ERROR_NOT_SUPPORTED",
            "21=0:0,0:0",
        ),
        ("cuMemCreate:1:CUDA_ERROR_NOT_SUPPORTED", "21=0:0,0:0"),
        ("cuMemCreate:1:CUDA_ERROR_OUT_OF_MEMORY", "21=0:1,0:1"),
    ] {
        let mut scene = Scene::moving(Movability::Swap, &spec, &[("SOFTGPU_FAIL", fail)]);
        scene.does(&["alloc 0 4194304", "fill 0 1", "alloc 1 1000"]);
        scene.provided(6 << 20);
        for _ in 0..2 {
            scene.leaves();
            scene.returns();
            let facts = scene.guest.ask("facts 0 0");
            assert!(facts.contains(takes), "{fail}: {facts}");
            scene.guest.answers("check 0 1", "0");
        }
        scene.guest.finish().silently();
    }
}

/// Else its contents were lost.
#[test]
fn a_batch_of_discards_is_refused_before_and_after_a_move() {
    for making in all() {
        let (mut scene, mut bare) = making.made();
        for _ in 0..2 {
            assert_eq!(bare.ask("discards 0"), "discards 1 1 1 0 0 0");
            assert_eq!(scene.guest.ask("discards 0"), "discards 1 1 1 0 0 0");
            scene.guest.answers("check 0 1", "0");
            making.moves(&mut scene);
        }
        scene.guest.finish().silently();
        bare.finish().silently();
    }
}

/// The driver tells places of managed memory alone, and would tell where the library has its own.
#[test]
fn no_place_of_plain_memory_is_told_before_and_after_a_move() {
    for making in all() {
        let (mut scene, mut bare) = making.made();
        for _ in 0..2 {
            assert_eq!(bare.ask("lies 0"), "lies -1 0 1 2");
            assert_eq!(scene.guest.ask("lies 0"), "lies -1 0 1 2");
            making.moves(&mut scene);
        }
        scene.guest.finish().silently();
        bare.finish().silently();
    }
}

#[test]
fn memory_is_refused_to_be_opened_with_one_event_after_a_move_too() {
    for making in all() {
        let (mut scene, _bare) = making.made();
        let is_pools = making.lines[0].starts_with("async");
        let refused = if is_pools {
            "shares 1 801"
        } else {
            "shares 801 801"
        };
        making.moves(&mut scene);
        assert_eq!(scene.guest.ask("shares 0"), refused);
        scene.dealer.hears(&Request::Unshared { device_index: 0 });
        making.moves(&mut scene);
        assert_eq!(scene.guest.ask("shares 0"), refused);
        making.moves(&mut scene);
        let again = scene.dealer.said();
        let is_told = |said: &Request| matches!(said, Request::Unshared { .. });
        assert!(!again.iter().any(is_told), "{again:?}");
        scene.guest.finish().silently();
    }
}

/// Work behind which it may still be in use: a kernel, a host function, a wait, a graph.
#[test]
fn a_free_waits_for_all_work_also_after_a_move() {
    for making in SWAPPED[..2].iter().chain(&MANAGED) {
        let (mut scene, _bare) = making.begins();
        for kind in 0..4 {
            scene.does(making.lines);
            making.moves(&mut scene);
            let line = format!("outlasts 0 {kind}");
            assert_eq!(scene.guest.ask(&line), "outlasts 0", "{:?}", making.lines);
        }
        scene.guest.finish().silently();
    }
}

#[test]
fn a_capture_refuses_a_free_as_the_drivers_before_and_after_a_move() {
    for making in all() {
        let (mut scene, mut bare) = making.made();
        for mode in ["begin 0", "begin 1", "begin 2", "begin 0"] {
            same(&mut scene, &mut bare, &[mode]);
            let answer = scene.guest.ask("free 0");
            assert_eq!(answer, bare.ask("free 0"), "{:?} {mode}", making.lines);
            same(&mut scene, &mut bare, &["end"]);
            if answer == "free 0" {
                same(&mut scene, &mut bare, making.lines);
                same(&mut scene, &mut bare, &["fill 0 1"]);
            }
            scene.guest.answers("check 0 1", "0");
            making.moves(&mut scene);
        }
        same(&mut scene, &mut bare, &["free 0", "free 0"]);
        scene.guest.finish().silently();
        bare.finish().silently();
    }
}

#[test]
fn a_contexts_end_frees_its_memory_after_a_move_and_while_it_is_away() {
    for making in SWAPPED[..2].iter().chain(&MANAGED) {
        for is_away in [false, true] {
            let mut scene = Scene::moving_after(making.how, SPEC, "init 1");
            scene.does(making.lines);
            scene.does(&["fill 0 1"]);
            making.moves(&mut scene);
            if is_away {
                let outcome = scene.ordered(Order::Leave);
                assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
                scene.waits_for_return("destroy");
            } else {
                scene.does(&["destroy"]);
            }
            assert_eq!(scene.charged(), 0, "{:?}", making.lines);
            if !making.is_managed() {
                assert_eq!(scene.on_device(), 0, "{:?}", making.lines);
            }
            assert_eq!(scene.ordered(Order::Leave), Outcome::Away(0));
            scene.guest.finish().silently();
        }
    }
}

/// A pool's memory has the pool's rights: `movable_pools.rs`.
#[test]
fn a_peer_reaches_memory_before_and_after_a_move_as_long_as_it_may() {
    for making in SWAPPED[..2].iter().chain(&MANAGED) {
        let mut scene = Scene::moving_on_two(making.how, "mem=1GiB,ctx=8MiB,count=2");
        scene.does(making.lines);
        scene.does(&["second", "reach", "across 0 5"]);
        for value in 5..7 {
            scene.guest.answers(&format!("values 0 {value}"), "0");
            making.moves(&mut scene);
            scene.does(&[&format!("across 0 {}", value + 1)]);
            scene.guest.answers(&format!("values 0 {}", value + 1), "0");
        }
        scene.guest.finish().silently();
    }
}
