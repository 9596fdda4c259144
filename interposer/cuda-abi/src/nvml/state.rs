//! How a device is doing: utilisation, clocks, temperature, modes, samples, events.

use super::handles::nvmlDevice_t;
use super::result::nvmlReturn_t;
use crate::abi::c_enum;

/// Percent of the last sample period in which a kernel ran, and in which memory was read or
/// written.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlUtilization_t {
    pub gpu: u32,
    pub memory: u32,
}

/// Member `utilization` of [`nvmlGpuDynamicPstatesInfo_t`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlGpuDynamicPstatesInfo_t_utilization {
    pub bIsPresent: u32,
    pub percentage: u32,
    pub incThreshold: u32,
    pub decThreshold: u32,
}

/// Utilisation of the clock domains, in percent.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlGpuDynamicPstatesInfo_t {
    pub flags: u32,
    pub utilization: [nvmlGpuDynamicPstatesInfo_t_utilization; 8],
}

c_enum! {
    /// Off or on.
    pub struct nvmlEnableState_t(u32);
    "NVML_FEATURE_" {
        DISABLED = 0,
        ENABLED = 1,
    }
}

c_enum! {
    /// The processes or threads that may make contexts on a device.
    pub struct nvmlComputeMode_t(u32);
    "NVML_COMPUTEMODE_" {
        DEFAULT = 0,
        EXCLUSIVE_THREAD = 1,
        PROHIBITED = 2,
        EXCLUSIVE_PROCESS = 3,
        COUNT = 4,
    }
}

c_enum! {
    /// The driver model on Windows.
    pub struct nvmlDriverModel_t(u32);
    "NVML_DRIVER_" {
        WDDM = 0,
        WDM = 1,
        MCDM = 2,
    }
}

c_enum! {
    /// The kind of work that a device is set up for.
    pub struct nvmlGpuOperationMode_t(u32);
    "NVML_GOM_" {
        ALL_ON = 0,
        COMPUTE = 1,
        LOW_DP = 2,
    }
}

c_enum! {
    /// Calls that may be kept to root.
    pub struct nvmlRestrictedAPI_t(u32);
    "NVML_RESTRICTED_API_SET_" {
        APPLICATION_CLOCKS = 0,
        AUTO_BOOSTED_CLOCKS = 1,
    }
    "NVML_" {
        RESTRICTED_API_COUNT = 2,
    }
}

c_enum! {
    /// A part of the inforom.
    pub struct nvmlInforomObject_t(u32);
    "NVML_INFOROM_" {
        OEM = 0,
        ECC = 1,
        POWER = 2,
        DEN = 3,
        COUNT = 4,
    }
}

c_enum! {
    /// A performance state, 0 the fastest.
    pub struct nvmlPstates_t(u32);
    "NVML_" {
        PSTATE_0 = 0,
        PSTATE_1 = 1,
        PSTATE_2 = 2,
        PSTATE_3 = 3,
        PSTATE_4 = 4,
        PSTATE_5 = 5,
        PSTATE_6 = 6,
        PSTATE_7 = 7,
        PSTATE_8 = 8,
        PSTATE_9 = 9,
        PSTATE_10 = 10,
        PSTATE_11 = 11,
        PSTATE_12 = 12,
        PSTATE_13 = 13,
        PSTATE_14 = 14,
        PSTATE_15 = 15,
    }
    "NVML_PSTATE_" {
        UNKNOWN = 32,
    }
}

c_enum! {
    /// Which clock.
    pub struct nvmlClockType_t(u32);
    "NVML_CLOCK_" {
        GRAPHICS = 0,
        SM = 1,
        MEM = 2,
        VIDEO = 3,
        COUNT = 4,
    }
}

c_enum! {
    /// Which setting of a clock.
    pub struct nvmlClockId_t(u32);
    "NVML_CLOCK_ID_" {
        CURRENT = 0,
        APP_CLOCK_TARGET = 1,
        APP_CLOCK_DEFAULT = 2,
        CUSTOMER_BOOST_MAX = 3,
        COUNT = 4,
    }
}

c_enum! {
    /// Which sensor.
    pub struct nvmlTemperatureSensors_t(u32);
    "NVML_TEMPERATURE_" {
        GPU = 0,
        GPU_MAX = 1,
        COUNT = 2,
    }
}

c_enum! {
    /// Which temperature limit.
    pub struct nvmlTemperatureThresholds_t(u32);
    "NVML_TEMPERATURE_THRESHOLD_" {
        SHUTDOWN = 0,
        SLOWDOWN = 1,
        MEM_MAX = 2,
        GPU_MAX = 3,
        ACOUSTIC_MIN = 4,
        ACOUSTIC_CURR = 5,
        ACOUSTIC_MAX = 6,
        GPS_CURR = 7,
        COUNT = 8,
    }
}

/// A temperature in degrees Celsius.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlTemperature_v1_t {
    pub version: u32,
    pub sensorType: nvmlTemperatureSensors_t,
    pub temperature: i32,
}

/// The plain name of [`nvmlTemperature_v1_t`].
pub type nvmlTemperature_t = nvmlTemperature_v1_t;

