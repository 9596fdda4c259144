//! Tenants that swap, where library and daemon are of different minor versions: today's daemon with
//! libraries of earlier ones, and today's library with daemons of those. What both know is done;
//! what one of them does not know is refused by name, or left alone. Second tier, because it builds
//! the earlier commits.

use gpushare_protocol::wire::{ControlReply, Place};
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until};
use softgpu::world::Kind;

use crate::versions::Build;

/// The last commits of earlier minors: each after which a library or a daemon knew more of moves.
/// Those between know what one of these knows.
const EARLIER: [(u16, &str); 7] = [
    (5, "caf6a460"),
    (8, "00967735"),
    (9, "439373bb"),
    (13, "4951fbec"),
    (14, "5f90cd7d"),
    (16, "deff8ab3"),
    (20, "824e5b7b"),
];
/// The first minor whose library moves memory by orders, and the first one that has it stored.
const MOVES: u16 = 8;
const STORES: u16 = 14;
/// The first minor whose daemon has tenants that swap.
const SWAPS: u16 = 13;

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"4GiB\"\n";
/// A device with room for one and a half tenants, and their contexts.
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
const SIZE: u64 = 64 * MIB;
const TERMS: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "96MiB"),
    ("GPUSHARE_IDLE_AFTER", "500ms"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];
/// The same, refused at once where nobody can be moved.
const OR_FAIL: (&str, &str) = ("GPUSHARE_ON_COLLISION", "swap,fail");

/// What a test does with the builds of each earlier minor.
fn each(test: &str, minors: impl Fn(u16) -> bool, check: impl Fn(u16, &Build)) {
    for (minor, commit) in EARLIER {
        if minors(minor)
            && let Some(build) = Build::of_commit(test, commit)
        {
            eprintln!("minor {minor}");
            check(minor, &build);
        }
    }
}

struct Scene {
    gpu: Gpu,
    daemon: Daemon,
}

impl Scene {
    fn of(build: &Build, config: &str) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured_of_build(&gpu, config, build.daemon.clone());
        Self { gpu, daemon }
    }

    /// A tenant and its program, with the library of a build.
    fn tenant(&self, name: &str, build: &Build, terms: &[(&str, &str)]) -> (Tenant, Guest) {
        let tenant = self.daemon.tenant(name, terms);
        let mut guest = tenant.client_of_build(&build.library, "swapped");
        guest.does("init");
        (tenant, guest)
    }

    /// The same with its memory filled with a value.
    fn filled(&self, name: &str, build: &Build, value: u64) -> (Tenant, Guest) {
        let (tenant, mut guest) = self.tenant(name, build, &TERMS);
        fills(&mut guest, value);
        (tenant, guest)
    }

    /// Bytes of physical allocations on the device: what can move.
    fn on_device(&self) -> u64 {
        let truth = self.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        alive
            .map(|process| process.requested[Kind::Vmm as usize])
            .sum()
    }

    fn suspended(&self, name: &str) {
        self.daemon.suspend(name);
        assert_eq!(self.daemon.residency(name).place, Place::Out);
        assert_eq!(self.on_device(), 0);
    }
}

fn fills(guest: &mut Guest, value: u64) {
    guest.does(&format!("alloc {SIZE}"));
    guest.does(&format!("fill {value}"));
}

/// Two tenants take turns on the device, and a graph from before a move replays after it.
fn take_turns(scene: &Scene, [one, two]: [&Build; 2]) {
    let (_one, mut first) = scene.filled("one", one, 3);
    first.does("prepare 77");
    scene.suspended("one");
    for line in ["replay", "copied 77", "check 77"] {
        first.does(line);
    }
    first.does("fill 3");
    let (_two, mut second) = scene.filled("two", two, 4);
    for _ in 0..2 {
        first.does("check 3");
        second.does("check 4");
    }
    let moved = scene.daemon.residency("one");
    assert!(moved.left >= 2, "{moved:?}");
    for guest in [first, second] {
        guest.finish().silently();
    }
}

#[test]
#[ignore = "builds earlier commits"]
fn todays_daemon_moves_what_a_library_of_an_earlier_minor_can() {
    let test = "todays_daemon_moves_what_a_library_of_an_earlier_minor_can";
    let this = Build::this();
    each(
        test,
        |minor| minor >= MOVES,
        |_, earlier| {
            for libraries in [[earlier, &this], [&this, earlier], [earlier, earlier]] {
                take_turns(&Scene::of(&this, NODE), libraries);
            }
        },
    );
}

