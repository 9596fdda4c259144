//! Physical memory and its handles, in this process and across processes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::whole_pages;
use crate::Result;
use crate::exec;
use crate::handle::Handles;
use crate::memory::phys::{Hold, Noted, Pages};
use crate::world::{Device, Kind, PageRun, Share, process};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FD: u32 = 1;

/// The properties of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Bytes.
    pub size: u64,
    /// Handle types it can be exported as, one bit each.
    pub handle_types: u32,
    /// Whether GPUDirect RDMA was requested.
    pub rdma: bool,
    /// What else it was made for: `CU_MEM_CREATE_USAGE_*`.
    pub usage: u16,
}

impl Properties {
    fn to_tag(self) -> Vec<u8> {
        let mut tag = self.size.to_le_bytes().to_vec();
        tag.extend(self.handle_types.to_le_bytes());
        tag.push(u8::from(self.rdma));
        tag.extend(self.usage.to_le_bytes());
        tag
    }

    fn from_tag(tag: &[u8]) -> Option<Self> {
        let (size, rest) = tag.split_first_chunk::<8>()?;
        let (types, rest) = rest.split_first_chunk::<4>()?;
        let (rdma, usage) = rest.split_first()?;
        let properties = Self {
            size: u64::from_le_bytes(*size),
            handle_types: u32::from_le_bytes(*types),
            rdma: *rdma != 0,
            usage: u16::from_le_bytes(usage.try_into().ok()?),
        };
        Some(properties)
    }
}

/// Physical memory of one device. Each mapping and the handle table keep it alive, and while it is
/// alive the handle is its own: a retain of what is mapped answers it again.
#[derive(Debug)]
pub(crate) struct Physical {
    handle: usize,
    device: Arc<Device>,
    hold: Hold,
    properties: Properties,
    /// The handle's reference count.
    refs: Mutex<u32>,
    _noted: Option<Noted>,
}

static HANDLES: Handles<Physical> = Handles::new();

impl Physical {
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn properties(&self) -> Properties {
        self.properties
    }

    pub(super) fn runs(&self) -> Vec<PageRun> {
        self.hold.runs()
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        HANDLES.gone([self.handle]);
    }
}

fn enter(device: &Arc<Device>, hold: Hold, properties: Properties, noted: Option<Noted>) -> usize {
    let handle = HANDLES.fresh();
    let device = Arc::clone(device);
    let physical = Physical {
        handle,
        device,
        hold,
        properties,
        refs: Mutex::new(1),
        _noted: noted,
    };
    HANDLES.insert_at(handle, Arc::new(physical));
    handle
}

pub(super) fn get(handle: usize) -> Result<Arc<Physical>> {
    HANDLES.get(handle).ok_or(CUresult::INVALID_VALUE)
}

/// Allocates physical memory and returns its handle.
///
/// # Errors
/// `INVALID_VALUE` for a size that is not a positive multiple of 2 MiB, `NOT_SUPPORTED` for handle
/// types other than a file descriptor, `OUT_OF_MEMORY`.
pub fn create(device: &Arc<Device>, properties: Properties) -> Result<usize> {
    if !device.spec().vmm {
        return Err(CUresult::NOT_SUPPORTED);
    }
    if !whole_pages(0, properties.size) {
        return Err(CUresult::INVALID_VALUE);
    }
    if properties.handle_types & !POSIX_FD != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    if properties.size > device.capacity() {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    exec::host_takes(device.spec().vmmcall);
    let pages = Pages::take(device, Kind::Vmm, properties.size)?;
    let noted = Noted::new(device, Kind::Vmm, properties.size);
    Ok(enter(device, Hold::own(pages), properties, Some(noted)))
}

/// Releases one reference of a handle.
///
/// # Errors
/// `INVALID_VALUE` if there is no such handle.
pub fn release(handle: usize) -> Result {
    let physical = get(handle)?;
    exec::host_takes(physical.device.spec().vmmcall);
    let mut refs = physical.refs.lock().unwrap_or_else(PoisonError::into_inner);
    match *refs {
        0 => Err(CUresult::INVALID_VALUE),
        1 => {
            *refs = 0;
            // With the count locked, so that a retain in another thread sees both changes or none.
            HANDLES.take(handle);
            Ok(())
        }
        _ => {
            *refs -= 1;
            Ok(())
        }
    }
}

/// Adds a reference to the handle of the memory mapped at an address, and returns it. The number
/// stays the same even if the handle was released before.
///
/// # Errors
/// `INVALID_VALUE` if the address is not mapped.
pub fn retain(address: u64) -> Result<usize> {
    let Some((_, mapping)) = super::access::mapping_at(address) else {
        return Err(CUresult::INVALID_VALUE);
    };
    let physical = &mapping.physical;
    let mut refs = physical.refs.lock().unwrap_or_else(PoisonError::into_inner);
    *refs += 1;
    if *refs == 1 {
        HANDLES.insert_at(physical.handle, Arc::clone(physical));
    }
    Ok(physical.handle)
}

/// The memory of a handle: the device's ordinal and the properties.
///
/// # Errors
/// `INVALID_VALUE` if there is no such handle.
pub fn properties(handle: usize) -> Result<(u32, Properties)> {
    get(handle).map(|physical| (physical.device.ordinal(), physical.properties))
}

/// A descriptor with which another process may import the memory. The descriptor keeps the memory
/// alive.
///
/// # Errors
/// `INVALID_VALUE` if there is no such handle, or the memory was not created for export.
pub fn export(handle: usize) -> Result<OwnedFd> {
    let physical = get(handle)?;
    if physical.properties.handle_types & POSIX_FD == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    physical.hold.share(&physical.properties.to_tag())?.export()
}

/// A handle to the memory of a descriptor. The descriptor stays open and belongs to the caller.
///
/// # Errors
/// `INVALID_VALUE` if the descriptor is not exported memory.
pub fn import(file: BorrowedFd<'_>) -> Result<usize> {
    let share = Share::import(process()?, file).map_err(|_| CUresult::INVALID_VALUE)?;
    let properties = Properties::from_tag(share.tag()).ok_or(CUresult::INVALID_VALUE)?;
    let device = Arc::clone(share.device());
    Ok(enter(&device, Hold::shared(share), properties, None))
}

#[cfg(test)]
mod tests {
    use super::Properties;

    #[test]
    fn properties_are_equal_after_conversion_to_a_tag_and_back() {
        let properties = Properties {
            size: 6 << 20,
            handle_types: 1,
            rdma: true,
            usage: 2,
        };
        assert_eq!(Properties::from_tag(&properties.to_tag()), Some(properties));
    }

    #[test]
    fn a_tag_of_another_kind_or_length_is_refused() {
        assert_eq!(Properties::from_tag(b"a pool, say"), None);
        let longer = [
            Properties {
                size: 1,
                handle_types: 0,
                rdma: false,
                usage: 0,
            }
            .to_tag(),
            vec![0],
        ]
        .concat();
        assert_eq!(Properties::from_tag(&longer), None);
    }
}
