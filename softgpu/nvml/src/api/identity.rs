//! Identification of devices: handles, names, addresses.

use std::ffi::c_char;

use gpushare_cuda_abi::nvml::{
    nvmlBrandType_t, nvmlBusType_t, nvmlDevice_t, nvmlDeviceArchitecture_t, nvmlGpuP2PCapsIndex_t,
    nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t, nvmlPciInfo_t, nvmlPciInfoExt_t, nvmlReturn_t,
    nvmlUUID_t, nvmlUUIDType_t, struct_version,
};
use softgpu::{facts, world};

use crate::abi::{array, input, out, out_text, required, text};
use crate::library::{Result, handle, index, monitor, reachable};

/// PCI device and subsystem ids: vendor NVIDIA, device H200 SXM.
const PCI_DEVICE: u32 = 0x2335_10de;
const PCI_SUBSYSTEM: u32 = 0x18be_10de;
/// Cores of one multiprocessor of compute capability 9.0.
const CORES_PER_SM: u32 = 128;

nvml! {
    fn nvmlDeviceGetCount(count: *mut u32) { out(count, monitor()?.spec().count) }
    fn nvmlDeviceGetCount_v2(count: *mut u32) { out(count, monitor()?.spec().count) }
    fn nvmlDeviceGetHandleByIndex(number: u32, device: *mut nvmlDevice_t) { by_index(number, device) }
    fn nvmlDeviceGetHandleByIndex_v2(number: u32, device: *mut nvmlDevice_t) { by_index(number, device) }
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) {
        let wanted = text(uuid)?;
        find(device, |index| world::uuid_text(uuid_of(index)) == wanted)
    }
    fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t) {
        let wanted = input(uuid)?;
        if wanted.version != struct_version::<nvmlUUID_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        let value = &raw const wanted.value;
        match nvmlUUIDType_t(wanted.type_) {
            nvmlUUIDType_t::ASCII => {
                let wanted = text(value.cast())?;
                find(device, |index| world::uuid_text(uuid_of(index)) == wanted)
            }
            nvmlUUIDType_t::BINARY => {
                let wanted: [u8; 16] = input(value.cast())?;
                find(device, |index| uuid_of(index) == wanted)
            }
            _ => Err(nvmlReturn_t::INVALID_ARGUMENT),
        }
    }
    fn nvmlDeviceGetHandleByPciBusId(id: *const c_char, device: *mut nvmlDevice_t) { by_bus_id(id, device) }
    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, device: *mut nvmlDevice_t) { by_bus_id(id, device) }
    fn nvmlDeviceGetHandleBySerial(number: *const c_char, device: *mut nvmlDevice_t) {
        let wanted = text(number)?;
        find(device, |index| serial(index) == wanted)
    }
}

nvml! {
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, number: *mut u32) { out(number, index(device)?) }
    fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut u32) { out(minor, index(device)?) }
    fn nvmlDeviceGetModuleId(device: nvmlDevice_t, module: *mut u32) { out(module, index(device)?) }
    fn nvmlDeviceGetBoardId(device: nvmlDevice_t, board: *mut u32) { out(board, facts::pci(index(device)?).1 << 8) }
    fn nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, multi: *mut u32) { index(device)?; out(multi, 0) }
    fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, len: u32) { index(device)?; out_text(name, len, facts::NAME) }
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, len: u32) {
        out_text(uuid, len, &world::uuid_text(uuid_of(index(device)?)))
    }
    fn nvmlDeviceGetSerial(device: nvmlDevice_t, number: *mut c_char, len: u32) { out_text(number, len, &serial(index(device)?)) }
    fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) { legacy_pci(device, pci) }
    fn nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) { legacy_pci(device, pci) }
    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) { out(pci, pci_info(index(device)?)) }
    fn nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t) {
        let (index, asked) = (index(device)?, input(pci)?);
        if asked.version != struct_version::<nvmlPciInfoExt_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        let (domain, bus, slot) = facts::pci(index);
        let class = (0x03, 0x02);
        out(pci, nvmlPciInfoExt_t {
            version: asked.version, domain, bus, device: slot, pciDeviceId: PCI_DEVICE, pciSubSystemId: PCI_SUBSYSTEM,
            baseClass: class.0, subClass: class.1, busId: array(&bus_id(index)),
        })
    }
    fn nvmlDeviceGetBrand(device: nvmlDevice_t, brand: *mut nvmlBrandType_t) { index(device)?; out(brand, nvmlBrandType_t::NVIDIA) }
    fn nvmlDeviceGetBusType(device: nvmlDevice_t, bus: *mut nvmlBusType_t) { index(device)?; out(bus, nvmlBusType_t::PCIE) }
    fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, arch: *mut nvmlDeviceArchitecture_t) {
        index(device)?;
        out(arch, nvmlDeviceArchitecture_t::HOPPER)
    }
    fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut i32, minor: *mut i32) {
        index(device)?;
        required(minor)?;
        out(major, facts::CAPABILITY.0)?;
        out(minor, facts::CAPABILITY.1)
    }
    fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, cores: *mut u32) {
        index(device)?;
        out(cores, monitor()?.spec().sm * CORES_PER_SM)
    }
    fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, width: *mut u32) { index(device)?; out(width, facts::BUS_WIDTH) }
    fn nvmlDeviceGetTopologyCommonAncestor(one: nvmlDevice_t, other: nvmlDevice_t, level: *mut nvmlGpuTopologyLevel_t) {
        let same = index(one)? == index(other)?;
        out(level, if same { nvmlGpuTopologyLevel_t::INTERNAL } else { nvmlGpuTopologyLevel_t::NODE })
    }
    fn nvmlDeviceGetP2PStatus(one: nvmlDevice_t, other: nvmlDevice_t, what: nvmlGpuP2PCapsIndex_t, status: *mut nvmlGpuP2PStatus_t) {
        let same = index(one)? == index(other)?;
        let able = matches!(what, nvmlGpuP2PCapsIndex_t::READ | nvmlGpuP2PCapsIndex_t::WRITE);
        if what >= nvmlGpuP2PCapsIndex_t::UNKNOWN || same {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        out(status, if able { nvmlGpuP2PStatus_t::OK } else { nvmlGpuP2PStatus_t::NOT_SUPPORTED })
    }
}

