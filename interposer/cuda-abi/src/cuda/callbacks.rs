//! Functions of a program that the driver calls.
//!
//! # Safety
//! A type here says that whoever calls such a function keeps the contract its page states; nothing
//! in this crate calls one.

use core::ffi::{c_char, c_void};

use crate::cuda::{
    CUasyncCallbackHandle, CUasyncNotificationInfo, CUdevice, CUgraphNode, CUgraphNodeParams,
    CUgraphRecaptureStatus, CUlogLevel, CUresult, CUstream,
};

/// A function the driver calls on the host with the stream's state; it must not call the driver.
///
/// Argument of `cuStreamAddCallback`.
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;

/// A function the driver calls on the host; it must not call the driver.
///
/// Argument of `cuLaunchHostFunc`, `cuUserObjectCreate`.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;

/// Asked for each node whose parameters a recapture changes.
///
/// Argument of `cuStreamBeginRecaptureToGraph`.
pub type CUgraphRecaptureCallback = Option<
    unsafe extern "C" fn(
        *mut c_void,
        CUgraphNode,
        *const CUgraphNodeParams,
        *const CUgraphNodeParams,
        CUgraphRecaptureStatus,
    ) -> CUresult,
>;

/// Shared memory in bytes that a block of so many threads needs.
///
/// Argument of `cuOccupancyMaxPotentialBlockSize`, `cuOccupancyMaxPotentialBlockSizeWithFlags`.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(i32) -> usize>;

/// Called when the driver has something to tell.
///
/// Argument of `cuDeviceRegisterAsyncNotification`.
pub type CUasyncCallback =
    Option<unsafe extern "C" fn(*mut CUasyncNotificationInfo, *mut c_void, CUasyncCallbackHandle)>;

/// Called when a core dump begins or ends.
///
/// Argument of `cuCoredumpRegisterStartCallback`, `cuCoredumpRegisterCompleteCallback`.
pub type CUcoredumpStatusCallback = Option<unsafe extern "C" fn(*mut c_void, i32, CUdevice)>;

/// Called for each line of the log.
///
/// Argument of `cuLogsRegisterCallback`.
pub type CUlogsCallback = Option<unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize)>;
