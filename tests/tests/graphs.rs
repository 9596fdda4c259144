//! Memory that graphs allocate is charged when they run, by what the driver reserves for it.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients};
use softgpu::inspect::{self, DeviceTruth};

const OUT_OF_MEMORY: &str = "2";

#[track_caller]
fn answers(guest: &mut Guest, line: &str, result: &str) {
    let word = line.split(' ').next().expect("a command");
    assert_eq!(guest.ask(line), format!("{word} {result}"), "{line}");
}

fn started(gpu: &Gpu) -> Guest {
    let mut guest = Guest::client(gpu, &["--mem-limit", "256MiB"], "ordered");
    answers(&mut guest, "init", "0");
    guest
}

fn truth(gpu: &Gpu) -> DeviceTruth {
    let snapshot = inspect::snapshot(gpu.name())
        .expect("readable")
        .expect("a guest holds it");
    snapshot.devices.into_iter().next().expect("one device")
}

fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    answer
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

/// The ways in which a graph of one allocation of 192 MiB is made.
const MAKINGS: [&str; 2] = ["graph 201326592 1", "captured 201326592 1"];

#[test]
fn a_graph_is_charged_when_it_runs_and_not_before() {
    for making in MAKINGS {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        answers(&mut guest, making, "0");
        assert_eq!(free(&mut guest), 256 * MIB, "{making}");
        answers(&mut guest, "launch 0 1", "0");
        assert_eq!(free(&mut guest), 64 * MIB, "{making}");
        answers(&mut guest, "sync 1", "0");
        answers(&mut guest, "trim-graphs", "0");
        assert_eq!(free(&mut guest), 256 * MIB, "{making}");
        guest.finish().silently();
    }
}

#[test]
fn a_graph_that_does_not_fit_is_refused_and_takes_nothing() {
    for making in MAKINGS {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        answers(&mut guest, making, "0");
        answers(&mut guest, &format!("linear {}", 100 * MIB), "0");
        answers(&mut guest, "launch 0 1", OUT_OF_MEMORY);
        assert_eq!(free(&mut guest), 156 * MIB, "{making}");
        answers(&mut guest, "now 0", "0");
        answers(&mut guest, "launch 0 1", "0");
        let truth = truth(&gpu);
        assert!(truth.requested_peak <= 256 * MIB, "{making}: {truth:?}");
        guest.finish().silently();
    }
}

#[test]
fn a_graph_runs_again_and_again_on_what_it_once_was_given() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    answers(&mut guest, MAKINGS[0], "0");
    for _ in 0..20 {
        answers(&mut guest, "launch 0 1", "0");
    }
    answers(&mut guest, "sync 1", "0");
    let truth = truth(&gpu);
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn memory_kept_for_graphs_is_given_up_before_anything_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    answers(&mut guest, MAKINGS[0], "0");
    answers(&mut guest, "launch 0 1", "0");
    answers(&mut guest, "sync 1", "0");
    answers(&mut guest, &format!("linear {}", 200 * MIB), "0");
    answers(&mut guest, "now 0", "0");
    answers(&mut guest, "launch 0 1", "0");
    answers(&mut guest, "sync 1", "0");
    answers(&mut guest, "drop 0", "0");
    answers(&mut guest, &format!("linear {}", 256 * MIB), "0");
    let truth = truth(&gpu);
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn a_graph_without_allocations_runs_whatever_the_quota_has_left() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    answers(&mut guest, "graph 0 0", "0");
    answers(&mut guest, &format!("linear {}", 256 * MIB), "0");
    answers(&mut guest, "launch 0 1", "0");
    answers(&mut guest, "sync 1", "0");
    guest.finish().silently();
}

#[test]
fn a_graph_that_cannot_be_sized_is_not_made() {
    for failing in [
        "cuGraphGetNodes",
        "cuGraphNodeGetType",
        "cuGraphMemAllocNodeGetParams",
    ] {
        let gpu = Gpu::new("");
        let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
        run.env("SOFTGPU_FAIL", format!("{failing}:*:CUDA_ERROR_UNKNOWN"))
            .arg(clients::compile("ordered", &[]));
        let mut guest = Guest::start(run);
        answers(&mut guest, "init", "0");
        answers(&mut guest, MAKINGS[0], "999");
        guest.finish().silently();
    }
}
