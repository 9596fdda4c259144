//! Frees of memory while another device works.

use crate::driver::*;
use gpushare_cuda_abi::cuda::{CUcontext, CUresult};

/// A part of a block, and pages of its own.
const SIZES: [usize; 2] = [4096, 4 << 20];

/// Measured by others (pytorch/pytorch#196257): the driver waits for the memory's own device, and
/// never for a device with access to it.
#[test]
fn a_free_does_not_wait_for_other_devices() {
    alone("a_free_does_not_wait_for_other_devices", "count=2", || {
        start();
        let context = |device| get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, device));
        let [first, second] = [context(0), context(1)];
        for has_access in [false, true] {
            assert_eq!(cuCtxSetCurrent(second), OK);
            if has_access {
                assert_eq!(cuCtxEnablePeerAccess(first, 0), OK);
            }
            for bytes in SIZES {
                assert_eq!(cuCtxSetCurrent(first), OK);
                let at = memory(bytes);
                assert_eq!(cuCtxSetCurrent(second), OK);
                let stream = free_stream();
                let gate = Gate::close(stream);
                assert_eq!(cuCtxSetCurrent(first), OK);
                assert_eq!(cuMemFree_v2(at), OK);
                assert_eq!(cuCtxSetCurrent(second), OK);
                assert_eq!(cuStreamQuery(stream), CUresult::NOT_READY);
                gate.open();
                assert_eq!(cuStreamSynchronize(stream), OK);
            }
        }
    });
}
