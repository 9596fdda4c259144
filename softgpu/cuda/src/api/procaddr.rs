//! `cuGetProcAddress`: which function a name, a version and flags mean; and the export tables, which nobody gets here.

use std::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::{
    CUdriverProcAddress_flags, CUdriverProcAddressQueryResult, CUresult, CUuuid,
};
use gpushare_cuda_abi::symbols::cuda_by_version;
use softgpu::Result;

use crate::abi::{out, out_if, required, text};
use crate::names::implemented;

driver! {
    /// Finds a function without saying why not.
    early fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64) {
        find(symbol, pfn, version, flags).map(|_| ())
    }

    /// Finds a function, or says why not.
    early fn cuGetProcAddress_v2(
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        version: i32,
        flags: u64,
        status: *mut CUdriverProcAddressQueryResult,
    ) {
        out_if(status, find(symbol, pfn, version, flags)?);
        Ok(())
    }

    /// Has no table for anybody. Runtimes fetch undocumented functions here, and a proof that the driver is NVIDIA's own, which
    /// this one is not and does not claim to be.
    early fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) {
        required(id)?;
        out(table, std::ptr::null())?;
        Err(CUresult::NOT_SUPPORTED)
    }
}

/// Answers the address or NULL, and which of the two and why. Not finding is no error.
///
/// # Errors
/// `INVALID_VALUE` for NULL, for text that is not UTF-8, and for flags that do not exist.
fn find(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> Result<CUdriverProcAddressQueryResult> {
    let name = text(symbol)?;
    if flags > u64::from(CUdriverProcAddress_flags::PER_THREAD_DEFAULT_STREAM.0) {
        return Err(CUresult::INVALID_VALUE);
    }
    let driver = u32::try_from(super::init::driver_version()).unwrap_or(0);
    let asked = u32::try_from(version).unwrap_or(0).min(driver);
    let found = address(&name, asked, flags);
    out(pfn, found.unwrap_or(std::ptr::null_mut()))?;
    Ok(if found.is_some() {
        CUdriverProcAddressQueryResult::SUCCESS
    } else if address(&name, driver, flags).is_some() {
        CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT
    } else {
        CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND
    })
}

/// The implemented function that `name` means at `version`, if it is implemented.
fn address(name: &str, version: u32, flags: u64) -> Option<*mut c_void> {
    let (_, row) = cuda_by_version(name, version, flags)?;
    implemented(row.name).map(|function| function as *mut c_void)
}
