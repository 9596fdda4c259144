//! Objects that keep an address of memory that can move: graphs' nodes and textures. And the work
//! for which a free of such memory waits.

use std::collections::BTreeSet;
use std::fs;

use gpushare_cuda_abi::symbols::CUDA;
use gpushare_protocol::wire::Request;
use gpushare_tests::MIB;
use gpushare_tests::movable::Scene;

const SPEC: &str = "mem=1GiB,ctx=8MiB";

/// The driver looks memory up when it is told of it, and would find none.
#[test]
fn what_is_made_over_memory_that_is_away_waits_for_it() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["alloc 0 2097152", "alloc 1 2097152", "alloc 2 2097152"]);
    scene.does(&["fill 2 3", "hand 0 1 1", "launch"]);
    scene.provided(6 * MIB);
    for line in ["texture 0", "hand 0 1 7", "redirect 2", "image"] {
        scene.leaves();
        scene.waits_for_return(line);
    }
    scene.does(&["launch"]);
    scene.guest.answers("values 0 7", "0");
    scene.guest.answers("values 2 7", "0");
    scene.leaves();
    scene.returns();
    scene.does(&["set 0 9", "launch"]);
    scene.guest.answers("values 2 7", "0");
    scene.guest.finish().silently();
}

/// Of each size: a part of a slab, and chunks of its own. Twice each, because what is complete is
/// remembered.
#[test]
fn a_free_waits_for_all_work_that_was_submitted() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["pairs 2"]);
    for bytes in [1000, 2 * MIB] {
        for kind in [0, 1, 2, 3, 0, 1, 2, 3] {
            scene.does(&[&format!("alloc 0 {bytes}")]);
            let line = format!("outlasts 0 {kind}");
            assert_eq!(
                scene.guest.ask(&line),
                "outlasts 0",
                "{bytes} bytes, {kind}"
            );
        }
    }
    scene.guest.finish().silently();
}

#[test]
fn small_allocations_on_an_idle_device_are_served_without_the_driver() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("text");
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_TRACE", path)]);
    // The first makes a slab, and finds out that nothing runs.
    scene.does(&["pairs 2"]);
    fs::write(path, "").expect("writable");
    scene.does(&["pairs 1000"]);
    let text = fs::read_to_string(path).expect("readable");
    let mine = format!("{} ", scene.guest.id());
    let calls = text.lines().filter(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        // Of the program's own thread, whose number is the process's.
        line.starts_with(&mine) && words[1] == words[0] && words[2] != "cuCtxGetCurrent"
    });
    let calls: Vec<&str> = calls.collect();
    assert_eq!(calls.len(), 0, "{:?}", &calls[..calls.len().min(8)]);
    assert!(text.contains("cuCtxGetCurrent"), "the trace is read");
    scene.guest.finish().silently();
}

/// A free asks for the state of the context and for the end of all work before it waits for the
/// memory: of chunks of its own, and of a part of a slab. That of a pool's waits for nothing.
#[test]
fn what_a_free_asks_while_memory_is_away_touches_none() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("text");
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_TRACE", path)]);
    scene.does(&["alloc 0 2097152", "alloc 1 1000", "async 2 5000000 1"]);
    scene.does(&["sync 1", "fill 0 1", "fill 1 2", "fill 2 3"]);
    scene.provided(scene.charged());
    let mover = scene.mover();
    for (line, waits) in [("free 0", true), ("free 1", true), ("free 2", false)] {
        scene.leaves();
        fs::write(path, "").expect("writable");
        scene.guest.send(line);
        if waits {
            scene.dealer.hears(&Request::WantIn { device_index: 0 });
        } else {
            assert_eq!(scene.guest.line(), "free 0");
        }
        let text = fs::read_to_string(path).expect("readable");
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let asked: BTreeSet<&str> = lines
            .filter(|words| words[1] != mover)
            .map(|words| words[2])
            .collect();
        println!("{line}: {asked:?}");
        let asks_for_work = asked.iter().any(|name| name.starts_with("cuEvent"));
        assert_eq!(asks_for_work, waits, "{line}: {asked:?}");
        let touches = |name: &&str| {
            let row = CUDA.iter().find(|row| row.name == *name);
            row.expect("a function of the driver").gate.touches()
        };
        assert!(!asked.iter().any(touches), "{line}: {asked:?}");
        scene.returns();
        if waits {
            assert_eq!(scene.guest.line(), "free 0");
        }
    }
    scene.guest.finish().silently();
}
