//! Managed memory: charged in full to the device of the context it is allocated in, wherever its pages are.
//!
//! Pages of managed memory move between host and devices as they are touched; what a program has allocated is what it may bring onto
//! the device, so that is what counts. It is freed by `cuMemFree`.
//!
//! # Safety
//! The driver is called with the program's own arguments; the result is read only after the driver has said that it wrote it.
#![allow(
    unsafe_code,
    reason = "calls the driver and reads what it wrote through the program's pointer"
)]

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUmemAttach_flags, CUresult};

use super::{allocate, refusal};
use crate::driver::calls;
use crate::entry::hooks;
use crate::holdings::table::Kind;

hooks! {
    fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32) -> CUresult = alloc;
}

fn alloc(real: cuMemAllocManaged, dptr: *mut CUdeviceptr, bytesize: usize, flags: u32) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(dptr, bytesize, flags) };
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    let refusal = || refused(real, bytesize, flags);
    // SAFETY: the driver has written the address.
    allocate::pointer(Kind::Managed, bytesize as u64, refusal, ask, || unsafe {
        *dptr
    })
}

/// What the call says above the quota.
#[cold]
fn refused(real: cuMemAllocManaged, bytesize: usize, flags: u32) -> CUresult {
    let ask = |flags| {
        let mut at = 0;
        // SAFETY: an out parameter that outlives the call.
        let asked = unsafe { real(&raw mut at, refusal::impossible(bytesize), flags) };
        if asked.is_success() {
            // SAFETY: the driver has just returned it, and the program has not seen it.
            let _ = unsafe { calls::cuMemFree_v2(at) };
        }
        asked
    };
    refusal::of(ask(flags), || ask(CUmemAttach_flags::GLOBAL.0))
}
