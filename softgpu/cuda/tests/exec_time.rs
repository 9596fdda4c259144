//! How long work takes on the timeline, to the nanosecond whatever the host does.

mod driver;

use driver::*;
use gpushare_cuda_abi::cuda::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

/// Milliseconds that the work took that `submit` puts into a stream, which does not begin before all is submitted.
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

/// What `record` puts into a stream, as a graph.
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
fn kernels_in_a_row_take_their_sum_and_nothing_between() {
    let name = "kernels_in_a_row_take_their_sum_and_nothing_between";
    alone(name, "", || {
        start();
        let row = taken(|stream| (0..200).for_each(|_| spin(stream, 50 * US)));
        assert_eq!(row, 10.0);
        assert_eq!(taken(|stream| spin(stream, 1_234_567)), 1.234_567);
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
        // 8 MiB at 1 GiB/s, and at 64; a microsecond for each copy to start.
        assert_eq!([to, back, within], [7.8135, 7.8135, 0.123_07]);
    });
}

#[test]
fn a_row_of_short_kernels_keeps_its_turn_beside_a_kernel_without_end() {
    let name = "a_row_of_short_kernels_keeps_its_turn_beside_a_kernel_without_end";
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
        // Ten milliseconds in slices of two, with one of the other's before each but the first or before all.
        assert!((18.0..=20.0).contains(&row), "{row}");
        let graph = captured(|stream| (0..200).for_each(|_| spin(stream, 50 * US)));
        let row = taken(|stream| assert_eq!(cuGraphLaunch(graph, stream), OK));
        assert!((18.0..=20.0).contains(&row), "{row}");
    });
}
