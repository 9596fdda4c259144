//! NVML: the tenant's memory, processes and sessions, for monitoring tools inside it.
//!
//! NVML is asked first, so that every error, and the check of every struct's version, is its own.
//! A list of a version that this library does not know is refused in a tenant, also where NVML
//! knows it.
//! Devices are known by UUID.

use gpushare_cuda_abi::nvml::*;
use gpushare_protocol::uuid::Uuid;

use crate::account::members::Members;
use crate::account::ordinal::Described;
use crate::account::peek::{self, Glance, Managed};
use crate::account::views;
use crate::driver::nvml::{self, Use};
use crate::entry::args::{InOut, Out};
use crate::entry::hooks;
use crate::entry::lists::{List, Listing, Room, filled, filled_within};
use crate::hooks::nvml_lists::{self, Entry, Of};
use crate::residency::managed;

hooks! {
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: Out<'_, nvmlMemory_t>) -> nvmlReturn_t
        = |call| memory_v1(device, memory, call());
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: Out<'_, nvmlMemory_v2_t>) -> nvmlReturn_t
        = |call| memory_v2(device, memory, call());
    fn nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: Out<'_, nvmlMemory_t>) -> nvmlReturn_t
        = |call| protected(device, memory, call());
    fn nvmlDeviceGetComputeRunningProcesses | nvmlDeviceGetGraphicsRunningProcesses
        | nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: InOut<'_, u32>, infos: Room<'_, nvmlProcessInfo_v1_t>)
        -> nvmlReturn_t = |real(..)| listed(count, (infos, Of::Running), |count, infos| real(device, count, infos));
    fn nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v2
        | nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, count: InOut<'_, u32>, infos: Room<'_, nvmlProcessInfo_v2_t>)
        -> nvmlReturn_t = |real(..)| listed(count, (infos, Of::Running), |count, infos| real(device, count, infos));
    fn nvmlDeviceGetComputeRunningProcesses_v3 | nvmlDeviceGetGraphicsRunningProcesses_v3
        | nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, count: InOut<'_, u32>, infos: Room<'_, nvmlProcessInfo_v2_t>)
        -> nvmlReturn_t = |real(..)| newest(count, infos, |count, infos| real(device, count, infos));
    fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: InOut<'_, nvmlProcessDetailList_t>) -> nvmlReturn_t
        = |real(..)| listed_within((list, Of::Running), |list| real(device, list));
    fn nvmlDeviceGetProcessUtilization(device: nvmlDevice_t, samples: Room<'_, nvmlProcessUtilizationSample_t>,
        count: InOut<'_, u32>, since: u64) -> nvmlReturn_t
        = |real(..)| listed(count, (samples, Of::Samples), |count, samples| real(device, samples, count, since));
    fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, info: InOut<'_, nvmlProcessesUtilizationInfo_t>)
        -> nvmlReturn_t = |real(..)| listed_within((info, Of::Samples), |info| real(device, info));
    fn nvmlDeviceGetEncoderSessions(device: nvmlDevice_t, count: InOut<'_, u32>, infos: Room<'_, nvmlEncoderSessionInfo_t>)
        -> nvmlReturn_t = |real(..)| listed(count, (infos, Of::Sessions), |count, infos| real(device, count, infos));
    fn nvmlDeviceGetFBCSessions(device: nvmlDevice_t, count: InOut<'_, u32>, infos: Room<'_, nvmlFBCSessionInfo_t>)
        -> nvmlReturn_t = |real(..)| listed(count, (infos, Of::Sessions), |count, infos| real(device, count, infos));
    fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: InOut<'_, u32>, pids: Room<'_, u32>) -> nvmlReturn_t
        = |real(..)| listed(count, (pids, Of::Running), |count, pids| real(device, count, pids));
    fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: u32, stats: Out<'_, nvmlAccountingStats_t>) -> nvmlReturn_t
        = |real(..)| match stats.is_null() {
            true => real(device, pid, stats),
            false => account(device, pid, |pid| real(device, pid, stats)),
        };
    fn nvmlDeviceGetAccountingStats_v2(device: nvmlDevice_t, stats: InOut<'_, nvmlAccountingStats_v2_t>) -> nvmlReturn_t
        = |real(..)| account_v2(device, stats, |stats| real(device, stats));
}

/// The tenant's memory on a device; `None` where the device's own values apply.
fn glance(device: nvmlDevice_t) -> Option<Glance> {
    let text = nvml::uuid(device)?;
    let described = Described {
        uuid: Uuid::parse(&text, '-')?,
        is_mig: text.starts_with("MIG-"),
        index: nvml::index(device),
    };
    peek::glance(&described, nvml::usable(device).unwrap_or(0))
}

/// Total, free and used as the tenant sees them.
fn seen(device: nvmlDevice_t, physical: u64) -> Option<(u64, u64, u64)> {
    let glance = glance(device)?;
    let is_bound = match glance.managed {
        Managed::Told(is_managed) => !is_managed,
        Managed::Here(device) => !managed::may_exceed(device),
    };
    let physical = if is_bound { physical } else { u64::MAX };
    let seen = views::seen(&glance.status, physical)?;
    let booked = glance.status.charged.saturating_add(glance.overhead);
    let used = booked.max(held(device, &glance.members)).min(seen.total);
    Some((seen.total, seen.free.min(seen.total - used), used))
}

