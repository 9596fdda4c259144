//! Where a pool's memory is, and the segments by which it grows.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPoolProps, CUresult,
};

use crate::Result;
use crate::memory::host::OfPool;
use crate::memory::managed::{Location, Managed};
use crate::memory::phys::Region;
use crate::spec::ManagedAccess;
use crate::va::Range;
use crate::world::{Device, Kind, process};

/// The first driver that has pools of managed memory, and of host memory on no particular node.
const BY_LOCATION: u32 = 13000;
/// The first driver that has pools of a host's node.
const ON_NODES: u32 = 12020;
/// The only node of this host.
pub(super) const NODE: i32 = 0;

/// Where a pool's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// On the pool's device.
    Device,
    /// On the host. No device has access before it is given.
    Host,
    /// It moves, and prefers this place.
    Managed(Option<Location>),
}

/// The home of a pool with these properties, and its device. A pool that is not of one device has
/// the first.
///
/// # Errors
/// As [`super::create`].
pub(super) fn of(props: &CUmemPoolProps) -> Result<(Arc<Device>, Home)> {
    match props.allocType {
        CUmemAllocationType::PINNED => pinned(props),
        CUmemAllocationType::MANAGED => managed(props),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn pinned(props: &CUmemPoolProps) -> Result<(Arc<Device>, Home)> {
    let types = props.handleTypes;
    if types != CUmemAllocationHandleType::NONE
        && types != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR
    {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let is_private = types == CUmemAllocationHandleType::NONE;
    let driver = process()?.spec().driver;
    match props.location.type_ {
        CUmemLocationType::DEVICE => Ok((device(props.location.id)?, Home::Device)),
        CUmemLocationType::HOST if driver >= BY_LOCATION && is_private => {
            Ok((first()?, Home::Host))
        }
        CUmemLocationType::HOST_NUMA if driver >= ON_NODES && props.location.id == NODE => {
            if is_private {
                Ok((first()?, Home::Host))
            } else {
                Err(CUresult::NOT_SUPPORTED)
            }
        }
        CUmemLocationType::INVALID
        | CUmemLocationType::HOST
        | CUmemLocationType::HOST_NUMA
        | CUmemLocationType::HOST_NUMA_CURRENT => Err(CUresult::INVALID_VALUE),
        _ => Err(CUresult::NOT_SUPPORTED),
    }
}

fn managed(props: &CUmemPoolProps) -> Result<(Arc<Device>, Home)> {
    let plain = props.handleTypes == CUmemAllocationHandleType::NONE
        && props.maxSize == 0
        && props.usage == 0;
    if process()?.spec().driver < BY_LOCATION || !plain {
        return Err(CUresult::INVALID_VALUE);
    }
    let home = match props.location.type_ {
        CUmemLocationType::NONE => (first()?, None),
        CUmemLocationType::DEVICE => {
            let device = device(props.location.id)?;
            let place = Location::Device(device.ordinal());
            (device, Some(place))
        }
        CUmemLocationType::HOST => (first()?, Some(Location::Host)),
        CUmemLocationType::HOST_NUMA if props.location.id == NODE => {
            (first()?, Some(Location::Host))
        }
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let mut devices = process()?.devices().iter();
    if devices.any(|device| device.spec().managed != ManagedAccess::Concurrent) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok((home.0, Home::Managed(home.1)))
}

/// The device of a place. A number that is none is an invalid value here, not an invalid device.
fn device(number: i32) -> Result<Arc<Device>> {
    let found = process()?.device(number);
    found.cloned().map_err(|_| CUresult::INVALID_VALUE)
}

fn first() -> Result<Arc<Device>> {
    process()?.device(0).cloned()
}

/// The properties of a pool of a location and type, otherwise as a default pool has them.
pub(super) fn plain(location: CUmemLocation, kind: CUmemAllocationType) -> CUmemPoolProps {
    let has_number = matches!(
        location.type_,
        CUmemLocationType::DEVICE | CUmemLocationType::HOST_NUMA
    );
    CUmemPoolProps {
        allocType: kind,
        handleTypes: CUmemAllocationHandleType::NONE,
        location: CUmemLocation {
            id: if has_number { location.id } else { 0 },
            ..location
        },
        win32SecurityAttributes: std::ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        gpuDirectRDMACapable: 0,
        reserved: [0; 53],
    }
}

impl Home {
    /// The devices that have rights at first: readers and writers, a bit each.
    pub(super) fn first_rights(self, device: &Device) -> u32 {
        match self {
            Self::Device => 1 << device.ordinal(),
            Self::Host | Self::Managed(_) => 0,
        }
    }

    /// The device that memory belongs to which an operation on `of_stream` allocates.
    pub(super) fn owner<'a>(
        self,
        of_pool: &'a Arc<Device>,
        of_stream: &'a Arc<Device>,
    ) -> &'a Arc<Device> {
        match self {
            Self::Device | Self::Managed(Some(Location::Device(_))) => of_pool,
            Self::Host | Self::Managed(_) => of_stream,
        }
    }

    /// How an allocation of `size` bytes is accessible. Managed memory is accessible without
    /// rights.
    pub(super) fn range(self, ordinal: u32, size: u64, readers: u32, writers: u32) -> Range {
        let range = match self {
            Self::Host => Range::on_host(size),
            Self::Device | Self::Managed(_) => Range::on_device(ordinal, size),
        };
        let (readers, writers) = match self {
            Self::Managed(_) => (!0, !0),
            Self::Device | Self::Host => (readers, writers),
        };
        Range {
            readers,
            writers,
            peers: false,
            ..range
        }
    }
}

/// Memory by which a pool grows.
#[derive(Debug)]
pub(super) enum Segment {
    /// Pages of a device.
    Device(Region),
    /// Memory of the host.
    Host(OfPool),
    /// Managed memory.
    Managed(Arc<Managed>),
}

impl Segment {
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub(super) fn new(home: Home, device: &Arc<Device>, bytes: u64) -> Result<Self> {
        Ok(match home {
            Home::Device => {
                let region = Region::new(device, Kind::Pool, bytes)?;
                Self::Device(region.noted(device, Kind::Pool, bytes))
            }
            Home::Host => Self::Host(OfPool::new(bytes)?),
            Home::Managed(place) => {
                let managed = Managed::new(device, bytes, bytes, None)?;
                if let Some(place) = place {
                    managed.prefer(place);
                }
                Self::Managed(Arc::new(managed))
            }
        })
    }

    /// The pool gives it back.
    pub(super) fn give_back(self) {
        if let Self::Managed(managed) = self {
            managed.freed();
        }
    }

    pub(super) fn base(&self) -> u64 {
        match self {
            Self::Device(region) => region.base(),
            Self::Host(pinned) => pinned.base(),
            Self::Managed(managed) => managed.base(),
        }
    }

    /// The device's pages that hold an address.
    pub(super) fn region_of(&self, address: u64) -> Option<&Region> {
        match self {
            Self::Device(region) => region.holds(address).then_some(region),
            Self::Host(_) | Self::Managed(_) => None,
        }
    }

    /// The managed memory that holds an address.
    pub(super) fn managed_of(&self, address: u64) -> Option<&Arc<Managed>> {
        match self {
            Self::Managed(managed) => managed.holds(address).then_some(managed),
            Self::Device(_) | Self::Host(_) => None,
        }
    }
}