/// A fan's speed in rotations per minute.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlFanSpeedInfo_v1_t {
    pub version: u32,
    pub fan: u32,
    pub speed: u32,
}

/// The plain name of [`nvmlFanSpeedInfo_v1_t`].
pub type nvmlFanSpeedInfo_t = nvmlFanSpeedInfo_v1_t;

c_enum! {
    /// Which direction of the bus.
    pub struct nvmlPcieUtilCounter_t(u32);
    "NVML_PCIE_UTIL_" {
        TX_BYTES = 0,
        RX_BYTES = 1,
        COUNT = 2,
    }
}

c_enum! {
    /// Which limit held the clocks down.
    pub struct nvmlPerfPolicyType_t(u32);
    "NVML_PERF_POLICY_" {
        POWER = 0,
        THERMAL = 1,
        SYNC_BOOST = 2,
        BOARD_LIMIT = 3,
        LOW_UTILIZATION = 4,
        RELIABILITY = 5,
        TOTAL_APP_CLOCKS = 10,
        TOTAL_BASE_CLOCKS = 11,
        COUNT = 12,
    }
}

/// How long a limit held the clocks down, in nanoseconds.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlViolationTime_t {
    pub referenceTime: u64,
    pub violationTime: u64,
}

c_enum! {
    /// The quantity that `nvmlDeviceGetSamples` samples.
    pub struct nvmlSamplingType_t(u32);
    "NVML_" {
        TOTAL_POWER_SAMPLES = 0,
        GPU_UTILIZATION_SAMPLES = 1,
        MEMORY_UTILIZATION_SAMPLES = 2,
        ENC_UTILIZATION_SAMPLES = 3,
        DEC_UTILIZATION_SAMPLES = 4,
        PROCESSOR_CLK_SAMPLES = 5,
        MEMORY_CLK_SAMPLES = 6,
        MODULE_POWER_SAMPLES = 7,
        JPG_UTILIZATION_SAMPLES = 8,
        OFA_UTILIZATION_SAMPLES = 9,
        SAMPLINGTYPE_COUNT = 10,
    }
}

c_enum! {
    /// The member of an [`nvmlValue_t`](super::nvmlValue_t) that is valid.
    pub struct nvmlValueType_t(u32);
    "NVML_VALUE_TYPE_" {
        DOUBLE = 0,
        UNSIGNED_INT = 1,
        UNSIGNED_LONG = 2,
        UNSIGNED_LONG_LONG = 3,
        SIGNED_LONG_LONG = 4,
        SIGNED_INT = 5,
        UNSIGNED_SHORT = 6,
        COUNT = 7,
    }
}

/// A value of a type that is told beside it.
#[derive(Clone, Copy)]
#[repr(C)]
pub union nvmlValue_t {
    pub dVal: f64,
    pub siVal: i32,
    pub uiVal: u32,
    pub ulVal: u64,
    pub ullVal: u64,
    pub sllVal: i64,
    pub usVal: u16,
}
crate::abi::opaque_debug!(nvmlValue_t);

/// A sample with its time in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlSample_t {
    pub timeStamp: u64,
    pub sampleValue: nvmlValue_t,
}

/// A field of `nvmlDeviceGetFieldValues` with its own result code.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlFieldValue_t {
    pub fieldId: u32,
    pub scopeId: u32,
    pub timestamp: i64,
    pub latencyUsec: i64,
    pub valueType: nvmlValueType_t,
    pub nvmlReturn: nvmlReturn_t,
    pub value: nvmlValue_t,
}

/// An event of `nvmlEventSetWait`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct nvmlEventData_t {
    pub device: nvmlDevice_t,
    pub eventType: u64,
    pub eventData: u64,
    pub gpuInstanceId: u32,
    pub computeInstanceId: u32,
}

c_enum! {
    /// Why the clocks are where they are, a set of bits (`nvmlDeviceGetCurrentClocksEventReasons`).
    pub struct nvmlClocksEventReasons(u64);
    "nvmlClocksEventReason" {
        None = 0x0,
        GpuIdle = 0x1,
        ApplicationsClocksSetting = 0x2,
        SwPowerCap = 0x4,
        SyncBoost = 0x10,
        SwThermalSlowdown = 0x20,
        DisplayClockSetting = 0x100,
    }
}

c_enum! {
    /// The kinds of event that an event set can wait for: a set of bits
    /// (`nvmlDeviceRegisterEvents`).
    pub struct nvmlEventType(u64);
    "nvmlEventType" {
        None = 0x0,
        SingleBitEccError = 0x1,
        DoubleBitEccError = 0x2,
        PState = 0x4,
        XidCriticalError = 0x8,
        Clock = 0x10,
    }
}

/// `nvmlInitWithFlags`: succeed where there is no device.
pub const NVML_INIT_FLAG_NO_GPUS: u32 = 1 << 0;
/// `nvmlInitWithFlags`: do not attach the devices found.
pub const NVML_INIT_FLAG_NO_ATTACH: u32 = 1 << 1;
