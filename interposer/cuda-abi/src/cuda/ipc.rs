//! Handles that carry an allocation or an event to another process.

use core::ffi::c_char;

use crate::abi::c_enum;

/// A memory handle that can travel between nodes of one NVLink fabric.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemFabricHandle_v1 {
    pub data: [u8; 64],
}

/// The plain name of [`CUmemFabricHandle_v1`].
pub type CUmemFabricHandle = CUmemFabricHandle_v1;

/// An event of another process.
///
/// Argument of `cuIpcGetEventHandle`, `cuIpcOpenEventHandle`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUipcEventHandle_v1 {
    pub reserved: [c_char; 64],
}

/// The plain name of [`CUipcEventHandle_v1`].
pub type CUipcEventHandle = CUipcEventHandle_v1;

/// An allocation of another process.
///
/// Argument of `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUipcMemHandle_v1 {
    pub reserved: [c_char; 64],
}

/// The plain name of [`CUipcMemHandle_v1`].
pub type CUipcMemHandle = CUipcMemHandle_v1;

c_enum! {
    /// How an allocation of another process is opened.
    pub struct CUipcMem_flags(u32);
    "CU_IPC_MEM_" {
        LAZY_ENABLE_PEER_ACCESS = 0x1,
    }
}

/// Bytes of [`CUipcMemHandle`] and [`CUipcEventHandle`].
pub const CU_IPC_HANDLE_SIZE: usize = 64;
