//! How long work takes on the timeline, to the nanosecond, whatever the host's load.

use core::cell::Cell;
use core::ffi::c_void;

use crate::driver::*;
use crate::exec_reach::{properties, right};
use gpushare_cuda_abi::cuda::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

/// The time of the work that `submit` puts into a stream (ms). It starts when all of it is
/// submitted.
fn taken(submit: impl FnOnce(CUstream)) -> f32 {
    let (stream, begin, end) = (free_stream(), event(), event());
    let gate = Gate::close(stream);
    assert_eq!(cuEventRecord(begin, stream), OK);
    submit(stream);
    assert_eq!(cuEventRecord(end, stream), OK);
    gate.open();
    assert_eq!(cuEventSynchronize(end), OK);
    get(0.0, |out| cuEventElapsedTime(out, begin, end))
}

/// The work that `record` puts into a stream, as a graph.
fn captured(record: impl FnOnce(CUstream)) -> CUgraphExec {
    let stream = free_stream();
    assert_eq!(
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::RELAXED),
        OK
    );
    record(stream);
    let graph = get(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
    graphs::instance(graph, 0)
}

#[test]
fn kernels_in_sequence_take_exactly_the_sum_of_their_times() {
    let name = "kernels_in_sequence_take_exactly_the_sum_of_their_times";
    alone(name, "", || {
        start();
        let row = taken(|stream| (0..200).for_each(|_| spin(stream, 50 * US)));
        assert_eq!(row, 10.0);
        assert_eq!(taken(|stream| spin(stream, 1_234_567)), 1.234_567);
    });
}

#[test]
fn spin_grid_takes_its_time_for_each_block_of_the_grid() {
    let name = "spin_grid_takes_its_time_for_each_block_of_the_grid";
    alone(name, "", || {
        start();
        let (longer, same, mut ns) = (function("spin_grid"), function("spin"), 10 * US);
        let mut taken_by = |function, [x, y, z]: [u32; 3]| {
            let (params, extra) = (&mut [(&raw mut ns).cast()], std::ptr::null_mut());
            let params = params.as_mut_ptr();
            taken(|stream| {
                let launched =
                    cuLaunchKernel(function, x, y, z, 32, 1, 1, 0, stream, params, extra);
                assert_eq!(launched, OK);
            })
        };
        assert_eq!(taken_by(longer, [1, 1, 1]), 0.01);
        assert_eq!(taken_by(longer, [70, 1, 1]), 0.7);
        assert_eq!(taken_by(longer, [5, 3, 2]), 0.3);
        assert_eq!(taken_by(same, [70, 1, 1]), 0.01);
    });
}

#[test]
fn a_graph_takes_its_longest_path() {
    alone("a_graph_takes_its_longest_path", "", || {
        start();
        let row = captured(|stream| (0..20).for_each(|_| spin(stream, 50 * US)));
        let fork = captured(|stream| {
            let (other, forked, joined) = (free_stream(), event(), event());
            spin(stream, MS);
            assert_eq!(cuEventRecord(forked, stream), OK);
            assert_eq!(cuStreamWaitEvent(other, forked, 0), OK);
            spin(other, 7 * MS);
            assert_eq!(cuEventRecord(joined, other), OK);
            spin(stream, 3 * MS);
            assert_eq!(cuStreamWaitEvent(stream, joined, 0), OK);
            spin(stream, MS);
        });
        let launch = |graph, times: u32| {
            taken(|stream| {
                for _ in 0..times {
                    assert_eq!(cuGraphLaunch(graph, stream), OK);
                }
            })
        };
        assert_eq!([launch(row, 1), launch(row, 5)], [1.0, 5.0]);
        assert_eq!(launch(fork, 2), 18.0);
    });
}

#[test]
fn copies_take_their_bytes_over_the_link_or_through_memory() {
    let name = "copies_take_their_bytes_over_the_link_or_through_memory";
    alone(name, "link=1GiB/s,bw=64GiB/s", || {
        start();
        let (at, host, bytes) = (memory(16 << 20), pinned(2 << 20), 8 << 20);
        let to =
            taken(|stream| assert_eq!(cuMemcpyHtoDAsync_v2(at, host.cast(), bytes, stream), OK));
        let back =
            taken(|stream| assert_eq!(cuMemcpyDtoHAsync_v2(host.cast(), at, bytes, stream), OK));
        let within =
            taken(|stream| assert_eq!(cuMemcpyDtoDAsync_v2(at + (8 << 20), at, bytes, stream), OK));
        // 8 MiB at 1 GiB/s and at 64 GiB/s, and a microsecond for each copy to start.
        assert_eq!([to, back, within], [7.8135, 7.8135, 0.123_07]);
    });
}

