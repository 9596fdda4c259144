//! Access rights of mappings.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::{Mapping, mappings_in, whole_pages};
use crate::Result;
use crate::exec;
use crate::memory::table::{self, Record, What};
use crate::va;
use crate::world::Device;

/// The access right of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// No access.
    None,
    /// Read access.
    Read,
    /// Read and write access.
    ReadWrite,
}

impl Rights {
    /// Sets or clears this device's bits.
    pub(crate) fn apply(self, ordinal: u32, readers: &mut u32, writers: &mut u32) {
        let bit = 1u32.checked_shl(ordinal).unwrap_or(0);
        let set = |mask: &mut u32, on: bool| if on { *mask |= bit } else { *mask &= !bit };
        set(readers, self != Self::None);
        set(writers, self == Self::ReadWrite);
    }

    /// The right that the bits give this device.
    pub(crate) fn of(ordinal: u32, readers: u32, writers: u32) -> Self {
        let has = |mask: u32| mask.checked_shr(ordinal).unwrap_or(0) & 1 == 1;
        match (has(readers), has(writers)) {
            (_, true) => Self::ReadWrite,
            (true, false) => Self::Read,
            (false, false) => Self::None,
        }
    }
}

/// The mapping that contains an address, with its base.
pub(super) fn mapping_at(address: u64) -> Option<(u64, Arc<Mapping>)> {
    match table::find(address) {
        Some((
            base,
            Record {
                what: What::Mapped(mapping),
                ..
            },
        )) => Some((base, mapping)),
        _ => None,
    }
}

/// Sets the devices' rights on a range of mappings without gaps.
///
/// # Errors
/// `INVALID_VALUE` for a range that cuts a mapping or has a gap, `INVALID_DEVICE` for a device that
/// cannot access the memory's.
pub fn set_access(address: u64, len: u64, rights: &[(u32, Rights)]) -> Result {
    if !whole_pages(address, len) || !table::covers(address, len) {
        return Err(CUresult::INVALID_VALUE);
    }
    let mappings = mappings_in(address, len)?;
    for (_, record) in &mappings {
        if let What::Mapped(mapping) = &record.what {
            reachable(mapping.physical.device(), rights)?;
        }
    }
    for (base, record) in mappings {
        if let What::Mapped(mapping) = &record.what {
            exec::host_takes(mapping.physical.device().spec().vmmcall);
        }
        let (_, range) = va::find(base).ok_or(CUresult::INVALID_VALUE)?;
        let (mut readers, mut writers) = (range.readers, range.writers);
        for (ordinal, right) in rights {
            right.apply(*ordinal, &mut readers, &mut writers);
        }
        va::set_access(base, readers, writers);
        if readers == 0 {
            exec::taken(base, range.len);
        }
    }
    Ok(())
}

/// Whether rights on the memory of `owner` can be given. Without peer access the device itself has
/// rights alone; that the answer is this one is unverified.
///
/// # Errors
/// `INVALID_DEVICE` for another device, with `peer=off` in SPEC.
pub(crate) fn reachable(owner: &Device, rights: &[(u32, Rights)]) -> Result {
    let is_other = |(ordinal, right): &(u32, Rights)| {
        *right != Rights::None && *ordinal != owner.ordinal() && !owner.spec().peer
    };
    if rights.iter().any(is_other) {
        Err(CUresult::INVALID_DEVICE)
    } else {
        Ok(())
    }
}

/// The right of one device on the mapping that contains an address.
///
/// # Errors
/// `INVALID_VALUE` if the address is not mapped.
pub fn access(address: u64, ordinal: u32) -> Result<Rights> {
    let (base, _) = mapping_at(address).ok_or(CUresult::INVALID_VALUE)?;
    let (_, range) = va::find(base).ok_or(CUresult::INVALID_VALUE)?;
    Ok(Rights::of(ordinal, range.readers, range.writers))
}

#[cfg(test)]
mod tests {
    use super::Rights;

    #[test]
    fn rights_are_set_and_cleared_per_device() {
        let (mut readers, mut writers) = (0, 0);
        Rights::ReadWrite.apply(0, &mut readers, &mut writers);
        Rights::Read.apply(3, &mut readers, &mut writers);
        assert_eq!((readers, writers), (0b1001, 0b0001));
        assert_eq!(Rights::of(3, readers, writers), Rights::Read);
        assert_eq!(Rights::of(1, readers, writers), Rights::None);
        Rights::None.apply(0, &mut readers, &mut writers);
        assert_eq!((readers, writers), (0b1000, 0));
    }
}
