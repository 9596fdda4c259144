//! Faults lose the context. Host functions run in order and receive the context's state.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

unsafe extern "C" fn alloc_inside(data: *mut c_void) {
    let mut address = 0;
    put(data.cast(), cuMemAlloc_v2(&raw mut address, 512).0);
}

unsafe extern "C" fn store_seven(data: *mut c_void) {
    put(data.cast(), 7);
}

unsafe extern "C" fn store_status(_: CUstream, status: CUresult, data: *mut c_void) {
    put(data.cast(), status.0 + 1);
}

#[test]
fn an_illegal_address_loses_the_context_once_the_kernel_runs() {
    alone(
        "an_illegal_address_loses_the_context_once_the_kernel_runs",
        "",
        || {
            start();
            let (at, stream) = (memory(4096), free_stream());
            let gate = Gate::close(stream);
            assert_eq!(fill(stream, at, 1 << 30, 1), OK);
            assert_eq!(fill(stream, at, 1, 1), OK);
            gate.open();
            assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
            assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
            let mut address = 0;
            assert_eq!(
                cuMemAlloc_v2(&raw mut address, 512),
                CUresult::ILLEGAL_ADDRESS
            );
            assert_eq!(cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
        },
    );
}

#[test]
fn a_fault_loses_all_contexts_of_the_process_on_the_device() {
    alone(
        "a_fault_loses_all_contexts_of_the_process_on_the_device",
        "count=2",
        || {
            start();
            let (at, mut primary, mut beside) = (memory(4096), CUcontext::NULL, CUcontext::NULL);
            assert_eq!(cuDevicePrimaryCtxRetain(&raw mut primary, 0), OK);
            assert_eq!(cuCtxCreate_v2(&raw mut beside, 0, 0), OK);
            assert_eq!(fill(CUstream::NULL, 4096, 1, 1), OK);
            assert_eq!(cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
            assert_eq!(cuCtxSetCurrent(primary), OK);
            assert_eq!(cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
            assert_eq!(cuMemFree_v2(at), CUresult::ILLEGAL_ADDRESS);
            assert_eq!(cuCtxDestroy_v2(beside), OK);
            assert_eq!(
                cuCtxCreate_v2(&raw mut beside, 0, 0),
                CUresult::ILLEGAL_ADDRESS
            );
            assert_eq!(cuCtxCreate_v2(&raw mut beside, 0, 1), OK);
        },
    );
}

#[test]
fn a_misaligned_address_has_its_own_error() {
    alone("a_misaligned_address_has_its_own_error", "", || {
        start();
        assert_eq!(fill(CUstream::NULL, memory(4096) + 2, 1, 1), OK);
        assert_eq!(cuCtxSynchronize(), CUresult::MISALIGNED_ADDRESS);
    });
}

#[test]
fn freed_memory_faults() {
    alone("freed_memory_faults", "", || {
        start();
        let at = memory(4 << 20);
        assert_eq!(cuMemFree_v2(at), OK);
        assert_eq!(fill(CUstream::NULL, at, 1, 1), OK);
        assert_eq!(cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
    });
}

#[test]
fn a_host_function_runs_in_order_and_may_not_call_the_driver() {
    alone(
        "a_host_function_runs_in_order_and_may_not_call_the_driver",
        "",
        || {
            start();
            let (words, stream) = (pinned(2), free_stream());
            assert_eq!(fill(stream, words.addr() as u64, 1, 3), OK);
            let gate = Gate::close(stream);
            assert_eq!(
                cuLaunchHostFunc(stream, Some(alloc_inside), words.cast()),
                OK
            );
            assert_eq!(look(words.wrapping_add(1)), 0);
            assert_eq!(
                cuLaunchHostFunc(stream, Some(store_seven), words.wrapping_add(1).cast()),
                OK
            );
            gate.open();
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(
                (look(words), look(words.wrapping_add(1))),
                (CUresult::NOT_PERMITTED.0, 7)
            );
            assert_eq!(
                cuLaunchHostFunc(stream, None, null_mut()),
                CUresult::INVALID_VALUE
            );
        },
    );
}

#[test]
fn a_lost_context_calls_callbacks_with_its_error_but_no_host_functions() {
    alone(
        "a_lost_context_calls_callbacks_with_its_error_but_no_host_functions",
        "",
        || {
            start();
            let (words, stream) = (pinned(2), free_stream());
            let gate = Gate::close(stream);
            assert_eq!(fill(stream, 4096, 1, 3), OK);
            assert_eq!(
                cuStreamAddCallback(stream, Some(store_status), words.cast(), 0),
                OK
            );
            assert_eq!(
                cuLaunchHostFunc(stream, Some(store_seven), words.wrapping_add(1).cast()),
                OK
            );
            gate.open();
            assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
            assert_eq!(
                (look(words), look(words.wrapping_add(1))),
                (CUresult::ILLEGAL_ADDRESS.0 + 1, 0)
            );
        },
    );
}

#[test]
fn a_process_does_not_get_a_lost_primary_context_back() {
    let name = "a_process_does_not_get_a_lost_primary_context_back";
    alone(name, "", || {
        start();
        assert_eq!(fill(CUstream::NULL, 4096, 1, 1), OK);
        assert_eq!(cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), OK);
        let retained = answer(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, 0));
        assert_eq!(retained, CUresult::ILLEGAL_ADDRESS);
        assert_eq!(cuCtxSynchronize(), CUresult::CONTEXT_IS_DESTROYED);
    });
}

#[test]
fn a_reset_primary_context_is_usable_again() {
    alone("a_reset_primary_context_is_usable_again", "", || {
        start();
        let stream = stream(0);
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), OK);
        start();
        assert_eq!(cuStreamQuery(stream), CUresult::INVALID_HANDLE);
        let at = memory(4096);
        assert_eq!(fill(CUstream::NULL, at, 1, 5), OK);
        assert_eq!(read(at, 1), [5]);
    });
}

