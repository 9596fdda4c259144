//! Sharing of pools between processes: a descriptor identifies the pool, a small record identifies
//! an allocation in it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUmemAllocationHandleType, CUmemPoolPtrExportData, CUresult};

use super::alloc::PoolBlock;
use super::home::Home;
use super::{Pool, current, get};
use crate::Result;
use crate::memory::phys::{Hold, Region};
use crate::memory::table::{self, Record, What};
use crate::va::Range;
use crate::world::{Share, process};

/// The first bytes of a pool's identity.
const TAG: &[u8] = b"pool";

/// The identity of a pool among all processes.
fn identity(pool: &Pool) -> Result<Vec<u8>> {
    let mut name = TAG.to_vec();
    name.extend(process()?.number()?.to_le_bytes());
    name.extend((pool.handle as u64).to_le_bytes());
    Ok(name)
}

/// A descriptor with which another process may import the pool.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool, or the pool was not created for export.
pub fn export(handle: usize) -> Result<OwnedFd> {
    let pool = get(handle)?;
    let exportable = pool.props.0.handleTypes == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    if !exportable || pool.imported.is_some() {
        return Err(CUresult::INVALID_VALUE);
    }
    // A share without pages: the descriptor carries only the identity. Exported pointers share the
    // memory.
    pool.device.share(&[], &identity(&pool)?)?.export()
}

/// Imports the pool of a descriptor. This process cannot allocate from it, but can import pointers
/// into it.
///
/// # Errors
/// `INVALID_VALUE` if the descriptor is not an exported pool.
pub fn import(file: BorrowedFd<'_>) -> Result<usize> {
    let share = Share::import(process()?, file).map_err(|_| CUresult::INVALID_VALUE)?;
    if !share.tag().starts_with(TAG) {
        return Err(CUresult::INVALID_VALUE);
    }
    let device = Arc::clone(share.device());
    let pool = Pool::enter(
        &device,
        Home::Device,
        current::on(&device),
        false,
        Some(share.tag().to_vec()),
    );
    Ok(pool.handle)
}

/// A record of an allocation for a process that has imported its pool.
///
/// # Errors
/// `INVALID_VALUE` if the address is not the start of an allocation of an exportable pool.
pub fn export_pointer(address: u64) -> Result<CUmemPoolPtrExportData> {
    let Record {
        size,
        what: What::Pool(block),
        ..
    } = table::expect(address)?
    else {
        return Err(CUresult::INVALID_VALUE);
    };
    let pool = block.pool();
    let exportable = pool.props.0.handleTypes == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    if block.is_borrowed() || !exportable {
        return Err(CUresult::INVALID_VALUE);
    }
    let state = pool.lock();
    let segment = state
        .segments
        .values()
        .find_map(|segment| segment.region_of(address))
        .ok_or(CUresult::INVALID_VALUE)?;
    let share = segment.hold().share(&[])?;
    let name = identity(pool)?;
    let mut reserved = [0u8; 64];
    reserved[..name.len()].copy_from_slice(&name);
    for (field, value) in [share.id(), address - segment.base(), size]
        .into_iter()
        .enumerate()
    {
        let at = name.len() + field * 8;
        reserved[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    Ok(CUmemPoolPtrExportData { reserved })
}

/// Maps an allocation of an imported pool and returns its address in this process.
///
/// # Errors
/// `INVALID_VALUE` for a pool that was not imported, or a record of another pool or of memory that
/// is gone.
pub fn import_pointer(handle: usize, data: &CUmemPoolPtrExportData) -> Result<u64> {
    let pool = get(handle)?;
    let name = pool.imported.clone().ok_or(CUresult::INVALID_VALUE)?;
    let rest = data
        .reserved
        .strip_prefix(name.as_slice())
        .ok_or(CUresult::INVALID_VALUE)?;
    let field = |n: usize| -> Result<u64> {
        let bytes = rest
            .get(n * 8..n * 8 + 8)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(CUresult::INVALID_VALUE)
    };
    let (id, offset, size) = (field(0)?, field(1)?, field(2)?);
    let share = pool.device.join(id).map_err(|_| CUresult::INVALID_VALUE)?;
    let region = Region::of(&pool.device, Hold::shared(share))?;
    if offset
        .checked_add(size)
        .is_none_or(|end| end > region.len())
    {
        return Err(CUresult::INVALID_VALUE);
    }
    let base = region.base() + offset;
    let ordinal = pool.device.ordinal();
    let block = PoolBlock::borrowed(Arc::clone(&pool), size, region);
    let what = What::Pool(Arc::new(block));
    let record = Record {
        size,
        id: table::fresh_id(),
        device: ordinal,
        context: 0,
        what,
    };
    table::insert(
        base,
        record,
        Range {
            peers: false,
            ..Range::on_device(ordinal, size)
        },
    )?;
    Ok(base)
}
