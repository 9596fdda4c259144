//! The processes on a device: lists, utilisation, accounting.

use crate::abi::c_enum;

/// A process on a device, 16 bytes: the entries of the process lists without a suffix.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessInfo_v1_t {
    pub pid: u32,
    pub usedGpuMemory: u64,
}

/// A process on a device, 24 bytes: the entries of the `_v2` and `_v3` process lists. Memory in
/// bytes, or all ones where unknown.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessInfo_v2_t {
    pub pid: u32,
    pub usedGpuMemory: u64,
    pub gpuInstanceId: u32,
    pub computeInstanceId: u32,
}

/// The plain name of [`nvmlProcessInfo_v2_t`].
pub type nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

c_enum! {
    /// Which processes an [`nvmlProcessDetailList_v1_t`] lists.
    pub struct nvmlProcessMode_t(u32);
    "NVML_PROCESS_MODE_" {
        COMPUTE = 0,
        GRAPHICS = 1,
        MPS = 2,
        ALL = 3,
        MAX = 4,
    }
}

/// A process on a device with its protected memory; bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessDetail_v1_t {
    pub pid: u32,
    pub usedGpuMemory: u64,
    pub gpuInstanceId: u32,
    pub computeInstanceId: u32,
    pub usedGpuCcProtectedMemory: u64,
}

/// The list `nvmlDeviceGetRunningProcessDetailList` fills: `numProcArrayEntries` is the room on the
/// way in, the count on the way out.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessDetailList_v1_t {
    pub version: u32,
    pub mode: u32,
    pub numProcArrayEntries: u32,
    pub procArray: *mut nvmlProcessDetail_v1_t,
}

/// The plain name of [`nvmlProcessDetailList_v1_t`].
pub type nvmlProcessDetailList_t = nvmlProcessDetailList_v1_t;

/// One process's percentages in one sample; time in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessUtilizationSample_t {
    pub pid: u32,
    pub timeStamp: u64,
    pub smUtil: u32,
    pub memUtil: u32,
    pub encUtil: u32,
    pub decUtil: u32,
}

/// One process's percentages in one sample, with the JPEG and optical-flow engines.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessUtilizationInfo_v1_t {
    pub timeStamp: u64,
    pub pid: u32,
    pub smUtil: u32,
    pub memUtil: u32,
    pub encUtil: u32,
    pub decUtil: u32,
    pub jpgUtil: u32,
    pub ofaUtil: u32,
}

/// The list `nvmlDeviceGetProcessesUtilizationInfo` fills.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlProcessesUtilizationInfo_v1_t {
    pub version: u32,
    pub processSamplesCount: u32,
    pub lastSeenTimeStamp: u64,
    pub procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
}

/// The plain name of [`nvmlProcessesUtilizationInfo_v1_t`].
pub type nvmlProcessesUtilizationInfo_t = nvmlProcessesUtilizationInfo_v1_t;

/// A process's session of the video encoder; frames per second and microseconds.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlEncoderSessionInfo_t {
    pub sessionId: u32,
    pub pid: u32,
    pub vgpuInstance: u32,
    pub codecType: u32,
    pub hResolution: u32,
    pub vResolution: u32,
    pub averageFps: u32,
    pub averageLatency: u32,
}

/// A process's session of frame capture; frames per second and microseconds.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlFBCSessionInfo_t {
    pub sessionId: u32,
    pub pid: u32,
    pub vgpuInstance: u32,
    pub displayOrdinal: u32,
    pub sessionType: u32,
    pub sessionFlags: u32,
    pub hMaxResolution: u32,
    pub vMaxResolution: u32,
    pub hResolution: u32,
    pub vResolution: u32,
    pub averageFPS: u32,
    pub averageLatency: u32,
}

/// One process's usage while accounting was on; bytes, milliseconds, microseconds since the epoch.
/// The program says which process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlAccountingStats_v2_t {
    pub pid: u32,
    pub isRunning: u32,
    pub gpuUtilization: u32,
    pub memoryUtilization: u32,
    pub maxMemoryUsage: u64,
    pub sampleCount: u32,
    pub sumGpuUtil: u64,
    pub sumFbUtil: u64,
    pub time: u64,
    pub startTime: u64,
}

/// One process's usage while accounting was on; bytes, milliseconds, microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlAccountingStats_t {
    pub gpuUtilization: u32,
    pub memoryUtilization: u32,
    pub maxMemoryUsage: u64,
    pub time: u64,
    pub startTime: u64,
    pub isRunning: u32,
    pub reserved: [u32; 5],
}
