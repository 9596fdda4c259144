//! Processes on a device. A dead process stays listed until all of its memory has returned.

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlEncoderSessionInfo_t, nvmlFBCSessionInfo_t, nvmlProcessDetail_v1_t,
    nvmlProcessDetailList_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessMode_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlReturn_t, struct_version,
};

use crate::abi::{input, out, outputs, required};
use crate::library::{Result, device as look, index, monitor};
use softgpu::facts;
use softgpu::pids::seen;

/// The instance ids of a device without MIG.
const NO_INSTANCE: u32 = u32::MAX;

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v1_t) {
        list(device, count, infos, v1)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) {
        list(device, count, infos, v2)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) {
        match facts::lists_protected(monitor()?.spec().driver) {
            true => list(device, count, infos.cast(), detail),
            false => list(device, count, infos, v2),
        }
    }
    /// No process uses graphics here.
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
        // nvml.h says so of both.
        let is_known = asked.version == struct_version::<nvmlProcessDetailList_t>(1);
        if !is_known || asked.mode >= nvmlProcessMode_t::MAX.0 {
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
    /// The samples newer than `since` (microseconds since the epoch): one per process, for the last
    /// complete sample of utilisation.
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t, samples: *mut nvmlProcessUtilizationSample_t, count: *mut u32, since: u64,
    ) {
        let room = if samples.is_null() { 0 } else { input(count)? };
        let (time, found) = sampled(device, since)?;
        let needed = u32::try_from(found.len()).expect("processes are few");
        out(count, needed)?;
        if needed > room {
            return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
        }
        let entry = |(pid, share)| nvmlProcessUtilizationSample_t {
            pid, timeStamp: time, smUtil: share, memUtil: 0, encUtil: 0, decUtil: 0,
        };
        outputs(samples, &found.into_iter().map(entry).collect::<Vec<_>>())
    }
    fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, infos: *mut nvmlProcessesUtilizationInfo_t) {
        let asked = input(infos)?;
        if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        let room = if asked.procUtilArray.is_null() { 0 } else { asked.processSamplesCount };
        let (time, found) = sampled(device, asked.lastSeenTimeStamp)?;
        let needed = u32::try_from(found.len()).expect("processes are few");
        out(infos, nvmlProcessesUtilizationInfo_t { processSamplesCount: needed, ..asked })?;
        if needed > room {
            return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
        }
        let entry = |(pid, share)| nvmlProcessUtilizationInfo_v1_t {
            timeStamp: time, pid, smUtil: share, memUtil: 0, encUtil: 0, decUtil: 0, jpgUtil: 0, ofaUtil: 0,
        };
        outputs(asked.procUtilArray, &found.into_iter().map(entry).collect::<Vec<_>>())
    }
}

nvml! {
    fn nvmlDeviceGetEncoderSessions(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlEncoderSessionInfo_t) {
        sessions(device, count, infos, |number, pid| nvmlEncoderSessionInfo_t {
            sessionId: number, pid, vgpuInstance: 0, codecType: 0, hResolution: 1920, vResolution: 1080, averageFps: 30, averageLatency: 4000,
        })
    }
    fn nvmlDeviceGetFBCSessions(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlFBCSessionInfo_t) {
        sessions(device, count, infos, |number, pid| nvmlFBCSessionInfo_t {
            sessionId: number, pid, vgpuInstance: 0, displayOrdinal: 0, sessionType: 0, sessionFlags: 0, hMaxResolution: 1920, vMaxResolution: 1080,
            hResolution: 1920, vResolution: 1080, averageFPS: 30, averageLatency: 4000,
        })
    }
}

/// One session for each process, where the devices have such. Of a count of 0 `nvml.h` says that it
/// is the question how many there are, which succeeds.
fn sessions<T: Copy>(
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut T,
    session: fn(u32, u32) -> T,
) -> Result {
    let room = input(count)?;
    let has = monitor()?.spec().sessions;
    let found = running(device)?.into_iter().filter(|_| has);
    let found: Vec<T> = (1..)
        .zip(found)
        .map(|(number, (pid, _))| session(number, pid))
        .collect();
    let needed = u32::try_from(found.len()).expect("processes are few");
    out(count, needed)?;
    match room {
        0 => Ok(()),
        room if room < needed => Err(nvmlReturn_t::INSUFFICIENT_SIZE),
        _ => outputs(infos, &found),
    }
}

/// The end of the last sample, and the percentage of each process in it.
///
/// # Errors
/// `NOT_FOUND` if there is no sample after `since`, or no process ran in it.
fn sampled(device: nvmlDevice_t, since: u64) -> Result<(u64, Vec<(u32, u32)>)> {
    let used = monitor()?
        .utilization(index(device)?)
        .map_err(|_| nvmlReturn_t::UNKNOWN)?;
    if used.ended_us <= since || used.processes.is_empty() {
        return Err(nvmlReturn_t::NOT_FOUND);
    }
    let processes = used
        .processes
        .iter()
        .map(|(pid, share)| (pid.cast_unsigned(), *share));
    Ok((used.ended_us, processes.collect()))
}

/// The pid and the bytes of each process that holds memory on the device.
fn running(device: nvmlDevice_t) -> Result<Vec<(u32, u64)>> {
    let listed = monitor()?.spec().listed;
    let processes = look(device)?.processes;
    let holding = processes
        .iter()
        .filter(|process| process.physical_total() > 0);
    Ok(holding
        .filter_map(|process| Some((seen(process)?, process.listed(listed))))
        .collect())
}

/// The list protocol: the count passes the array's capacity in and the length out. If the capacity
/// is too small, only the count is written.
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
