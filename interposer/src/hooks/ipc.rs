//! Legacy IPC: memory opened from another process is charged to the process that allocated it.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUipcMemHandle, CUresult};

use crate::account::Units;
use crate::driver::contexts;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::holdings::table::{self, Kind, Record};
use crate::hooks::plain;

hooks! {
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult = |call| exported(dptr, plain::not_opened(dptr, call));
    fn cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2(dptr: Out<'_, CUdeviceptr>, handle: CUipcMemHandle, flags: u32) -> CUresult
        = |call| opened(dptr, call());
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> CUresult = |call| closed(dptr, call());
}

/// The memory stays charged here. From now on other processes may have it open, so it cannot be
/// moved.
pub(super) fn exported(dptr: CUdeviceptr, answer: CUresult) -> CUresult {
    if answer.is_success()
        && let Some((start, _)) = table::find(dptr)
    {
        table::update(start, Record::exported);
    }
    answer
}

fn opened(dptr: Out<'_, CUdeviceptr>, answer: CUresult) -> CUresult {
    if let Some(address) = dptr.after(answer)
        && let Some(here) = contexts::here()
    {
        // Opened twice, or our own: the record that is there stays.
        table::put_back(
            address,
            Record::new(here.device, here.context, Kind::Imported, Units(0)),
        );
    }
    answer
}

fn closed(dptr: CUdeviceptr, answer: CUresult) -> CUresult {
    // Opened twice it stays open, and nothing hangs on this record but that the address is known.
    if answer.is_success() {
        let _ = table::take_of(dptr, Kind::Imported);
    }
    answer
}
