//! Processes share the hardware of one machine in time slices.

use crate::driver::*;
use gpushare_cuda_abi::cuda::{CUcontext, CUresult};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

/// A machine that processes can share; each run of a test has its own.
fn machine(test: &str) -> String {
    format!("name=exec-{test}-{}", std::process::id())
}

/// In a test's process: runs another test's body in a second process on the same machine.
fn beside(other: &str) -> String {
    alone(
        other,
        &std::env::var("SOFTGPU").expect("the test sets a machine"),
        || unreachable!("the second process runs another body"),
    )
}

/// Whether cargo started this process. Cargo also runs the tests that are bodies of second
/// processes.
fn is_started_by_cargo() -> bool {
    std::env::var_os("SOFTGPU_TEST").is_none()
}

#[test]
fn second_process_spins_for_20_ms() {
    if is_started_by_cargo() {
        return;
    }
    alone("second_process_spins_for_20_ms", "", || {
        start();
        let (stream, begin, end) = (free_stream(), event(), event());
        assert_eq!(cuEventRecord(begin, stream), OK);
        spin(stream, 20 * MS);
        assert_eq!(cuEventRecord(end, stream), OK);
        assert_eq!(cuEventSynchronize(end), OK);
        tell(get(0.0, |out| cuEventElapsedTime(out, begin, end)));
    });
}

#[test]
fn an_endless_kernel_does_not_keep_another_process_off_the_device() {
    let name = "an_endless_kernel_does_not_keep_another_process_off_the_device";
    alone(name, &machine("turns"), || {
        start();
        let stream = free_stream();
        spin(stream, HOUR);
        let waited: f32 = beside("second_process_spins_for_20_ms").parse().unwrap();
        assert!(waited >= 20.0, "{waited}");
        assert_eq!(cuStreamQuery(stream), CUresult::NOT_READY);
    });
}

#[test]
fn two_contexts_of_one_process_share_the_device_too() {
    alone(
        "two_contexts_of_one_process_share_the_device_too",
        "",
        || {
            start();
            let long = free_stream();
            spin(long, HOUR);
            get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
            let (short, begin, end) = (free_stream(), event(), event());
            let gate = Gate::close(short);
            assert_eq!(cuEventRecord(begin, short), OK);
            spin(short, 10 * MS);
            assert_eq!(cuEventRecord(end, short), OK);
            gate.open();
            assert_eq!(cuEventSynchronize(end), OK);
            // Ten milliseconds in slices of two. One slice of the other context precedes each
            // slice, possibly except the first.
            let waited = get(0.0, |out| cuEventElapsedTime(out, begin, end));
            assert!((18.0..=22.5).contains(&waited), "{waited}");
        },
    );
}

#[test]
fn kernels_of_one_context_run_concurrently_while_they_fit() {
    alone(
        "kernels_of_one_context_run_concurrently_while_they_fit",
        "",
        || {
            start();
            let (first, one, two, begin, end) = (
                free_stream(),
                free_stream(),
                free_stream(),
                event(),
                event(),
            );
            // Both streams wait for one event, so that they start together.
            let gate = Gate::close(first);
            assert_eq!(cuEventRecord(begin, first), OK);
            for stream in [one, two] {
                assert_eq!(cuStreamWaitEvent(stream, begin, 0), OK);
                spin(stream, 30 * MS);
            }
            let joined = event();
            assert_eq!(cuEventRecord(joined, one), OK);
            assert_eq!(cuStreamWaitEvent(two, joined, 0), OK);
            assert_eq!(cuEventRecord(end, two), OK);
            gate.open();
            assert_eq!(cuEventSynchronize(end), OK);
            let both = get(0.0, |out| cuEventElapsedTime(out, begin, end));
            assert!((both - 30.0).abs() < 0.01, "{both}");
        },
    );
}

#[test]
fn copies_of_one_direction_run_in_sequence_and_concurrent_to_kernels() {
    alone(
        "copies_of_one_direction_run_in_sequence_and_concurrent_to_kernels",
        "link=1GiB/s",
        || {
            start();
            let (first, streams, begin, end) = (
                free_stream(),
                [free_stream(), free_stream(), free_stream()],
                event(),
                event(),
            );
            let (bytes, at, host) = (1 << 20, memory(4 << 20), pinned(1 << 20));
            let gate = Gate::close(first);
            assert_eq!(cuEventRecord(begin, first), OK);
            for stream in streams {
                assert_eq!(cuStreamWaitEvent(stream, begin, 0), OK);
            }
            assert_eq!(cuMemcpyHtoDAsync_v2(at, host.cast(), bytes, streams[0]), OK);
            assert_eq!(
                cuMemcpyHtoDAsync_v2(at + bytes as u64, host.cast(), bytes, streams[1]),
                OK
            );
            spin(streams[2], MS);
            for stream in streams {
                let joined = event();
                assert_eq!(cuEventRecord(joined, stream), OK);
                assert_eq!(cuStreamWaitEvent(first, joined, 0), OK);
            }
            assert_eq!(cuEventRecord(end, first), OK);
            gate.open();
            assert_eq!(cuEventSynchronize(end), OK);
            let both = get(0.0, |out| cuEventElapsedTime(out, begin, end));
            // A mebibyte takes 1/1024 s, and its copy a microsecond to start.
            assert!(
                (both - 2.0 * (1000.0 / 1024.0 + 0.001)).abs() < 0.01,
                "{both}"
            );
        },
    );
}
