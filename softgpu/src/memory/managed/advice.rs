//! Advice on managed memory, stored per page, and the attributes of a range.

use gpushare_cuda_abi::cuda::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUmem_advise, CUmem_range_attribute, CUmemLocationType,
    CUresult,
};

use super::{Managed, find};
use crate::Result;

/// A location of managed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The host.
    Host,
    /// A device, by ordinal.
    Device(u32),
}

impl Location {
    /// The API's device number.
    fn number(self) -> i32 {
        match self {
            Self::Host => CU_DEVICE_CPU,
            Self::Device(ordinal) => i32::try_from(ordinal).unwrap_or(CU_DEVICE_INVALID),
        }
    }
}

/// The advice on one page.
#[derive(Debug, Clone, Default)]
pub(super) struct Advice {
    read_mostly: bool,
    preferred: Option<Location>,
    /// Ordinals, one bit each; the last bit is the host.
    accessed_by: u64,
    /// The destination of the last prefetch.
    pub(super) prefetched: Option<Location>,
}

impl Advice {
    pub(super) fn preferred(&self) -> Option<Location> {
        self.preferred
    }

    pub(super) fn is_read_mostly(&self) -> bool {
        self.read_mostly
    }
}

impl Managed {
    /// All of it prefers a place.
    pub(crate) fn prefer(&self, at: Location) {
        let mut pages = self.advice();
        pages.iter_mut().for_each(|page| page.preferred = Some(at));
    }
}

const HOST_BIT: u32 = 63;

fn bit(location: Location) -> u64 {
    1 << match location {
        Location::Host => HOST_BIT,
        Location::Device(ordinal) => ordinal.min(HOST_BIT - 1),
    }
}

/// Sets or unsets advice on every page of a range.
///
/// # Errors
/// `INVALID_VALUE` for a range that is not managed memory, unknown advice, or a missing location.
pub fn advise(address: u64, len: u64, advice: CUmem_advise, at: Option<Location>) -> Result {
    let (base, managed) = find(address, len)?;
    let at = || at.ok_or(CUresult::INVALID_VALUE);
    let change: Box<dyn Fn(&mut Advice)> = match advice {
        CUmem_advise::SET_READ_MOSTLY => Box::new(|page| page.read_mostly = true),
        CUmem_advise::UNSET_READ_MOSTLY => Box::new(|page| page.read_mostly = false),
        CUmem_advise::SET_PREFERRED_LOCATION => {
            let at = at()?;
            Box::new(move |page| page.preferred = Some(at))
        }
        CUmem_advise::UNSET_PREFERRED_LOCATION => Box::new(|page| page.preferred = None),
        CUmem_advise::SET_ACCESSED_BY => {
            let bit = bit(at()?);
            Box::new(move |page| page.accessed_by |= bit)
        }
        CUmem_advise::UNSET_ACCESSED_BY => {
            let bit = bit(at()?);
            Box::new(move |page| page.accessed_by &= !bit)
        }
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let pages = managed.pages_of(address - base, len);
    managed.advice()[pages].iter_mut().for_each(change);
    Ok(())
}

/// The type of the location with this number.
fn kind(number: i32) -> i32 {
    let kind = match number {
        CU_DEVICE_INVALID => CUmemLocationType::INVALID,
        CU_DEVICE_CPU => CUmemLocationType::HOST,
        _ => CUmemLocationType::DEVICE,
    };
    kind.0.cast_signed()
}

/// An attribute of a range, as the numbers that the API writes: one number, or for `ACCESSED_BY`
/// `room` numbers, padded with `CU_DEVICE_INVALID`.
///
/// # Errors
/// `INVALID_VALUE` for a range that is not managed memory or an unknown attribute.
pub fn range_attribute(
    attribute: CUmem_range_attribute,
    address: u64,
    len: u64,
    room: usize,
) -> Result<Vec<i32>> {
    let (base, managed) = find(address, len)?;
    let pages = managed.pages_of(address - base, len);
    let advice = managed.advice();
    let advice = &advice[pages];
    let common = |of: fn(&Advice) -> Option<Location>| {
        let first = advice.first().and_then(of);
        let same = advice.iter().all(|page| of(page) == first);
        if same {
            first.map_or(CU_DEVICE_INVALID, Location::number)
        } else {
            CU_DEVICE_INVALID
        }
    };
    match attribute {
        CUmem_range_attribute::READ_MOSTLY => {
            Ok(vec![i32::from(advice.iter().all(|page| page.read_mostly))])
        }
        CUmem_range_attribute::PREFERRED_LOCATION => Ok(vec![common(|page| page.preferred)]),
        CUmem_range_attribute::LAST_PREFETCH_LOCATION => Ok(vec![common(|page| page.prefetched)]),
        CUmem_range_attribute::PREFERRED_LOCATION_TYPE => {
            Ok(vec![kind(common(|page| page.preferred))])
        }
        CUmem_range_attribute::PREFERRED_LOCATION_ID => Ok(vec![common(|page| page.preferred)]),
        CUmem_range_attribute::LAST_PREFETCH_LOCATION_TYPE => {
            Ok(vec![kind(common(|page| page.prefetched))])
        }
        CUmem_range_attribute::LAST_PREFETCH_LOCATION_ID => {
            Ok(vec![common(|page| page.prefetched)])
        }
        CUmem_range_attribute::ACCESSED_BY => {
            let all = advice
                .iter()
                .fold(u64::MAX, |all, page| all & page.accessed_by);
            let devices = (0..HOST_BIT)
                .filter(|n| all >> n & 1 == 1)
                .map(|n| Location::Device(n).number());
            let host = (all >> HOST_BIT & 1 == 1).then_some(CU_DEVICE_CPU);
            Ok(devices
                .chain(host)
                .chain(std::iter::repeat(CU_DEVICE_INVALID))
                .take(room)
                .collect())
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}
