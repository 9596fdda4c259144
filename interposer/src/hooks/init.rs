//! `cuInit`: the call that tells a program about limits it cannot have.
//!
//! # Safety
//! The driver's functions are called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use gpushare_cuda_abi::cuda::CUresult;

use crate::entry::state;
use crate::entry::{Status as _, hooks};

hooks! {
    #[first]
    fn cuInit(flags: u32) -> CUresult = init;
}

fn init(real: cuInit, flags: u32) -> CUresult {
    // The driver may let a tool in, which calls it as the program does: those calls are hooked like any.
    // SAFETY: the program's own argument.
    let answer = unsafe { real(flags) };
    if answer.is_success() && state::driver_started().is_err() {
        return CUresult::REFUSED;
    }
    answer
}