#[test]
fn a_forked_child_neither_runs_its_parents_work_nor_waits_for_it() {
    alone(
        "a_forked_child_neither_runs_its_parents_work_nor_waits_for_it",
        "",
        || {
            start();
            let (word, stream) = (pinned(1), free_stream());
            let gate = Gate::close(stream);
            assert_eq!(fill(stream, word.addr() as u64, 1, 7), OK);
            // SAFETY: the child only calls the driver, which must answer there, and `_exit`.
            #[expect(unsafe_code, reason = "fork and its kin are C")]
            let (ended, status) = unsafe {
                let child = libc::fork();
                if child == 0 {
                    let refused = cuStreamSynchronize(stream) != OK && cuCtxSynchronize() != OK;
                    libc::_exit(i32::from(!(refused && look(word) == 0)));
                }
                let mut status = -1;
                (libc::waitpid(child, &raw mut status, 0) == child, status)
            };
            assert!(ended);
            assert_eq!(status, 0);
            gate.open();
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(look(word), 7);
        },
    );
}

/// Fills a pool's memory in a stream that has no order with its allocation.
fn fill_before_its_allocation() -> CUresult {
    start();
    let (here, there, mut at) = (free_stream(), free_stream(), 0);
    let gate = Gate::close(here);
    assert_eq!(cuMemAllocAsync(&raw mut at, 4096, here), OK);
    assert_eq!(cuMemsetD32Async(at, 7, 1024, there), OK);
    let answer = cuStreamSynchronize(there);
    gate.open();
    answer
}

#[test]
fn pool_memory_faults_before_its_allocation_unless_order_is_lenient() {
    let name = "pool_memory_faults_before_its_allocation_unless_order_is_lenient";
    alone(name, "", || {
        assert_eq!(fill_before_its_allocation(), CUresult::ILLEGAL_ADDRESS);
    });
}

#[test]
fn pool_memory_is_accessible_from_the_call_where_order_is_lenient() {
    let name = "pool_memory_is_accessible_from_the_call_where_order_is_lenient";
    alone(name, "order=lenient", || {
        assert_eq!(fill_before_its_allocation(), OK);
    });
}
