//! Virtual memory management: addresses, physical memory and mappings, each with its own lifetime.
//!
//! Physical memory lives until its last handle in any process is released *and* its last mapping is
//! removed. A new mapping gives no access. Mappings are made and removed whole.

mod access;
mod physical;
mod reserve;

use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

pub(crate) use access::reachable;
pub use access::{Rights, access, set_access};
pub use physical::{Properties, create, export, import, properties, release, retain};
pub use reserve::{address_free, address_reserve};
pub(crate) use reserve::{find as reservation, is_used};

use super::table::{self, Record, What};
use crate::Result;
use crate::exec;
use crate::spec::PAGE;
use crate::va::{self, Backing, Range};
use physical::Physical;

/// Sizes and addresses are multiples of this: the minimum and the recommended granularity.
pub const GRANULARITY: u64 = PAGE;

/// One mapping; it keeps its physical memory alive.
#[derive(Debug)]
pub(crate) struct Mapping {
    physical: Arc<Physical>,
}

impl Mapping {
    /// What it was made for.
    pub(crate) fn usage(&self) -> u16 {
        self.physical.properties().usage
    }

    /// The handle types that the memory can be exported as.
    pub(crate) fn handle_types(&self) -> u32 {
        self.physical.properties().handle_types
    }
}

fn whole_pages(address: u64, len: u64) -> bool {
    len > 0
        && len.is_multiple_of(PAGE)
        && address.is_multiple_of(PAGE)
        && address.checked_add(len).is_some()
}

/// Maps physical memory at a reserved address. The mapping is inaccessible until rights are set.
///
/// # Errors
/// `NOT_SUPPORTED` for a part of the memory, or another size than it has; `INVALID_VALUE` for
/// addresses that are not reserved or are mapped already.
pub fn map(address: u64, len: u64, offset: u64, handle: usize) -> Result {
    let physical = physical::get(handle)?;
    if offset != 0 || len != physical.properties().size {
        return Err(CUresult::NOT_SUPPORTED);
    }
    if !whole_pages(address, len) || !reserve::holds(address, len) {
        return Err(CUresult::INVALID_VALUE);
    }
    let device = Arc::clone(physical.device());
    exec::host_takes(device.spec().vmmcall);
    let ordinal = device.ordinal();
    let range = Range {
        readers: 0,
        writers: 0,
        peers: false,
        ..Range::on_device(ordinal, len)
    };
    // Published first: of two callers that map at the same addresses, one is refused before it
    // replaces the other's mapping.
    va::publish(address, range)?;
    if let Err(error) = va::map(
        address,
        len,
        Backing::Pages(&device, &physical.runs()),
        false,
    ) {
        va::retract(address);
        return Err(error);
    }
    let what = What::Mapped(Arc::new(Mapping { physical }));
    table::enter(
        address,
        Record {
            size: len,
            id: table::fresh_id(),
            device: ordinal,
            context: 0,
            what,
        },
    );
    Ok(())
}

/// Removes every mapping in a range. The range may have gaps, or no mapping, but must not cut one.
///
/// # Errors
/// `INVALID_VALUE` for a range that cuts a mapping or is not in one reservation.
pub fn unmap(address: u64, len: u64) -> Result {
    if !whole_pages(address, len) || !reserve::holds(address, len) {
        return Err(CUresult::INVALID_VALUE);
    }
    for (base, record) in mappings_in(address, len)? {
        if let What::Mapped(mapping) = &record.what {
            exec::host_takes(mapping.physical.device().spec().vmmcall);
        }
        let id = record.id;
        if let Some(gone) = table::remove_if(base, |now| now.id == id) {
            let exclusive = table::exclusive();
            let undone = va::unmap(base, gone.size);
            drop(exclusive);
            exec::taken(base, gone.size);
            undone?;
        }
    }
    Ok(())
}

/// The mappings in a range; refused if the range cuts a mapping.
fn mappings_in(address: u64, len: u64) -> Result<Vec<(u64, Record)>> {
    let found = table::overlapping(address, len);
    let whole = found
        .iter()
        .all(|(base, record)| *base >= address && base + record.size <= address + len);
    let mapped = found
        .iter()
        .all(|(_, record)| matches!(record.what, What::Mapped(_)));
    if whole && mapped {
        Ok(found)
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}
