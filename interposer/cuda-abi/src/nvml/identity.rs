//! Which device it is: bus address, UUID, brand, topology, buffer sizes.

use core::ffi::c_char;

use crate::abi::c_enum;

/// Where a device sits on the PCI bus (`nvmlDeviceGetPciInfo_v3`); `busIdLegacy` is the 16-byte
/// form of `_v2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlPciInfo_t {
    pub busIdLegacy: [c_char; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub pciDeviceId: u32,
    pub pciSubSystemId: u32,
    pub busId: [c_char; 32],
}

/// Where a device sits on the PCI bus, with its class codes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlPciInfoExt_v1_t {
    pub version: u32,
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub pciDeviceId: u32,
    pub pciSubSystemId: u32,
    pub baseClass: u32,
    pub subClass: u32,
    pub busId: [c_char; 32],
}

/// The plain name of [`nvmlPciInfoExt_v1_t`].
pub type nvmlPciInfoExt_t = nvmlPciInfoExt_v1_t;

c_enum! {
    /// The form of an [`nvmlUUID_v1_t`].
    pub struct nvmlUUIDType_t(u32);
    "NVML_UUID_TYPE_" {
        NONE = 0,
        ASCII = 1,
        BINARY = 2,
    }
}

/// A UUID as text or as 16 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub union nvmlUUIDValue_t {
    pub str: [c_char; 41],
    pub bytes: [u8; 16],
}
crate::abi::opaque_debug!(nvmlUUIDValue_t);

/// A UUID in either form (`nvmlDeviceGetHandleByUUIDV`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlUUID_v1_t {
    pub version: u32,
    pub type_: u32,
    pub value: nvmlUUIDValue_t,
}

/// The plain name of [`nvmlUUID_v1_t`].
pub type nvmlUUID_t = nvmlUUID_v1_t;

/// The parts of a MIG device; memory in MiB.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlDeviceAttributes_t {
    pub multiprocessorCount: u32,
    pub sharedCopyEngineCount: u32,
    pub sharedDecoderCount: u32,
    pub sharedEncoderCount: u32,
    pub sharedJpegCount: u32,
    pub sharedOfaCount: u32,
    pub gpuInstanceSliceCount: u32,
    pub computeInstanceSliceCount: u32,
    pub memorySizeMB: u64,
}

/// A device the driver was told to leave out.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlExcludedDeviceInfo_t {
    pub pciInfo: nvmlPciInfo_t,
    pub uuid: [c_char; 80],
}

c_enum! {
    /// The product line of a device.
    pub struct nvmlBrandType_t(u32);
    "NVML_BRAND_" {
        UNKNOWN = 0,
        QUADRO = 1,
        TESLA = 2,
        NVS = 3,
        GRID = 4,
        GEFORCE = 5,
        TITAN = 6,
        NVIDIA_VAPPS = 7,
        NVIDIA_VPC = 8,
        NVIDIA_VCS = 9,
        NVIDIA_VWS = 10,
        NVIDIA_CLOUD_GAMING = 11,
        NVIDIA_VGAMING = 11,
        QUADRO_RTX = 12,
        NVIDIA_RTX = 13,
        NVIDIA = 14,
        GEFORCE_RTX = 15,
        TITAN_RTX = 16,
        NVIDIA_DLA = 17,
        NVIDIA_NPU = 19,
        NVIDIA_VGAMEDEV = 18,
        COUNT = 20,
    }
}

c_enum! {
    /// The nearest common ancestor of two devices in the system's topology.
    pub struct nvmlGpuTopologyLevel_t(u32);
    "NVML_TOPOLOGY_" {
        INTERNAL = 0,
        SINGLE = 10,
        MULTIPLE = 20,
        HOSTBRIDGE = 30,
        NODE = 40,
        SYSTEM = 50,
    }
}

