//! Where devices sit: processors, memory nodes, other devices. All devices are on memory node 0.

use std::fs;

use gpushare_cuda_abi::nvml::{nvmlDevice_t, nvmlGpuTopologyLevel_t, nvmlReturn_t};

use crate::abi::{input, out, outputs, required};
use crate::library::{Result, handle, index, monitor};

/// A memory node, or a whole socket; the node of the devices is the whole socket.
const SCOPE_SOCKET: u32 = 1;

nvml! {
    fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, words: u32, set: *mut u64) { processors(device, words, set, 0) }
    fn nvmlDeviceGetCpuAffinityWithinScope(device: nvmlDevice_t, words: u32, set: *mut u64, scope: u32) {
        processors(device, words, set, scope)
    }
    fn nvmlDeviceGetMemoryAffinity(device: nvmlDevice_t, words: u32, set: *mut u64, scope: u32) {
        index(device)?;
        bits(words, set, scope, &[0])
    }
    fn nvmlDeviceOnSameBoard(one: nvmlDevice_t, other: nvmlDevice_t, same: *mut i32) {
        let equal = index(one)? == index(other)?;
        out(same, i32::from(equal))
    }
    /// Devices whose nearest common ancestor with this one is at that level: [`super::identity`]
    /// says `NODE` for each pair.
    fn nvmlDeviceGetTopologyNearestGpus(device: nvmlDevice_t, level: nvmlGpuTopologyLevel_t, count: *mut u32, devices: *mut nvmlDevice_t) {
        let own = index(device)?;
        if level > nvmlGpuTopologyLevel_t::SYSTEM {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        let near = (0..monitor()?.spec().count).filter(|other| *other != own && level == nvmlGpuTopologyLevel_t::NODE);
        listed(&near.collect::<Vec<_>>(), count, devices)
    }
    fn nvmlSystemGetTopologyGpuSet(cpu: u32, count: *mut u32, devices: *mut nvmlDevice_t) {
        let near = cpus().contains(&cpu);
        let found: Vec<u32> = (0..monitor()?.spec().count).filter(|_| near).collect();
        listed(&found, count, devices)
    }
}

fn processors(device: nvmlDevice_t, words: u32, set: *mut u64, scope: u32) -> Result {
    index(device)?;
    bits(words, set, scope, &cpus())
}

/// Writes a set of numbers as bits; those beyond its `words` are left out.
fn bits(words: u32, set: *mut u64, scope: u32, numbers: &[u32]) -> Result {
    if words == 0 || scope > SCOPE_SOCKET {
        return Err(nvmlReturn_t::INVALID_ARGUMENT);
    }
    let mut told = vec![0_u64; words as usize];
    for number in numbers {
        if let Some(word) = told.get_mut(*number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }
    outputs(set, &told)
}

/// Writes handles if there is room. With room for none only the count is written.
fn listed(found: &[u32], count: *mut u32, devices: *mut nvmlDevice_t) -> Result {
    let room = input(count)?;
    let needed = u32::try_from(found.len()).expect("devices are few");
    out(count, needed)?;
    if room == 0 || needed == 0 {
        return Ok(());
    }
    required(devices)?;
    if room < needed {
        return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
    }
    outputs(
        devices,
        &found.iter().copied().map(handle).collect::<Vec<_>>(),
    )
}

/// The processors of memory node 0, or all of a host that names no nodes.
fn cpus() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/node/node0/cpulist")
        .or_else(|_| fs::read_to_string("/sys/devices/system/cpu/online"))
        .unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u32>().ok();
    list.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((first, last)) => Some(number(first)?..=number(last)?),
            None => Some(number(part)?..=number(part)?),
        })
        .flatten()
        .collect()
}
