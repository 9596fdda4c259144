//! `nvmlReturn_t`: NVML's result codes and their names.

use crate::abi::c_enum;

c_enum! {
    /// The result of an NVML call; 0 is success.
    pub struct nvmlReturn_t(u32);
    "NVML_" {
        SUCCESS = 0,
    }
    "NVML_ERROR_" {
        UNINITIALIZED = 1,
        INVALID_ARGUMENT = 2,
        NOT_SUPPORTED = 3,
        NO_PERMISSION = 4,
        ALREADY_INITIALIZED = 5,
        NOT_FOUND = 6,
        INSUFFICIENT_SIZE = 7,
        INSUFFICIENT_POWER = 8,
        DRIVER_NOT_LOADED = 9,
        TIMEOUT = 10,
        IRQ_ISSUE = 11,
        LIBRARY_NOT_FOUND = 12,
        FUNCTION_NOT_FOUND = 13,
        CORRUPTED_INFOROM = 14,
        GPU_IS_LOST = 15,
        RESET_REQUIRED = 16,
        OPERATING_SYSTEM = 17,
        LIB_RM_VERSION_MISMATCH = 18,
        IN_USE = 19,
        MEMORY = 20,
        NO_DATA = 21,
        VGPU_ECC_NOT_SUPPORTED = 22,
        INSUFFICIENT_RESOURCES = 23,
        FREQ_NOT_SUPPORTED = 24,
        ARGUMENT_VERSION_MISMATCH = 25,
        DEPRECATED = 26,
        NOT_READY = 27,
        GPU_NOT_FOUND = 28,
        INVALID_STATE = 29,
        RESET_TYPE_NOT_SUPPORTED = 30,
        UNKNOWN = 999,
    }
}

impl nvmlReturn_t {
    /// True for `NVML_SUCCESS`.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// `Ok(())` for `NVML_SUCCESS`, the code itself otherwise.
    ///
    /// # Errors
    /// Any code but `NVML_SUCCESS`.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}
