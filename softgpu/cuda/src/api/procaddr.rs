//! `cuGetProcAddress`: the function for a name, a version and flags. And `cuGetExportTable`, which
//! always fails.

use std::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::{
    CUdriverProcAddress_flags as Flags, CUdriverProcAddressQueryResult as Status, CUresult, CUuuid,
};
use gpushare_cuda_abi::symbols;
use softgpu::Result;

use super::init::driver_version;
use crate::abi::{out, out_if, required, text};
use crate::names;

driver! {
    /// The first version has no fifth parameter: that a function is not found is an error of it.
    early fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64) {
        match find(symbol, pfn, version, flags)? {
            Status::SUCCESS => Ok(()),
            _ => Err(CUresult::NOT_FOUND),
        }
    }
    early fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64, status: *mut Status) {
        out_if(status, find(symbol, pfn, version, flags)?);
        Ok(())
    }
    /// Export tables are an undocumented interface between NVIDIA's runtime and driver. softgpu
    /// does not imitate it.
    early fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) {
        required(id)?;
        out(table, std::ptr::null())?;
        Err(CUresult::NOT_FOUND)
    }
}

/// Looks up a function. A function that is not found is no error here: the pointer is null and the
/// status gives the reason.
fn find(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64) -> Result<Status> {
    required(pfn)?;
    let base = text(symbol)?;
    if flags > u64::from(Flags::PER_THREAD_DEFAULT_STREAM.0) || version > driver_version() {
        return Err(CUresult::INVALID_VALUE);
    }
    let version = u32::try_from(version).map_err(|_| CUresult::INVALID_VALUE)?;
    let address = address(&base, version, flags);
    out(pfn, address.unwrap_or(std::ptr::null_mut()))?;
    let newest = u32::try_from(driver_version()).unwrap_or(0);
    Ok(match address {
        Some(_) => Status::SUCCESS,
        None if self::address(&base, newest, flags).is_some() => Status::VERSION_NOT_SUFFICIENT,
        None => Status::SYMBOL_NOT_FOUND,
    })
}

/// The function of exactly this variant. An older variant is never returned in its place, because
/// it may have other parameters.
fn address(base: &str, version: u32, flags: u64) -> Option<*mut c_void> {
    let (_, row) = symbols::cuda_by_version(base, version, flags)?;
    let function = names::implemented(row.name)?;
    Some(function as *mut c_void)
}
