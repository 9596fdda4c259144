//! Process checkpoint: lock, save, restore, unlock.

use core::ffi::c_char;

use super::handles::{CUcheckpointOperationHandle, CUdeviceptr, CUstream, CUuuid};
use crate::abi::c_enum;

c_enum! {
    /// Where a process is between running and saved.
    ///
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

/// A device's saved memory in the caller's own storage.
///
/// Part of [`CUcheckpointCustomStorageInfo`](crate::cuda::CUcheckpointCustomStorageInfo).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCustomStoragePerDeviceData {
    pub devPtr: CUdeviceptr,
    pub size: usize,
    pub stream: CUstream,
}

/// The caller's own storage for saved memory.
///
/// Part of [`CUcheckpointCheckpointArgs`](crate::cuda::CUcheckpointCheckpointArgs),
/// [`CUcheckpointRestoreArgs`](crate::cuda::CUcheckpointRestoreArgs).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCustomStorageInfo {
    pub handle: CUcheckpointOperationHandle,
    pub perDeviceData: *mut CUcheckpointCustomStoragePerDeviceData,
    pub deviceCount: u32,
}

/// How long to wait for a process to come to rest, in milliseconds (0: without limit).
///
/// Argument of `cuCheckpointProcessLock`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointLockArgs {
    pub timeoutMs: u32,
    pub reserved0: u32,
    pub reserved1: [u64; 7],
}

/// How a process is saved.
///
/// Argument of `cuCheckpointProcessCheckpoint`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointCheckpointArgs {
    pub customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo,
    pub reserved: [c_char; 56],
}

/// Which device a saved device becomes.
///
/// Part of [`CUcheckpointRestoreArgs`](crate::cuda::CUcheckpointRestoreArgs).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointGpuPair {
    pub oldUuid: CUuuid,
    pub newUuid: CUuuid,
}

/// How a process is restored, and on which devices.
///
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

/// How a process is let go on.
///
/// Argument of `cuCheckpointProcessUnlock`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcheckpointUnlockArgs {
    pub reserved: [u64; 8],
}
