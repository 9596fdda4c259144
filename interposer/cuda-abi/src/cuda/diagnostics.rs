//! Notifications, core dumps and the error log.

use crate::abi::c_enum;

c_enum! {
    /// The subject of a notification.
    ///
    /// Part of [`CUasyncNotificationInfo`](crate::cuda::CUasyncNotificationInfo).
    pub struct CUasyncNotificationType(u32);
    "CU_ASYNC_NOTIFICATION_TYPE_" {
        OVER_BUDGET = 1,
    }
}

/// Member `info.overBudget` of [`CUasyncNotificationInfo`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUasyncNotificationInfo_info_overBudget {
    pub bytesOverBudget: u64,
}

/// Member `info` of [`CUasyncNotificationInfo`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUasyncNotificationInfo_info {
    pub overBudget: CUasyncNotificationInfo_info_overBudget,
}
crate::abi::opaque_debug!(CUasyncNotificationInfo_info);

/// A notification from the driver.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUasyncNotificationInfo {
    pub type_: CUasyncNotificationType,
    pub info: CUasyncNotificationInfo_info,
}

c_enum! {
    /// A setting of core dumps.
    ///
    /// Argument of `cuCoredumpGetAttribute`, `cuCoredumpGetAttributeGlobal`,
    /// `cuCoredumpSetAttribute`, `cuCoredumpSetAttributeGlobal`.
    pub struct CUcoredumpSettings(u32);
    "CU_COREDUMP_" {
        ENABLE_ON_EXCEPTION = 1,
        TRIGGER_HOST = 2,
        LIGHTWEIGHT = 3,
        ENABLE_USER_TRIGGER = 4,
        FILE = 5,
        PIPE = 6,
        GENERATION_FLAGS = 7,
        MAX = 8,
    }
}

c_enum! {
    /// The options of a core dump, such as the memory that it leaves out.
    pub struct CUCoredumpGenerationFlags(i32);
    "CU_COREDUMP_" {
        DEFAULT_FLAGS = 0x0,
        SKIP_NONRELOCATED_ELF_IMAGES = 0x1,
        SKIP_GLOBAL_MEMORY = 0x2,
        SKIP_SHARED_MEMORY = 0x4,
        SKIP_LOCAL_MEMORY = 0x8,
        SKIP_ABORT = 0x10,
        SKIP_CONSTBANK_MEMORY = 0x20,
        GZIP_COMPRESS = 0x40,
        FAULTED_CONTEXTS_ONLY = 0x80,
        SKIP_TENSOR_MEMORY = 0x100,
        NO_ERRBAR_AT_EXIT = 0x40000000,
        LOG_ONLY = -2147483648,
        LIGHTWEIGHT_FLAGS = 0x12f,
    }
}

c_enum! {
    /// How grave a line of the log is.
    pub struct CUlogLevel(u32);
    "CU_LOG_LEVEL_" {
        ERROR = 0,
        WARNING = 1,
    }
}
