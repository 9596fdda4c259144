//! Order: the guarantees of streams, events and default streams, and the absence of further
//! guarantees.

use std::collections::BTreeSet;

use crate::driver::*;
use gpushare_cuda_abi::cuda::{
    CU_STREAM_PER_THREAD, CUcontext, CUresult, CUstream, CUstreamWaitValue_flags,
};

const MS: u64 = 1_000_000;

#[test]
fn work_in_one_stream_happens_in_order_whatever_the_seed() {
    for seed in 1..=6 {
        alone(
            "work_in_one_stream_happens_in_order_whatever_the_seed",
            &format!("seed={seed}"),
            || {
                start();
                let (at, stream) = (memory(4096), free_stream());
                for value in 1..=40 {
                    assert_eq!(fill(stream, at, 1024, value), OK);
                }
                assert_eq!(cuStreamSynchronize(stream), OK);
                assert_eq!(read(at, 1024), vec![40; 1024]);
            },
        );
    }
}

/// Two streams write to one place; returns the value that remains.
fn race(name: &str, seed: u64, ordered: bool) -> String {
    alone(name, &format!("seed={seed}"), || {
        start();
        let (at, one, two, passed) = (memory(4096), free_stream(), free_stream(), event());
        // Both start together, however long submission takes.
        let gates = [Gate::close(one), Gate::close(two)];
        assert_eq!(fill(one, at, 1, 1), OK);
        if ordered {
            assert_eq!(cuEventRecord(passed, one), OK);
            assert_eq!(cuStreamWaitEvent(two, passed, 0), OK);
        }
        assert_eq!(fill(two, at, 1, 2), OK);
        gates.into_iter().for_each(Gate::open);
        assert_eq!(cuCtxSynchronize(), OK);
        tell(read(at, 1)[0]);
    })
}

#[test]
fn unordered_streams_take_effect_in_either_order() {
    let seen: BTreeSet<String> = (1..=16)
        .map(|seed| race("unordered_streams_take_effect_in_either_order", seed, false))
        .collect();
    assert_eq!(seen, BTreeSet::from(["1".to_owned(), "2".to_owned()]));
}

