//! Process checkpoint: lock, save, restore, unlock.

use core::ffi::c_char;

use super::handles::{CUcheckpointOperationHandle, CUdeviceptr, CUstream, CUuuid};
use crate::abi::c_enum;

c_enum! {
    /// Argument of `cuCheckpointProcessGetState`.
    pub struct CUprocessState(u32);
    "CU_PROCESS_STATE_" {
        RUNNING = 0,
        LOCKED = 1,
        CHECKPOINTED = 2,
        FAILED = 3,
        CHECKPOINTING = 4,
        RESTORING = 5,
    }
}

/// Part of [`CUcheckpointCustomStorageInfo`](crate::cuda::CUcheckpointCustomStorageInfo).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCustomStoragePerDeviceData {
    pub devPtr: CUdeviceptr,
    pub size: usize,
    pub stream: CUstream,
}

/// Part of [`CUcheckpointCheckpointArgs`](crate::cuda::CUcheckpointCheckpointArgs), [`CUcheckpointRestoreArgs`](crate::cuda::CUcheckpointRestoreArgs).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCustomStorageInfo {
    pub handle: CUcheckpointOperationHandle,
    pub perDeviceData: *mut CUcheckpointCustomStoragePerDeviceData,
    pub deviceCount: u32,
}

/// Argument of `cuCheckpointProcessLock`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointLockArgs {
    pub timeoutMs: u32,
    pub reserved0: u32,
    pub reserved1: [u64; 7],
}

/// Argument of `cuCheckpointProcessCheckpoint`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCheckpointArgs {
    pub customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo,
    pub reserved: [c_char; 56],
}

/// Part of [`CUcheckpointRestoreArgs`](crate::cuda::CUcheckpointRestoreArgs).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointGpuPair {
    pub oldUuid: CUuuid,
    pub newUuid: CUuuid,
}

/// Argument of `cuCheckpointProcessRestore`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointRestoreArgs {
    pub gpuPairs: *mut CUcheckpointGpuPair,
    pub gpuPairsCount: u32,
    pub padding0: u32,
    pub customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo,
    pub reserved: [c_char; 40],
}

/// Argument of `cuCheckpointProcessUnlock`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointUnlockArgs {
    pub reserved: [u64; 8],
}
