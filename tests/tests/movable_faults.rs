//! A move at each of whose steps something fails: a driver call, the process, the daemon.
//! Afterwards everything is as before, or every byte is there, or calls return an error; and no
//! memory of the device stays taken. The steps are read off the software GPU's trace of a move.

use std::collections::BTreeMap;
use std::fs;

use gpushare_cuda_abi::symbols::CUDA;
use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SPEC: &str = "mem=256MiB,ctx=8MiB";

/// A program with allocations that can move: of a chunk each, parts of a slab, and of the pool.
const LINES: [&str; 10] = [
    "alloc 0 8388608",
    "alloc 1 3000000",
    "alloc 2 1000",
    "pitch 3 700 100 4",
    "async 4 5000000 1",
    "fill 0 1",
    "fill 1 2",
    "fill 2 3",
    "fill 3 4",
    "fill 4 5",
];
const ALL: u64 = 46 * MIB;

/// That program.
fn scene(fail: &str) -> Scene {
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", fail)]);
    scene.does(&LINES);
    scene.provided(ALL);
    scene
}

fn has_every_byte(scene: &mut Scene) {
    for (slot, seed) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)] {
        scene.guest.answers(&format!("check {slot} {seed}"), "0");
    }
}

/// Everything is freed, and nothing stays on the device or charged.
fn leaves_nothing(mut scene: Scene, fail: &str) {
    scene.does(&["free 0", "free 1", "free 2", "free 3", "later 4", "sync 1"]);
    // An empty slab is kept for a while, but not moved.
    let _ = scene.ordered(Order::Leave);
    let _ = scene.ordered(Order::Return);
    until("the device has its memory back", || scene.on_device() == 0);
    assert_eq!(scene.charged(), 0, "{fail}");
    // The mover waits for no call of the program's that is over.
    scene.does(&["alloc 0 8388608", "free 0"]);
    scene.guest.finish().silently();
}

/// The steps of a move: for each function that the mover's thread calls during a move away and
/// back, its calls in the order of all of the process's calls of it, from 1.
fn steps() -> BTreeMap<String, Vec<u64>> {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_TRACE", path)]);
    scene.does(&LINES);
    scene.provided(ALL);
    scene.leaves();
    scene.returns();
    let mover = scene.mover();
    has_every_byte(&mut scene);
    scene.guest.finish().silently();
    let text = fs::read_to_string(trace.path()).expect("readable");
    let (mut calls, mut steps) = (BTreeMap::new(), BTreeMap::<String, Vec<u64>>::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let nth: &mut u64 = calls.entry(words[2].to_owned()).or_default();
        *nth += 1;
        if words[1] == mover {
            steps.entry(words[2].to_owned()).or_default().push(*nth);
        }
    }
    let known = |name: &String| CUDA.iter().any(|row| row.name == name.as_str());
    let unknown: Vec<_> = steps.keys().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in [
        "cuCtxRecordEvent",
        "cuMemcpyDtoHAsync_v2",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
    ] {
        assert!(steps.contains_key(name), "{name} is a step of a move");
    }
    steps
}

/// Of a function's calls those at which something shall fail: `most` of them, the last among them.
fn chosen(calls: &[u64], most: usize) -> Vec<u64> {
    let mut chosen: Vec<u64> = calls.iter().copied().take(most).collect();
    if let (Some(last), true) = (calls.last(), calls.len() > most) {
        chosen.pop();
        chosen.push(*last);
    }
    chosen
}

/// How many calls of each function fail: all of them in the long tier.
fn most(usual: usize) -> usize {
    match std::env::var("GPUTEST_EVERY_STEP") {
        Ok(_) => usize::MAX,
        Err(_) => usual,
    }
}

#[test]
fn whatever_call_of_a_move_fails_the_data_is_there_in_the_end() {
    let steps = steps();
    let mut cases = 0;
    for (function, calls) in &steps {
        for nth in chosen(calls, most(2)) {
            let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
            let mut scene = scene(&fail);
            let mut last = Outcome::Busy;
            for _ in 0..3 {
                let _ = scene.ordered(Order::Leave);
                last = scene.ordered(Order::Return);
            }
            assert_eq!(last, Outcome::Back, "{fail}");
            has_every_byte(&mut scene);
            leaves_nothing(scene, &fail);
            cases += 1;
        }
    }
    println!(
        "{cases} failures of {} functions that a move calls",
        steps.len()
    );
    println!("{:?}", steps.keys().collect::<Vec<_>>());
}

