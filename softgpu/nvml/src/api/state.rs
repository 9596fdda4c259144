//! The state of a device. There is no thermal or power model: all sensors show constant values of
//! an idle device.

use gpushare_cuda_abi::nvml::{
    nvmlClockId_t, nvmlClockType_t, nvmlClocksEventReasons, nvmlComputeMode_t, nvmlDevice_t,
    nvmlEccCounterType_t, nvmlEnableState_t, nvmlGpuVirtualizationMode_t, nvmlMemoryErrorType_t,
    nvmlPcieUtilCounter_t, nvmlPstates_t, nvmlReturn_t, nvmlTemperature_t,
    nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlUtilization_t, struct_version,
};
use softgpu::facts;

use crate::abi::{input, out, required};
use crate::library::{Result, index, monitor};

/// Temperature of an idle device, in degrees Celsius.
pub(super) const TEMPERATURE: u32 = 31;
/// Power of an idle device, and the minimum and maximum power limit of an H200 (the maximum is the
/// default), in milliwatts.
pub(super) const POWER: u32 = 76_000;
pub(super) const POWER_LEAST: u32 = 200_000;
pub(super) const POWER_MOST: u32 = 700_000;
/// PCI Express generation and lanes.
pub(super) const PCIE: (u32, u32) = (5, 16);
/// The maximum video clock in MHz.
const VIDEO_MHZ: u32 = 1545;

nvml! {
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, rates: *mut nvmlUtilization_t) {
        let used = monitor()?.utilization(index(device)?).map_err(|_| nvmlReturn_t::UNKNOWN)?;
        out(rates, nvmlUtilization_t { gpu: used.device, memory: 0 })
    }
    fn nvmlDeviceGetEncoderUtilization(device: nvmlDevice_t, percent: *mut u32, period: *mut u32) { idle(device, percent, period) }
    fn nvmlDeviceGetDecoderUtilization(device: nvmlDevice_t, percent: *mut u32, period: *mut u32) { idle(device, percent, period) }
    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, degrees: *mut u32) {
        index(device)?;
        if sensor != nvmlTemperatureSensors_t::GPU {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        out(degrees, TEMPERATURE)
    }
    fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, temperature: *mut nvmlTemperature_t) {
        index(device)?;
        let asked = input(temperature)?;
        if asked.version != struct_version::<nvmlTemperature_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        out(temperature, nvmlTemperature_t { temperature: TEMPERATURE.cast_signed(), ..asked })
    }
    fn nvmlDeviceGetTemperatureThreshold(device: nvmlDevice_t, which: nvmlTemperatureThresholds_t, degrees: *mut u32) {
        index(device)?;
        out(degrees, match which {
            nvmlTemperatureThresholds_t::SHUTDOWN => 92,
            nvmlTemperatureThresholds_t::SLOWDOWN => 89,
            nvmlTemperatureThresholds_t::MEM_MAX => 95,
            nvmlTemperatureThresholds_t::GPU_MAX => 87,
            _ => return Err(nvmlReturn_t::NOT_SUPPORTED),
        })
    }
}

nvml! {
    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut u32) { index(device)?; out(milliwatts, POWER) }
    fn nvmlDeviceGetPowerManagementMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) {
        index(device)?;
        out(mode, nvmlEnableState_t::ENABLED)
    }
    fn nvmlDeviceGetPowerManagementLimit(device: nvmlDevice_t, milliwatts: *mut u32) { index(device)?; out(milliwatts, POWER_MOST) }
    fn nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t, limit: *mut u32) { index(device)?; out(limit, POWER_MOST) }
    fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, milliwatts: *mut u32) { index(device)?; out(milliwatts, POWER_MOST) }
    fn nvmlDeviceGetPowerManagementLimitConstraints(device: nvmlDevice_t, least: *mut u32, most: *mut u32) {
        index(device)?;
        required(most)?;
        out(least, POWER_LEAST)?;
        out(most, POWER_MOST)
    }
    fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) { frequency(device, clock, mhz) }
    fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) { frequency(device, clock, mhz) }
    fn nvmlDeviceGetApplicationsClock(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) { frequency(device, clock, mhz) }
    fn nvmlDeviceGetClock(device: nvmlDevice_t, clock: nvmlClockType_t, which: nvmlClockId_t, mhz: *mut u32) {
        if which >= nvmlClockId_t::COUNT {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        frequency(device, clock, mhz)
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, reasons: *mut u64) { unthrottled(device, reasons) }
    fn nvmlDeviceGetCurrentClocksEventReasons(device: nvmlDevice_t, reasons: *mut u64) { unthrottled(device, reasons) }
    fn nvmlDeviceGetPerformanceState(device: nvmlDevice_t, state: *mut nvmlPstates_t) { index(device)?; out(state, nvmlPstates_t::PSTATE_0) }
    fn nvmlDeviceGetPowerState(device: nvmlDevice_t, state: *mut nvmlPstates_t) { index(device)?; out(state, nvmlPstates_t::PSTATE_0) }
}

