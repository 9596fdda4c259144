//! Host functions: calls into the application in stream order.
//!
//! # Safety
//! The `unsafe` is the call itself: the application guarantees that the function and its argument
//! are valid until the call returns.
#![allow(unsafe_code, reason = "host functions are C function pointers")]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use gpushare_cuda_abi::cuda::{CUresult, CUstream};

use super::threads::without_signals;
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

/// Calls a destructor of the application on a thread of the driver, after those that were passed
/// before. No lock of the driver is held there. If the thread cannot be started it is never called.
pub(crate) fn destroy(destructor: unsafe extern "C" fn(*mut c_void), argument: usize) {
    static CALLER: OnceLock<Option<Sender<HostCall>>> = OnceLock::new();
    let caller = CALLER.get_or_init(|| {
        let (sender, calls) = channel();
        let work = move || calls.into_iter().for_each(|call| invoke(call, Ok(())));
        let name = "softgpu-objects".to_owned();
        let started = without_signals(|| std::thread::Builder::new().name(name).spawn(work));
        started.is_ok().then_some(sender)
    });
    let call = HostCall::Function {
        function: destructor,
        argument,
    };
    if let Some(caller) = caller {
        // The thread ends with the process.
        let _ = caller.send(call);
    }
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
