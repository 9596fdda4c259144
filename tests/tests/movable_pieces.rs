//! The pieces in which memory moves, and what does not happen beside a move: they are small, and
//! host memory is pinned between them, never meanwhile. By the software GPU's trace.

use std::fs;
use std::path::Path;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::process::{goes_on, is_stopped};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=1GiB,ctx=8MiB";
/// The largest piece.
const MOST: u64 = 64 * MIB;

/// What a trace says: the thread and the function of each call.
fn calls(trace: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(trace).expect("readable");
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let calls = lines.filter(|words| words.len() > 2);
    calls
        .map(|words| (words[1].to_owned(), words[2].to_owned()))
        .collect()
}

/// The sizes of the pieces that a command makes, so many of them. The process stops before each.
#[track_caller]
fn pieces(scene: &mut Scene, line: &str, count: usize) -> Vec<u64> {
    scene.guest.send(line);
    let mut seen = Vec::new();
    for _ in 0..count {
        until("it is about to make a piece", || {
            is_stopped(scene.guest.id())
        });
        seen.push(scene.on_device());
        goes_on(scene.guest.id());
    }
    let word = line.split(' ').next().expect("a word");
    assert_eq!(scene.guest.line(), format!("{word} 0"));
    seen.push(scene.on_device());
    seen.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Of an allocation, and of the segment of a pool.
#[test]
fn memory_is_made_in_pieces_of_at_most_64_mib_and_comes_back_so() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let stops = (1..=6).map(|nth| format!("cuMemCreate:{nth}:SIGSTOP"));
    let stops = stops.collect::<Vec<_>>().join(",");
    let environment = [("SOFTGPU_FAIL", &*stops), ("SOFTGPU_TRACE", path)];
    let mut scene = Scene::with(SPEC, "init", &environment);
    let bytes = 130 * MIB;
    for line in [format!("alloc 0 {bytes}"), format!("async 1 {bytes} 0")] {
        let pieces = pieces(&mut scene, &line, 3);
        assert!(pieces.iter().all(|bytes| *bytes <= MOST), "{pieces:?}");
        assert!(pieces.iter().sum::<u64>() >= bytes, "{pieces:?}");
    }
    scene.does(&["sync 0", "fill 0 1", "fill 1 2"]);
    scene.provided(scene.on_device());
    scene.leaves();
    fs::write(trace.path(), "").expect("writable");
    scene.returns();
    let mover = scene.mover();
    let calls = calls(trace.path());
    let made = calls
        .iter()
        .filter(|(thread, name)| *thread == mover && name == "cuMemCreate");
    assert_eq!(made.count(), 6, "as they were");
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

/// Host memory that could not be had in advance, and comes when the process is sealed.
#[test]
fn a_process_that_is_out_has_its_host_memory_pinned_before_it_returns() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_TRACE", path)]);
    scene.dealer.store().bound(0);
    scene.dealer.store().shortens(16 * MIB);
    scene.does(&[&*format!("alloc 0 {}", 40 * MIB), "fill 0 1"]);
    scene.dealer.store().bound(1 << 30);
    scene.leaves();
    let ranges = scene.dealer.store().ranges().len();
    assert!(ranges > 1, "{ranges}");
    let is_pin = |(_, name): &(String, String)| name.starts_with("cuMemHostRegister");
    let pinned = || {
        calls(trace.path())
            .iter()
            .filter(|call| is_pin(call))
            .count()
    };
    until("all of it is pinned", || pinned() == ranges);
    scene.returns();
    let mover = scene.mover();
    let calls = calls(trace.path());
    for (copies, way) in [("cuMemcpyDtoH", "out"), ("cuMemcpyHtoD", "back")] {
        let is_copy = |(thread, name): &(String, String)| *thread == mover && name.contains(copies);
        let first = calls.iter().position(is_copy).expect("it was copied");
        let last = calls.iter().rposition(is_copy).expect("it was copied");
        let meanwhile = &calls[first..last];
        assert!(!meanwhile.iter().any(is_pin), "{way}: {meanwhile:?}");
    }
    assert_eq!(pinned(), ranges, "once each");
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

/// What a context has pinned is pinned no more when it ends: all later moves would be slow.
#[test]
fn host_memory_is_pinned_again_once_its_context_has_ended() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let mut scene = Scene::with(SPEC, "init 1", &[("SOFTGPU_TRACE", path)]);
    let pinned = |many: usize| {
        until("host memory is pinned", || {
            let all = calls(trace.path());
            let pins = all
                .iter()
                .filter(|(_, name)| name.starts_with("cuMemHostRegister"));
            pins.count() == many
        });
    };
    let alloc = format!("alloc 0 {}", 16 * MIB);
    scene.does(&[&*alloc, "fill 0 1"]);
    pinned(1);
    scene.does(&["destroy", "init 1", &*alloc, "fill 0 2"]);
    pinned(2);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 2", "0");
    scene.guest.finish().silently();
}

/// The calls that pin host memory or end that, with their results.
fn pins(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).expect("readable");
    let lines = text
        .lines()
        .filter_map(|line| line.split_once(" cuMemHost"));
    let calls = lines.filter(|(_, call)| call.contains("egister"));
    calls.map(|(_, call)| call.to_owned()).collect()
}

/// A driver may keep an address pinned whose memory was unmapped. Copies would reach the old pages.
#[test]
fn memory_at_an_address_that_the_driver_has_pinned_still_is_pinned_anew() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let fail = "cuMemHostUnregister:1:CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    let environment = [("SOFTGPU_TRACE", path), ("SOFTGPU_FAIL", fail)];
    let mut scene = Scene::with(SPEC, "init", &environment);
    scene.dealer.store().answers_at_once();
    let takes = [&*format!("alloc 0 {}", 16 * MIB), "fill 0 1"];
    scene.does(&takes);
    until("it is pinned", || pins(trace.path()).len() == 1);
    // Nothing lies in the range that goes, so nothing is fetched before another one is pinned.
    scene.does(&["free 0"]);
    assert_eq!(scene.ordered(Order::Leave), Outcome::Away(0));
    scene.dealer.spills(1);
    let is_drop = |said: &Request| matches!(said, Request::HostDrop { .. }).then_some(());
    scene.dealer.hears_some(is_drop);
    scene.dealer.spills(0);
    scene.returns();
    scene.does(&takes);
    until("it is pinned again", || pins(trace.path()).len() > 3);
    until("it is settled", || {
        pins(trace.path()).ends_with(&["Register_v2 0".to_owned()])
    });
    let calls = [
        "Register_v2 0",
        "Unregister 713",
        "Register_v2 712",
        "Unregister 0",
        "Register_v2 0",
    ];
    assert_eq!(pins(trace.path()), calls);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}
