//! `cuGetProcAddress`: the driver is asked first, and its answer is replaced only where it is a function we hook.
//!
//! A name means different functions at different versions (`cuMemAlloc` is the 32-bit one below 3020), so the symbol table decides
//! by name, version and flags, by the driver's own rule. Versions newer than the table are a newer program on a newer driver: the
//! driver may then mean a variant that the table does not know, and a hook of another variant would have the wrong parameters.
//! Where the driver gives the same address at the asked version as at the newest one we know, it means the same function.
//!
//! # Safety
//! The driver is called with the program's own arguments, and with locals in their place. What the driver wrote is read and
//! replaced at the program's own pointers, only after the driver accepted them.
#![allow(unsafe_code, reason = "calls the driver and edits its answer in place")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::{CUdriverProcAddressQueryResult, CUresult};
use gpushare_cuda_abi::symbols::{newest_version, packed};

use crate::entry::{Hook, hooks};

hooks! {
    #[always]
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) -> CUresult = v1;
    #[always]
    fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut CUdriverProcAddressQueryResult) -> CUresult = v2;
}

/// How often a hooked name was asked for at a version that means a function this library does not know.
static UNKNOWN_VARIANTS: AtomicU64 = AtomicU64::new(0);

fn v1(
    real: cuGetProcAddress,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments, or a local in place of its pointer.
    let ask = |version, pfn| unsafe { real(symbol, pfn, version, flags) };
    let answer = ask(version, pfn);
    if answer.is_success() {
        // SAFETY: the driver accepted both pointers.
        unsafe { replace(symbol, pfn, version, flags, &ask) };
    }
    answer
}

fn v2(
    real: cuGetProcAddress_v2,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the program's arguments; `status` may be null, and is then left alone by the driver.
    let answer = unsafe { real(symbol, pfn, version, flags, status) };
    // SAFETY: the driver accepted and wrote it.
    let found = status.is_null() || unsafe { *status } == CUdriverProcAddressQueryResult::SUCCESS;
    if answer.is_success() && found {
        // SAFETY: as above, with a local in place of the program's pointer and no status.
        let ask = |version, pfn| unsafe { real(symbol, pfn, version, flags, ptr::null_mut()) };
        // SAFETY: the driver accepted both pointers.
        unsafe { replace(symbol, pfn, version, flags, &ask) };
    }
    answer
}

/// Puts our hook in the place of the driver's function, if we have one for what was asked.
///
/// # Safety
/// `symbol` is a string or null, `pfn` is null or points to the driver's answer.
unsafe fn replace(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    ask: &dyn Fn(c_int, *mut *mut c_void) -> CUresult,
) {
    if symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: not null, and a string by the caller's promise; the driver wrote the answer.
    let (name, found) = unsafe { (CStr::from_ptr(symbol), *pfn) };
    let Some(hook) = hook_for(name, version, flags) else {
        return;
    };
    if found.is_null() {
        return;
    }
    if is_newer_than_the_table(version) && !means_the_same(found, ask) {
        let count = UNKNOWN_VARIANTS.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(
            ?name,
            version,
            count,
            "the driver has a newer variant than gpushare knows: not accounted"
        );
        return;
    }
    hook.row.offer(found);
    // SAFETY: the driver wrote to it a moment ago.
    unsafe { *pfn = hook.ours.cast_mut() };
}

/// The hook of what `cuGetProcAddress` means by these arguments.
fn hook_for(name: &CStr, version: c_int, flags: u64) -> Option<&'static Hook> {
    let name = name.to_str().ok()?;
    let version = u32::try_from(version).ok()?;
    // A driver that answers a name with a version suffix can only mean the export of that name.
    let row = packed::by_version(name, version, flags).or_else(|| packed::by_name(name))?;
    super::find_name(packed::name(row))
}

/// The newest version the symbol table knows.
const NEWEST: u32 = newest_version();

fn is_newer_than_the_table(version: c_int) -> bool {
    u32::try_from(version).is_ok_and(|version| version > NEWEST)
}

/// Whether the driver means the same function at the newest version the table knows.
fn means_the_same(found: *mut c_void, ask: &dyn Fn(c_int, *mut *mut c_void) -> CUresult) -> bool {
    let mut known = ptr::null_mut();
    let newest = c_int::try_from(NEWEST).unwrap_or(c_int::MAX);
    ask(newest, &raw mut known).is_success() && ptr::eq(known, found)
}
