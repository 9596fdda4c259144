//! Flags and answers of `cuGetProcAddress`.

use crate::abi::c_enum;

c_enum! {
    /// Which default stream the functions found should mean.
    pub struct CUdriverProcAddress_flags(u32);
    "CU_GET_PROC_ADDRESS_" {
        DEFAULT = 0x0,
        LEGACY_STREAM = 0x1,
        PER_THREAD_DEFAULT_STREAM = 0x2,
    }
}

c_enum! {
    /// Why a function was found or not.
    ///
    /// Argument of `cuGetProcAddress`.
    pub struct CUdriverProcAddressQueryResult(u32);
    "CU_GET_PROC_ADDRESS_" {
        SUCCESS = 0,
        SYMBOL_NOT_FOUND = 1,
        VERSION_NOT_SUFFICIENT = 2,
    }
}
