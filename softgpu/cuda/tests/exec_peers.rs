//! Frees of memory while another device works.

use crate::driver::*;
use gpushare_cuda_abi::cuda::{CUcontext, CUresult, CUstream};

const MS: u64 = 1_000_000;
/// A part of a block, and pages of its own.
const SIZES: [usize; 2] = [4096, 4 << 20];

/// Frees memory of the first device after work in a stream of the second one, which has access.
/// The stream's state at once.
fn freed_after(
    [first, second]: [CUcontext; 2],
    bytes: usize,
    work: impl FnOnce(CUstream, u64),
) -> CUresult {
    assert_eq!(cuCtxSetCurrent(first), OK);
    let at = memory(bytes);
    assert_eq!(cuCtxSetCurrent(second), OK);
    let stream = free_stream();
    work(stream, at);
    assert_eq!(cuCtxSetCurrent(first), OK);
    assert_eq!(cuMemFree_v2(at), OK);
    assert_eq!(cuCtxSetCurrent(second), OK);
    cuStreamQuery(stream)
}

fn two() -> [CUcontext; 2] {
    start();
    [0, 1].map(|device| get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, device)))
}

#[test]
fn a_free_waits_for_the_devices_that_have_access() {
    let name = "a_free_waits_for_the_devices_that_have_access";
    alone(name, "count=2", || {
        let both = two();
        assert_eq!(cuCtxSetCurrent(both[1]), OK);
        assert_eq!(cuCtxEnablePeerAccess(both[0], 0), OK);
        for bytes in SIZES {
            let left = freed_after(both, bytes, |stream, at| {
                spin(stream, 20 * MS);
                assert_eq!(fill(stream, at, 1024, 1), OK);
            });
            assert_eq!(left, OK, "{bytes}");
        }
    });
}

#[test]
fn a_free_does_not_wait_for_the_other_devices() {
    let name = "a_free_does_not_wait_for_the_other_devices";
    alone(name, "count=2", || {
        let both = two();
        for bytes in SIZES {
            let mut gate = None;
            let left = freed_after(both, bytes, |stream, _| gate = Some(Gate::close(stream)));
            assert_eq!(left, CUresult::NOT_READY, "{bytes}");
            gate.into_iter().for_each(Gate::open);
        }
    });
}
