//! Handles that are given again, as a driver gives those of what it has freed.

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

/// Two handles of each kind, the second made after the first was destroyed.
fn twice() -> [(usize, usize); 3] {
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
    [
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
