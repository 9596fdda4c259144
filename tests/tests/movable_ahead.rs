//! A move of several parts keeps the link busy: while a part is copied, the calls for another are
//! made. An order that comes meanwhile, and a copy that fails meanwhile, lose no byte.

use std::fs;
use std::path::Path;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

/// A copy of a part takes 62 ms.
const SPEC: &str = "mem=512MiB,ctx=8MiB,link=288MiB/s";
/// Two of these are more than the 32 MiB that a part may have.
const PART: u64 = 18 * MIB;
/// Allocations of a part each.
const PARTS: usize = 4;

fn scene(fail: &str, trace: &str) -> Scene {
    scene_of(PARTS, fail, trace)
}

fn scene_of(parts: usize, fail: &str, trace: &str) -> Scene {
    let environment = [("SOFTGPU_FAIL", fail), ("SOFTGPU_TRACE", trace)];
    let mut scene = Scene::with(SPEC, "init", &environment);
    // No part lies in two ranges of host memory: each is one copy.
    scene.dealer.store().shortens(2 * PART);
    for slot in 0..parts {
        scene.does(&[
            &format!("alloc {slot} {PART}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.provided(PART * parts as u64);
    scene
}

#[track_caller]
fn has_every_byte(mut scene: Scene) {
    for slot in 0..PARTS {
        scene.guest.answers(&format!("check {slot} {slot}"), "0");
    }
    scene.guest.finish().silently();
}

/// The calls of these functions that the mover's thread makes in a move out and back, by letter.
fn calls(letters: &[(&str, char)]) -> String {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut scene = scene("", trace.path().to_str().expect("a name"));
    scene.leaves();
    scene.returns();
    let mover = scene.mover();
    has_every_byte(scene);
    told(trace.path(), &mover, letters)
}

/// Those calls in a trace; one that failed is upper case.
fn told(trace: &Path, mover: &str, letters: &[(&str, char)]) -> String {
    let text = fs::read_to_string(trace).expect("readable");
    let letter = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let known = letters.iter().find(|(name, _)| *name == words[2]);
        let letter = known.filter(|_| words[1] == mover)?.1;
        Some(if words[3] == "0" {
            letter
        } else {
            letter.to_ascii_uppercase()
        })
    };
    text.lines().filter_map(letter).collect()
}

/// The calls of a return of one part, and of those after it until one succeeds, where these fail.
fn returns(fail: &str, times: usize) -> String {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut scene = scene_of(1, fail, trace.path().to_str().expect("a name"));
    scene.leaves();
    for _ in 0..times {
        assert_eq!(scene.ordered(Order::Return), Outcome::NoRoom(0), "{fail}");
    }
    scene.returns();
    let mover = scene.mover();
    scene.guest.answers("check 0 0", "0");
    scene.guest.finish().silently();
    let letters = [
        ("cuMemcpyDtoHAsync_v2", '|'),
        ("cuMemUnmap", 'u'),
        ("cuMemMap", 'm'),
        ("cuMemSetAccess", 'a'),
        ("cuMemcpyHtoDAsync_v2", 'c'),
        ("cuStreamSynchronize", 'w'),
    ];
    let calls = told(trace.path(), &mover, &letters);
    let (_, back) = calls.rsplit_once('|').expect("it left");
    back[back.find('m').expect("it returned")..].to_owned()
}

#[test]
fn a_part_leaves_while_the_part_before_is_unmapped() {
    let calls = calls(&[
        ("cuMemcpyDtoHAsync_v2", 'c'),
        ("cuStreamSynchronize", 'w'),
        ("cuMemUnmap", 'u'),
        ("cuMemcpyHtoDAsync_v2", '|'),
    ]);
    let (out, _) = calls.split_once('|').expect("it returned");
    assert_eq!(out, "ccwucwucwuwu");
}

#[test]
fn a_part_is_mapped_while_the_part_before_comes_back() {
    let calls = calls(&[
        ("cuMemcpyDtoHAsync_v2", '|'),
        ("cuMemMap", 'm'),
        ("cuMemcpyHtoDAsync_v2", 'c'),
        ("cuStreamSynchronize", 'w'),
    ]);
    let (_, back) = calls.rsplit_once('|').expect("it left");
    let back = &back[back.find('m').expect("it returned")..];
    assert_eq!(back, "mcmcwmcwmcww");
}

#[test]
fn an_order_taken_back_while_two_parts_are_copied_loses_no_byte() {
    for (first, then) in [(Order::Leave, Order::Return), (Order::Return, Order::Leave)] {
        let mut scene = scene("", "");
        if first == Order::Return {
            scene.leaves();
        }
        let before = scene.on_device();
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, first);
        until("it has begun", || scene.on_device() != before);
        let _ = scene.ordered(then);
        scene.returns();
        has_every_byte(scene);
    }
}

#[test]
fn a_device_that_opens_leaves_the_copies_of_another_alone() {
    let mut scene = Scene::on_two("mem=512MiB,ctx=8MiB,link=288MiB/s,count=2");
    scene.does(&["second", "alloc 0 4194304", "fill 0 0"]);
    for slot in 1..PARTS {
        scene.does(&[
            &format!("there {slot} {PART}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.provided(PART * (PARTS as u64 - 1) + 4 * MIB);
    for (epoch, order) in [(1, Order::Leave), (2, Order::Return)] {
        for device_index in [0, 1] {
            scene.dealer.order_on(device_index, epoch, order);
        }
        let ended = || {
            scene.dealer.hears_some(|said| match said {
                Request::Away { device_index, .. } if order == Order::Leave => Some(*device_index),
                Request::Back { device_index, .. } => Some(*device_index),
                _ => None,
            })
        };
        assert_eq!([ended(), ended()], [0, 1], "the second has more to move");
    }
    has_every_byte(scene);
}

#[test]
fn a_copy_that_fails_while_another_is_under_way_loses_no_byte() {
    for function in ["cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"] {
        for nth in [1, 2, PARTS] {
            let fail = format!("{function}:{nth}:CUDA_ERROR_UNKNOWN");
            let mut scene = scene(&fail, "");
            let _ = scene.ordered(Order::Leave);
            if scene.ordered(Order::Return) != Outcome::Back {
                scene.returns();
            }
            has_every_byte(scene);
        }
    }
}

#[test]
fn a_wait_that_never_succeeds_while_two_parts_are_copied_loses_no_byte() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let filled = scene("", trace.path().to_str().expect("a name"));
    let text = fs::read_to_string(trace.path()).expect("readable");
    let own = text.matches(" cuStreamSynchronize ").count();
    drop(filled);
    // The two parts of a step have a stream each, and each wait is asked for eight times.
    let always: Vec<String> = (own + 1..=own + 16)
        .map(|nth| format!("cuStreamSynchronize:{nth}:CUDA_ERROR_UNKNOWN"))
        .collect();
    let mut scene = scene(&always.join(","), "");
    assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(0));
    assert_eq!(scene.ordered(Order::Return), Outcome::Back);
    has_every_byte(scene);
}

/// How often the program and the way out of one part wait for a stream.
fn waits_before() -> usize {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut scene = scene_of(1, "", trace.path().to_str().expect("a name"));
    scene.leaves();
    let text = fs::read_to_string(trace.path()).expect("readable");
    text.matches(" cuStreamSynchronize ").count()
}

/// Each wait is asked for eight times. The first copy may land at any time until then.
#[test]
fn a_return_waits_for_the_copies_of_the_one_before() {
    let before = waits_before();
    for times in [1, 2] {
        let refused: Vec<String> = (before + 1..=before + 8 * times)
            .map(|nth| format!("cuStreamSynchronize:{nth}:CUDA_ERROR_UNKNOWN"))
            .collect();
        let refusals = "W".repeat(8 * times);
        let calls = returns(&refused.join(","), times);
        assert_eq!(calls, format!("mac{refusals}wacw"));
    }
}

#[test]
fn a_return_waits_for_no_copy_where_none_was_begun() {
    // The first one was for the allocation.
    let calls = returns("cuMemSetAccess:2:CUDA_ERROR_UNKNOWN", 1);
    assert_eq!(calls, "mAumacw");
}

/// What is stored is given up on the host, where such a copy reads.
#[test]
fn memory_is_stored_once_the_copies_of_a_failed_return_are_over() {
    let before = waits_before();
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let refused: Vec<String> = (before + 1..=before + 16)
        .map(|nth| format!("cuStreamSynchronize:{nth}:CUDA_ERROR_UNKNOWN"))
        .collect();
    let name = trace.path().to_str().expect("a name");
    let mut scene = scene_of(1, &refused.join(","), name);
    scene.leaves();
    assert_eq!(scene.ordered(Order::Return), Outcome::NoRoom(0));
    scene.dealer.spills(1);
    let is_question = |said: &Request| matches!(said, Request::HostStore { .. }).then_some(());
    scene.dealer.hears_some(is_question);
    let mover = scene.mover();
    let calls = told(trace.path(), &mover, &[("cuStreamSynchronize", 'w')]);
    assert!(calls.ends_with(&format!("{}w", "W".repeat(16))), "{calls}");
    scene.dealer.spills(0);
    scene.dealer.store().answers();
    scene.returns();
    scene.guest.answers("check 0 0", "0");
    scene.guest.finish().silently();
}

/// The opposite: there is nothing to wait for.
#[test]
fn memory_is_stored_at_once_where_no_return_has_failed() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut scene = scene_of(1, "", trace.path().to_str().expect("a name"));
    scene.leaves();
    let mover = scene.mover();
    let waits = |mover: &str| told(trace.path(), mover, &[("cuStreamSynchronize", 'w')]);
    let before = waits(&mover);
    scene.dealer.spills(1);
    let is_question = |said: &Request| matches!(said, Request::HostStore { .. }).then_some(());
    scene.dealer.hears_some(is_question);
    assert_eq!(waits(&mover), before);
    scene.dealer.spills(0);
    scene.dealer.store().answers();
    scene.returns();
    scene.guest.answers("check 0 0", "0");
    scene.guest.finish().silently();
}
