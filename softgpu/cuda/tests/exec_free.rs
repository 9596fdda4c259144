//! `cuMemFree` beside work, which it waits for or not.

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const BYTES: usize = 4 << 20;

/// Free bytes once all memory that was given back has returned.
fn free_bytes() -> usize {
    let (mut bytes, mut total) = (0, 0);
    for _ in 0..32 {
        bytes = get(0, |free| cuMemGetInfo_v2(free, &raw mut total));
    }
    bytes
}

#[test]
fn a_free_that_returns_at_once_leaves_the_memory_to_running_work() {
    let name = "a_free_that_returns_at_once_leaves_the_memory_to_running_work";
    alone(name, "free=now", || {
        start();
        let (at, stream) = (memory(BYTES), free_stream());
        let before = free_bytes();
        let gate = Gate::close(stream);
        assert_eq!(cuMemsetD32Async(at, 7, BYTES / 4, stream), OK);
        assert_eq!(cuMemFree_v2(at), OK);
        assert_eq!(cuMemFree_v2(at), CUresult::INVALID_VALUE);
        let refused = cuMemsetD32_v2(at, 7, 1);
        assert_eq!(refused, CUresult::INVALID_VALUE);
        assert_eq!(free_bytes(), before, "work may use it");
        gate.open();
        assert_eq!(cuCtxSynchronize(), OK);
        assert_eq!(free_bytes(), before + BYTES);
    });
}

#[test]
fn memory_that_no_work_can_use_returns_with_its_free() {
    let name = "memory_that_no_work_can_use_returns_with_its_free";
    alone(name, "free=now,mem=256MiB", || {
        start();
        for _ in 0..100 {
            let at = memory(100 << 20);
            assert_eq!(cuMemsetD32_v2(at, 7, 1), OK);
            assert_eq!(cuCtxSynchronize(), OK);
            assert_eq!(cuMemFree_v2(at), OK);
        }
    });
}
