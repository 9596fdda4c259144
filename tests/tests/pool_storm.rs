//! Many threads and processes allocate from pools, or run graphs that allocate, at their limit. By
//! softgpu's counters they never exceed it by a byte; no memory is lost, and nothing hangs.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients};

/// Runs `processes` of one tenant, each with these arguments for `poolstorm`.
#[track_caller]
fn storm(processes: usize, seed: u64, arguments: &[&str]) {
    storm_of("poolstorm", 512 * MIB, processes, seed, arguments);
}

/// Runs `processes` of one tenant with `limit` bytes, each the client `program` with these
/// arguments.
#[track_caller]
fn storm_of(program: &str, limit: u64, processes: usize, seed: u64, arguments: &[&str]) {
    let gpu = Gpu::new(&format!("seed={seed}"));
    let mut guests: Vec<Guest> = (0..processes)
        .map(|_| {
            let mut run = command(
                &gpu,
                &["--mem-limit", &limit.to_string(), "--name", gpu.name()],
            );
            run.arg(clients::compile(program, &[])).args(arguments);
            Guest::start(run)
        })
        .collect();
    let mut got_in_all = 0;
    for guest in &mut guests {
        let line = guest.line();
        let [got, _, other] = numbers(&line)[..] else {
            panic!("{line}")
        };
        assert!(other == 0, "{line}");
        got_in_all += got;
    }
    assert!(got_in_all > 0);
    // All memory is freed while no thread allocates; the last thread sees all of it.
    let mut last = String::new();
    for guest in &mut guests {
        last = guest.ask("");
    }
    assert_eq!(numbers(&last), [limit, limit], "{last}");
    let peak = gpu.truth().requested_peak;
    assert!(
        peak <= limit,
        "{processes} of {arguments:?}, seed {seed}: {} MiB at the peak",
        peak / MIB
    );
    for guest in guests {
        guest.finish().silently();
    }
}

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn threads_that_race_for_a_pool_never_exceed_the_limit() {
    for (threads, seed) in [("2", 1), ("8", 2), ("16", 3)] {
        storm(1, seed, &[threads, "60"]);
    }
}

#[test]
fn threads_that_share_streams_never_exceed_the_limit() {
    storm(1, 4, &["16", "60", "0", "shared"]);
}

#[test]
fn threads_with_default_streams_of_their_own_never_exceed_the_limit() {
    storm(1, 8, &["16", "60", "0", "own"]);
}

#[test]
fn threads_that_race_for_several_pools_never_exceed_the_limit() {
    for (threads, pools, seed) in [("8", "1", 5), ("16", "5", 6)] {
        storm(1, seed, &[threads, "60", pools]);
    }
}

#[test]
fn processes_with_many_threads_never_exceed_the_limit() {
    storm(4, 7, &["8", "30", "2"]);
}

#[test]
fn graphs_that_allocate_in_many_threads_never_exceed_the_limit() {
    for (processes, threads, seed) in [(1, "2", 9), (1, "8", 10), (3, "8", 11)] {
        storm_of("graphstorm", 128 * MIB, processes, seed, &[threads, "60"]);
    }
}

/// A wait of one thread that ends while another one frees: the driver gave memory back before that
/// free, so the next wait is followed too.
#[test]
fn what_is_freed_while_another_thread_waits_is_free_after_the_next_wait() {
    let gpu = Gpu::new("");
    for how in [["500"].as_slice(), &["300", "ordered"]] {
        let mut run = command(&gpu, &["--mem-limit", "512MiB", "--name", gpu.name()]);
        run.arg(clients::compile("crossed", &[])).args(how);
        assert_eq!(Guest::start(run).finish().silently(), "kept 0\n", "{how:?}");
    }
}