#[test]
#[ignore = "builds earlier commits"]
fn memory_of_a_library_before_swap_stays_and_it_has_others_moved() {
    let test = "memory_of_a_library_before_swap_stays_and_it_has_others_moved";
    let this = Build::this();
    each(
        test,
        |minor| minor < MOVES,
        |_, earlier| {
            let scene = Scene::of(&this, NODE);
            let (_one, mut first) = scene.filled("one", earlier, 3);
            let refused = scene.daemon.asks_to_leave("one");
            assert!(matches!(refused, ControlReply::Error(_)), "{refused:?}");
            let (_two, mut second) = scene.tenant("two", &this, &[TERMS[0], TERMS[1], OR_FAIL]);
            assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 2");
            first.does("check 3");
            first.does("free");
            // The other way round its own want is served by a move.
            fills(&mut second, 4);
            fills(&mut first, 5);
            assert_eq!(scene.on_device(), 0, "the other has left");
            second.send("check 4");
            first.does("check 5");
            first.does("free");
            assert_eq!(second.line(), "check 0");
            for guest in [first, second] {
                guest.finish().silently();
            }
        },
    );
}

#[test]
#[ignore = "builds earlier commits"]
fn what_a_library_cannot_have_stored_stays_on_the_host() {
    let test = "what_a_library_cannot_have_stored_stays_on_the_host";
    let this = Build::this();
    each(
        test,
        |minor| minor >= MOVES,
        |minor, earlier| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().display();
            // Host memory for one tenant.
            let node = NODE.replace("4GiB", "72MiB")
                + &format!("spill = \"{path}\"\nspill_limit = \"1GiB\"\n");
            let scene = Scene::of(&this, &node);
            let (_one, mut first) = scene.filled("one", earlier, 3);
            scene.suspended("one");
            let (_two, mut second) = scene.filled("two", &this, 4);
            let reply = scene.daemon.asks_to_leave("two");
            assert_eq!(reply == ControlReply::Done, minor >= STORES, "{reply:?}");
            assert_eq!(
                scene.daemon.events("spilled").is_empty(),
                minor < STORES,
                "minor {minor}"
            );
            scene.daemon.resume("two");
            second.does("check 4");
            second.does("free");
            first.does("check 3");
            for guest in [first, second] {
                guest.finish().silently();
            }
        },
    );
}

#[test]
#[ignore = "builds earlier commits"]
fn a_daemon_of_an_earlier_minor_moves_todays_library_as_it_knows() {
    let test = "a_daemon_of_an_earlier_minor_moves_todays_library_as_it_knows";
    let this = Build::this();
    each(
        test,
        |minor| minor >= SWAPS,
        |_, earlier| {
            for libraries in [[&this, &this], [earlier, &this]] {
                take_turns(&Scene::of(earlier, NODE), libraries);
            }
        },
    );
}

#[test]
#[ignore = "builds earlier commits"]
fn a_daemon_before_swap_refuses_it_and_serves_todays_library() {
    let test = "a_daemon_before_swap_refuses_it_and_serves_todays_library";
    let this = Build::this();
    each(
        test,
        |minor| minor < SWAPS,
        |_, earlier| {
            let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
            let daemon = Daemon::of_build(&gpu, earlier.daemon.clone());
            let refused = daemon.create("one", &TERMS, &[]);
            let why = match refused.map_err(|reply| *reply) {
                Err(ControlReply::Error(why)) => why,
                other => panic!("{other:?}"),
            };
            assert!(why.message.contains("swap"), "{why:?}");
            let tenant = daemon.tenant("two", &TERMS[..1]);
            let mut guest = tenant.client_of_build(&this.library, "swapped");
            guest.does("init");
            fills(&mut guest, 4);
            guest.does("check 4");
            guest.does("free");
            guest.finish().silently();
        },
    );
}

/// A tenant that is out is brought back by a daemon of the other minor.
fn brings_back([first, next]: [&Build; 2], library: &Build) {
    let mut scene = Scene::of(first, NODE);
    let (_one, mut guest) = scene.filled("one", library, 3);
    scene.suspended("one");
    scene.daemon.replace(next.daemon.clone());
    guest.does("check 3");
    assert_eq!(scene.on_device(), SIZE);
    until("the next daemon sees it in", || {
        scene.daemon.residency("one").place == Place::In
    });
    scene.suspended("one");
    guest.does("check 3");
    guest.finish().silently();
}

#[test]
#[ignore = "builds earlier commits"]
fn a_tenant_that_is_out_comes_back_under_a_daemon_of_another_minor() {
    let test = "a_tenant_that_is_out_comes_back_under_a_daemon_of_another_minor";
    let this = Build::this();
    each(
        test,
        |minor| minor >= SWAPS,
        |_, earlier| {
            for library in [earlier, &this] {
                brings_back([earlier, &this], library);
                brings_back([&this, earlier], library);
            }
        },
    );
}