#[test]
fn a_memset_of_device_memory_returns_before_it_is_complete() {
    let name = "a_memset_of_device_memory_returns_before_it_is_complete";
    let seen: BTreeSet<String> = (1..=16)
        .map(|seed| {
            alone(name, &format!("seed={seed}"), || {
                start();
                let (at, free) = (memory(4096), free_stream());
                let gates = [Gate::close(CUstream::NULL), Gate::close(free)];
                assert_eq!(cuMemsetD32_v2(at, 1, 1), OK);
                assert_eq!(fill(free, at, 1, 2), OK);
                gates.into_iter().for_each(Gate::open);
                assert_eq!(cuCtxSynchronize(), OK);
                tell(read(at, 1)[0]);
            })
        })
        .collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn an_event_orders_streams_for_every_seed() {
    let seen: BTreeSet<String> = (1..=16)
        .map(|seed| race("an_event_orders_streams_for_every_seed", seed, true))
        .collect();
    assert_eq!(seen, BTreeSet::from(["2".to_owned()]));
}

#[test]
fn waiting_for_one_stream_does_not_apply_another_streams_work() {
    alone(
        "waiting_for_one_stream_does_not_apply_another_streams_work",
        "",
        || {
            start();
            let (word, one, two) = (pinned(1), free_stream(), free_stream());
            let gate = Gate::close(two);
            assert_eq!(fill(two, word.addr() as u64, 1, 7), OK);
            spin(one, MS);
            assert_eq!(cuStreamSynchronize(one), OK);
            assert_eq!(look(word), 0);
            assert_eq!(cuStreamQuery(two), CUresult::NOT_READY);
            gate.open();
            assert_eq!(cuStreamSynchronize(two), OK);
            assert_eq!(look(word), 7);
        },
    );
}

#[test]
fn a_program_that_only_polls_memory_makes_progress() {
    alone(
        "a_program_that_only_polls_memory_makes_progress",
        "",
        || {
            start();
            let (word, stream) = (pinned(1), free_stream());
            spin(stream, MS);
            assert_eq!(fill(stream, word.addr() as u64, 1, 7), OK);
            while look(word) != 7 {
                std::thread::yield_now();
            }
        },
    );
}

#[test]
fn a_program_that_polls_a_query_makes_progress_and_sees_the_work() {
    alone(
        "a_program_that_polls_a_query_makes_progress_and_sees_the_work",
        "",
        || {
            start();
            let (word, stream, mark) = (pinned(1), free_stream(), event());
            let gate = Gate::close(stream);
            assert_eq!(fill(stream, word.addr() as u64, 1, 7), OK);
            assert_eq!(cuEventRecord(mark, stream), OK);
            assert_eq!(cuEventQuery(mark), CUresult::NOT_READY);
            gate.open();
            while cuEventQuery(mark) == CUresult::NOT_READY {}
            assert_eq!(look(word), 7);
        },
    );
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    for seed in 1..=6 {
        let name = "the_legacy_stream_and_blocking_streams_wait_for_each_other";
        alone(name, &format!("seed={seed}"), || {
            start();
            let (at, one, two) = (memory(4096), stream(0), stream(0));
            assert_eq!(fill(one, at, 1, 1), OK);
            assert_eq!(fill(CUstream::NULL, at, 1, 2), OK);
            assert_eq!(fill(two, at, 1, 3), OK);
            assert_eq!(fill(CU_STREAM_PER_THREAD, at + 4, 1, 4), OK);
            assert_eq!(fill(CUstream::NULL, at + 4, 1, 5), OK);
            assert_eq!(cuCtxSynchronize(), OK);
            assert_eq!(read(at, 2), [3, 5]);
        });
    }
}

#[test]
fn the_legacy_stream_and_non_blocking_streams_do_not_synchronise() {
    let name = "the_legacy_stream_and_non_blocking_streams_do_not_synchronise";
    let seen: BTreeSet<String> = (1..=16)
        .map(|seed| {
            alone(name, &format!("seed={seed}"), || {
                start();
                let (at, free) = (memory(4096), free_stream());
                let gates = [Gate::close(CUstream::NULL), Gate::close(free)];
                assert_eq!(fill(CUstream::NULL, at, 1, 1), OK);
                assert_eq!(fill(free, at, 1, 2), OK);
                gates.into_iter().for_each(Gate::open);
                assert_eq!(cuCtxSynchronize(), OK);
                tell(read(at, 1)[0]);
            })
        })
        .collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn the_legacy_default_stream_waits_for_a_destroyed_streams_work() {
    alone(
        "the_legacy_default_stream_waits_for_a_destroyed_streams_work",
        "",
        || {
            start();
            let (at, one) = (memory(4096), stream(0));
            spin(one, 5 * MS);
            assert_eq!(fill(one, at, 1, 1), OK);
            assert_eq!(cuStreamDestroy_v2(one), OK);
            assert_eq!(cuStreamDestroy_v2(one), CUresult::INVALID_HANDLE);
            assert_eq!(cuStreamQuery(one), CUresult::INVALID_HANDLE);
            assert_eq!(fill(CUstream::NULL, at + 4, 1, 2), OK);
            assert_eq!(cuStreamSynchronize(CUstream::NULL), OK);
            assert_eq!(read(at, 2), [1, 2]);
        },
    );
}

#[test]
fn an_event_wait_covers_the_last_recording_before_it() {
    alone(
        "an_event_wait_covers_the_last_recording_before_it",
        "",
        || {
            start();
            let (one, two, mark) = (free_stream(), free_stream(), event());
            assert_eq!(cuEventRecord(mark, one), OK);
            assert_eq!(cuStreamWaitEvent(two, mark, 0), OK);
            spin(one, 3_600_000 * MS);
            assert_eq!(cuEventRecord(mark, one), OK);
            assert_eq!(cuStreamSynchronize(two), OK);
            assert_eq!(cuEventQuery(mark), CUresult::NOT_READY);
        },
    );
}

#[test]
fn an_event_can_record_and_block_a_whole_context() {
    for seed in 1..=6 {
        let name = "an_event_can_record_and_block_a_whole_context";
        alone(name, &format!("seed={seed}"), || {
            start();
            let (at, one, two, three, all) = (
                memory(4096),
                free_stream(),
                free_stream(),
                free_stream(),
                event(),
            );
            let gate = Gate::close(one);
            assert_eq!(fill(one, at, 1, 1), OK);
            assert_eq!(fill(two, at + 4, 1, 2), OK);
            assert_eq!(cuCtxRecordEvent(CUcontext::NULL, all), OK);
            assert_eq!(cuStreamQuery(three), OK);
            assert_eq!(cuCtxWaitEvent(CUcontext::NULL, all), OK);
            assert_eq!(fill(three, at, 2, 3), OK);
            assert_eq!(cuEventQuery(all), CUresult::NOT_READY);
            gate.open();
            assert_eq!(cuStreamSynchronize(three), OK);
            assert_eq!(read(at, 2), [3, 3]);
        });
    }
}

#[test]
fn a_process_ends_with_work_pending() {
    alone("a_process_ends_with_work_pending", "", || {
        start();
        let stream = free_stream();
        spin(stream, 3_600_000 * MS);
        assert_eq!(fill(stream, memory(4096), 1, 1), OK);
    });
}

#[test]
fn a_stream_waits_for_a_value_the_host_writes() {
    alone("a_stream_waits_for_a_value_the_host_writes", "", || {
        start();
        let (words, stream) = (pinned(2), free_stream());
        let at = words.addr() as u64;
        assert_eq!(cuStreamWaitValue32_v2(stream, at, 5, 0), OK);
        assert_eq!(cuStreamWriteValue32_v2(stream, at + 4, 9, 0), OK);
        assert_eq!(cuStreamQuery(stream), CUresult::NOT_READY);
        assert_eq!(look(words.wrapping_add(1)), 0);
        put(words, 6);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(look(words.wrapping_add(1)), 9);
        assert_eq!(
            cuStreamWriteValue32_v2(stream, 8, 9, 0),
            CUresult::INVALID_VALUE
        );
    });
}

#[test]
fn values_are_written_and_awaited_in_memory_of_their_streams_order() {
    let name = "values_are_written_and_awaited_in_memory_of_their_streams_order";
    alone(name, "", || {
        start();
        let (stream, host) = (free_stream(), pinned(1));
        let equal = CUstreamWaitValue_flags::EQ.0;
        let gate = Gate::close(stream);
        let at = get(0, |out| cuMemAllocAsync(out, 4, stream));
        assert_eq!(cuStreamWriteValue32_v2(stream, at, 7, 0), OK);
        assert_eq!(cuStreamWaitValue32_v2(stream, at, 7, equal), OK);
        assert_eq!(cuMemcpyDtoHAsync_v2(host.cast(), at, 4, stream), OK);
        assert_eq!(cuStreamQuery(stream), CUresult::NOT_READY);
        gate.open();
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(look(host), 7);
        let beyond = cuStreamWriteValue32_v2(stream, at + (64 << 20), 7, 0);
        assert_eq!(beyond, CUresult::INVALID_VALUE);
    });
}

#[test]
fn a_value_that_is_written_before_its_memory_is_allocated_faults() {
    let name = "a_value_that_is_written_before_its_memory_is_allocated_faults";
    alone(name, "", || {
        start();
        let (stream, other) = (free_stream(), free_stream());
        let _gate = Gate::close(stream);
        let at = get(0, |out| cuMemAllocAsync(out, 4, stream));
        assert_eq!(cuStreamWriteValue32_v2(other, at, 7, 0), OK);
        let fault = cuStreamSynchronize(other);
        assert_eq!(fault, CUresult::ILLEGAL_ADDRESS);
    });
}
