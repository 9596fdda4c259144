//! NVML: the container's memory and the container's processes, for monitoring tools inside it.
//!
//! NVML is asked first, so that every error, and the check of every struct's version, is its own. Devices are known by UUID.
//!
//! # Safety
//! NVML is called with the program's own arguments, or with buffers of ours in their place. The program's buffers are written to only
//! after NVML accepted the call, and only as far as the program said they reach.
#![allow(unsafe_code, reason = "calls NVML and writes the program's buffers")]

use core::ffi::{CStr, c_char};

use gpushare_cuda_abi::nvml::*;
use gpushare_protocol::uuid::Uuid;

use crate::account::members::Members;
use crate::account::peek::{self, Glance};
use crate::account::views;
use crate::driver::calls;
use crate::entry::hooks;
use crate::hooks::nvml_lists;

hooks! {
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t = memory_v1;
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t = memory_v2;
    fn nvmlDeviceGetComputeRunningProcesses | nvmlDeviceGetGraphicsRunningProcesses
        | nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v1_t)
        -> nvmlReturn_t = processes_v1;
    fn nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3
        | nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3
        | nvmlDeviceGetMPSComputeRunningProcesses_v2 | nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t,
        count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t = processes;
    fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: *mut nvmlProcessDetailList_t) -> nvmlReturn_t
        = details;
    fn nvmlDeviceGetProcessUtilization(device: nvmlDevice_t, samples: *mut nvmlProcessUtilizationSample_t, count: *mut u32,
        since: u64) -> nvmlReturn_t = utilization;
    fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, info: *mut nvmlProcessesUtilizationInfo_t)
        -> nvmlReturn_t = utilization_info;
}

/// What the container has on a device; `None` where the device's own answers stand.
fn glance(device: nvmlDevice_t) -> Option<Glance> {
    let mut text = [0 as c_char; 96];
    let (mut index, mut memory) = (
        0,
        nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        },
    );
    // SAFETY: out parameters that outlive the calls, of the size stated; the device is the program's.
    let uuid = unsafe {
        calls::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96)
            .ok()
            .ok()?;
        let _ = calls::nvmlDeviceGetIndex(device, &raw mut index);
        let _ = calls::nvmlDeviceGetMemoryInfo(device, &raw mut memory);
        Uuid::parse(CStr::from_ptr(text.as_ptr()).to_str().ok()?, '-')?
    };
    peek::glance(&uuid.0, index, memory.total)
}

/// Total, free and used as the container sees them.
fn seen(device: nvmlDevice_t, physical: u64) -> Option<(u64, u64, u64)> {
    let glance = glance(device)?;
    let seen = views::seen(&glance.standing, physical)?;
    let booked = glance.standing.charged.saturating_add(glance.overhead);
    let used = booked.max(held(device, &glance.members)).min(seen.total);
    Some((seen.total, seen.free.min(seen.total - used), used))
}

/// What NVML itself knows these processes to hold, their contexts too. Nothing where it cannot tell, or by other pids.
fn held(device: nvmlDevice_t, members: &Members) -> u64 {
    // SAFETY: the program's device, and buffers of ours.
    let ask = |count: *mut u32, place: *mut nvmlProcessInfo_v2_t| unsafe {
        calls::nvmlDeviceGetComputeRunningProcesses_v3(device, count, place)
    };
    let listed = nvml_lists::fetch(&ask).unwrap_or_default();
    nvml_lists::own(members, listed)
        .iter()
        .filter(|entry| entry.usedGpuMemory != u64::MAX)
        .fold(0, |sum, entry| sum.saturating_add(entry.usedGpuMemory))
}

fn memory_v1(
    real: nvmlDeviceGetMemoryInfo,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(device, memory) };
    if answer.is_success() {
        // SAFETY: NVML has written it.
        let memory = unsafe { &mut *memory };
        if let Some((total, free, used)) = seen(device, memory.free) {
            *memory = nvmlMemory_t { total, free, used };
        }
    }
    answer
}

