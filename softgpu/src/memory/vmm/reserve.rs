//! Reserved addresses.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use gpushare_cuda_abi::cuda::CUresult;

use super::whole_pages;
use crate::Result;
use crate::memory::table;
use crate::spec::PAGE;
use crate::va;

/// The application's reservations: base → length.
static RESERVED: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

/// Reserves `len` bytes of addresses, at `near` if that range is free.
///
/// # Errors
/// `INVALID_VALUE` for a length that is not a positive multiple of 2 MiB or an alignment that is
/// not 0 or a power of two, `OUT_OF_MEMORY` if no addresses are left.
pub fn address_reserve(len: u64, align: u64, near: u64) -> Result<u64> {
    if len == 0 || !len.is_multiple_of(PAGE) || align != 0 && !align.is_power_of_two() {
        return Err(CUresult::INVALID_VALUE);
    }
    let base = if near == 0 {
        va::reserve(len, align)
    } else {
        va::reserve_near(near, len, align)
    }?;
    RESERVED
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(base, len);
    Ok(base)
}

/// Releases a whole reservation.
///
/// # Errors
/// `INVALID_VALUE` if the range is not exactly one reservation, or contains a mapping.
pub fn address_free(address: u64, len: u64) -> Result {
    let mut reserved = RESERVED.write().unwrap_or_else(PoisonError::into_inner);
    if reserved.get(&address) != Some(&len) || !table::overlapping(address, len).is_empty() {
        return Err(CUresult::INVALID_VALUE);
    }
    let exclusive = table::exclusive();
    let released = va::release(address, len);
    drop(exclusive);
    released?;
    reserved.remove(&address);
    Ok(())
}

/// Whether the whole range is in one reservation of the application.
pub(super) fn holds(address: u64, len: u64) -> bool {
    if !whole_pages(address, len) {
        return false;
    }
    find(address).is_some_and(|(base, held)| len <= held - (address - base))
}

/// The reservation that contains an address: base and length.
pub(crate) fn find(address: u64) -> Option<(u64, u64)> {
    let reserved = RESERVED.read().unwrap_or_else(PoisonError::into_inner);
    let (&base, &len) = reserved.range(..=address).next_back()?;
    (address - base < len).then_some((base, len))
}

/// Whether the application has reserved addresses.
pub(crate) fn is_used() -> bool {
    let reserved = RESERVED.read().unwrap_or_else(PoisonError::into_inner);
    !reserved.is_empty()
}
