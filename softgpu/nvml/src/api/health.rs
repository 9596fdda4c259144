//! Errors, counters, sessions: all zero on a device that never fails. The energy is the idle power
//! times the host's uptime, as if the driver had been loaded at the host's start.

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlEccCounterType_t, nvmlEccErrorCounts_t, nvmlEnableState_t,
    nvmlMemoryErrorType_t, nvmlMemoryLocation_t, nvmlPerfPolicyType_t, nvmlReturn_t,
    nvmlViolationTime_t,
};

use super::state::POWER;
use crate::abi::{out, required};
use crate::library::{Result, index};

/// Processes that accounting remembers: `nvidia-smi -q` of all data-centre devices says so.
const ACCOUNTED: u32 = 4000;

/// Statistics of frame capture sessions.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Sessions {
    count: u32,
    fps: u32,
    latency_us: u32,
}

/// Banks by how many spare rows they have left.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct RemapHistogram([u32; 5]);

nvml! {
    fn nvmlDeviceGetDefaultEccMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) { index(device)?; out(mode, nvmlEnableState_t::ENABLED) }
    /// Errors by place: device memory alone is counted by place.
    fn nvmlDeviceGetMemoryErrorCounter(
        device: nvmlDevice_t, kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t, place: nvmlMemoryLocation_t, count: *mut u64,
    ) {
        index(device)?;
        valid(kind, counter)?;
        match place {
            nvmlMemoryLocation_t::DRAM | nvmlMemoryLocation_t::SRAM => out(count, 0),
            place if place >= nvmlMemoryLocation_t::COUNT => Err(nvmlReturn_t::INVALID_ARGUMENT),
            _ => Err(nvmlReturn_t::NOT_SUPPORTED),
        }
    }
    fn nvmlDeviceGetDetailedEccErrors(
        device: nvmlDevice_t, kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t, counts: *mut nvmlEccErrorCounts_t,
    ) {
        index(device)?;
        valid(kind, counter)?;
        out(counts, nvmlEccErrorCounts_t { l1Cache: 0, l2Cache: 0, deviceMemory: 0, registerFile: 0 })
    }
    fn nvmlDeviceGetRemappedRows(device: nvmlDevice_t, corrected: *mut u32, uncorrected: *mut u32, pending: *mut u32, failed: *mut u32) {
        index(device)?;
        [corrected, uncorrected, pending, failed].into_iter().try_for_each(|count| required(count))?;
        [corrected, uncorrected, pending, failed].into_iter().try_for_each(|count| out(count, 0))
    }
    /// All banks have all their spare rows. The number of banks is not public, so it is 1.
    fn nvmlDeviceGetRowRemapperHistogram(device: nvmlDevice_t, values: *mut RemapHistogram) {
        index(device)?;
        out(values, RemapHistogram([1, 0, 0, 0, 0]))
    }
    fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, count: *mut u32) { index(device)?; out(count, 0) }
    fn nvmlDeviceGetViolationStatus(device: nvmlDevice_t, policy: nvmlPerfPolicyType_t, time: *mut nvmlViolationTime_t) {
        index(device)?;
        if policy >= nvmlPerfPolicyType_t::COUNT {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        out(time, nvmlViolationTime_t { referenceTime: softgpu::watch::epoch_us(), violationTime: 0 })
    }
    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, millijoules: *mut u64) { out(millijoules, energy_mj(index(device)?)?) }
    fn nvmlDeviceGetAccountingBufferSize(device: nvmlDevice_t, processes: *mut u32) { index(device)?; out(processes, ACCOUNTED) }
}

nvml! {
    fn nvmlDeviceGetEncoderStats(device: nvmlDevice_t, count: *mut u32, fps: *mut u32, latency_us: *mut u32) {
        index(device)?;
        [count, fps, latency_us].into_iter().try_for_each(|number| required(number))?;
        [count, fps, latency_us].into_iter().try_for_each(|number| out(number, 0))
    }
    fn nvmlDeviceGetFBCStats(device: nvmlDevice_t, stats: *mut Sessions) { index(device)?; out(stats, Sessions::default()) }
}

fn valid(kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t) -> Result {
    if kind >= nvmlMemoryErrorType_t::COUNT
        || counter >= nvmlEccCounterType_t::ECC_COUNTER_TYPE_COUNT
    {
        return Err(nvmlReturn_t::INVALID_ARGUMENT);
    }
    Ok(())
}

/// The energy that a device has used, in millijoules.
pub(super) fn energy_mj(_index: u32) -> Result<u64> {
    let uptime = std::fs::read_to_string("/proc/uptime").map_err(|_| nvmlReturn_t::UNKNOWN)?;
    let seconds: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or(nvmlReturn_t::UNKNOWN)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an uptime is positive, and its energy fits for 7000 years"
    )]
    Ok((seconds * f64::from(POWER)) as u64)
}
