//! Handles and addresses that are given again, as a driver gives those of what it has freed.

use crate::driver::*;
use crate::exec_reach::properties;
use gpushare_cuda_abi::cuda::*;

const BYTES: usize = 2 << 20;

/// Physical memory, by its handle.
fn physical() -> CUmemGenericAllocationHandle {
    let prop = properties(0);
    get(0, |out| cuMemCreate(out, BYTES, &raw const prop, 0))
}

/// Two handles or addresses of each kind, the second made after the first was destroyed.
fn twice() -> [(usize, usize); 6] {
    let a_stream = || {
        let made = free_stream();
        assert_eq!(cuStreamDestroy_v2(made), OK);
        made.0.addr()
    };
    let an_event = || {
        let made = event();
        assert_eq!(cuEventDestroy_v2(made), OK);
        made.0.addr()
    };
    let a_module = || {
        let made = module();
        assert_eq!(cuModuleUnload(made), OK);
        made.0.addr()
    };
    let a_physical = || {
        let made = physical();
        assert_eq!(cuMemRelease(made), OK);
        made.try_into().expect("64 bits")
    };
    let an_address = |bytes| {
        let made = memory(bytes);
        assert_eq!(cuMemFree_v2(made), OK);
        made.try_into().expect("64 bits")
    };
    [
        (a_physical(), a_physical()),
        (an_address(BYTES), an_address(BYTES)),
        (an_address(9 * BYTES), an_address(9 * BYTES)),
        (a_stream(), a_stream()),
        (an_event(), an_event()),
        (a_module(), a_module()),
    ]
}

#[test]
fn handles_are_given_again_where_spec_says_so() {
    let name = "handles_are_given_again_where_spec_says_so";
    alone(name, "reuse=lifo", || {
        start();
        for (first, second) in twice() {
            assert_eq!(first, second);
        }
    });
}

#[test]
fn no_handle_is_given_twice_by_default() {
    alone("no_handle_is_given_twice_by_default", "", || {
        start();
        for (first, second) in twice() {
            assert_ne!(first, second);
        }
    });
}

#[test]
fn a_stream_of_a_used_handle_has_none_of_the_others_work() {
    let name = "a_stream_of_a_used_handle_has_none_of_the_others_work";
    alone(name, "reuse=lifo", || {
        start();
        let (first, passed) = (free_stream(), event());
        let gate = Gate::close(first);
        assert_eq!(cuEventRecord(passed, first), OK);
        assert_eq!(cuStreamDestroy_v2(first), OK);
        let second = free_stream();
        assert_eq!(second, first);
        assert_eq!(cuStreamSynchronize(second), OK);
        assert_eq!(cuEventQuery(passed), CUresult::NOT_READY);
        gate.open();
        assert_eq!(cuEventSynchronize(passed), OK);
    });
}

#[test]
fn physical_memory_keeps_its_handle_for_as_long_as_it_is_mapped() {
    let name = "physical_memory_keeps_its_handle_for_as_long_as_it_is_mapped";
    alone(name, "reuse=lifo", || {
        start();
        let first = physical();
        let at = get(0, |out| cuMemAddressReserve(out, BYTES, 0, 0, 0));
        assert_eq!(cuMemMap(at, BYTES, 0, first, 0), OK);
        assert_eq!(cuMemRelease(first), OK);
        assert_ne!(physical(), first, "it is mapped");
        assert_eq!(cuMemUnmap(at, BYTES), OK);
        assert_eq!(physical(), first, "it is gone");
    });
}

#[test]
fn memory_at_a_used_address_has_its_own_size_and_bytes() {
    let name = "memory_at_a_used_address_has_its_own_size_and_bytes";
    alone(name, "reuse=lifo", || {
        start();
        let (large, beside) = (memory(4 * BYTES), memory(BYTES));
        write(large, &[7_u32; 16]);
        assert_eq!(cuMemFree_v2(large), OK);
        let small = memory(BYTES);
        assert_eq!(small, large);
        assert_eq!(cuMemsetD32_v2(small, 1, BYTES / 4), OK);
        let past = cuMemsetD32_v2(small + BYTES as u64, 1, 4);
        assert_eq!(past, CUresult::INVALID_VALUE, "what follows is free");
        let next = memory(2 * BYTES);
        assert!(next >= small + BYTES as u64 && next < beside, "{next:x}");
        assert_eq!(read(small, 16), [1; 16]);
    });
}
