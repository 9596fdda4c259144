//! The device resources of green contexts: multiprocessors, and the rules for splitting them.
//!
//! An application holds them as plain structures. Bytes that are reserved for the driver store
//! where a structure came from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::{
    CUdevResource, CUdevResource_v1, CUdevResource_v1_anon, CUdevResourceDesc, CUdevResourceType,
    CUdevSmResource, CUdevSmResourceSplitByCount_flags, CUresult,
};

use crate::error::Result;
use crate::handle::Handles;
use crate::world::Device;

/// The minimum number of multiprocessors of a part, and the number it is a multiple of, on compute
/// capability 9.0 and later.
const GRAIN: u32 = 8;
/// The same with `IGNORE_SM_COSCHEDULING`.
const FINE_GRAIN: u32 = 2;
/// Marks a structure as made by softgpu.
const MAGIC: u32 = 0x5105_5e50;

static DESCRIPTORS: Handles<Descriptor> = Handles::new();

/// Where a resource came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A query of a device, context or green context. May be split.
    Whole,
    /// One of the equal parts of a split. May not be split again.
    Part(u64),
    /// The remainder of a split.
    Rest(u64),
}

/// Multiprocessors of a device.
#[derive(Debug, Clone, Copy)]
pub struct SmResource {
    device: u32,
    count: u32,
    grain: u32,
    origin: Origin,
}

/// The result of a split.
#[derive(Debug)]
pub struct Split {
    /// The equal parts.
    pub parts: Vec<SmResource>,
    /// The remainder, if there is one.
    pub rest: Option<SmResource>,
}

/// The resources of a green context to be created.
#[derive(Debug)]
pub struct Descriptor {
    device: u32,
    whole: SmResource,
}

impl SmResource {
    /// All multiprocessors of a device.
    pub fn of_device(device: &Device) -> Self {
        Self {
            device: device.ordinal(),
            count: device.spec().sm,
            grain: GRAIN,
            origin: Origin::Whole,
        }
    }

    /// The same multiprocessors, as a query of a green context returns them.
    pub fn provisioned(self) -> Self {
        Self {
            origin: Origin::Whole,
            ..self
        }
    }