nvml! {
    fn nvmlDeviceGetEccMode(device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) {
        index(device)?;
        required(pending)?;
        out(current, nvmlEnableState_t::ENABLED)?;
        out(pending, nvmlEnableState_t::ENABLED)
    }
    fn nvmlDeviceGetTotalEccErrors(
        device: nvmlDevice_t, kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t, count: *mut u64,
    ) {
        index(device)?;
        if kind >= nvmlMemoryErrorType_t::COUNT || counter >= nvmlEccCounterType_t::ECC_COUNTER_TYPE_COUNT {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        out(count, 0)
    }
    fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, generation: *mut u32) { index(device)?; out(generation, PCIE.0) }
    fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, generation: *mut u32) { index(device)?; out(generation, PCIE.0) }
    fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, lanes: *mut u32) { index(device)?; out(lanes, PCIE.1) }
    fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, lanes: *mut u32) { index(device)?; out(lanes, PCIE.1) }
    fn nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, kib: *mut u32) {
        index(device)?;
        if counter >= nvmlPcieUtilCounter_t::COUNT {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        out(kib, 0)
    }
    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) { index(device)?; out(mode, nvmlEnableState_t::DISABLED) }
    fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t) { index(device)?; out(mode, nvmlComputeMode_t::DEFAULT) }
    fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, display: *mut nvmlEnableState_t) { index(device)?; out(display, nvmlEnableState_t::DISABLED) }
    fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, active: *mut nvmlEnableState_t) { index(device)?; out(active, nvmlEnableState_t::DISABLED) }
    fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) { index(device)?; out(mode, nvmlEnableState_t::DISABLED) }
    fn nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, mode: *mut nvmlGpuVirtualizationMode_t) {
        index(device)?;
        out(mode, nvmlGpuVirtualizationMode_t::NONE)
    }
    /// The device is not in MIG mode and does not support it.
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: *mut u32, pending: *mut u32) {
        index(device)?;
        required(pending)?;
        out(current, 0)?;
        out(pending, 0)
    }
    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut u32) { index(device)?; out(count, 0) }
    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, is_mig: *mut u32) { index(device)?; out(is_mig, 0) }
}

pub(super) fn idle(device: nvmlDevice_t, percent: *mut u32, period_us: *mut u32) -> Result {
    index(device)?;
    required(period_us)?;
    out(percent, 0)?;
    out(period_us, 1_000_000)
}

fn unthrottled(device: nvmlDevice_t, reasons: *mut u64) -> Result {
    index(device)?;
    out(reasons, nvmlClocksEventReasons::None.0)
}

pub(super) fn frequency(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) -> Result {
    index(device)?;
    out(
        mhz,
        match clock {
            nvmlClockType_t::GRAPHICS | nvmlClockType_t::SM => facts::CLOCK_KHZ / 1000,
            nvmlClockType_t::MEM => facts::MEMORY_CLOCK_KHZ / 1000,
            nvmlClockType_t::VIDEO => VIDEO_MHZ,
            _ => return Err(nvmlReturn_t::INVALID_ARGUMENT),
        },
    )
}
