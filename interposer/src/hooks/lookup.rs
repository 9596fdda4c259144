//! `cuGetProcAddress`: the driver is asked first, and its answer is replaced only where it is a
//! function we hook.
//!
//! A name means different functions at different versions (`cuMemAlloc` is the 32-bit one below
//! 3020), so the symbol table decides by name, version and flags, by the driver's own rule.
//! Versions newer than the table are a newer program on a newer driver: the driver may then mean a
//! variant that the table does not know, and a hook of another variant would have the wrong
//! parameters. Where the driver gives the same address at the asked version as at the newest one we
//! know, it means the same function.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::{CUdriverProcAddressQueryResult, CUresult};
use gpushare_cuda_abi::symbols::{NEWEST_VERSION, packed};

use crate::entry::args::{Out, Text};
use crate::entry::hooks;
use crate::hooks::Found;

hooks! {
    #[always]
    fn cuGetProcAddress(symbol: Text<'_>, pfn: Out<'_, *mut c_void>, version: c_int, flags: u64) -> CUresult = |real(..)| {
        let ask = |version: c_int, pfn: Out<'_, *mut c_void>| real(symbol, pfn, version, flags);
        let answer = ask(version, pfn);
        replaced(symbol, pfn.after(answer), pfn, (version, flags), &ask);
        answer
    };
    #[always]
    fn cuGetProcAddress_v2(symbol: Text<'_>, pfn: Out<'_, *mut c_void>, version: c_int, flags: u64,
        status: Out<'_, CUdriverProcAddressQueryResult>) -> CUresult = |real(..)| {
            let answer = real(symbol, pfn, version, flags, status);
            let is_found = status.after(answer).is_none_or(|status| status == CUdriverProcAddressQueryResult::SUCCESS);
            let found = pfn.after(answer).filter(|_| is_found);
            let ask = |version: c_int, pfn: Out<'_, *mut c_void>| real(symbol, pfn, version, flags, Out::none());
            replaced(symbol, found, pfn, (version, flags), &ask);
            answer
        };
}

/// How often a hooked name was asked for at a version that means a function this library does not
/// know.
static UNKNOWN_VARIANTS: AtomicU64 = AtomicU64::new(0);
/// The log has said so of those before the library started.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The library has started, and with it the log. Runtimes look most functions up before that.
pub(super) fn started() {
    let count = UNKNOWN_VARIANTS.load(Ordering::Relaxed);
    if count > 0 && !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            count,
            "the driver has newer variants than gpushare knows: not accounted"
        );
    }
}

/// The driver's function as it answers for a version, to a place.
type Ask<'a> = &'a dyn Fn(c_int, Out<'_, *mut c_void>) -> CUresult;

/// Replaces the driver's function, `found`, by our hook, if we have one for that name.
fn replaced(
    symbol: Text<'_>,
    found: Option<*mut c_void>,
    pfn: Out<'_, *mut c_void>,
    (version, flags): (c_int, u64),
    ask: Ask<'_>,
) {
    let Some(found) = found.filter(|found| !found.is_null()) else {
        return;
    };
    let Some(name) = symbol.read() else {
        return;
    };
    let hook = match meant(name, version, flags) {
        Meant::Hooked(hook) => hook,
        Meant::Other => return,
        Meant::Unknown => {
            if is_newer_than_the_table(version) {
                // A runtime asks for all names at its start, and calls few of them.
                tracing::debug!(?name, version, "gpushare does not know this function");
            }
            return;
        }
    };
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
    pfn.write(hook.ours.cast_mut());
}

/// The meaning of `cuGetProcAddress`'s arguments.
enum Meant {
    /// A function that we hook.
    Hooked(Found),
    /// A function that is the driver's alone.
    Other,
    /// A function that the table lacks.
    Unknown,
}

fn meant(name: &CStr, version: c_int, flags: u64) -> Meant {
    let (Ok(name), Ok(version)) = (name.to_str(), u32::try_from(version)) else {
        return Meant::Unknown;
    };
    // A driver that answers below the version of a function's per-thread twin can only mean the
    // plain function; one that answers a name with a version suffix, the export of that name.
    let row = packed::by_version(name, version, flags)
        .or_else(|| packed::by_version(name, version, 0))
        .or_else(|| packed::by_name(name));
    let Some(row) = row else {
        return Meant::Unknown;
    };
    super::find_name(packed::name(row)).map_or(Meant::Other, Meant::Hooked)
}

fn is_newer_than_the_table(version: c_int) -> bool {
    u32::try_from(version).is_ok_and(|version| version > NEWEST_VERSION)
}

/// Whether the driver means the same function at the newest version the table knows.
fn means_the_same(found: *mut c_void, ask: Ask<'_>) -> bool {
    let mut known = ptr::null_mut();
    let newest = c_int::try_from(NEWEST_VERSION).unwrap_or(c_int::MAX);
    ask(newest, Out::to(&mut known)).is_success() && ptr::eq(known, found)
}
