//! Clocks that can be set, the bus, engines beside the multiprocessors, firmware.

use std::ffi::c_char;

use gpushare_cuda_abi::nvml::{nvmlClockType_t, nvmlDevice_t, nvmlPstates_t, nvmlReturn_t};
use softgpu::facts;

use super::state::{PCIE, frequency, idle};
use crate::abi::{input, out, out_text, outputs, required};
use crate::library::{Result, index, monitor};

/// The lowest graphics clock of an H100 and the step between its clocks, in MHz.
const LEAST_MHZ: u32 = 345;
const STEP_MHZ: u32 = 15;
/// All reasons that hold clocks down: idle, applications' clocks, power cap, slowdown by hardware,
/// synchronised boost, thermal slowdown by software and by hardware, power brake, display.
const REASONS: u64 = 0x1ff;
/// `NVML_PCIE_LINK_MAX_SPEED_32000MBPS`, and the same in Mb/s: one lane of generation 5.
const LANE: u32 = 5;
const LANE_MBPS: u32 = 32_000;
/// `NVML_POWER_SOURCE_AC`.
const MAINS: u32 = 0;
/// Room for a firmware version: `NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`.
const FIRMWARE_ROOM: u32 = 64;

nvml! {
    fn nvmlDeviceGetSupportedClocksThrottleReasons(device: nvmlDevice_t, reasons: *mut u64) { index(device)?; out(reasons, REASONS) }
    fn nvmlDeviceGetSupportedClocksEventReasons(device: nvmlDevice_t, reasons: *mut u64) { index(device)?; out(reasons, REASONS) }
    /// The device knows one state. `size` is in bytes; the rest of the array is `UNKNOWN`.
    fn nvmlDeviceGetSupportedPerformanceStates(device: nvmlDevice_t, states: *mut nvmlPstates_t, size: u32) {
        index(device)?;
        let room = size as usize / size_of::<nvmlPstates_t>();
        if room == 0 {
            return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
        }
        let mut told = vec![nvmlPstates_t::UNKNOWN; room];
        told[0] = nvmlPstates_t::PSTATE_0;
        outputs(states, &told)
    }
    fn nvmlDeviceGetMinMaxClockOfPState(device: nvmlDevice_t, clock: nvmlClockType_t, state: nvmlPstates_t, least: *mut u32, most: *mut u32) {
        let mut highest = 0;
        frequency(device, clock, &raw mut highest)?;
        if (state > nvmlPstates_t::PSTATE_15 && state != nvmlPstates_t::UNKNOWN) || (least.is_null() && most.is_null()) {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        let lowest = match clock {
            nvmlClockType_t::GRAPHICS | nvmlClockType_t::SM => LEAST_MHZ,
            nvmlClockType_t::MEM => highest,
            // The lowest video clock is not published.
            _ => return Err(nvmlReturn_t::NOT_SUPPORTED),
        };
        if state != nvmlPstates_t::PSTATE_0 {
            return Err(nvmlReturn_t::NOT_SUPPORTED);
        }
        let _ = out(least, lowest);
        let _ = out(most, highest);
        Ok(())
    }
    fn nvmlDeviceGetSupportedMemoryClocks(device: nvmlDevice_t, count: *mut u32, mhz: *mut u32) {
        index(device)?;
        listed(&[facts::MEMORY_CLOCK_KHZ / 1000], count, mhz)
    }
    fn nvmlDeviceGetSupportedGraphicsClocks(device: nvmlDevice_t, memory_mhz: u32, count: *mut u32, mhz: *mut u32) {
        index(device)?;
        if memory_mhz != facts::MEMORY_CLOCK_KHZ / 1000 {
            return Err(nvmlReturn_t::NOT_FOUND);
        }
        let clocks = (LEAST_MHZ..=facts::CLOCK_KHZ / 1000).rev().step_by(STEP_MHZ as usize);
        listed(&clocks.collect::<Vec<_>>(), count, mhz)
    }
    fn nvmlDeviceGetDefaultApplicationsClock(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) { frequency(device, clock, mhz) }
    fn nvmlDeviceGetMaxCustomerBoostClock(device: nvmlDevice_t, clock: nvmlClockType_t, mhz: *mut u32) { frequency(device, clock, mhz) }
}

nvml! {
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: nvmlDevice_t, generation: *mut u32) { index(device)?; out(generation, PCIE.0) }
    fn nvmlDeviceGetPcieLinkMaxSpeed(device: nvmlDevice_t, speed: *mut u32) { index(device)?; out(speed, LANE) }
    fn nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, mbps: *mut u32) { index(device)?; out(mbps, LANE_MBPS) }
    /// An interrupt's number belongs to its host. There is no interrupt here; the number is one for
    /// each device, above those that PCs fix.
    fn nvmlDeviceGetIrqNum(device: nvmlDevice_t, number: *mut u32) { out(number, 16 + index(device)?) }
    fn nvmlDeviceGetPowerSource(device: nvmlDevice_t, source: *mut u32) { index(device)?; out(source, MAINS) }
    fn nvmlDeviceGetJpgUtilization(device: nvmlDevice_t, percent: *mut u32, period: *mut u32) { idle(device, percent, period) }
    fn nvmlDeviceGetOfaUtilization(device: nvmlDevice_t, percent: *mut u32, period: *mut u32) { idle(device, percent, period) }
    /// Devices since Turing have a system processor, and data-centre drivers use it by default.
    fn nvmlDeviceGetGspFirmwareMode(device: nvmlDevice_t, enabled: *mut u32, default: *mut u32) {
        index(device)?;
        required(default)?;
        out(enabled, 1)?;
        out(default, 1)
    }
    /// The firmware comes with the driver and has its version.
    fn nvmlDeviceGetGspFirmwareVersion(device: nvmlDevice_t, version: *mut c_char) {
        index(device)?;
        out_text(version, FIRMWARE_ROOM, facts::driver_release(monitor()?.spec().driver))
    }
}

/// Writes a list if there is room for it; always the count.
fn listed(found: &[u32], count: *mut u32, at: *mut u32) -> Result {
    let room = input(count)?;
    let needed = u32::try_from(found.len()).expect("clocks are few");
    out(count, needed)?;
    if room < needed {
        return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
    }
    outputs(at, found)
}
