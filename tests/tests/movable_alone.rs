//! Memory that is away when the daemon goes: the process asks the driver for all of it, or takes
//! none, with pauses, and only once a call waits.

use std::fs;
use std::time::Duration;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

#[test]
fn out_without_a_daemon_it_comes_back_by_itself_when_a_call_waits() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.dealer.leave();
    // Nothing can be awaited that must not happen.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(scene.on_device(), 0, "no call waits");
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

/// The mover's calls of some functions, in order, and whether the driver carried each out.
fn answers(trace: &str, thread: &str, of: &[&str]) -> Vec<(String, bool)> {
    let lines = trace
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let own = lines.filter(|words| words.len() > 3 && words[1] == thread && of.contains(&words[2]));
    own.map(|words| (words[2].to_owned(), words[3] == "0"))
        .collect()
}

#[test]
fn out_without_a_daemon_it_takes_all_its_memory_or_none() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let mut scene = Scene::with("mem=256MiB,ctx=8MiB", "init", &[("SOFTGPU_TRACE", path)]);
    // Two chunks of 64 MiB.
    scene.does(&["alloc 0 134217728", "fill 0 1"]);
    scene.provided(128 * MIB);
    scene.leaves();
    // Room for one of the chunks.
    let mut other = scene.bare();
    other.does("alloc 0 146800640");
    scene.dealer.leave();
    fs::write(trace.path(), "").expect("writable");
    scene.guest.send("check 0 1");
    let mover = scene.mover();
    let calls = ["cuMemCreate", "cuMemRelease", "cuMemMap"];
    let mut attempts = 0;
    until("it has tried three times", || {
        let text = fs::read_to_string(trace.path()).expect("readable");
        let seen = answers(&text, &mover, &calls);
        attempts = seen.iter().filter(|(_, done)| !done).count();
        attempts >= 3
    });
    let text = fs::read_to_string(trace.path()).expect("readable");
    let seen = answers(&text, &mover, &calls);
    let end = seen.iter().rposition(|(_, done)| !done).expect("a refusal");
    let attempt = [
        ("cuMemCreate", true),
        ("cuMemCreate", false),
        ("cuMemRelease", true),
    ];
    for (index, call) in seen[..=end].iter().enumerate() {
        let (name, done) = attempt[index % 3];
        assert_eq!(call, &(name.to_owned(), done), "{seen:?}");
    }
    other.finish().silently();
    assert_eq!(scene.guest.line(), "check 0", "once there is room");
    scene.guest.finish().silently();
}

#[test]
fn in_without_a_daemon_nothing_moves_and_it_works_on() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.dealer.leave();
    scene.guest.answers("check 0 1", "0");
    scene.does(&["alloc 1 4194304", "fill 1 2", "free 0"]);
    scene.guest.answers("check 1 2", "0");
    assert_eq!(scene.on_device(), 4 * MIB);
    scene.guest.finish().silently();
}

/// The daemon takes it for out: nothing else would have its memory leave before its next call.
#[test]
fn back_without_its_daemon_it_leaves_again_once_that_goes_on() {
    for how in [Movability::Swap, Movability::Managed] {
        let mut scene = Scene::moving(how, "mem=256MiB,ctx=8MiB", &[]);
        scene.does(&["alloc 0 4194304", "fill 0 1"]);
        if how == Movability::Swap {
            scene.provided(4 * MIB);
        }
        scene.leaves();
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, Order::Out);
        scene.dealer.beat(false);
        scene.guest.answers("check 0 1", "0");
        scene.dealer.beat(true);
        assert_eq!(scene.outcome(), Outcome::Away(4 * MIB), "{how:?}");
        until("it is off the device", || {
            scene.is_managed() || scene.on_device() == 0
        });
        scene.waits_for_return("check 0 1");
        scene.guest.finish().silently();
    }
}