fn by_index(number: u32, device: *mut nvmlDevice_t) -> Result {
    required(device)?;
    if number >= monitor()?.spec().count {
        return Err(nvmlReturn_t::INVALID_ARGUMENT);
    }
    reachable(|fallen| fallen == number)?;
    out(device, handle(number))
}

fn by_bus_id(id: *const c_char, device: *mut nvmlDevice_t) -> Result {
    let wanted = text(id)?.to_ascii_uppercase();
    let spellings = |index| {
        let long = bus_id(index);
        [long[4..].to_owned(), long[9..].to_owned(), long]
    };
    find(device, |index| spellings(index).contains(&wanted))
}

/// The index of the device at a place on the bus.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is none.
pub(super) fn by_place(pci: &nvmlPciInfo_t) -> Result<u32> {
    let place = (pci.domain, pci.bus, pci.device);
    (0..monitor()?.spec().count)
        .find(|index| facts::pci(*index) == place)
        .ok_or(nvmlReturn_t::INVALID_ARGUMENT)
}

/// Writes the handle of the device for which `is_meant` holds. By the header such a search fails
/// "if any GPU has fallen off the bus", whichever is sought.
fn find(device: *mut nvmlDevice_t, is_meant: impl Fn(u32) -> bool) -> Result {
    required(device)?;
    reachable(|_| true)?;
    let found = (0..monitor()?.spec().count)
        .find(|index| is_meant(*index))
        .ok_or(nvmlReturn_t::NOT_FOUND)?;
    out(device, handle(found))
}

fn uuid_of(index: u32) -> [u8; 16] {
    monitor()
        .map(|monitor| world::uuid(monitor.spec(), index))
        .unwrap_or_default()
}

/// A serial number derived from the UUID.
fn serial(index: u32) -> String {
    let uuid = uuid_of(index);
    let number = uuid[..5]
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:013}")
}

fn bus_id(index: u32) -> String {
    let (domain, bus, slot) = facts::pci(index);
    format!("{domain:08X}:{bus:02X}:{slot:02X}.0")
}

fn pci_info(index: u32) -> nvmlPciInfo_t {
    let (domain, bus, device) = facts::pci(index);
    nvmlPciInfo_t {
        busIdLegacy: array(&bus_id(index)[4..]),
        domain,
        bus,
        device,
        pciDeviceId: PCI_DEVICE,
        pciSubSystemId: PCI_SUBSYSTEM,
        busId: array(&bus_id(index)),
    }
}

/// The struct before `_v3`: 16 bytes of bus address and nine numbers, of which the first five are
/// PCI numbers and the rest is 0.
fn legacy_pci(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> Result {
    #[repr(C)]
    struct Legacy {
        bus_id: [c_char; 16],
        numbers: [u32; 9],
    }
    let info = pci_info(index(device)?);
    let numbers = [
        info.domain,
        info.bus,
        info.device,
        info.pciDeviceId,
        info.pciSubSystemId,
        0,
        0,
        0,
        0,
    ];
    out(
        pci.cast(),
        Legacy {
            bus_id: info.busIdLegacy,
            numbers,
        },
    )
}
