//! Legacy IPC: memory opened from another process is charged to the process that allocated it.
//!
//! # Safety
//! The driver is called with the program's own arguments; results are read only after the driver has said that it wrote them.
#![allow(
    unsafe_code,
    reason = "calls the driver and reads what it wrote through the program's pointers"
)]

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUipcMemHandle, CUresult};

use crate::account::Units;
use crate::driver::contexts;
use crate::entry::hooks;
use crate::holdings::table::{self, Kind, Record};

hooks! {
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult = export;
    fn cuIpcOpenMemHandle(dptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> CUresult = open;
    fn cuIpcOpenMemHandle_v2(dptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> CUresult = open;
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> CUresult = close;
}

/// The memory stays charged here; from now on others may have it open, so that it cannot be moved.
fn export(real: cuIpcGetMemHandle, handle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(handle, dptr) };
    if answer.is_success()
        && let Some((start, _)) = table::find(dptr)
    {
        table::update(start, Record::exported);
    }
    answer
}

fn open(
    real: cuIpcOpenMemHandle,
    dptr: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: u32,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(dptr, handle, flags) };
    if answer.is_success()
        && let Some(here) = contexts::here()
    {
        // SAFETY: the driver has written the address.
        let address = unsafe { *dptr };
        // Opened twice, or our own: the record that is there stays.
        table::put_back(
            address,
            Record::new(here.device, here.context, Kind::Imported, Units(0)),
        );
    }
    answer
}

fn close(real: cuIpcCloseMemHandle, dptr: CUdeviceptr) -> CUresult {
    // SAFETY: the program's argument.
    let answer = unsafe { real(dptr) };
    // Opened twice it stays open, and nothing hangs on this record but that the address is known.
    if answer.is_success()
        && table::find(dptr).is_some_and(|(_, record)| record.kind() == Kind::Imported)
    {
        table::take(dptr);
    }
    answer
}
