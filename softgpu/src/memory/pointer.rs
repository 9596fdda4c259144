//! Pointer attributes.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use gpushare_cuda_abi::cuda::{
    CU_DEVICE_INVALID, CU_MEM_CREATE_USAGE_HW_DECOMPRESS, CUmemorytype,
    CUpointer_attribute as Attribute, CUresult,
};

use super::table::{self, Record, What};
use super::vmm;
use crate::Result;
use crate::va;
use crate::world::process;

/// An attribute's value, in the API's width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A handle or an address.
    Pointer(u64),
    /// An `unsigned long long`.
    Long(u64),
    /// An `unsigned int` or an `int`.
    Int(u32),
    /// An `int` in the API, 0 or 1.
    Flag(bool),
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FD: u32 = 1;

/// The value of one attribute of the allocation that contains `address`.
///
/// # Errors
/// `INVALID_VALUE` for an address outside the driver's allocations or an unknown attribute;
/// `NOT_SUPPORTED` for peer tokens.
pub fn attribute(attribute: Attribute, address: u64) -> Result<Answer> {
    if let Some((base, len)) = vmm::reservation(address)
        && let Some(answer) = of_reservation(attribute, base, len)
    {
        return Ok(answer);
    }
    let (base, record) = table::find(address).ok_or(CUresult::INVALID_VALUE)?;
    of_allocation(attribute, address, base, &record)
}