    /// Reads a structure of the application.
    ///
    /// # Errors
    /// `INVALID_RESOURCE_TYPE` for another type than multiprocessors,
    /// `INVALID_RESOURCE_CONFIGURATION` for a structure that softgpu did not make.
    pub fn read(resource: &CUdevResource) -> Result<Self> {
        if resource.type_ != CUdevResourceType::SM {
            return Err(CUresult::INVALID_RESOURCE_TYPE);
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&resource._internal_padding[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        let (origin, split) = (number(8), number(16));
        let parts = [number(0), number(24), number(32), number(40)].map(u32::try_from);
        let [Ok(MAGIC), Ok(device), Ok(count), Ok(grain)] = parts else {
            return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        };
        let origin = match origin {
            0 => Origin::Whole,
            1 => Origin::Part(split),
            _ => Origin::Rest(split),
        };
        Ok(Self {
            device,
            count,
            grain,
            origin,
        })
    }

    /// Writes a structure for the application.
    pub fn write(self) -> CUdevResource {
        let (origin, split) = match self.origin {
            Origin::Whole => (0, 0),
            Origin::Part(split) => (1, split),
            Origin::Rest(split) => (2, split),
        };
        let numbers = [
            u64::from(MAGIC),
            origin,
            split,
            u64::from(self.device),
            u64::from(self.count),
            u64::from(self.grain),
        ];
        let mut own = [0; 92];
        for (place, number) in own.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        let sm = CUdevSmResource {
            smCount: self.count,
            minSmPartitionSize: self.grain,
            smCoscheduledAlignment: self.grain,
            flags: 0,
            localityDomainId: 0,
        };
        let mut anon = CUdevResource_v1_anon { _oversize: [0; 40] };
        anon.sm = sm;
        CUdevResource_v1 {
            type_: CUdevResourceType::SM,
            _internal_padding: own,
            anon,
            nextResource: std::ptr::null_mut(),
        }
    }

    /// Splits into at most `most` parts of at least `least` multiprocessors each; without `most`,
    /// into as many parts as possible.
    ///
    /// # Errors
    /// `INVALID_RESOURCE_CONFIGURATION` for a part of an earlier split, and if not even one part is
    /// possible. Unknown flags change nothing.
    pub fn split(self, most: Option<u32>, flags: u32, least: u32) -> Result<Split> {
        let ignore = CUdevSmResourceSplitByCount_flags::IGNORE_SM_COSCHEDULING.0;
        if matches!(self.origin, Origin::Part(_)) {
            return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        }
        let grain = if flags & ignore == 0 {
            GRAIN
        } else {
            FINE_GRAIN
        };
        let each = least.max(1).checked_next_multiple_of(grain);
        let each = each.ok_or(CUresult::INVALID_RESOURCE_CONFIGURATION)?;
        let parts = (self.count / each).min(most.unwrap_or(u32::MAX));
        if parts == 0 {
            return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        }
        static SPLITS: AtomicU64 = AtomicU64::new(1);
        let number = SPLITS.fetch_add(1, Ordering::Relaxed);
        let part = Self {
            count: each,
            grain,
            origin: Origin::Part(number),
            ..self
        };
        let left = self.count - parts * each;
        let rest = Self {
            count: left,
            grain,
            origin: Origin::Rest(number),
            ..self
        };
        Ok(Split {
            parts: vec![part; parts as usize],
            rest: (left > 0).then_some(rest),
        })
    }
}

/// The structure that means no resource.
pub fn none() -> CUdevResource {
    CUdevResource_v1 {
        type_: CUdevResourceType::INVALID,
        _internal_padding: [0; 92],
        anon: CUdevResource_v1_anon { _oversize: [0; 40] },
        nextResource: std::ptr::null_mut(),
    }
}

/// Makes one descriptor of these resources.
///
/// # Errors
/// `INVALID_VALUE` for an empty list; `INVALID_RESOURCE_CONFIGURATION` for resources of several
/// devices, and for several resources of which one is not from a split. A real driver accepts
/// resources of several splits, which may be the same multiprocessors.
pub fn describe(resources: &[SmResource]) -> Result<CUdevResourceDesc> {
    let first = *resources.first().ok_or(CUresult::INVALID_VALUE)?;
    let fits = |other: &SmResource| {
        let is_alike = other.device == first.device && other.grain == first.grain;
        is_alike && other.origin != Origin::Whole
    };
    if resources.len() > 1 && !resources.iter().all(fits) {
        return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
    }
    let whole = SmResource {
        count: resources.iter().map(|resource| resource.count).sum(),
        ..first
    };
    let handle = DESCRIPTORS.insert(Arc::new(Descriptor {
        device: first.device,
        whole,
    }));
    Ok(CUdevResourceDesc(std::ptr::without_provenance_mut(handle)))
}

/// The multiprocessors of `device` that a descriptor names; without a descriptor all of them.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no descriptor, or its resources are of another device.
pub fn described(handle: CUdevResourceDesc, device: &Device) -> Result<SmResource> {
    if handle.0.is_null() {
        return Ok(SmResource::of_device(device));
    }
    let known = DESCRIPTORS.get(handle.0.addr());
    let known = known.filter(|known| known.device == device.ordinal());
    known
        .map(|known| known.whole)
        .ok_or(CUresult::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(count: u32) -> SmResource {
        SmResource {
            device: 0,
            count,
            grain: GRAIN,
            origin: Origin::Whole,
        }
    }

    fn counts(split: &Split) -> (Vec<u32>, Option<u32>) {
        let parts = split.parts.iter().map(|part| part.count).collect();
        (parts, split.rest.map(|rest| rest.count))
    }

    #[test]
    fn parts_are_multiples_of_eight_and_the_rest_is_the_remainder() {
        let split = whole(132).split(Some(2), 0, 10).unwrap();
        assert_eq!(counts(&split), (vec![16, 16], Some(100)));
        let split = whole(132).split(None, 0, 0).unwrap();
        assert_eq!(counts(&split), (vec![8; 16], Some(4)));
        let split = whole(16).split(Some(9), 0, 8).unwrap();
        assert_eq!(counts(&split), (vec![8, 8], None));
        let fine = CUdevSmResourceSplitByCount_flags::IGNORE_SM_COSCHEDULING.0;
        let split = whole(132).split(Some(1), fine, 3).unwrap();
        assert_eq!(counts(&split), (vec![4], Some(128)));
    }

    #[test]
    fn illegal_splits_are_refused() {
        let error = |resource: SmResource, flags, least| resource.split(None, flags, least).err();
        let configuration = Some(CUresult::INVALID_RESOURCE_CONFIGURATION);
        assert_eq!(error(whole(132), 0, 133), configuration);
        assert_eq!(error(whole(132), 0, u32::MAX), configuration);
        assert_eq!(error(whole(132), 0x100, 8), None);
        assert_eq!(error(whole(132), 0, 130), configuration);
        let part = whole(132).split(Some(1), 0, 16).unwrap().parts[0];
        assert_eq!(error(part, 0, 8), configuration);
        assert_eq!(error(part.provisioned(), 0, 8), None);
    }

    #[test]
    fn a_structure_keeps_its_origin_and_a_forged_one_is_refused() {
        let split = whole(132).split(Some(1), 0, 16).unwrap();
        for resource in [whole(132), split.parts[0], split.rest.unwrap()] {
            let read = SmResource::read(&resource.write()).unwrap();
            assert_eq!((read.count, read.origin), (resource.count, resource.origin));
        }
        let mut forged = none();
        assert_eq!(
            SmResource::read(&forged).err(),
            Some(CUresult::INVALID_RESOURCE_TYPE)
        );
        forged.type_ = CUdevResourceType::SM;
        assert_eq!(
            SmResource::read(&forged).err(),
            Some(CUresult::INVALID_RESOURCE_CONFIGURATION)
        );
    }

    #[test]
    fn several_resources_share_a_descriptor_if_they_are_of_splits() {
        let split = whole(132).split(Some(2), 0, 16).unwrap();
        let other = whole(132).split(Some(1), 0, 16).unwrap();
        assert!(describe(&[split.parts[0], split.parts[1], split.rest.unwrap()]).is_ok());
        let configuration = Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        assert!(describe(&[split.parts[0], other.parts[0]]).is_ok());
        assert_eq!(describe(&[whole(132), whole(132)]), configuration);
        assert_eq!(describe(&[]), Err(CUresult::INVALID_VALUE));
    }
}
