//! The cost of moving managed memory, to the nanosecond.

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const MIB: usize = 1 << 20;
/// Bytes of each test, and their time at 1 GiB/s (ns).
const SIZE: usize = 64 * MIB;
const LINK_NS: u64 = 62_500_000;
/// A kernel's start, and its bytes at 1 TiB/s (ns).
const FILL_NS: u64 = 5_000 + 61_035;
/// A prefetch takes this beside its bytes (ns).
const SETUP_NS: u64 = 1_000;
const SPEC: &str = "mem=258MiB,ctx=2MiB,link=1GiB/s,bw=1TiB/s,fault=10us";

/// The time of the work that `submit` puts into a stream (ns).
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

/// As `cuEventElapsedTime` tells it (ms).
#[allow(clippy::cast_possible_truncation, reason = "the API's own width")]
fn ms(ns: u64) -> f32 {
    (ns as f64 / 1e6) as f32
}

fn managed(bytes: usize) -> CUdeviceptr {
    get(0, |out| cuMemAllocManaged(out, bytes, 1))
}

fn prefetch(at: CUdeviceptr, to: CUdevice) -> f32 {
    taken(|stream| assert_eq!(cuMemPrefetchAsync(at, SIZE, to, stream), OK))
}

fn filled(at: CUdeviceptr) -> f32 {
    taken(|stream| assert_eq!(fill(stream, at, SIZE as u64 / 4, 3), OK))
}

#[test]
fn a_prefetch_takes_the_bytes_that_are_elsewhere() {
    alone(
        "a_prefetch_takes_the_bytes_that_are_elsewhere",
        SPEC,
        || {
            start();
            let at = managed(SIZE);
            assert_eq!(prefetch(at, 0), ms(SETUP_NS), "it was never touched");
            assert_eq!(prefetch(at, 0), ms(SETUP_NS), "it is there");
            assert_eq!(prefetch(at, CU_DEVICE_CPU), ms(SETUP_NS + LINK_NS));
            assert_eq!(prefetch(at, CU_DEVICE_CPU), ms(SETUP_NS), "it is there");
            assert_eq!(prefetch(at, 0), ms(SETUP_NS + LINK_NS));
        },
    );
}

#[test]
fn a_kernel_takes_longer_by_the_pages_it_touches() {
    alone(
        "a_kernel_takes_longer_by_the_pages_it_touches",
        SPEC,
        || {
            start();
            let (at, faults) = (managed(SIZE), 32 * 10_000);
            assert_eq!(filled(at), ms(FILL_NS + faults));
            assert_eq!(filled(at), ms(FILL_NS));
            prefetch(at, CU_DEVICE_CPU);
            assert_eq!(filled(at), ms(FILL_NS + faults + LINK_NS));
            assert_eq!(filled(at), ms(FILL_NS));
        },
    );
}

#[test]
fn pages_advised_to_stay_on_the_host_cost_each_time() {
    let name = "pages_advised_to_stay_on_the_host_cost_each_time";
    alone(name, SPEC, || {
        start();
        let (at, advice) = (managed(SIZE), CUmem_advise::SET_PREFERRED_LOCATION);
        assert_eq!(cuMemAdvise(at, SIZE, advice, CU_DEVICE_CPU), OK);
        assert_eq!(filled(at), ms(FILL_NS + LINK_NS));
        assert_eq!(filled(at), ms(FILL_NS + LINK_NS));
        prefetch(at, 0);
        assert_eq!(filled(at), ms(FILL_NS));
    });
}

#[test]
fn what_is_evicted_for_a_page_is_paid_with_it() {
    alone("what_is_evicted_for_a_page_is_paid_with_it", SPEC, || {
        start();
        let pieces: Vec<CUdeviceptr> = (0..5).map(|_| managed(SIZE)).collect();
        for at in &pieces[..4] {
            assert_eq!(prefetch(*at, 0), ms(SETUP_NS));
        }
        // The device is full: the first piece goes for the fifth, and the second for the first.
        assert_eq!(prefetch(pieces[4], 0), ms(SETUP_NS + LINK_NS));
        assert_eq!(prefetch(pieces[4], 0), ms(SETUP_NS));
        assert_eq!(prefetch(pieces[0], 0), ms(SETUP_NS + 2 * LINK_NS));
        assert_eq!(prefetch(pieces[2], 0), ms(SETUP_NS));
        assert_eq!(prefetch(pieces[1], 0), ms(SETUP_NS + 2 * LINK_NS));
    });
}

#[test]
fn memory_of_pages_at_home_is_taken_first_and_moves_nothing() {
    for home in ["kept", "freed"] {
        let name = "memory_of_pages_at_home_is_taken_first_and_moves_nothing";
        alone(name, &format!("{SPEC},home={home}"), || {
            start();
            let pieces: Vec<CUdeviceptr> = (0..5).map(|_| managed(SIZE)).collect();
            for at in &pieces[..4] {
                assert_eq!(prefetch(*at, 0), ms(SETUP_NS));
            }
            // The one that came last: by age the first would go.
            assert_eq!(prefetch(pieces[3], CU_DEVICE_CPU), ms(SETUP_NS + LINK_NS));
            assert_eq!(prefetch(pieces[4], 0), ms(SETUP_NS));
            assert_eq!(prefetch(pieces[0], 0), ms(SETUP_NS), "it has stayed");
            // Nothing is left of its memory: another goes for it.
            assert_eq!(prefetch(pieces[3], 0), ms(SETUP_NS + 2 * LINK_NS));
            assert_eq!(prefetch(pieces[0], 0), ms(SETUP_NS + 2 * LINK_NS));
        });
    }
}

#[test]
fn pages_find_no_room_beside_memory_that_does_not_leave() {
    let name = "pages_find_no_room_beside_memory_that_does_not_leave";
    alone(name, SPEC, || {
        start();
        let (_plain, at) = (memory(254 * MIB), managed(SIZE));
        // One page fits; the others are used on the host.
        let page = 2 * MIB as u64;
        let remote = LINK_NS - page * 1_000_000_000 / (1 << 30);
        let first = filled(at);
        assert!(first > ms(FILL_NS + remote), "{first}");
        assert_eq!(read(at + SIZE as u64 - 4, 1), [3]);
    });
}

#[test]
fn a_graph_pays_for_its_pages_at_each_launch() {
    alone("a_graph_pays_for_its_pages_at_each_launch", SPEC, || {
        start();
        let (at, stream) = (managed(SIZE), free_stream());
        let mode = CUstreamCaptureMode::RELAXED;
        assert_eq!(cuStreamBeginCapture_v2(stream, mode), OK);
        assert_eq!(fill(stream, at, SIZE as u64 / 4, 5), OK);
        let graph = get(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
        let graph = graphs::instance(graph, 0);
        let launched = || taken(|stream| assert_eq!(cuGraphLaunch(graph, stream), OK));
        let faults = 32 * 10_000;
        assert_eq!(launched(), ms(FILL_NS + faults));
        assert_eq!(launched(), ms(FILL_NS));
        prefetch(at, CU_DEVICE_CPU);
        assert_eq!(launched(), ms(FILL_NS + faults + LINK_NS));
        assert_eq!(read(at, 1), [5]);
    });
}
