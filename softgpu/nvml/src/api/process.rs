//! Processes on a device. One that is dead stays listed until all of its memory has returned.

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlProcessMode_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlReturn_t, struct_version,
};

use crate::abi::{input, out, outputs, required};
use crate::library::{Result, device as look, index};

/// The instance ids of a device that is not divided.
const NO_INSTANCE: u32 = u32::MAX;

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v1_t) {
        list(device, count, infos, v1)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) {
        list(device, count, infos, v2)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) {
        list(device, count, infos, v2)
    }
    /// Nobody draws here.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v1_t) {
        none(device, count)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v2_t) {
        none(device, count)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v2_t) {
        none(device, count)
    }
    /// There is no MPS server.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v1_t) {
        none(device, count)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v2_t) {
        none(device, count)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, _infos: *mut nvmlProcessInfo_v2_t) {
        none(device, count)
    }
    fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: *mut nvmlProcessDetailList_t) {
        let asked = input(list)?;
        if asked.version != struct_version::<nvmlProcessDetailList_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        if asked.mode >= nvmlProcessMode_t::MAX.0 {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        let computes = [nvmlProcessMode_t::COMPUTE.0, nvmlProcessMode_t::ALL.0].contains(&asked.mode);
        let found = running(device)?;
        let found: Vec<_> = found.into_iter().filter(|_| computes).map(detail).collect();
        let needed = u32::try_from(found.len()).expect("processes are few");
        out(list, nvmlProcessDetailList_t { numProcArrayEntries: needed, ..asked })?;
        if asked.numProcArrayEntries < needed {
            return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
        }
        outputs(asked.procArray, &found)
    }
}

nvml! {
    /// How the device's time was divided is not sampled: there is never a sample, as on a device where nothing ran lately.
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t, _samples: *mut nvmlProcessUtilizationSample_t, count: *mut u32, _since: u64,
    ) {
        index(device)?;
        out(count, 0)?;
        Err(nvmlReturn_t::NOT_FOUND)
    }
    fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, infos: *mut nvmlProcessesUtilizationInfo_t) {
        index(device)?;
        let asked = input(infos)?;
        if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        out(infos, nvmlProcessesUtilizationInfo_t { processSamplesCount: 0, ..asked })?;
        Err(nvmlReturn_t::NOT_FOUND)
    }
}

/// Pid and bytes of everybody who holds memory on the device.
fn running(device: nvmlDevice_t) -> Result<Vec<(u32, u64)>> {
    let processes = look(device)?.processes;
    let holding = processes
        .iter()
        .filter(|process| process.physical_total() > 0);
    Ok(holding
        .map(|process| (process.pid.cast_unsigned(), process.physical_total()))
        .collect())
}

/// The list protocol: the count goes in as room and comes out as length; with too little room nothing is written but the count.
fn list<T: Copy>(
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut T,
    entry: fn((u32, u64)) -> T,
) -> Result {
    let room = input(count)?;
    let found: Vec<T> = running(device)?.into_iter().map(entry).collect();
    let needed = u32::try_from(found.len()).expect("processes are few");
    out(count, needed)?;
    if room < needed {
        return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
    }
    outputs(infos, &found)
}

fn none(device: nvmlDevice_t, count: *mut u32) -> Result {
    index(device)?;
    required(count)?;
    out(count, 0)
}

fn v1((pid, bytes): (u32, u64)) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t {
        pid,
        usedGpuMemory: bytes,
    }
}

fn v2((pid, bytes): (u32, u64)) -> nvmlProcessInfo_v2_t {
    nvmlProcessInfo_v2_t {
        pid,
        usedGpuMemory: bytes,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    }
}

fn detail((pid, bytes): (u32, u64)) -> nvmlProcessDetail_v1_t {
    nvmlProcessDetail_v1_t {
        pid,
        usedGpuMemory: bytes,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
        usedGpuCcProtectedMemory: 0,
    }
}
