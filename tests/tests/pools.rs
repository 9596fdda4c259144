//! Stream-ordered memory: a pool is charged with the driver's reservation for it, and the limit
//! holds for pools too.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients};

const OUT_OF_MEMORY: &str = "2";

fn started(gpu: &Gpu, limit: &str) -> Guest {
    Guest::client(gpu, &["--mem-limit", limit], "ordered").started()
}

/// The free memory that `gpushare` reports to the program.
fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[3], "0", "{answer}");
    words[1].parse().expect("a number")
}

#[test]
fn a_pool_is_charged_with_what_is_reserved_and_stops_at_the_limit() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    for number in 0..8 {
        guest.does(&format!("alloc {} {}", 32 * MIB, number % 4));
        assert_eq!(free(&mut guest), (256 - 32 * (number + 1)) * MIB);
    }
    guest.answers("alloc 1 0", OUT_OF_MEMORY);
    guest.answers("linear 1", OUT_OF_MEMORY);
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn freed_pool_memory_is_credited_once_the_driver_has_let_go_of_it() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("keep");
    for _ in 0..4 {
        guest.does(&format!("alloc {} 1", 64 * MIB));
    }
    for number in 0..4 {
        guest.does(&format!("free {number} 1"));
    }
    guest.does("sync 1");
    assert_eq!(
        free(&mut guest),
        0,
        "the pool keeps the memory, so it stays charged"
    );
    guest.does("trim -1");
    assert_eq!(free(&mut guest), 256 * MIB);
    guest.finish().silently();
}

#[test]
fn without_a_threshold_a_synchronisation_gives_the_memory_back() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    for sync in ["sync 2", "sync-all"] {
        guest.does(&format!("alloc {} 2", 200 * MIB));
        let number = if sync == "sync 2" { 0 } else { 1 };
        guest.does(&format!("free {number} 2"));
        guest.does(sync);
        assert_eq!(free(&mut guest), 256 * MIB, "{sync}");
    }
    guest.finish().silently();
}

#[test]
fn a_stream_may_reuse_its_freed_memory_at_once() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("keep");
    for number in 0..50 {
        guest.does(&format!("alloc {} 1", 200 * MIB));
        guest.does(&format!("free {number} 1"));
    }
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn at_the_limit_a_stream_reuses_memory_once_its_free_completes() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("keep");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    guest.does("spin 50000000 1");
    guest.does("free 0 1");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn memory_kept_by_a_pool_is_given_up_before_anything_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("keep");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    guest.does("free 0 1");
    guest.does("sync 1");
    guest.does(&format!("linear {}", 200 * MIB));
    guest.does("now 1");
    guest.does("pool");
    guest.does(&format!("from 0 {} 2", 200 * MIB));
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn frees_under_way_in_another_stream_are_waited_for() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    guest.does("spin 50000000 1");
    guest.does("free 0 1");
    guest.does(&format!("alloc {} 2", 200 * MIB));
    guest.does("spin 50000000 2");
    guest.does("free 1 2");
    guest.does(&format!("linear {}", 200 * MIB));
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

/// The driver releases memory only of frees that a wait of the host has followed. The library does
/// what the driver does when it is short: it waits for an event that is passed.
#[test]
fn freed_memory_that_the_host_has_not_waited_for_makes_room_at_the_limit() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("keep");
    guest.does(&format!("alloc {} 1", 128 * MIB));
    guest.does("free 0 1");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.answers(&format!("alloc {} 1", 64 * MIB), OUT_OF_MEMORY);
    guest.finish().silently();
}

#[test]
fn linear_memory_freed_in_a_stream_is_charged_until_it_is_reached() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does(&format!("linear {}", 200 * MIB));
    guest.does("spin 50000000 1");
    guest.does("free 0 1");
    guest.does(&format!("linear {}", 200 * MIB));
    guest.does("sync-all");
    assert_eq!(free(&mut guest), 56 * MIB);
    guest.finish().silently();
}

#[test]
fn a_destroyed_pool_is_paid_for_until_its_last_allocation_is_freed() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    guest.does("pool");
    guest.does(&format!("from 0 {} 1", 64 * MIB));
    guest.does(&format!("from 0 {} 1", 64 * MIB));
    guest.does("close 0");
    assert_eq!(free(&mut guest), 128 * MIB);
    guest.does("free 0 1");
    guest.does("free 1 1");
    guest.does("sync 1");
    assert_eq!(free(&mut guest), 256 * MIB);
    guest.finish().silently();
}

