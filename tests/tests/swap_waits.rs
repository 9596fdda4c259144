//! With the real daemon and the real library: an ask whose place in the rotation is certain waits
//! past its own time. Without a certain place it ends then. The daemon's end ends such a wait.

use std::time::{Duration, Instant};

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until};

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
/// A device with room for one and a half tenants. A move of one takes a quarter of a second, so
/// that a stay takes five seconds and more.
const DEVICE: &str = "mem=106MiB,ctx=2MiB,link=256MiB/s";
const SIZE: u64 = 64 * MIB;
const TIMEOUT: Duration = Duration::from_secs(1);
const SWAP: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "96MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
    ("GPUSHARE_WAIT_TIMEOUT", "1s"),
];

/// Two tenants. The first has its turn, which has just begun; the second has nothing yet.
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
        // The daemon learns how long a move takes.
        daemon.suspend("one");
        daemon.resume("one");
        Self {
            daemon,
            first,
            second,
            _tenants: tenants,
            _gpu: gpu,
        }
    }

    /// The second asks for its memory while the first works, until that is so. The first counts as
    /// idle after a second: where a busy machine holds it up, all begins anew.
    fn asked_until(is_so: impl Fn(&Self, Duration) -> bool) -> Self {
        for _ in 0..5 {
            let mut scene = Self::new();
            let pause = scene.works_until(&is_so);
            if pause < Duration::from_millis(800) {
                return scene;
            }
            eprintln!("the first was held up for {pause:?}");
        }
        panic!("the machine is too busy");
    }

    /// The longest time between two pieces of work of the first. The last one may wait for the
    /// memory of the first, which has made way by then.
    fn works_until(&mut self, is_so: impl Fn(&Self, Duration) -> bool) -> Duration {
        let begin = Instant::now();
        let (mut last, mut pauses) = (begin, vec![Duration::ZERO]);
        self.second.send(&format!("alloc {SIZE}"));
        while !is_so(self, begin.elapsed()) {
            assert_eq!(self.first.ask("replay"), "replay 0");
            pauses.push(last.elapsed());
            last = Instant::now();
        }
        let before = pauses.split_last().map_or(&[][..], |(_, before)| before);
        before.iter().copied().max().unwrap_or_default()
    }

    /// When the second was served, and since when it had waited then: milliseconds.
    fn served(&self) -> Option<(u64, u64)> {
        let past = self.daemon.commands().past();
        let at = |kind: &str| {
            let mut of = past.iter().filter(|event| event.kind == kind);
            let own = of.find(|event| event.tenant.as_deref() == Some("two"));
            own.map(|event| event.at_ms)
        };
        at("served").zip(at("waiting"))
    }
}

#[test]
fn an_ask_whose_turn_is_certain_waits_past_its_timeout() {
    let mut scene = Scene::asked_until(|scene, _| scene.served().is_some());
    let (served, asked) = scene.served().expect("it is");
    let waited = Duration::from_millis(served - asked);
    assert!(waited > TIMEOUT + TIMEOUT / 2, "{waited:?}");
    assert_eq!(scene.second.line(), "alloc 0");
    // A call of a tenant that is out waits for its turn as well.
    scene.first.send("check 3");
    assert_eq!(scene.second.ask("fill 4"), "fill 0");
    assert_eq!(scene.first.line(), "check 0");
    assert_eq!(scene.second.ask("check 4"), "check 0");
}

#[test]
fn an_ask_whose_turn_is_not_certain_ends_at_its_timeout() {
    let mut scene = Scene::new();
    // It cannot be sealed: it does not leave when it is asked.
    assert_eq!(scene.first.ask("capture"), "capture 0");
    scene.second.send(&format!("alloc {SIZE}"));
    assert_eq!(scene.second.line(), "alloc 2");
    assert!(!scene.daemon.events("did-not-leave").is_empty());
    // Asked again, with that known: nothing is waited for beyond its time.
    let begin = Instant::now();
    assert_eq!(scene.second.ask(&format!("alloc {SIZE}")), "alloc 2");
    let waited = begin.elapsed();
    // The daemon counts the time from when it reads the request of the call.
    assert!(waited >= TIMEOUT / 2, "it had its own time: {waited:?}");
    assert!(waited <= TIMEOUT * 20, "no minutes: {waited:?}");
    assert_eq!(scene.first.ask("end"), "end 0");
    assert_eq!(scene.first.ask("check 3"), "check 0");
}

#[test]
fn the_end_of_the_daemon_ends_a_wait_past_the_timeout() {
    let mut scene = Scene::asked_until(|_, waited| waited > TIMEOUT + TIMEOUT / 2);
    assert_eq!(scene.daemon.residency("one").place, Place::In);
    scene.daemon.kill();
    assert_eq!(scene.second.line(), "alloc 2");
    scene.daemon.restart();
    assert_eq!(scene.first.ask("check 3"), "check 0");
    until("the next daemon knows it", || {
        scene.daemon.row("one").charged == SIZE && scene.daemon.row("two").charged == 0
    });
}