/// The bytes that NVML itself counts for these processes, with their contexts. 0 where NVML cannot
/// tell, or knows the processes by other pids.
fn held(device: nvmlDevice_t, members: &Members) -> u64 {
    let ask = |list: &mut [_]| asked(nvml::processes(device, Use::Compute, list));
    let listed = nvml_lists::fetch(ask).unwrap_or_default();
    nvml_lists::own(members, listed)
        .iter()
        .filter(|entry| entry.usedGpuMemory != u64::MAX)
        .fold(0, |sum, entry| sum.saturating_add(entry.usedGpuMemory))
}

fn memory_v1(
    device: nvmlDevice_t,
    memory: Out<'_, nvmlMemory_t>,
    answer: nvmlReturn_t,
) -> nvmlReturn_t {
    if let Some(physical) = memory.after(answer)
        && let Some((total, free, used)) = seen(device, physical.free)
    {
        memory.write(nvmlMemory_t { total, free, used });
    }
    answer
}

fn memory_v2(
    device: nvmlDevice_t,
    memory: Out<'_, nvmlMemory_v2_t>,
    answer: nvmlReturn_t,
) -> nvmlReturn_t {
    // NVML has accepted its version.
    if let Some(physical) = memory.after(answer)
        && let Some((total, free, used)) = seen(device, physical.free)
    {
        memory.write(nvmlMemory_v2_t {
            version: physical.version,
            total,
            reserved: 0,
            free,
            used,
        });
    }
    answer
}

/// Protected memory is all of a device's memory, or none where confidential computing is off.
fn protected(
    device: nvmlDevice_t,
    memory: Out<'_, nvmlMemory_t>,
    answer: nvmlReturn_t,
) -> nvmlReturn_t {
    match memory.after(answer) {
        Some(physical) if physical.total > 0 => memory_v1(device, memory, answer),
        _ => answer,
    }
}

/// An answer with its count.
fn asked(answer: Result<usize, (nvmlReturn_t, usize)>) -> (nvmlReturn_t, usize) {
    answer.map_or_else(|failed| failed, |count| (nvmlReturn_t::SUCCESS, count))
}

/// Asks for the account of a process of the tenant, by the pid that NVML has for it. To a tenant no
/// other process has one.
fn account(device: nvmlDevice_t, pid: u32, real: impl FnOnce(u32) -> nvmlReturn_t) -> nvmlReturn_t {
    let Some(members) = peek::members() else {
        return real(pid);
    };
    let ask = |list: &mut [u32]| asked(nvml::accounted(device, list));
    match nvml_lists::fetch(ask) {
        Ok(all) => match members.listed(pid, &all) {
            Some(listed) => real(listed),
            None => nvmlReturn_t::NOT_FOUND,
        },
        Err(failed) => failed,
    }
}

/// The same where the pid is in the structure.
fn account_v2(
    device: nvmlDevice_t,
    stats: InOut<'_, nvmlAccountingStats_v2_t>,
    real: impl FnOnce(InOut<'_, nvmlAccountingStats_v2_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(given) = stats.read() else {
        return real(stats);
    };
    account(device, given.pid, |pid| {
        let mut answered = nvmlAccountingStats_v2_t { pid, ..given };
        let answer = real(InOut::to(&mut answered));
        if answer.is_success() {
            let pid = given.pid;
            stats.write(nvmlAccountingStats_v2_t { pid, ..answered });
        }
        answer
    })
}

/// Answers with a list of processes, by a function that is given a count and room for entries.
fn listed<T: Entry>(
    count: InOut<'_, u32>,
    (room, of): (Room<'_, T>, Of),
    real: impl Fn(InOut<'_, u32>, Room<'_, T>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let list = List::of(count, room);
    let ask = |entries: &mut [T]| filled(entries, &real);
    nvml_lists::answer((list, of), || real(count, room), ask, peek::members)
}

/// The same where the width of the entries depends on the driver.
fn newest(
    count: InOut<'_, u32>,
    room: Room<'_, nvmlProcessInfo_v2_t>,
    real: impl Fn(InOut<'_, u32>, Room<'_, nvmlProcessInfo_v2_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(wide) = nvml::wide() else {
        return listed(count, (room, Of::Running), real);
    };
    let asked = |count: InOut<'_, u32>, room: Room<'_, nvmlProcessDetail_v1_t>| {
        real(count, room.argument(wide))
    };
    listed(count, (room.widened(wide), Of::Running), asked)
}

/// The same by a function that is given a structure with a list in it.
fn listed_within<L: Listing<Entry: Entry>>(
    (whole, of): (InOut<'_, L>, Of),
    real: impl Fn(InOut<'_, L>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let list = List::within(whole);
    let Some(given) = list.given() else {
        return real(whole);
    };
    let ask = |entries: &mut [L::Entry]| filled_within(given, entries, &real);
    nvml_lists::answer((list, of), || real(whole), ask, peek::members)
}