#[test]
fn short_kernels_in_sequence_keep_their_turn_beside_an_endless_kernel() {
    let name = "short_kernels_in_sequence_keep_their_turn_beside_an_endless_kernel";
    alone(name, "", || {
        start();
        spin(free_stream(), HOUR);
        get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
        let mark = event();
        let row = taken(|stream| {
            for _ in 0..200 {
                spin(stream, 50 * US);
                assert_eq!(cuEventRecord(mark, stream), OK);
            }
        });
        // Ten milliseconds in slices of two. One slice of the other stream's context precedes each
        // slice, possibly except the first.
        assert!((18.0..=20.0).contains(&row), "{row}");
        let graph = captured(|stream| (0..200).for_each(|_| spin(stream, 50 * US)));
        let row = taken(|stream| assert_eq!(cuGraphLaunch(graph, stream), OK));
        assert!((18.0..=20.0).contains(&row), "{row}");
    });
}

/// The minimum time of three calls (ns). No call can take less than the machine says.
fn least(mut call: impl FnMut()) -> u128 {
    let time = |_| {
        let began = std::time::Instant::now();
        call();
        began.elapsed().as_nanos()
    };
    (0..3).map(time).min().expect("three")
}

#[test]
fn a_launch_takes_host_time_and_other_calls_do_not() {
    let name = "a_launch_takes_host_time_and_other_calls_do_not";
    alone(name, "launch=40ms", || {
        start();
        let (stream, done) = (free_stream(), event());
        let graph = captured(|stream| spin(stream, US));
        assert!(least(|| spin(stream, US)) >= u128::from(40 * MS));
        assert!(least(|| assert_eq!(cuGraphLaunch(graph, stream), OK)) >= u128::from(40 * MS));
        let record = || assert_eq!(cuEventRecord(done, stream), OK);
        assert!(
            least(record) < u128::from(40 * MS),
            "the minimum of three calls"
        );
    });
}

#[test]
fn the_first_launch_of_a_module_takes_the_time_of_its_loading() {
    let name = "the_first_launch_of_a_module_takes_the_time_of_its_loading";
    alone(name, "load=300ms", || {
        start();
        let (stream, loaded) = (free_stream(), function("spin"));
        let mut ns = US;
        let mut run = || assert_eq!(launch(loaded, stream, &mut [(&raw mut ns).cast()]), OK);
        let began = std::time::Instant::now();
        run();
        assert!(began.elapsed().as_nanos() >= u128::from(300 * MS));
        assert!(least(run) < u128::from(300 * MS));
        assert!(
            least(|| spin(stream, US)) >= u128::from(300 * MS),
            "each kernel has its own module"
        );
    });
}

#[test]
fn pinning_takes_the_time_of_its_bytes() {
    let name = "pinning_takes_the_time_of_its_bytes";
    alone(name, "pin=1GiB/s", || {
        start();
        let mut memory = vec![0_u8; 64 << 20];
        let at: *mut c_void = memory.as_mut_ptr().cast();
        let pins = |bytes| {
            least(|| {
                assert_eq!(cuMemHostRegister_v2(at, bytes, 0), OK);
                assert_eq!(cuMemHostUnregister(at), OK);
            })
        };
        assert!(pins(64 << 20) >= u128::from(60 * MS));
        assert!(pins(4096) < u128::from(60 * MS));
        let made = least(|| {
            let _ = get(std::ptr::null_mut(), |out| cuMemHostAlloc(out, 64 << 20, 0));
        });
        assert!(made >= u128::from(60 * MS));
    });
}

#[test]
fn each_call_about_physical_memory_takes_its_time_and_no_other() {
    let name = "each_call_about_physical_memory_takes_its_time_and_no_other";
    const BYTES: usize = 2 << 20;
    alone(name, "vmmcall=40ms", || {
        start();
        let (prop, access) = (properties(0), right(0, CUmemAccess_flags::READWRITE));
        let at = get(0, |out| cuMemAddressReserve(out, BYTES, 0, 0, 0));
        let handle = Cell::new(0);
        let create = || handle.set(get(0, |out| cuMemCreate(out, BYTES, &raw const prop, 0)));
        let map = || assert_eq!(cuMemMap(at, BYTES, 0, handle.get(), 0), OK);
        let allow = || assert_eq!(cuMemSetAccess(at, BYTES, &raw const access, 1), OK);
        let unmap = || assert_eq!(cuMemUnmap(at, BYTES), OK);
        let release = || assert_eq!(cuMemRelease(handle.get()), OK);
        let calls: [&dyn Fn(); 5] = [&create, &map, &allow, &unmap, &release];
        for (place, call) in calls.into_iter().enumerate() {
            let began = std::time::Instant::now();
            call();
            let took = began.elapsed().as_nanos();
            assert!(took >= u128::from(40 * MS), "{place}: {took}");
        }
        let other = least(|| {
            let _ = get(0, |out| cuMemAddressReserve(out, BYTES, 0, 0, 0));
        });
        assert!(other < u128::from(40 * MS));
    });
}
