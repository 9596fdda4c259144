//! Managed memory: allocation, advice, prefetches, range attributes.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CU_DEVICE_CPU, CU_STREAM_LEGACY, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute,
    CUmemLocation, CUmemLocationType, CUresult, CUstream,
};
use softgpu::exec::{self, Cost, DefaultStream, Op};
use softgpu::graph::forbidden::Unsafe;
use softgpu::memory::Fill;
use softgpu::memory::managed::{self, Location};
use softgpu::spec::ManagedAccess;
use softgpu::{Device, Result, context, world};

use crate::abi::{inputs, out, outputs, required};

/// A byte of discarded memory: nobody may rely on any.
const JUNK: u32 = 0xdb;

driver! {
    fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32) {
        required(dptr)?;
        let context = context::current()?;
        exec::capture_forbids(Unsafe::AllocateManaged)?;
        out(dptr, managed::alloc(&context, bytesize as u64, flags)?)
    }
    fn cuMemPrefetchAsync twin cuMemPrefetchAsync_ptsz (d: DefaultStream; dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, h_stream: CUstream) {
        prefetch(d, dev_ptr, count, by_number(dst_device)?, h_stream)
    }
    fn cuMemPrefetchAsync_v2 twin cuMemPrefetchAsync_v2_ptsz (d: DefaultStream; dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: u32, h_stream: CUstream) {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        prefetch(d, dev_ptr, count, by_location(location)?, h_stream)
    }
    fn cuMemPrefetchBatchAsync twin cuMemPrefetchBatchAsync_ptsz (d: DefaultStream; dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, starts: *mut usize, kinds: usize, flags: u64, stream: CUstream) {
        batch(Batch { dptrs, sizes, count, places: Some((locations, starts, kinds)), discards: false }, flags, (d, stream))
    }
    fn cuMemDiscardBatchAsync twin cuMemDiscardBatchAsync_ptsz (d: DefaultStream; dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream) {
        batch(Batch { dptrs, sizes, count, places: None, discards: true }, flags, (d, stream))
    }
    fn cuMemDiscardAndPrefetchBatchAsync twin cuMemDiscardAndPrefetchBatchAsync_ptsz (d: DefaultStream; dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, starts: *mut usize, kinds: usize, flags: u64, stream: CUstream) {
        batch(Batch { dptrs, sizes, count, places: Some((locations, starts, kinds)), discards: true }, flags, (d, stream))
    }
    fn cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) {
        advise(dev_ptr, count, advice, || by_number(device))
    }
    fn cuMemAdvise_v2(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) {
        advise(dev_ptr, count, advice, || by_location(location))
    }
    fn cuMemRangeGetAttribute(data: *mut c_void, data_size: usize, attribute: CUmem_range_attribute, dev_ptr: CUdeviceptr, count: usize) {
        context::current()?;
        answer(data, data_size, attribute, dev_ptr, count)
    }
    fn cuMemRangeGetAttributes(data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut CUmem_range_attribute, num_attributes: usize, dev_ptr: CUdeviceptr, count: usize) {
        context::current()?;
        if num_attributes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let (data, sizes) = (inputs(data, num_attributes)?, inputs(data_sizes, num_attributes)?);
        let attributes = inputs(attributes, num_attributes)?;
        for ((data, size), attribute) in data.into_iter().zip(sizes).zip(attributes) {
            answer(data, size, attribute, dev_ptr, count)?;
        }
        Ok(())
    }
    /// A tie is decided for the first place, where a driver chooses at random. Pageable memory has
    /// no place here: the attribute `PAGEABLE_MEMORY_ACCESS` is 0.
    fn cuMemGetLocationInfo(ptr: CUdeviceptr, size: usize, summary: usize, sampling: usize, locations: *mut CUmemLocation) {
        context::current()?;
        required(locations)?;
        let places = managed::places(ptr, size as u64, summary as u64, sampling as u64)?;
        let told: Vec<_> = places.into_iter().map(told).collect();
        outputs(locations, told.len(), &told)
    }
}

fn told(place: Option<Location>) -> CUmemLocation {
    let (type_, id) = match place {
        Some(Location::Device(ordinal)) => (CUmemLocationType::DEVICE, ordinal.cast_signed()),
        Some(Location::Host) => (CUmemLocationType::HOST, 0),
        None => (CUmemLocationType::NONE, 0),
    };
    CUmemLocation { type_, id }
}

fn by_number(device: CUdevice) -> Result<Location> {
    if device == CU_DEVICE_CPU {
        return Ok(Location::Host);
    }
    let device = world::process()?.device(device)?;
    concurrent(device)?;
    Ok(Location::Device(device.ordinal()))
}

