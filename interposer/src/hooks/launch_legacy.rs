//! Launches of CUDA 3 and before, whose shape and parameters were set in the function: they pass the gate as they are.
//!
//! # Safety
//! The driver is called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::c_int;

use gpushare_cuda_abi::cuda::*;

use crate::driver::ordered::Ordered;
use crate::entry::hooks;
use crate::gate::{self, Work};

hooks! {
    #[gate]
    fn cuLaunch(function: CUfunction) -> CUresult = launch;
    #[gate]
    fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) -> CUresult = launch_grid;
    #[gate]
    fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> CUresult = launch_grid_async;
}

fn launch(real: cuLaunch, function: CUfunction) -> CUresult {
    let work = Work::One(Ordered::legacy(CUstream::NULL), function.into());
    // SAFETY: the program's own argument.
    gate::pass(&work, || unsafe { real(function) })
}

fn launch_grid(real: cuLaunchGrid, function: CUfunction, width: c_int, height: c_int) -> CUresult {
    let work = Work::One(Ordered::legacy(CUstream::NULL), function.into());
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe { real(function, width, height) })
}

fn launch_grid_async(
    real: cuLaunchGridAsync,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> CUresult {
    let work = Work::One(Ordered::legacy(stream), function.into());
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe { real(function, width, height, stream) })
}