fn memory_v2(
    real: nvmlDeviceGetMemoryInfo_v2,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(device, memory) };
    if answer.is_success() {
        // SAFETY: NVML has accepted its version and written it.
        let memory = unsafe { &mut *memory };
        if let Some((total, free, used)) = seen(device, memory.free) {
            *memory = nvmlMemory_v2_t {
                version: memory.version,
                total,
                reserved: 0,
                free,
                used,
            };
        }
    }
    answer
}

fn processes_v1(
    real: nvmlDeviceGetComputeRunningProcesses,
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut nvmlProcessInfo_v1_t,
) -> nvmlReturn_t {
    // SAFETY: the program's device and buffers of ours, or all of the program's own arguments.
    let ask = |count, infos| unsafe { real(device, count, infos) };
    // SAFETY: `count` and `infos` are what the program gave for the same call.
    unsafe {
        nvml_lists::answer(count, infos, ask, || {
            glance(device).map(|glance| glance.members)
        })
    }
}

fn processes(
    real: nvmlDeviceGetComputeRunningProcesses_v2,
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut nvmlProcessInfo_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the program's device and buffers of ours, or all of the program's own arguments.
    let ask = |count, infos| unsafe { real(device, count, infos) };
    // SAFETY: `count` and `infos` are what the program gave for the same call.
    unsafe {
        nvml_lists::answer(count, infos, ask, || {
            glance(device).map(|glance| glance.members)
        })
    }
}

fn details(
    real: nvmlDeviceGetRunningProcessDetailList,
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_t,
) -> nvmlReturn_t {
    if list.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { real(device, list) };
    }
    // SAFETY: not null, and the program's.
    let (version, mode, infos) = unsafe { ((*list).version, (*list).mode, (*list).procArray) };
    let ask = |count: *mut u32, array: *mut nvmlProcessDetail_v1_t| {
        // SAFETY: `count` is the program's field or a local of the fetching.
        let room = unsafe { *count };
        let mut asked = nvmlProcessDetailList_t {
            version,
            mode,
            numProcArrayEntries: room,
            procArray: array,
        };
        // SAFETY: the program's device and a list of ours.
        let answer = unsafe { real(device, &raw mut asked) };
        // SAFETY: as above.
        unsafe { *count = asked.numProcArrayEntries };
        answer
    };
    // SAFETY: the fields are the program's for the same call.
    unsafe {
        nvml_lists::answer(&raw mut (*list).numProcArrayEntries, infos, ask, || {
            glance(device).map(|glance| glance.members)
        })
    }
}

fn utilization(
    real: nvmlDeviceGetProcessUtilization,
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut u32,
    since: u64,
) -> nvmlReturn_t {
    // SAFETY: the program's device and buffers of ours, or all of the program's own arguments.
    let ask = |count, samples| unsafe { real(device, samples, count, since) };
    // SAFETY: `count` and `samples` are what the program gave for the same call.
    unsafe {
        nvml_lists::answer(count, samples, ask, || {
            glance(device).map(|glance| glance.members)
        })
    }
}

fn utilization_info(
    real: nvmlDeviceGetProcessesUtilizationInfo,
    device: nvmlDevice_t,
    info: *mut nvmlProcessesUtilizationInfo_t,
) -> nvmlReturn_t {
    if info.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { real(device, info) };
    }
    // SAFETY: not null, and the program's.
    let (version, since, array) = unsafe {
        (
            (*info).version,
            (*info).lastSeenTimeStamp,
            (*info).procUtilArray,
        )
    };
    let ask = |count: *mut u32, array: *mut nvmlProcessUtilizationInfo_v1_t| {
        // SAFETY: `count` is the program's field or a local of the fetching.
        let room = unsafe { *count };
        let mut asked = nvmlProcessesUtilizationInfo_t {
            version,
            processSamplesCount: room,
            lastSeenTimeStamp: since,
            procUtilArray: array,
        };
        // SAFETY: the program's device and a list of ours.
        let answer = unsafe { real(device, &raw mut asked) };
        // SAFETY: as above.
        unsafe { *count = asked.processSamplesCount };
        answer
    };
    // SAFETY: the fields are the program's for the same call.
    unsafe {
        nvml_lists::answer(&raw mut (*info).processSamplesCount, array, ask, || {
            glance(device).map(|glance| glance.members)
        })
    }
}
