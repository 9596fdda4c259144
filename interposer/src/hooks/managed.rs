//! Managed memory: charged in full to the device of the context it is allocated in, wherever its
//! pages are.
//!
//! Pages of managed memory move between host and devices as they are touched. A program may bring
//! all of its managed allocation onto the device, so that counts. It is freed by `cuMemFree`.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUmemAttach_flags, CUresult};

use super::early::Call;
use super::{allocate, refusal};
use crate::driver::calls;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::holdings::table::Kind;

hooks! {
    fn cuMemAllocManaged(dptr: Out<'_, CUdeviceptr>, bytesize: usize, flags: u32) -> CUresult
        = |real(..)| alloc(dptr, bytesize, flags, real);
}

fn alloc(
    dptr: Out<'_, CUdeviceptr>,
    bytesize: usize,
    flags: u32,
    real: impl Fn(Out<'_, CUdeviceptr>, usize, u32) -> CUresult,
) -> CUresult {
    let ask = || real(dptr, bytesize, flags);
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    let refusal = || refused(bytesize, flags, &real);
    let (bytes, by) = (bytesize as u64, Call::Other);
    allocate::pointer(Kind::Managed, bytes, by, refusal, ask, || dptr.read_back())
}

/// The call's result above the quota.
#[cold]
fn refused(
    bytesize: usize,
    flags: u32,
    real: &dyn Fn(Out<'_, CUdeviceptr>, usize, u32) -> CUresult,
) -> CUresult {
    let ask = |flags| {
        let mut at = 0;
        let asked = real(Out::to(&mut at), refusal::impossible(bytesize), flags);
        if asked.is_success() {
            let _ = calls::free(at);
        }
        asked
    };
    refusal::of(ask(flags), || ask(CUmemAttach_flags::GLOBAL.0))
}
