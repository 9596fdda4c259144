//! Host functions: calls into the application in stream order.
//!
//! # Safety
//! The `unsafe` is the call itself: the application guarantees that the function and its argument
//! are valid until the call returns.
#![allow(unsafe_code, reason = "host functions are C function pointers")]

use std::cell::Cell;
use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{CUresult, CUstream};

use crate::error::Result;

/// A function of the application to be called.
#[derive(Debug, Clone, Copy)]
pub enum HostCall {
    /// `cuLaunchHostFunc`: not called once the context is lost.
    Function {
        /// The function.
        function: unsafe extern "C" fn(*mut c_void),
        /// Its argument, an address of the application.
        argument: usize,
    },
    /// `cuStreamAddCallback`: always called; it receives the state of the context.
    Callback {
        /// The function.
        function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        /// The stream handle as the application passed it.
        stream: CUstream,
        /// Its argument, an address of the application.
        argument: usize,
    },
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a host function, where driver calls are not permitted.
pub fn in_host_function() -> bool {
    INSIDE.get()
}

/// Calls the host function on this thread.
pub(super) fn invoke(call: HostCall, state: Result) {
    INSIDE.set(true);
    match call {
        HostCall::Function { function, argument } if state.is_ok() => {
            // SAFETY: the application passed this function and argument for exactly this call.
            unsafe { function(std::ptr::with_exposed_provenance_mut(argument)) };
        }
        HostCall::Function { .. } => {}
        HostCall::Callback {
            function,
            stream,
            argument,
        } => {
            let status = state.err().unwrap_or(CUresult::SUCCESS);
            // SAFETY: as above.
            unsafe {
                function(
                    stream,
                    status,
                    std::ptr::with_exposed_provenance_mut(argument),
                )
            };
        }
    }
    INSIDE.set(false);
}
