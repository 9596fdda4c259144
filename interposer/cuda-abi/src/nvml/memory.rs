//! Memory of a device, and the driver's own limits on it.

use core::ffi::c_char;

use crate::abi::c_enum;

/// A device's memory in bytes; `used` includes what the driver reserves.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlMemory_t {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

/// A device's memory in bytes, the driver's reserve apart from `used`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlMemory_v2_t {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

/// The window through which the bus sees device memory, in bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlBAR1Memory_t {
    pub bar1Total: u64,
    pub bar1Free: u64,
    pub bar1Used: u64,
}

/// The driver's own memory limits for a cgroup, in bytes, as they are set (driver r615).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlSetMemoryLimits_v1_t {
    pub nameSpace: *const c_char,
    pub softLimit: u64,
    pub hardLimit: u64,
}

/// The driver's own memory limits for a cgroup, in bytes, as they are read (driver r615).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlGetMemoryLimits_v1_t {
    pub nameSpace: *const c_char,
    pub softLimit: u64,
    pub hardLimit: u64,
    pub currentUsed: u64,
}

c_enum! {
    /// Whether a memory error was corrected.
    pub struct nvmlMemoryErrorType_t(u32);
    "NVML_MEMORY_ERROR_TYPE_" {
        CORRECTED = 0,
        UNCORRECTED = 1,
        COUNT = 2,
    }
}

c_enum! {
    /// Errors since the driver was loaded, or ever.
    pub struct nvmlEccCounterType_t(u32);
    "NVML_" {
        VOLATILE_ECC = 0,
        AGGREGATE_ECC = 1,
        ECC_COUNTER_TYPE_COUNT = 2,
    }
}

c_enum! {
    /// Where a memory error was.
    pub struct nvmlMemoryLocation_t(u32);
    "NVML_MEMORY_LOCATION_" {
        L1_CACHE = 0,
        L2_CACHE = 1,
        DRAM = 2,
        DEVICE_MEMORY = 2,
        REGISTER_FILE = 3,
        TEXTURE_MEMORY = 4,
        TEXTURE_SHM = 5,
        CBU = 6,
        SRAM = 7,
        COUNT = 8,
    }
}

/// Memory errors by place.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlEccErrorCounts_t {
    pub l1Cache: u64,
    pub l2Cache: u64,
    pub deviceMemory: u64,
    pub registerFile: u64,
}

/// A 64-bit count that is not known, such as the memory of a process the driver cannot tell.
pub const NVML_VALUE_NOT_AVAILABLE: u64 = u64::MAX;
