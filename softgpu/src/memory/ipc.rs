//! Legacy IPC: other processes open an allocation of `cuMemAlloc` through a handle of 64 bytes,
//! which can be sent in any way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::phys::{Hold, Region};
use super::table::{self, Record, What};
use crate::Result;
use crate::context::{Context, peer};
use crate::exec;
use crate::va::Range;
use crate::world::process;

/// The first bytes of every handle.
const MAGIC: &[u8; 8] = b"softipc1";

/// An opened allocation of another process.
#[derive(Debug)]
pub(crate) struct Import {
    /// Keeps the mapping and the pages.
    _region: Region,
    key: Key,
}

/// Identifies an opened allocation: the number of the exporting process, the allocation's number
/// there, and the opening context.
type Key = (u32, u64, u64);

/// What is known of an opened allocation.
#[derive(Debug)]
struct Opened {
    address: u64,
    /// How often it was opened.
    times: u32,
    /// The ordinals of the device it is on, and of the context that opened it.
    devices: (u32, u32),
    /// Its number in this process.
    id: u64,
}

static OPEN: Mutex<Option<HashMap<Key, Opened>>> = Mutex::new(None);

/// The content of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handle {
    /// The number of the exporting process.
    maker: u32,
    id: u64,
    share: u64,
    offset: u64,
    size: u64,
    uuid: [u8; 16],
}

impl Handle {
    fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let fields: [&[u8]; 7] = [
            MAGIC,
            &self.uuid,
            &self.maker.to_le_bytes(),
            &self.id.to_le_bytes(),
            &self.share.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.size.to_le_bytes(),
        ];
        let all = fields.concat();
        bytes[..all.len()].copy_from_slice(&all);
        bytes
    }

    fn from_bytes(bytes: &[u8; 64]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let (maker, mut rest) = rest.split_first_chunk::<4>()?;
        let mut long = || {
            let (value, left) = rest.split_first_chunk::<8>()?;
            rest = left;
            Some(u64::from_le_bytes(*value))
        };
        let (id, share, offset, size) = (long()?, long()?, long()?, long()?);
        Some(Self {
            maker: u32::from_le_bytes(*maker),
            id,
            share,
            offset,
            size,
            uuid: *uuid,
        })
    }
}

/// A handle for the allocation that starts at `address`. It can be requested any number of times.
///
/// # Errors
/// `INVALID_VALUE` if `address` is not the start of an allocation of `cuMemAlloc`.
pub fn export(address: u64) -> Result<[u8; 64]> {
    let record = table::expect(address)?;
    let (base, share) = match &record.what {
        What::Small(heap, _) => heap
            .with_block(address, |region| {
                region.hold().share(&[]).map(|share| (region.base(), share))
            })
            .ok_or(CUresult::INVALID_VALUE)??,
        What::Large(region) => (region.base(), region.hold().share(&[])?),
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let handle = Handle {
        maker: process()?.number()?,
        id: record.id,
        share: share.id(),
        offset: address - base,
        size: record.size,
        uuid: share.device().uuid(),
    };
    Ok(handle.to_bytes())
}

/// Opens an allocation of another process. Opening it again in the same context returns the same
/// address. A context of another device gets peer access to it while it is open (CUDA Driver API,
/// `cuIpcOpenMemHandle`, `LAZY_ENABLE_PEER_ACCESS`).
///
/// # Errors
/// `INVALID_VALUE` if the bytes are not a handle, `INVALID_CONTEXT` for a handle of this process,
/// and where another context of the same device has opened memory of that process and device (the
/// same page: "by one CUcontext per CUdevice per other process"),
/// `INVALID_DEVICE` for a device that this process does not see, `PEER_ACCESS_UNSUPPORTED` for one
/// whose memory the context's device cannot access, `INVALID_HANDLE` for memory that
/// is gone.
pub fn open(context: &Context, bytes: &[u8; 64]) -> Result<u64> {
    let handle = Handle::from_bytes(bytes).ok_or(CUresult::INVALID_VALUE)?;
    let process = process()?;
    let device = process
        .devices()
        .iter()
        .find(|device| device.uuid() == handle.uuid)
        .ok_or(CUresult::INVALID_DEVICE)?;
    if handle.maker == process.number()? {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let key = (handle.maker, handle.id, context.id());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    if let Some(opened) = open.get_mut(&key) {
        opened.times += 1;
        return Ok(opened.address);
    }
    peer::supported(context, device.ordinal())?;
    let devices = (device.ordinal(), context.device().ordinal());
    let is_elsewhere = |((maker, _, by), opened): (&Key, &Opened)| {
        *maker == handle.maker && *by != context.id() && opened.devices == devices
    };
    if open.iter().any(is_elsewhere) {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let share = device
        .join(handle.share)
        .map_err(|_| CUresult::INVALID_HANDLE)?;
    let region = Region::of(device, Hold::shared(share))?;
    if handle
        .offset
        .checked_add(handle.size)
        .is_none_or(|end| end > region.len())
    {
        return Err(CUresult::INVALID_VALUE);
    }
    let (address, ordinal) = (region.base() + handle.offset, device.ordinal());
    let what = What::Imported(Arc::new(Import {
        _region: region,
        key,
    }));
    let id = table::fresh_id();
    let record = Record {
        size: handle.size,
        id,
        device: ordinal,
        context: context.id(),
        what,
    };
    table::insert(address, record, Range::on_device(ordinal, handle.size))?;
    peer::open(context, ordinal, id);
    open.insert(
        key,
        Opened {
            address,
            times: 1,
            devices,
            id,
        },
    );
    Ok(address)
}

/// Closes an opened allocation after all work on its device. It stays open until it is closed as
/// often as it was opened.
///
/// # Errors
/// `INVALID_VALUE` for an address that [`open`] did not return.
pub fn close(address: u64) -> Result {
    let Record {
        device,
        what: What::Imported(import),
        ..
    } = table::expect(address)?
    else {
        return Err(CUresult::INVALID_VALUE);
    };
    exec::drain_device(device);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    let opened = open.get_mut(&import.key);
    let opened = opened.ok_or(CUresult::INVALID_VALUE)?;
    opened.times -= 1;
    if opened.times == 0 {
        peer::close(opened.id);
        open.remove(&import.key);
        table::remove_if(address, |now| matches!(now.what, What::Imported(_)));
    }
    Ok(())
}

/// Forgets the allocations that a destroyed context had opened.
pub(crate) fn context_gone(context: u64) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.get_or_insert_default()
        .retain(|(_, _, by), _| *by != context); // its peer access goes with it
}

#[cfg(test)]
mod tests {
    use super::Handle;

    const HANDLE: Handle = Handle {
        maker: 7,
        id: 8,
        share: 9,
        offset: 512,
        size: 1000,
        uuid: [3; 16],
    };

    #[test]
    fn a_handle_is_equal_after_conversion_to_bytes_and_back() {
        assert_eq!(Handle::from_bytes(&HANDLE.to_bytes()), Some(HANDLE));
    }

    #[test]
    fn bytes_without_the_magic_are_refused() {
        assert_eq!(Handle::from_bytes(&[0; 64]), None);
    }
}
