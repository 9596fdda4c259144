//! With the real daemon and the real library: who is idle when another tenant asks is decided by
//! what the tenants do at that time. One that began to work again a moment before keeps its turn.

use std::time::{Duration, Instant};

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until};

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
/// A device with room for one and a half tenants. A move of one takes half a second and more, so
/// that a stay takes at least six seconds. A tenant that works no more is seen to be idle three
/// seconds later: before its stay is over.
const DEVICE: &str = "mem=106MiB,ctx=2MiB,link=128MiB/s";
const SIZE: u64 = 64 * MIB;
const SWAP: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "96MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
    ("GPUSHARE_IDLE_AFTER", "2s"),
];

/// Two tenants. The first has its turn and does nothing, so that it counts as idle; the second has
/// nothing yet.
struct Scene {
    daemon: Daemon,
    first: Guest,
    second: Guest,
    _tenants: [Tenant; 2],
    _gpu: Gpu,
}

impl Scene {
    fn new() -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured(&gpu, NODE);
        let tenants = ["one", "two"].map(|name| daemon.tenant(name, &SWAP));
        let [mut first, second] = [0, 1].map(|at| {
            let mut guest = tenants[at].client("swapped", &[]);
            assert_eq!(guest.ask("init"), "init 0");
            guest
        });
        assert_eq!(first.ask(&format!("alloc {SIZE}")), "alloc 0");
        assert_eq!(first.ask("fill 3"), "fill 0");
        assert_eq!(first.ask("prepare 3"), "prepare 0");
        assert_eq!(first.ask("replay"), "replay 0");
        let scene = Self {
            daemon,
            first,
            second,
            _tenants: tenants,
            _gpu: gpu,
        };
        scene.calm()
    }

    /// The first has moved, so that the daemon knows how long that takes, and has worked since, and
    /// not for a while.
    fn calm(mut self) -> Self {
        self.daemon.suspend("one");
        until("it is idle meanwhile", || self.is_idle());
        self.daemon.resume("one");
        let seen = self.events("active", "one");
        assert_eq!(self.first.ask("replay"), "replay 0");
        until("its work is seen", || self.events("active", "one") > seen);
        until("it is idle", || self.is_idle());
        self
    }

    /// Whether the first counts as idle.
    fn is_idle(&self) -> bool {
        let past = self.daemon.commands().past();
        let mut own = past.iter().rev();
        let last = own.find(|event| {
            let is_own = event.tenant.as_deref() == Some("one");
            is_own && ["idle", "active"].contains(&&*event.kind)
        });
        last.is_some_and(|event| event.kind == "idle")
    }

    /// How many events of a kind there were about a tenant.
    fn events(&self, kind: &str, tenant: &str) -> usize {
        let past = self.daemon.commands().past();
        let of = past.iter().filter(|event| event.kind == kind);
        of.filter(|event| event.tenant.as_deref() == Some(tenant))
            .count()
    }

    /// The second asks for its memory. Whether the first is asked to leave at once.
    fn second_asks(&mut self) -> bool {
        let leaves = self.events("leaving", "one");
        self.second.send(&format!("alloc {SIZE}"));
        until("the daemon has its ask", || {
            self.events("waiting", "two") > 0
        });
        self.events("leaving", "one") > leaves
    }

    /// Where the memory of the first is.
    fn place(&self) -> Place {
        self.daemon.residency("one").place
    }
}

#[test]
fn one_that_works_again_since_a_moment_is_not_taken_for_idle() {
    let mut scene = Scene::new();
    let asked = Instant::now();
    assert_eq!(scene.first.ask("replay"), "replay 0");
    let (leaves, place) = (scene.second_asks(), scene.place());
    // A look that is late shows nothing: it may be idle again by then.
    if asked.elapsed() < Duration::from_millis(800) {
        assert!(!leaves);
        assert_eq!(place, Place::In);
    }
    // As soon as it does nothing again, it leaves.
    assert_eq!(scene.second.line(), "alloc 0");
    assert_eq!(scene.place(), Place::Out);
    assert_eq!(scene.first.ask("check 3"), "check 0");
}

#[test]
fn one_that_does_nothing_leaves_at_once_for_the_next_ask() {
    let mut scene = Scene::new();
    assert!(scene.second_asks());
    assert_eq!(scene.second.line(), "alloc 0");
    assert_eq!(scene.first.ask("check 3"), "check 0");
}
