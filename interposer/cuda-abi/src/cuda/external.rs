//! Memory and semaphores of other APIs (Vulkan, Direct3D, dma-buf), and graphics resources.

use core::ffi::c_void;

use super::array::CUDA_ARRAY3D_DESCRIPTOR;
use crate::abi::c_enum;

c_enum! {
    /// How a graphics resource will be used.
    pub struct CUgraphicsRegisterFlags(u32);
    "CU_GRAPHICS_REGISTER_FLAGS_" {
        NONE = 0x0,
        READ_ONLY = 0x1,
        WRITE_DISCARD = 0x2,
        SURFACE_LDST = 0x4,
        TEXTURE_GATHER = 0x8,
    }
}

c_enum! {
    /// How a mapped graphics resource will be used.
    pub struct CUgraphicsMapResourceFlags(u32);
    "CU_GRAPHICS_MAP_RESOURCE_FLAGS_" {
        NONE = 0x0,
        READ_ONLY = 0x1,
        WRITE_DISCARD = 0x2,
    }
}

c_enum! {
    /// The kind of external memory handle.
    ///
    /// Part of
    /// [`CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1`](crate::cuda::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1).
    pub struct CUexternalMemoryHandleType(u32);
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_" {
        OPAQUE_FD = 1,
        OPAQUE_WIN32 = 2,
        OPAQUE_WIN32_KMT = 3,
        D3D12_HEAP = 4,
        D3D12_RESOURCE = 5,
        D3D11_RESOURCE = 6,
        D3D11_RESOURCE_KMT = 7,
        NVSCIBUF = 8,
        DMABUF_FD = 9,
    }
}

/// Member `handle.win32` of [`CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1_handle_win32 {
    pub handle: *mut c_void,
    pub name: *const c_void,
}

/// Member `handle` of [`CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1_handle {
    pub fd: i32,
    pub win32: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1_handle_win32,
    pub nvSciBufObject: *const c_void,
}
crate::abi::opaque_debug!(CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1_handle);

/// Memory of another API; `size` in bytes, and a file descriptor the driver takes over on success.
///
/// Argument of `cuImportExternalMemory`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1 {
    pub type_: CUexternalMemoryHandleType,
    pub handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1_handle,
    pub size: u64,
    pub flags: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1`].
pub type CUDA_EXTERNAL_MEMORY_HANDLE_DESC = CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1;

/// A range of external memory, in bytes.
///
/// Argument of `cuExternalMemoryGetMappedBuffer`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1 {
    pub offset: u64,
    pub size: u64,
    pub flags: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1`].
pub type CUDA_EXTERNAL_MEMORY_BUFFER_DESC = CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1;

/// A mipmapped array in external memory.
///
/// Argument of `cuExternalMemoryGetMappedMipmappedArray`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_v1 {
    pub offset: u64,
    pub arrayDesc: CUDA_ARRAY3D_DESCRIPTOR,
    pub numLevels: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_v1`].
pub type CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_v1;

c_enum! {
    /// The kind of external semaphore handle.
    ///
    /// Part of
    /// [`CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1`](crate::cuda::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1).
    pub struct CUexternalSemaphoreHandleType(u32);
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_" {
        OPAQUE_FD = 1,
        OPAQUE_WIN32 = 2,
        OPAQUE_WIN32_KMT = 3,
        D3D12_FENCE = 4,
        D3D11_FENCE = 5,
        NVSCISYNC = 6,
        D3D11_KEYED_MUTEX = 7,
        D3D11_KEYED_MUTEX_KMT = 8,
        TIMELINE_SEMAPHORE_FD = 9,
        TIMELINE_SEMAPHORE_WIN32 = 10,
    }
}

/// Member `handle.win32` of [`CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1_handle_win32 {
    pub handle: *mut c_void,
    pub name: *const c_void,
}

/// Member `handle` of [`CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1_handle {
    pub fd: i32,
    pub win32: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1_handle_win32,
    pub nvSciSyncObj: *const c_void,
}
crate::abi::opaque_debug!(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1_handle);

/// A semaphore of another API.
///
/// Argument of `cuImportExternalSemaphore`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1 {
    pub type_: CUexternalSemaphoreHandleType,
    pub handle: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1_handle,
    pub flags: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1`].
pub type CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1;

/// Member `params.fence` of [`CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_fence {
    pub value: u64,
}

/// Member `params.nvSciSync` of [`CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_nvSciSync {
    pub fence: *mut c_void,
    pub reserved: u64,
}
crate::abi::opaque_debug!(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_nvSciSync);

/// Member `params.keyedMutex` of [`CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_keyedMutex {
    pub key: u64,
}

/// Member `params` of [`CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params {
    pub fence: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_fence,
    pub nvSciSync: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_nvSciSync,
    pub keyedMutex: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params_keyedMutex,
    pub reserved: [u32; 12],
}

/// The parameters of a signal to an external semaphore.
///
/// Argument of `cuSignalExternalSemaphoresAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1 {
    pub params: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1_params,
    pub flags: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1`].
pub type CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_v1;

/// Member `params.fence` of [`CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_fence {
    pub value: u64,
}

/// Member `params.nvSciSync` of [`CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_nvSciSync {
    pub fence: *mut c_void,
    pub reserved: u64,
}
crate::abi::opaque_debug!(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_nvSciSync);

/// Member `params.keyedMutex` of [`CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_keyedMutex {
    pub key: u64,
    pub timeoutMs: u32,
}

/// Member `params` of [`CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params {
    pub fence: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_fence,
    pub nvSciSync: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_nvSciSync,
    pub keyedMutex: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params_keyedMutex,
    pub reserved: [u32; 10],
}

/// The parameters of a wait for an external semaphore.
///
/// Argument of `cuWaitExternalSemaphoresAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1 {
    pub params: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1_params,
    pub flags: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1`].
pub type CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_v1;

/// Handle descriptor flag: the resource is dedicated.
pub const CUDA_EXTERNAL_MEMORY_DEDICATED: u32 = 0x1;
/// Signal flag: leave out the memory synchronisation of imported `NvSciBuf` objects.
pub const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC: u32 = 0x01;
/// Wait flag: leave out the memory synchronisation of imported `NvSciBuf` objects.
pub const CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC: u32 = 0x02;