/// The driver releases the pool when the last free has executed, not when the free is submitted.
#[test]
fn a_destroyed_pool_is_paid_for_until_its_frees_are_over() {
    for freed_first in [true, false] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu, "256MiB");
        guest.does("pool");
        guest.does(&format!("from 0 {} 1", 96 * MIB));
        guest.does(&format!("from 0 {} 2", 96 * MIB));
        guest.does("spin 50000000 1");
        guest.does("spin 70000000 2");
        let steps = if freed_first {
            ["free 0 1", "free 1 2", "close 0"]
        } else {
            ["close 0", "free 0 1", "free 1 2"]
        };
        for step in steps {
            guest.does(step);
        }
        assert_eq!(free(&mut guest), 64 * MIB, "the frees are under way");
        // This waits for the frees.
        guest.does(&format!("linear {}", 128 * MIB));
        let truth = gpu.truth();
        assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
        guest.does("sync-all");
        assert_eq!(free(&mut guest), 128 * MIB);
        guest.finish().silently();
    }
}

/// A program that never waits for its stream: memory freed long ago is credited though the stream
/// is never idle.
#[test]
fn frees_of_a_stream_that_is_never_idle_are_credited() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    for number in 0..20 {
        guest.does(&format!("linear {}", 64 * MIB));
        guest.does("spin 3000000 1");
        guest.does(&format!("free {number} 1"));
        guest.does("spin 3000000 1");
    }
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn a_reset_of_the_context_credits_what_was_in_it() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, "256MiB");
    for _ in 0..3 {
        guest.does(&format!("linear {}", 64 * MIB));
        guest.does(&format!("linear {}", 128 * MIB));
        guest.answers(&format!("linear {}", 128 * MIB), OUT_OF_MEMORY);
        guest.does("reset");
        assert_eq!(free(&mut guest), 256 * MIB);
        assert_eq!(gpu.truth().requested_now, 0);
    }
    guest.finish().silently();
}

/// If the driver does not answer a query, the memory is still charged: a quota never fails open.
#[test]
fn an_allocation_is_charged_though_the_driver_cannot_say_where_from() {
    for failing in [
        "cuStreamIsCapturing:*:CUDA_ERROR_NOT_SUPPORTED",
        "cuDeviceGetMemPool:*:CUDA_ERROR_UNKNOWN",
        "cuMemPoolGetAttribute:*:CUDA_ERROR_UNKNOWN",
        "cuStreamGetCtx:*:CUDA_ERROR_UNKNOWN",
        "cuCtxGetCurrent:*:CUDA_ERROR_UNKNOWN",
        "cuEventRecord:*:CUDA_ERROR_UNKNOWN",
    ] {
        let gpu = Gpu::new("");
        let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
        run.env("SOFTGPU_FAIL", failing)
            .arg(clients::compile("ordered", &[]));
        let mut guest = Guest::start(run).started();
        for _ in 0..3 {
            guest.does(&format!("alloc {} 1", 64 * MIB));
        }
        guest.answers(&format!("alloc {} 2", 128 * MIB), OUT_OF_MEMORY);
        for number in 0..3 {
            guest.does(&format!("free {number} 1"));
        }
        guest.does("sync-all");
        let truth = gpu.truth();
        assert!(truth.requested_peak <= 256 * MIB, "{failing}: {truth:?}");
        guest.finish().silently();
    }
}

/// Frees in so many streams, none of which comes to an end meanwhile, and the driver's answers
/// about events.
fn asked_about_events(streams: u64, frees: u64) -> usize {
    let gpu = Gpu::new("");
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
    run.env("SOFTGPU_TRACE", trace.path())
        .arg(clients::compile("ordered", &[]));
    let mut guest = Guest::start(run).started();
    guest.does(&format!("behind {streams} {frees}"));
    let lines = std::fs::read_to_string(trace.path()).expect("a trace");
    guest.does("value 1");
    guest.does("sync-all");
    guest.finish().silently();
    lines.matches(" cuEventQuery ").count()
}

#[test]
fn a_free_beside_many_streams_asks_the_driver_about_few_of_them() {
    assert_eq!(asked_about_events(40, 3), 0);
    // Twice: when 64 streams have some, and when 128 have. A look asks about each of them once, and
    // a second time about one that has got a second event since.
    let asked = asked_about_events(200, 3);
    assert!((64..=2 * (64 + 128)).contains(&asked), "{asked}");
}
