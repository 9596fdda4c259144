//! Default streams have several names, and two of them one handle in functions of different kinds.
//! Work is taken for that of the stream in which it is. The test publishes the turns.

use std::time::{Duration, Instant};

use gpushare_tests::moves::{Scene, drained};
use gpushare_tests::until;

/// A kernel that ends long after the test has looked (ns).
const LONG: u64 = 3_000_000_000;

/// Runs `pair`, two kernels in two default streams, until both kinds are known: they are launched
/// without the lock. The last one is long, and runs for that time from the returned instant at
/// least.
#[track_caller]
fn ends_long(pair: &str) -> (Scene, Instant) {
    let mut scene = Scene::measured("");
    for _ in 0..20 {
        scene.does(&[&format!("{pair} 1000 1000"), "wait 0"]);
    }
    let launched = Instant::now();
    scene.does(&[&format!("{pair} 1000 {LONG}")]);
    (scene, launched)
}

/// Closes the gate and sees that the epoch ends only when `ask` says so.
#[track_caller]
fn ends_with((mut scene, launched): (Scene, Instant), ask: &str) {
    scene.dealer.close(1);
    let mut said = Vec::new();
    for _ in 0..200 {
        let answer = scene.guest.ask(ask);
        said.extend(scene.dealer.said());
        if launched.elapsed() >= Duration::from_nanos(LONG) {
            // A look that is late shows nothing.
            break;
        }
        assert!(answer.ends_with(" 600"), "it waits");
        assert!(!said.contains(&drained(1)), "{said:?}");
    }
    until("it is drained", || {
        said.extend(scene.dealer.said());
        said.contains(&drained(1))
    });
    assert!(scene.guest.ask(ask).ends_with(" 0"), "the kernel has ended");
    scene.guest.finish().silently();
}

#[test]
fn a_threads_own_stream_is_not_taken_for_the_legacy_one() {
    ends_with(ends_long("legacyown"), "askown");
}

#[test]
fn the_legacy_stream_is_not_taken_for_a_threads_own_one() {
    let mut scene = ends_long("ownlegacy");
    scene.0.does(&["waitown"]);
    ends_with(scene, "ask 0");
}

#[test]
fn a_wait_for_a_threads_own_stream_completes_its_work() {
    let mut scene = Scene::measured("");
    for _ in 0..20 {
        scene.does(&["legacyown 1000 1000", "waitown"]);
    }
    scene.dealer.close(1);
    scene.drains(1);
    scene.guest.finish().silently();
}

#[test]
fn a_threads_own_stream_keeps_its_name_when_its_destruction_is_refused() {
    let mut scene = Scene::measured("");
    for _ in 0..20 {
        scene.does(&["legacyown 1000 1000", "waitown"]);
    }
    scene.does(&["owned 1000"]);
    scene.dealer.close(1);
    scene.drains(1);
    assert_eq!(scene.guest.ask("askown"), "askown 600", "it waits");
    scene.does(&["write 3"]);
    until("it is done", || scene.guest.ask("askown") == "askown 0");
    scene.guest.finish().silently();
}