/// Refuses a device whose managed memory does not move.
fn concurrent(device: &Device) -> Result {
    match device.spec().managed {
        ManagedAccess::Concurrent => Ok(()),
        ManagedAccess::Fixed => Err(CUresult::INVALID_DEVICE),
    }
}

fn by_location(location: CUmemLocation) -> Result<Location> {
    match location.type_ {
        CUmemLocationType::DEVICE => by_number(location.id),
        CUmemLocationType::HOST
        | CUmemLocationType::HOST_NUMA
        | CUmemLocationType::HOST_NUMA_CURRENT => Ok(Location::Host),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn prefetch(
    default: DefaultStream,
    address: u64,
    count: usize,
    to: Location,
    stream: CUstream,
) -> Result {
    let context = context::current()?;
    let len = count as u64;
    managed::check(address, len)?;
    // To the host, all devices of the stream must be able to.
    concurrent(context.device())?;
    let stream = exec::resolve(&context, stream, default)?;
    // The pages that it moves are known when it begins.
    let cost = match to {
        Location::Host => Cost::ToHost(0),
        Location::Device(_) => Cost::ToDevice(0),
    };
    let op = Op::plain(cost, move || {
        managed::prefetched(address, len, to);
        Ok(())
    });
    let op = op.touching(managed::prefetching(address, len, to));
    exec::submit(&context, &stream, op)
}

/// Ranges to prefetch, discard, or both.
struct Batch {
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    /// Locations, the first range of each, and how many there are.
    places: Option<(*mut CUmemLocation, *mut usize, usize)>,
    discards: bool,
}

/// Its ranges are checked before any is worked at.
fn batch(batch: Batch, flags: u64, (default, stream): (DefaultStream, CUstream)) -> Result {
    let context = context::current()?;
    let legacy = stream == CU_STREAM_LEGACY || stream.is_null() && default == DefaultStream::Legacy;
    if batch.count == 0 || flags != 0 || legacy {
        return Err(CUresult::INVALID_VALUE);
    }
    let starts = inputs(batch.dptrs, batch.count)?;
    let ranges = starts.into_iter().zip(inputs(batch.sizes, batch.count)?);
    let ranges: Vec<_> = ranges.collect();
    let to = match batch.places {
        Some((locations, firsts, count)) => placed(locations, firsts, count, batch.count)?,
        None => Vec::new(),
    };
    for (at, bytes) in &ranges {
        managed::check(*at, *bytes as u64)?;
    }
    for (range, (at, bytes)) in ranges.into_iter().enumerate() {
        if batch.discards {
            let junk = Fill {
                dst: at,
                pitch: 0,
                value: JUNK,
                element: 1,
                width: bytes as u64,
                height: 1,
            };
            junk.issue(&context, stream, default)?;
        }
        if let Some(to) = to.get(range) {
            prefetch(default, at, bytes, *to, stream)?;
        }
    }
    Ok(())
}

/// Where each of `all` ranges goes.
fn placed(
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    count: usize,
    all: usize,
) -> Result<Vec<Location>> {
    let firsts = inputs(firsts, count)?;
    let wrong = firsts.first() != Some(&0) || !firsts.is_sorted_by(|a, b| a < b);
    if wrong || firsts.last().is_some_and(|last| *last >= all) {
        return Err(CUresult::INVALID_VALUE);
    }
    let places = inputs(locations, count)?.into_iter().map(by_location);
    let places = places.collect::<Result<Vec<_>>>()?;
    let of = |range: usize| places[firsts.partition_point(|first| *first <= range) - 1];
    Ok((0..all).map(of).collect())
}

/// Applies advice. Advice without a location ignores the given location, even an illegal one.
fn advise(
    address: u64,
    count: usize,
    advice: CUmem_advise,
    at: impl FnOnce() -> Result<Location>,
) -> Result {
    context::current()?;
    let placeless = [
        CUmem_advise::SET_READ_MOSTLY,
        CUmem_advise::UNSET_READ_MOSTLY,
        CUmem_advise::UNSET_PREFERRED_LOCATION,
    ];
    let at = if placeless.contains(&advice) {
        None
    } else {
        Some(at()?)
    };
    managed::advise(address, count as u64, advice, at)
}

fn answer(
    data: *mut c_void,
    size: usize,
    attribute: CUmem_range_attribute,
    address: u64,
    count: usize,
) -> Result {
    required(data)?;
    let list = attribute == CUmem_range_attribute::ACCESSED_BY;
    if size == 0 || !size.is_multiple_of(4) || !list && size != 4 {
        return Err(CUresult::INVALID_VALUE);
    }
    let numbers = managed::range_attribute(attribute, address, count as u64, size / 4)?;
    outputs(data.cast::<i32>(), size / 4, &numbers)
}
