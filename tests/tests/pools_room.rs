//! A pool that has room serves an allocation at the tenant's limit, as a bare driver does. Room is
//! only what is certain: the limit holds by softgpu's own counters, also while memory is kept.

use gpushare_tests::{Gpu, Guest, MIB};

const OUT_OF_MEMORY: &str = "2";

/// A client whose pool keeps what is freed, under this limit.
fn keeping(gpu: &Gpu, limit: &str) -> Guest {
    let mut guest = Guest::client(gpu, &["--mem-limit", limit], "ordered").started();
    guest.does("keep");
    guest
}

/// The tenant never had more than this, and ends in order.
#[track_caller]
fn ends_within(gpu: &Gpu, guest: Guest, limit: u64) {
    let truth = gpu.truth();
    assert!(truth.requested_peak <= limit, "{truth:?}");
    guest.finish().silently();
}

/// 200 of 256 MiB are allocated and freed in stream 1, which reaches the free only with
/// [`let_go`].
fn freed_behind_work(gpu: &Gpu) -> Guest {
    let mut guest = keeping(gpu, "256MiB");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    guest
}

fn let_go(guest: &mut Guest) {
    for command in ["value 1", "value 2", "sync-all"] {
        guest.does(command);
    }
}

#[test]
fn a_stream_gets_what_it_freed_before_it_reaches_the_free() {
    let gpu = Gpu::new("");
    let mut guest = freed_behind_work(&gpu);
    for number in 1..5 {
        guest.does(&format!("alloc {} 1", 200 * MIB));
        guest.does(&format!("free {number} 1"));
    }
    assert_eq!(guest.ask("reserved"), format!("reserved {}", 224 * MIB));
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

#[test]
fn the_rest_of_what_a_stream_freed_is_room_too_and_no_more() {
    let gpu = Gpu::new("");
    let mut guest = freed_behind_work(&gpu);
    guest.does(&format!("alloc {} 1", 150 * MIB));
    guest.does(&format!("alloc {} 1", 50 * MIB));
    guest.answers(&format!("alloc {} 1", 40 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

#[test]
fn an_allocation_larger_than_what_was_freed_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = freed_behind_work(&gpu);
    guest.answers(&format!("alloc {} 1", 201 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

#[test]
fn what_another_stream_has_yet_to_free_is_no_room() {
    let gpu = Gpu::new("");
    let mut guest = freed_behind_work(&gpu);
    guest.answers(&format!("alloc {} 2", 200 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

/// Without a threshold a synchronisation may have given the memory back, unseen.
#[test]
fn what_a_pool_does_not_keep_is_no_room() {
    let gpu = Gpu::new("");
    let mut guest = Guest::client(&gpu, &["--mem-limit", "256MiB"], "ordered").started();
    guest.does(&format!("alloc {} 1", 200 * MIB));
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    guest.answers(&format!("alloc {} 1", 200 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

/// Two pieces of 32 MiB, half of each free, and the rest of the limit taken.
fn with_halves_free(gpu: &Gpu) -> Guest {
    let mut guest = keeping(gpu, "96MiB");
    for _ in 0..4 {
        guest.does(&format!("alloc {} 1", 16 * MIB));
    }
    guest.does("free 0 1");
    guest.does("free 2 1");
    guest.does("sync 1");
    guest.does(&format!("linear {}", 32 * MIB));
    guest
}

#[test]
fn room_in_used_pieces_serves_every_stream_at_the_limit() {
    let gpu = Gpu::new("");
    let mut guest = with_halves_free(&gpu);
    for stream in [2, 1] {
        guest.does(&format!("alloc {} {stream}", 16 * MIB));
    }
    guest.answers(&format!("alloc {MIB} 1"), OUT_OF_MEMORY);
    ends_within(&gpu, guest, 96 * MIB);
}

#[test]
fn room_in_two_pieces_does_not_serve_one_allocation() {
    let gpu = Gpu::new("");
    let mut guest = with_halves_free(&gpu);
    guest.answers(&format!("alloc {} 1", 24 * MIB), OUT_OF_MEMORY);
    ends_within(&gpu, guest, 96 * MIB);
}

#[test]
fn what_a_trim_has_given_back_is_no_room() {
    let gpu = Gpu::new("");
    let mut guest = keeping(&gpu, "64MiB");
    for _ in 0..2 {
        guest.does(&format!("alloc {} 1", 32 * MIB));
    }
    guest.does("free 0 1");
    guest.does("sync 1");
    guest.does("trim -1");
    guest.does(&format!("linear {}", 32 * MIB));
    guest.answers(&format!("alloc {} 1", 32 * MIB), OUT_OF_MEMORY);
    ends_within(&gpu, guest, 64 * MIB);
}

/// An allocation of another kind makes the pool give its unused memory back.
#[test]
fn what_was_given_back_for_other_memory_is_no_room() {
    let gpu = Gpu::new("");
    let mut guest = keeping(&gpu, "64MiB");
    guest.does(&format!("alloc {} 1", 64 * MIB));
    guest.does("free 0 1");
    guest.does("sync 1");
    guest.does(&format!("linear {}", 40 * MIB));
    guest.answers(&format!("alloc {} 1", 32 * MIB), OUT_OF_MEMORY);
    guest.does("now 1");
    guest.does(&format!("alloc {} 1", 32 * MIB));
    ends_within(&gpu, guest, 64 * MIB);
}

/// As the frameworks' own pools: the threshold is a part of the limit.
fn keeping_some(gpu: &Gpu, bytes: u64) -> Guest {
    let mut guest = Guest::client(gpu, &["--mem-limit", "256MiB"], "ordered").started();
    guest.does(&format!("keep-some {bytes}"));
    guest
}

#[test]
fn room_below_a_threshold_that_was_never_exceeded_is_certain() {
    let gpu = Gpu::new("");
    let mut guest = keeping_some(&gpu, 192 * MIB);
    guest.does(&format!("alloc {} 1", 192 * MIB));
    guest.does("free 0 1");
    guest.does("sync 1");
    guest.does("crowd 1 1");
    for number in 1..4 {
        guest.does(&format!("alloc {} 1", 128 * MIB));
        guest.does(&format!("free {number} 1"));
    }
    assert_eq!(guest.ask("reserved"), format!("reserved {}", 192 * MIB));
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

/// As a framework that fills its pool, frees that, and allocates what stays before it works.
#[test]
fn small_allocations_leave_the_room_of_a_filled_pool_certain() {
    let gpu = Gpu::new("");
    let mut guest = keeping_some(&gpu, 192 * MIB);
    guest.does(&format!("alloc {} 1", 192 * MIB));
    guest.does("free 0 1");
    guest.does("sync 1");
    for bytes in [1024, 3 * MIB, 16 * MIB] {
        guest.does(&format!("alloc {bytes} 1"));
    }
    // Its memory and what is left beside it are two known ranges.
    guest.does("free 2 1");
    guest.does("sync 1");
    guest.does(&format!("alloc {} 1", 16 * MIB));
    guest.does("crowd 1 1");
    for number in 5..8 {
        guest.does(&format!("alloc {} 1", 128 * MIB));
        guest.does(&format!("free {number} 1"));
    }
    assert_eq!(guest.ask("reserved"), format!("reserved {}", 192 * MIB));
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

/// A synchronisation may give back what is above the threshold, and which memory is not known.
#[test]
fn room_of_a_pool_that_exceeded_its_threshold_is_not_certain() {
    let gpu = Gpu::new("");
    let mut guest = keeping_some(&gpu, 160 * MIB);
    guest.does(&format!("alloc {} 1", 192 * MIB));
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    guest.answers(&format!("alloc {} 1", 128 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

#[test]
fn room_freed_before_a_pool_exceeded_its_threshold_is_not_certain() {
    let gpu = Gpu::new("");
    let mut guest = keeping_some(&gpu, 128 * MIB);
    guest.does(&format!("alloc {} 1", 96 * MIB));
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    // In another stream, so that the pool grows and has more than it keeps.
    guest.does(&format!("alloc {} 2", 96 * MIB));
    guest.answers(&format!("alloc {} 1", 96 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}

#[test]
fn a_small_allocation_that_makes_a_pool_exceed_its_threshold_is_minded() {
    let gpu = Gpu::new("");
    let mut guest = keeping_some(&gpu, 192 * MIB);
    guest.does(&format!("alloc {} 1", 192 * MIB));
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    // The stream has yet to free the rest, so that the pool grows for another one.
    guest.does("alloc 1024 2");
    assert_eq!(guest.ask("reserved"), format!("reserved {}", 224 * MIB));
    guest.answers(&format!("alloc {} 1", 128 * MIB), OUT_OF_MEMORY);
    let_go(&mut guest);
    ends_within(&gpu, guest, 256 * MIB);
}
