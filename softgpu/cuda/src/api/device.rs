//! Devices: count, names, attributes, memory size.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdevice_P2PAttribute, CUdevice_attribute as Attribute, CUdevprop,
    CUexecAffinityType, CUresult, CUuuid,
};
use softgpu::{Device, Result, facts, world};

use crate::abi::{out, out_text, outputs, required, text};
use crate::attributes;

driver! {
    fn cuDeviceGetCount(count: *mut i32) {
        out(count, i32::try_from(world::process()?.devices().len()).expect("devices are few"))
    }
    fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) {
        required(device)?;
        world::process()?.device(ordinal)?;
        out(device, ordinal)
    }
    fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice) {
        let room = usize::try_from(len).map_err(|_| CUresult::INVALID_VALUE)?;
        world::process()?.device(dev)?;
        out_text(name, room, facts::NAME)
    }
    fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) { uuid_of(uuid, dev) }
    /// Differs from the first version only for MIG instances.
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) { uuid_of(uuid, dev) }
    /// LUIDs identify adapters on Windows.
    fn cuDeviceGetLuid(luid: *mut c_char, mask: *mut u32, dev: CUdevice) {
        required(luid)?;
        required(mask)?;
        world::process()?.device(dev)?;
        Err(CUresult::NOT_SUPPORTED)
    }
    /// The size in 32 bits, as in CUDA 2: at most 4 GiB - 1.
    fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice) {
        let capacity = world::process()?.device(dev)?.capacity();
        out(bytes, u32::try_from(capacity).unwrap_or(u32::MAX))
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) {
        let capacity = world::process()?.device(dev)?.capacity();
        out(bytes, usize::try_from(capacity).expect("addresses are 64 bits here"))
    }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: CUdevice) {
        world::process()?.device(dev)?;
        required(minor)?;
        out(major, facts::CAPABILITY.0)?;
        out(minor, facts::CAPABILITY.1)
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: Attribute, dev: CUdevice) {
        required(value)?;
        let device = world::process()?.device(dev)?;
        out(value, attributes::value(device, attribute).ok_or(CUresult::INVALID_VALUE)?)
    }
    fn cuDeviceGetProperties(properties: *mut CUdevprop, dev: CUdevice) {
        required(properties)?;
        out(properties, legacy_properties(world::process()?.device(dev)?))
    }
}

driver! {
    fn cuDeviceGetPCIBusId(id: *mut c_char, len: i32, dev: CUdevice) {
        let room = usize::try_from(len).map_err(|_| CUresult::INVALID_VALUE)?;
        let device = world::process()?.device(dev)?;
        out_text(id, room, &bus_id(device))
    }
    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) {
        required(dev)?;
        let wanted = parse_bus_id(&text(id)?).ok_or(CUresult::INVALID_VALUE)?;
        let mut devices = world::process()?.devices().iter();
        let found = devices.find(|device| facts::pci(device.index()) == wanted).ok_or(CUresult::INVALID_DEVICE)?;
        out(dev, CUdevice::try_from(found.ordinal()).expect("ordinals are small"))
    }
    fn cuDeviceCanAccessPeer(can: *mut i32, dev: CUdevice, peer: CUdevice) {
        required(can)?;
        let process = world::process()?;
        let (one, other) = (process.device(dev)?, process.device(peer)?);
        out(can, (one.ordinal() != other.ordinal() && one.spec().peer).into())
    }
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice) {
        required(value)?;
        let process = world::process()?;
        let (from, to) = (process.device(from)?, process.device(to)?);
        if from.ordinal() == to.ordinal() {
            return Err(CUresult::INVALID_DEVICE);
        }
        let answer = match attribute {
            CUdevice_P2PAttribute::ACCESS_SUPPORTED | CUdevice_P2PAttribute::CUDA_ARRAY_ACCESS_SUPPORTED => from.spec().peer.into(),
            CUdevice_P2PAttribute::PERFORMANCE_RANK
            | CUdevice_P2PAttribute::NATIVE_ATOMIC_SUPPORTED
            | CUdevice_P2PAttribute::ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        out(value, answer)
    }
    fn cuDeviceGetExecAffinitySupport(supported: *mut i32, kind: CUexecAffinityType, dev: CUdevice) {
        required(supported)?;
        world::process()?.device(dev)?;
        if kind.0 >= CUexecAffinityType::MAX.0 {
            return Err(CUresult::INVALID_VALUE);
        }
        out(supported, 0)
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, format: u32, channels: u32, dev: CUdevice) {
        required(width)?;
        let device = world::process()?.device(dev)?;
        if format == 0 || !matches!(channels, 1 | 2 | 4) {
            return Err(CUresult::INVALID_VALUE);
        }
        let most = attributes::value(device, Attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH).unwrap_or(0);
        out(width, usize::try_from(most).unwrap_or(0))
    }
}

fn uuid_of(uuid: *mut CUuuid, dev: CUdevice) -> Result {
    let device = world::process()?.device(dev)?;
    outputs(uuid.cast::<u8>(), 16, &device.uuid())
}

fn bus_id(device: &Device) -> String {
    let (domain, bus, slot) = facts::pci(device.index());
    format!("{domain:04X}:{bus:02X}:{slot:02X}.0")
}

/// Reads `[domain:]bus:device[.function]`, hexadecimal, in the form that the driver accepts.
fn parse_bus_id(id: &str) -> Option<(u32, u32, u32)> {
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let parts: Vec<&str> = id.split(':').collect();
    let (domain, bus, rest) = match parts[..] {
        [domain, bus, rest] => (hex(domain)?, bus, rest),
        [bus, rest] => (0, bus, rest),
        _ => return None,
    };
    let (slot, function) = rest.split_once('.').unwrap_or((rest, "0"));
    (hex(function)? == 0).then_some(())?;
    Some((domain, hex(bus)?, hex(slot)?))
}

/// The device properties of CUDA 2.
fn legacy_properties(device: &Device) -> CUdevprop {
    let get = |attribute| attributes::value(device, attribute).unwrap_or(0);
    CUdevprop {
        maxThreadsPerBlock: get(Attribute::MAX_THREADS_PER_BLOCK),
        maxThreadsDim: [
            Attribute::MAX_BLOCK_DIM_X,
            Attribute::MAX_BLOCK_DIM_Y,
            Attribute::MAX_BLOCK_DIM_Z,
        ]
        .map(get),
        maxGridSize: [
            Attribute::MAX_GRID_DIM_X,
            Attribute::MAX_GRID_DIM_Y,
            Attribute::MAX_GRID_DIM_Z,
        ]
        .map(get),
        sharedMemPerBlock: get(Attribute::MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: get(Attribute::TOTAL_CONSTANT_MEMORY),
        SIMDWidth: get(Attribute::WARP_SIZE),
        memPitch: get(Attribute::MAX_PITCH),
        regsPerBlock: get(Attribute::MAX_REGISTERS_PER_BLOCK),
        clockRate: get(Attribute::CLOCK_RATE),
        textureAlign: get(Attribute::TEXTURE_ALIGNMENT),
    }
}