/// The value reported instead of an error if several attributes are queried at once.
///
/// # Errors
/// `INVALID_VALUE` for an unknown attribute.
pub fn nothing(attribute: Attribute) -> Result<Answer> {
    Ok(match attribute {
        Attribute::CONTEXT
        | Attribute::DEVICE_POINTER
        | Attribute::HOST_POINTER
        | Attribute::RANGE_START_ADDR
        | Attribute::MAPPING_BASE_ADDR
        | Attribute::MEMPOOL_HANDLE => Answer::Pointer(0),
        Attribute::BUFFER_ID
        | Attribute::RANGE_SIZE
        | Attribute::MAPPING_SIZE
        | Attribute::ALLOWED_HANDLE_TYPES
        | Attribute::MEMORY_BLOCK_ID => Answer::Long(0),
        Attribute::MEMORY_TYPE | Attribute::ACCESS_FLAGS => Answer::Int(0),
        Attribute::DEVICE_ORDINAL => Answer::Int(CU_DEVICE_INVALID.cast_unsigned()),
        Attribute::SYNC_MEMOPS
        | Attribute::IS_MANAGED
        | Attribute::IS_LEGACY_CUDA_IPC_CAPABLE
        | Attribute::MAPPED
        | Attribute::IS_GPU_DIRECT_RDMA_CAPABLE
        | Attribute::IS_HW_DECOMPRESS_CAPABLE => Answer::Flag(false),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Allocations with `SYNC_MEMOPS` set, by number: their copies and memsets complete before the call
/// returns.
static WAITING: RwLock<BTreeSet<u64>> = RwLock::new(BTreeSet::new());

/// Sets or clears `SYNC_MEMOPS` of the allocation that contains an address.
///
/// # Errors
/// `INVALID_VALUE` for an address outside the driver's allocations, `NOT_SUPPORTED` for memory that
/// the program mapped.
pub fn set_sync_memops(address: u64, on: bool) -> Result {
    let (_, record) = table::find(address).ok_or(CUresult::INVALID_VALUE)?;
    if matches!(record.what, What::Mapped(_)) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let mut waiting = WAITING.write().unwrap_or_else(PoisonError::into_inner);
    if on {
        waiting.insert(record.id);
    } else {
        waiting.remove(&record.id);
    }
    Ok(())
}

fn waits(id: u64) -> bool {
    WAITING
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .contains(&id)
}

/// Whether `SYNC_MEMOPS` is set for the allocation at this address.
pub(crate) fn sync_memops(address: u64) -> bool {
    let any = !WAITING
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty();
    any && table::find(address).is_some_and(|(_, record)| waits(record.id))
}

/// The attributes of reserved addresses, mapped or not; `None` for the attributes that reservations
/// lack.
fn of_reservation(attribute: Attribute, base: u64, len: u64) -> Option<Answer> {
    Some(match attribute {
        Attribute::RANGE_START_ADDR => Answer::Pointer(base),
        Attribute::RANGE_SIZE => Answer::Long(len),
        _ => return None,
    })
}

fn of_allocation(attribute: Attribute, address: u64, base: u64, record: &Record) -> Result<Answer> {
    let host = !record.on_device();
    let managed = match &record.what {
        What::Managed(_) => true,
        What::Pool(block) => block.managed().is_some(),
        _ => false,
    };
    Ok(match attribute {
        Attribute::CONTEXT => Answer::Pointer(record.context),
        Attribute::MEMORY_TYPE => Answer::Int(if host {
            CUmemorytype::HOST.0
        } else {
            CUmemorytype::DEVICE.0
        }),
        Attribute::DEVICE_POINTER => Answer::Pointer(address),
        Attribute::HOST_POINTER if host || managed => Answer::Pointer(address),
        Attribute::HOST_POINTER => return Err(CUresult::INVALID_VALUE),
        Attribute::P2P_TOKENS => return Err(CUresult::NOT_SUPPORTED),
        Attribute::SYNC_MEMOPS => Answer::Flag(waits(record.id)),
        Attribute::BUFFER_ID => Answer::Long(record.id),
        Attribute::IS_MANAGED => Answer::Flag(managed),
        Attribute::DEVICE_ORDINAL => Answer::Int(record.device),
        Attribute::IS_LEGACY_CUDA_IPC_CAPABLE => {
            Answer::Flag(matches!(record.what, What::Small(..) | What::Large(_)))
        }
        Attribute::RANGE_START_ADDR | Attribute::MAPPING_BASE_ADDR => Answer::Pointer(base),
        Attribute::RANGE_SIZE | Attribute::MAPPING_SIZE => Answer::Long(record.size),
        Attribute::MAPPED => Answer::Flag(true),
        Attribute::ALLOWED_HANDLE_TYPES => Answer::Long(u64::from(handle_types(record))),
        Attribute::IS_GPU_DIRECT_RDMA_CAPABLE => Answer::Flag(false),
        Attribute::IS_HW_DECOMPRESS_CAPABLE => Answer::Flag(is_decompressed(record)),
        Attribute::ACCESS_FLAGS => Answer::Int(access_flags(base)),
        Attribute::MEMPOOL_HANDLE => Answer::Pointer(pool_handle(record)),
        Attribute::MEMORY_BLOCK_ID => Answer::Long(record.id),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Whether a decompression engine, if there is one, takes the memory. Pools for it are not made
/// here.
fn is_decompressed(record: &Record) -> bool {
    let has_engine = process().is_ok_and(|process| process.spec().decompress);
    has_engine
        && match &record.what {
            What::Small(..) | What::Large(_) => true,
            What::Mapped(mapping) => mapping.usage() & CU_MEM_CREATE_USAGE_HW_DECOMPRESS != 0,
            _ => false,
        }
}

fn handle_types(record: &Record) -> u32 {
    match &record.what {
        What::Mapped(mapping) => mapping.handle_types() & POSIX_FD,
        What::Pool(block) => block.pool().handle_types() & POSIX_FD,
        _ => 0,
    }
}

fn pool_handle(record: &Record) -> u64 {
    match &record.what {
        What::Pool(block) => block.pool().handle() as u64,
        _ => 0,
    }
}

/// 0 for no access, 1 for reading, 3 for both: the highest right that any device has.
fn access_flags(base: u64) -> u32 {
    let Some((_, range)) = va::find(base) else {
        return 0;
    };
    match (range.readers, range.writers) {
        (_, writers) if writers != 0 => 3,
        (readers, _) if readers != 0 => 1,
        _ => 0,
    }
}