#[test]
fn whatever_call_of_a_return_in_parts_fails_the_data_is_there_in_the_end() {
    let (steps, mut cases) = (steps(), 0);
    for (function, calls) in &steps {
        for nth in chosen(calls, most(2)) {
            let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
            let mut scene = scene(&fail);
            let _ = scene.ordered(Order::Leave);
            // A part comes back and is given up, then a part and the rest.
            for order in [Order::Leave, Order::Return] {
                for withheld in [24 * MIB, 4 * MIB] {
                    scene.dealer.withholds(withheld);
                    scene.epoch += 1;
                    scene.dealer.order(scene.epoch, Order::Return);
                }
                scene.dealer.withholds(0);
                let _ = scene.ordered(order);
            }
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
            has_every_byte(&mut scene);
            leaves_nothing(scene, &fail);
            cases += 1;
        }
    }
    println!("{cases} failures of {} functions", steps.len());
}

#[test]
fn a_driver_that_fails_for_good_at_a_step_loses_no_byte() {
    // Functions that the program itself needs to show its bytes are left out.
    for function in [
        "cuMemcpyDtoHAsync",
        "cuMemUnmap",
        "cuCtxRecordEvent",
        "cuStreamCreate",
        "cuMemHostRegister",
    ] {
        let fail = if function == "cuStreamCreate" {
            // The first stream is the program's.
            "cuStreamCreate:2:CUDA_ERROR_UNKNOWN,cuStreamCreate:3:CUDA_ERROR_UNKNOWN,\
             cuStreamCreate:4:CUDA_ERROR_UNKNOWN"
                .to_owned()
        } else {
            format!("{function}:*:CUDA_ERROR_UNKNOWN")
        };
        let mut scene = scene(&fail);
        for _ in 0..2 {
            let _ = scene.ordered(Order::Leave);
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
            has_every_byte(&mut scene);
        }
        scene.guest.finish().silently();
    }
}

#[test]
fn an_allocation_that_fails_at_a_step_leaves_nothing_taken() {
    // The first block's calls are the first ones; the second allocation is of two chunks.
    for (function, nth) in [
        ("cuMemAddressReserve", 2),
        ("cuMemCreate", 2),
        ("cuMemCreate", 3),
        ("cuMemMap", 2),
        ("cuMemMap", 3),
        ("cuMemSetAccess", 2),
    ] {
        let fail = format!("{function}:{nth}:CUDA_ERROR_OUT_OF_MEMORY");
        let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
        scene.does(&["alloc 0 4194304", "fill 0 1"]);
        let before = scene.charged();
        let answer = scene.guest.ask("alloc 1 100000000");
        assert!(
            answer == "alloc 2" || answer == "alloc 0",
            "{fail}: {answer}"
        );
        if answer == "alloc 2" {
            assert_eq!(
                (scene.on_device(), scene.charged()),
                (4 * MIB, before),
                "{fail}"
            );
            scene.does(&["alloc 1 100000000"]);
        }
        scene.guest.answers("check 0 1", "0");
        scene.does(&["free 0", "free 1"]);
        assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
        scene.guest.finish().silently();
    }
}

#[test]
fn a_free_that_fails_at_a_step_gives_its_memory_back_later() {
    for function in ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"] {
        for calls in 1..=3 {
            let fail: Vec<String> = (1..=calls)
                .map(|nth| format!("{function}:{nth}:CUDA_ERROR_UNKNOWN"))
                .collect();
            let fail = fail.join(",");
            let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
            scene.does(&["alloc 0 4194304", "alloc 1 4194304", "fill 1 2", "free 0"]);
            until("it is given back", || scene.on_device() == 4 * MIB);
            scene.guest.answers("check 1 2", "0");
            scene.does(&["free 1"]);
            until("all is given back", || scene.on_device() == 0);
            assert_eq!(scene.charged(), 0, "{fail}");
            scene.guest.finish().silently();
        }
    }
}