c_enum! {
    /// Whether two devices reach each other.
    pub struct nvmlGpuP2PStatus_t(u32);
    "NVML_P2P_STATUS_" {
        OK = 0,
        CHIPSET_NOT_SUPPORED = 1,
        CHIPSET_NOT_SUPPORTED = 1,
        GPU_NOT_SUPPORTED = 2,
        IOH_TOPOLOGY_NOT_SUPPORTED = 3,
        DISABLED_BY_REGKEY = 4,
        NOT_SUPPORTED = 5,
        UNKNOWN = 6,
    }
}

c_enum! {
    /// A peer-to-peer capability of two devices.
    pub struct nvmlGpuP2PCapsIndex_t(u32);
    "NVML_P2P_CAPS_INDEX_" {
        READ = 0,
        WRITE = 1,
        NVLINK = 2,
        ATOMICS = 3,
        PCI = 4,
        PROP = 4,
        UNKNOWN = 5,
    }
}

c_enum! {
    /// The kind of device at the other end of a link.
    pub struct nvmlIntNvLinkDeviceType_t(u32);
    "NVML_NVLINK_DEVICE_TYPE_" {
        GPU = 0,
        IBMNPU = 1,
        SWITCH = 2,
        UNKNOWN = 255,
    }
}

c_enum! {
    /// How a device is shared with virtual machines.
    pub struct nvmlGpuVirtualizationMode_t(u32);
    "NVML_GPU_VIRTUALIZATION_MODE_" {
        NONE = 0,
        PASSTHROUGH = 1,
        VGPU = 2,
        HOST_VGPU = 3,
        HOST_VSGA = 4,
    }
}

/// `busId` of [`nvmlPciInfo_t`], in bytes.
pub const NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE: usize = 32;
/// `busIdLegacy` of [`nvmlPciInfo_t`], in bytes.
pub const NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE: usize = 16;
/// Room the header recommends for a UUID's text, in bytes.
pub const NVML_DEVICE_UUID_BUFFER_SIZE: usize = 80;
/// Room the header recommends for the UUID text of a MIG device, in bytes.
pub const NVML_DEVICE_UUID_V2_BUFFER_SIZE: usize = 96;
/// Room the header recommends for a device's name, in bytes.
pub const NVML_DEVICE_NAME_BUFFER_SIZE: usize = 64;
/// Room the header recommends for a MIG device's name, in bytes.
pub const NVML_DEVICE_NAME_V2_BUFFER_SIZE: usize = 96;
/// Room the header recommends for a serial number, in bytes.
pub const NVML_DEVICE_SERIAL_BUFFER_SIZE: usize = 30;
/// Room the header recommends for a VBIOS version, in bytes.
pub const NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE: usize = 32;
/// Room the header recommends for an inforom version, in bytes.
pub const NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE: usize = 16;
/// Room the header recommends for the driver's version, in bytes.
pub const NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE: usize = 80;
/// Room the header recommends for NVML's version, in bytes.
pub const NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE: usize = 80;

c_enum! {
    /// The architecture of a device (`nvmlDeviceGetArchitecture`).
    pub struct nvmlDeviceArchitecture_t(u32);
    "NVML_DEVICE_ARCH_" {
        KEPLER = 2,
        MAXWELL = 3,
        PASCAL = 4,
        VOLTA = 5,
        TURING = 6,
        AMPERE = 7,
        ADA = 8,
        HOPPER = 9,
        BLACKWELL = 10,
        DLA = 11,
        DLA2 = 12,
        RUBIN = 13,
        NPU3 = 15,
        UNKNOWN = 0xffff_ffff,
    }
}

c_enum! {
    /// The bus a device sits on (`nvmlDeviceGetBusType`).
    pub struct nvmlBusType_t(u32);
    "NVML_BUS_TYPE_" {
        UNKNOWN = 0,
        PCI = 1,
        PCIE = 2,
        FPCI = 3,
        AGP = 4,
    }
}
