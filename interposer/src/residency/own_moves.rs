//! How memory that the program has made itself is unmapped and mapped again, by the mover's thread.
//! Driver calls without a lock, as in [`leave`](super::leave).

use gpushare_cuda_abi::cuda::{CUmemGenericAllocationHandle, CUresult};

use super::memory::blocks;
use super::own::{Mapped, Mapping, Own};
use crate::driver::calls;
use crate::driver::vmm;

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn known(number: u64) -> Result<Own, CUresult> {
    let own = blocks().owns.map.get(&number).cloned();
    own.ok_or(CUresult::INVALID_VALUE)
}

fn window_is(number: u64, handle: Option<CUmemGenericAllocationHandle>) {
    if let Some(own) = blocks().owns.map.get_mut(&number) {
        own.window = handle;
    }
}

fn mapping_is(number: u64, at: u64, state: Mapped) {
    blocks().mapping(number, at, |mapping| mapping.state = state);
}

/// Maps memory in our window, to be copied.
pub(super) fn open_window(
    number: u64,
    handle: CUmemGenericAllocationHandle,
) -> Result<(), CUresult> {
    let own = known(number)?;
    let (at, bytes) = (own.chunk.at, length(own.chunk.bytes));
    if own.window != Some(handle) {
        close_window(number)?;
        vmm::map(at, bytes, handle)?;
        window_is(number, Some(handle));
    }
    vmm::give_access(at, bytes, &[own.ordinal])
}

/// Undoes that.
pub(super) fn close_window(number: u64) -> Result<(), CUresult> {
    let own = known(number)?;
    if own.window.is_some() {
        vmm::unmap(own.chunk.at, length(own.chunk.bytes))?;
        window_is(number, None);
    }
    Ok(())
}

/// The rights that devices have at a mapping, as the driver says. A lost one has none: the driver
/// may answer nothing about it.
fn rights(mapping: &Mapping) -> Result<Vec<(i32, u64)>, CUresult> {
    let count = calls::device_count()?;
    let asked = (0..count)
        .filter(|ordinal| !blocks().is_lost(*ordinal))
        .map(|ordinal| Ok((ordinal, vmm::access_of(mapping.at, ordinal)?)));
    let all: Vec<(i32, u64)> = asked.collect::<Result<_, CUresult>>()?;
    Ok(all.into_iter().filter(|(_, flags)| *flags != 0).collect())
}

/// Undoes all mappings of memory on the device. On an error they are there as before, as far as the
/// driver maps them again; the next return does the rest.
pub(super) fn unmap(number: u64, handle: CUmemGenericAllocationHandle) -> Result<(), CUresult> {
    close_window(number)?;
    let own = known(number)?;
    for mapping in &own.maps {
        if mapping.access.is_none() {
            let rights = rights(mapping)?;
            blocks().mapping(number, mapping.at, |mapping| {
                mapping.access = Some(rights);
            });
        }
    }
    for mapping in &own.maps {
        if let Err(why) = vmm::unmap(mapping.at, length(own.chunk.bytes)) {
            blocks().torn.insert(number);
            let _ = map(number, handle);
            return Err(why);
        }
        mapping_is(number, mapping.at, Mapped::No);
    }
    Ok(())
}

/// Makes all mappings that are missing.
pub(super) fn map(number: u64, handle: CUmemGenericAllocationHandle) -> Result<(), CUresult> {
    let own = known(number)?;
    let bytes = length(own.chunk.bytes);
    for mapping in &own.maps {
        if mapping.state == Mapped::No {
            vmm::map(mapping.at, bytes, handle)?;
            mapping_is(number, mapping.at, Mapped::Bare);
        }
        if mapping.state != Mapped::Whole {
            let mut rights = mapping.access.clone().unwrap_or_default();
            // One that was lost since they were asked.
            rights.retain(|(ordinal, _)| !blocks().is_lost(*ordinal));
            vmm::set_rights(mapping.at, bytes, &rights)?;
            mapping_is(number, mapping.at, Mapped::Whole);
        }
    }
    blocks().torn.remove(&number);
    Ok(())
}

/// Undoes what a return has mapped.
pub(super) fn undo(number: u64) -> Result<(), CUresult> {
    close_window(number)?;
    let own = known(number)?;
    for mapping in &own.maps {
        if mapping.state != Mapped::No {
            vmm::unmap(mapping.at, length(own.chunk.bytes))?;
            mapping_is(number, mapping.at, Mapped::No);
        }
    }
    Ok(())
}

/// Maps again what a failed move has left unmapped on a device.
pub(super) fn mend(device_index: usize) -> Result<(), CUresult> {
    let torn: Vec<_> = {
        let blocks = blocks();
        let owns = blocks.torn.iter().filter_map(|number| {
            let own = blocks.owns.map.get(number)?;
            Some((*number, own.device.index(), own.chunk.valid.clone()))
        });
        owns.collect()
    };
    for (number, device, valid) in torn {
        if let super::blocks::Valid::Device(handle) = valid
            && device == device_index
        {
            map(number, handle)?;
        }
    }
    Ok(())
}