#[test]
fn a_process_killed_at_any_step_leaves_nothing_on_the_device() {
    let steps = steps();
    let mut cases = 0;
    for (function, calls) in &steps {
        for nth in chosen(calls, most(1)) {
            let fail = format!("{function}:{nth}:SIGKILL");
            let mut scene = Scene::beginning(SPEC, &[("SOFTGPU_FAIL", &fail)]);
            begins(&mut scene);
            moves_until(&mut scene, is_dead);
            // All of the device's memory is to be had.
            let mut next = scene.bare();
            let Scene { guest, .. } = scene;
            guest.kill();
            next.does("alloc 0 241172480");
            next.finish().silently();
            cases += 1;
        }
    }
    println!("killed at {cases} steps of {} functions", steps.len());
}

#[test]
fn no_byte_is_lost_when_the_daemon_is_killed_at_any_step() {
    let steps = steps();
    let mut cases = 0;
    for (function, calls) in &steps {
        for nth in chosen(calls, most(1)) {
            let stop = format!("{function}:{nth}:SIGSTOP");
            let mut scene = Scene::beginning(SPEC, &[("SOFTGPU_FAIL", &stop)]);
            begins(&mut scene);
            moves_until(&mut scene, is_stopped);
            scene.dealer.leave();
            goes_on(scene.guest.id());
            let began = scene.guest.line();
            for line in LINES {
                let word = line.split(' ').next().expect("a word");
                assert!(scene.guest.line().starts_with(word), "{stop}");
            }
            if began != "init 0" {
                // Calls of its start may come first: without a daemon no context has room.
                assert_eq!(began, "init 2", "{stop}");
                continue;
            }
            has_every_byte(&mut scene);
            // The next daemon finds it able to move as before.
            scene.dealer.come_back();
            let _ = scene.tells(|_| true);
            scene.epoch = 0;
            scene.provided(ALL);
            let _ = scene.ordered(Order::Leave);
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{stop}");
            has_every_byte(&mut scene);
            leaves_nothing(scene, &stop);
            cases += 1;
        }
    }
    println!(
        "the daemon killed at {cases} steps of {} functions",
        steps.len()
    );
}

/// Has the program begin, which may be killed or stopped at any time.
fn begins(scene: &mut Scene) {
    LINES.iter().for_each(|line| scene.guest.send(line));
}

/// Bytes that the daemon withholds of a return, from one look to the next.
const WITHHELD: [u64; 3] = [24 * MIB, 4 * MIB, 0];

/// Orders moves away, and back in parts, until its process is so.
fn moves_until(scene: &mut Scene, is_so: impl Fn(u32) -> bool) {
    let mut order = Order::Return;
    let mut answered = true;
    let mut withheld = WITHHELD.into_iter();
    until("it is at that step", || {
        if answered {
            withheld = WITHHELD.into_iter();
        }
        if let Some(bytes) = withheld.next() {
            scene.dealer.withholds(bytes);
        }
        if answered {
            order = match order {
                Order::Leave => Order::Return,
                _ => Order::Leave,
            };
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, order);
        }
        let is_answer = |said: &Request| {
            matches!(
                said,
                Request::Away { .. } | Request::Back { .. } | Request::NoRoom { .. }
            )
        };
        answered = scene.dealer.said().iter().any(is_answer);
        is_so(scene.guest.id())
    });
}

/// The letter of a process's state.
fn state(id: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let behind_name = text.rsplit(") ").next()?;
    Some(behind_name.split(' ').next()?.to_owned())
}

fn is_dead(id: u32) -> bool {
    state(id).is_none_or(|letter| letter == "Z")
}

fn is_stopped(id: u32) -> bool {
    state(id).is_some_and(|letter| letter == "T")
}

fn goes_on(id: u32) {
    let id = Pid::from_raw(i32::try_from(id).expect("a process"));
    kill(id, Signal::SIGCONT).expect("it lives");
}
