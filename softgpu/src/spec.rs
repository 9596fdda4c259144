//! SPEC, the description of the simulated machine: `key=value,…` in the environment variable
//! `SOFTGPU`.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `name` | all processes of the user that give the same name share the devices | none: private |
//! | `count` | number of devices, 1–16 | 1 |
//! | `mem` | memory of each device; a multiple of 2 MiB | `16GiB` |
//! | `sm` | multiprocessors of each device, 1–1024 | 132 |
//! | `driver` | CUDA version that the driver reports, `1000*major + 10*minor`, 11000–13050 | 12080 |
//! | `link` | host link, bytes per second in each direction | `25GiB/s` |
//! | `bw` | device memory bandwidth | `1TiB/s` |
//! | `ctx` | memory that each context takes on its device, from 2 MiB on | `64MiB` |
//! | `seed` | selects legal orders and delays | 1 |
//! | `linger` | number of operations for which a dead process's memory stays taken, 0–10000 | 0 |
//! | `slice` | the longest a context holds the multiprocessors while other contexts wait, 10us–1s | `2ms` |
//! | `switch` | time of a context switch if the previous context has no more work, up to 100ms | `150us` |
//! | `preempt` | time of a context switch if the previous context has work left | `150us` |
//! | `launch` | time a launch of a kernel or graph takes on the host, up to 100ms | 0 |
//! | `load` | time in which a module's code is loaded, in the call that needs it, up to 60s | 0 |
//! | `inst` | time that one instruction of one thread of a PTX kernel takes, up to 1ms | `1ns` |
//! | `watchdog` | instructions of a PTX kernel after which it ends with `LAUNCH_TIMEOUT` | 100000000000 |
//! | `stamp` | when an event in a stream without work completes: in the context's next `turn` on the multiprocessors, or at `any` time | `turn` |
//! | `room` | whether a thread that waits for room in a stream, or loads a module, keeps its context `locked` or `free` for other threads that submit | `free` |
//! | `upload` | whether a synchronous copy of at most 64 KiB from pageable memory `waits` for its stream's work, or is sent `along` | `waits` |
//! | `stage` | whether an asynchronous copy from pageable memory to a device `waits` for its stream's work, or is sent `along` | `along` |
//! | `free` | whether `cuMemFree` `waits` for all work on the device, or returns `now` and the memory later; that of arrays and of the host waits | `waits` |
//! | `vmm` | whether the devices have virtual memory management, `on` or `off`: vGPUs may lack it | `on` |
//! | `managed` | the attribute `CONCURRENT_MANAGED_ACCESS`: managed pages move and are evicted (`concurrent`), or an allocation stays on its device (`fixed`) | `concurrent` |
//! | `home` | the device memory of managed pages that a program has sent to the host: it stays taken until other memory needs it (`kept`), or is free (`freed`) | `kept` |
//! | `listed` | the memory with which NVML lists a process: without its managed memory (`own`), or with it (`all`) | `own` |
//! | `reserved` | memory that the driver keeps on each device for itself: NVML counts it, CUDA does not; up to 16GiB | 0 |
//! | `sessions` | whether each process that NVML lists has a session of the encoder and of frame capture, `on` or `off` | `off` |
//! | `fault` | time of a kernel for each 2 MiB of managed memory that it brings to the device by touching it, besides their transfer; up to 100ms | 0 |
//! | `duplex` | whether copies to and from the host run at a time, `full` or `half` | `full` |
//! | `peer` | whether the devices can access each other's memory, `on` or `off` | `on` |
//! | `pin` | rate at which host memory is pinned, bytes per second; 0: pinning takes no time | 0 |
//! | `decompress` | whether the devices have a decompression engine, `on` or `off`: the attribute `MEM_DECOMPRESS_ALGORITHM_MASK`, and of memory `IS_HW_DECOMPRESS_CAPABLE` | `off` |
//! | `vmmcall` | time that `cuMemCreate` and `cuMemRelease` take on the host, and `cuMemMap`, `cuMemUnmap` and `cuMemSetAccess` for each mapping; up to 100ms | 0 |
//! | `order` | memory of a pool is accessible from its allocation to its free in stream order (`strict`), or from the call that allocates it (`lenient`) | `strict` |
//! | `exit` | a call after the driver's teardown at exit `abort`s the process, or is `refuse`d | `abort` |
//! | `reuse` | whether handles and device addresses are given again: `never`, or at once as an allocator does (`lifo`) | `never` |
//!
//! `slice`, `switch` and `preempt` are an H100's with driver 580.159.04
//! (`docs/results/2026-11-26-verify-NVIDIA-H100-80GB-HBM3.md`). The defaults of the keys from
//! `launch` to `stamp`, and from `managed` to `vmmcall` but `home`, are **unverified**, or chosen
//! to keep the tests fast. Known facts about them:
//!
//! - `ctx`: an H200 takes 523.6 MiB for each (`docs/results/2026-11-27-verify-NVIDIA-H200-4.md`).
//!   The default suits small devices. No driver lists a process that has a context and no memory.
//! - `slice`: of two processes each had the H100 for 2.09 ms and not for 2.39 ms. For its DRIVE
//!   platform NVIDIA recommends at most 1.5 ms for applications of low priority and 2 ms for medium
//!   priority; the shortest value that can be set is 1 ms ("Setting the Timeslice", DRIVE OS 6.0).
//! - `switch`, `preempt`: the difference of those two, for two changes of contexts. Two processes
//!   that wait for each kernel of 50 us had 26.5 % of the device, which 150 us at each gap give.
//! - `launch`: 2.9 us on the H100; users report 4 to 5 us, and a queue of about 1000 launches a
//!   stream (Stack Overflow, question 53970187). 0 makes tests fast.
//! - `load`: no source; it depends on the module. 0 makes tests fast.
//! - `inst`: a device runs thousands of threads at a time, and instructions differ; so this is no
//!   time of any device. 1 ns is far slower than a GPU, which flatters no program that shares one.
//!   A kernel takes at least the time in which softgpu computes it, about 20 ns an instruction.
//! - `watchdog`: a device with a display ends a kernel after some seconds; others never do.
//! - `stamp`: no source. A context that is not scheduled executes nothing, so `turn` is the
//!   default.
//! - `room`: an H100 with driver 580.159.04 keeps no other thread from recording an event beside a
//!   full stream. ADR 60 lists reports of calls that hang because another thread is in the driver.
//! - `upload`: an H200 with driver 580.159.04 waits. NVIDIA's programming guide counts such copies
//!   among the calls that return before the device is done, so another driver may send it along.
//! - `stage`: NVIDIA's "API synchronization behavior" lets the driver do either: it "may
//!   synchronize with the stream and stage the copy". No record says which one does
//!   (`along.*.async_upload`).
//! - `free`: by NVIDIA's page `cuMemFree` "may perform implicit synchronization"; no record says.
//! - `decompress`: NVIDIA's page of `cuMemBatchDecompressAsync` names the memory that the engine
//!   takes: that of `cuMemAlloc`, and what was made for it by a flag of `cuMemCreate` or of a pool.
//!   The engine itself is not simulated.
//! - `managed`: drivers for Linux report 1 on every GPU since Pascal, except in WSL2 and some
//!   vGPUs.
//! - `home`: an H200 with driver 580.159.04 keeps it taken, as `cuMemGetInfo` shows. The open
//!   kernel module marks such memory as unused, and gives that away first where other memory does
//!   not fit.
//! - `listed`: the open kernel module sums the objects of a process's own clients
//!   (`_gpuCollectMemInfo`) and skips clients of the kernel; pages of managed memory belong to one
//!   of those. Users report a process with 60 GB of managed memory that is listed with 5 GB (pynvml
//!   issue 63, nvtop issue 218). NVML lists a process on that H200 with 518 MiB, a context, that
//!   has charged 10,240 MiB of managed memory; but few of those pages had been touched.
//! - `reserved`: an H100 has 81,559 MiB by NVML and 81,079 by CUDA, an H200 143,771 and 143,155
//!   (docs/results/2026-11-28-verify-NVIDIA-H100-80GB-HBM3.md, 2026-11-27-verify-NVIDIA-H200-4.md).
//! - `sessions`: one for each process is no driver's rule; they are there for the lists alone.
//! - `fault`: papers report that demand paging reaches a half to an 80th of the link's rate. 0
//!   makes faults as fast as prefetches, which no device reaches.
//! - `duplex`: an A100 on PCIe 4 was reported at 24 GB/s to the host and 11 GB/s to the device at a
//!   time, and 25 GB/s alone (NVIDIA's forum, topic 352186): between `half` and `full`.
//! - `pin`: that H200 registers 29 GB/s of a file in memory, 32 of pages of 4 KiB, 48 of huge ones;
//!   one project reports about 6 for new memory. 0 makes tests fast.
//! - `vmmcall`: for 64 MiB there: create 8 us, map 1, allow 32, unmap 20, release 24. One value is
//!   not all of these. 0 makes tests fast. `cuMemAlloc` with `cuMemFree` of 1 MiB takes 60 us there
//!   and nothing here; no key sets that.

mod text;
mod values;
mod words;

use std::fmt;

pub use words::{
    Duplex, Exit, Free, HomeMemory, Listed, ManagedAccess, Order, Reuse, Room, Stage, Stamp, Upload,
};

use values::{
    MICROSECOND, MILLISECOND, UP_TO_100_MS, at_most, is_on, name, number, rate, size, time,
};

/// The environment variable that holds SPEC.
pub const VARIABLE: &str = "SOFTGPU";
/// The maximum number of devices of a machine.
pub const MAX_DEVICES: u32 = 16;
/// The default of `slice` (ns): an H100's, to the nearest millisecond.
pub const SLICE: u64 = 2_000_000;
/// The default of `switch` and `preempt` (ns): an H100's.
pub const SWITCH: u64 = 150_000;
/// Physical memory is allocated in pages of this size.
pub const PAGE: u64 = 2 << 20;

/// A parsed SPEC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The shared name, if any.
    pub name: Option<String>,
    /// Devices in the machine.
    pub count: u32,
    /// Bytes of memory per device.
    pub mem: u64,
    /// Multiprocessors per device.
    pub sm: u32,
    /// CUDA version of the driver, in `cuDriverGetVersion`'s format.
    pub driver: u32,
    /// Host link in bytes per second.
    pub link: u64,
    /// Memory bandwidth in bytes per second.
    pub bw: u64,
    /// Bytes that each context takes on its device.
    pub ctx: u64,
    /// Selects legal orders and delays.
    pub seed: u64,
    /// Number of operations for which the memory of a dead process stays taken.
    pub linger: u32,
    /// The longest a context holds the multiprocessors while other contexts wait (ns). The default
    /// is unverified.
    pub slice: u64,
    /// Time of a context switch if the previous context has no more work (ns). The default is
    /// unverified.
    pub switch: u64,
    /// Time of a context switch if the previous context has work left (ns). The default is
    /// unverified.
    pub preempt: u64,
    /// Time a launch takes on the host (ns). The default is unverified.
    pub launch: u64,
    /// Time in which a module's code is loaded (ns). The default is unverified.
    pub load: u64,
    /// Time that one instruction of one thread of a PTX kernel takes (ns). The default is
    /// unverified.
    pub inst: u64,
    /// Instructions of a PTX kernel after which it ends. The default is unverified.
    pub watchdog: u64,
    /// When an event completes that has no unfinished work before it. The default is unverified.
    pub stamp: Stamp,
    /// Whether a thread that waits for room in a stream, or loads a module, blocks other threads.
    /// The default is unverified.
    pub room: Room,
    /// Whether a small synchronous copy from pageable memory waits for the work before it.
    pub upload: Upload,
    /// Whether an asynchronous copy from pageable memory waits for the work before it. The default
    /// is unverified.
    pub stage: Stage,
    /// Whether `cuMemFree` waits for work. The default is unverified.
    pub free: Free,
    /// Whether the devices have virtual memory management. vGPUs may lack it.
    pub vmm: bool,
    /// Whether they have a decompression engine. What memory it takes is unverified.
    pub decompress: bool,
    /// The devices' abilities with managed memory. The default is unverified.
    pub managed: ManagedAccess,
    /// What becomes of the device memory of managed pages that go to the host.
    pub home: HomeMemory,
    /// Whether NVML lists processes with their managed memory. The default is unverified.
    pub listed: Listed,
    /// Bytes that the driver keeps on each device: NVML counts them, CUDA does not.
    pub reserved: u64,
    /// Whether each process that NVML lists has a session of the encoder and of frame capture.
    pub sessions: bool,
    /// Time of a kernel for each managed page that it brings to the device (ns). The default is
    /// unverified.
    pub fault: u64,
    /// Whether the host link carries both directions at a time. The default is unverified.
    pub duplex: Duplex,
    /// Whether the devices can access each other's memory.
    pub peer: bool,
    /// Rate at which host memory is pinned (bytes per second); 0 for no time. The default is
    /// unverified.
    pub pin: u64,
    /// Time that a call of virtual memory management takes on the host (ns). The default is
    /// unverified.
    pub vmmcall: u64,
    /// Whether access to a pool's memory from outside the stream order is an error. A driver maps
    /// the memory when the call is made, and detects no such access: `lenient` is what it does.
    pub order: Order,
    /// The effect of a call after the driver's teardown.
    pub exit: Exit,
    /// Whether the handle of a destroyed object is given again. Handles of a driver are addresses
    /// of structures, which it allocates and frees.
    pub reuse: Reuse,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            name: None,
            count: 1,
            mem: 16 << 30,
            sm: 132,
            driver: 12080,
            link: 25 << 30,
            bw: 1 << 40,
            ctx: 64 << 20,
            seed: 1,
            linger: 0,
            slice: SLICE,
            switch: SWITCH,
            preempt: SWITCH,
            launch: 0,
            load: 0,
            inst: 1,
            watchdog: 100_000_000_000,
            stamp: Stamp::Turn,
            room: Room::Free,
            upload: Upload::Waits,
            stage: Stage::Along,
            free: Free::Waits,
            vmm: true,
            decompress: false,
            managed: ManagedAccess::Concurrent,
            home: HomeMemory::Kept,
            listed: Listed::Own,
            reserved: 0,
            sessions: false,
            fault: 0,
            duplex: Duplex::Full,
            peer: true,
            pin: 0,
            vmmcall: 0,
            order: Order::Strict,
            exit: Exit::Abort,
            reuse: Reuse::Never,
        }
    }
}

/// A key or value that SPEC does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// The key as written.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// The accepted form.
    pub accepted: &'static str,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{VARIABLE}: `{}={}` is not accepted; expected {}",
            self.key, self.value, self.accepted
        )
    }
}

impl std::error::Error for SpecError {}

impl std::str::FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let refuse = |accepted| SpecError {
                key: key.to_owned(),
                value: value.to_owned(),
                accepted,
            };
            if seen.contains(&key) {
                return Err(refuse("each key once"));
            }
            seen.push(key);
            set(&mut spec, key, value).map_err(refuse)?;
        }
        Ok(spec)
    }
}

impl Spec {
    /// The machine that the environment describes.
    ///
    /// # Errors
    /// [`SpecError`] if the variable does not parse.
    pub fn from_env() -> Result<Self, SpecError> {
        match std::env::var(VARIABLE) {
            Ok(text) => text.parse(),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(text)) => Err(SpecError {
                key: text.to_string_lossy().into_owned(),
                value: String::new(),
                accepted: "text in UTF-8",
            }),
        }
    }
}

/// Sets one key; the error is the accepted form.
fn set(spec: &mut Spec, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        "name" => {
            spec.name = Some(
                name(value)
                    .ok_or("1 to 64 letters, digits, `.`, `_` or `-`, not starting with `.`")?,
            )
        }
        "count" => {
            spec.count = number(value, 1, MAX_DEVICES).ok_or("a number of devices, 1 to 16")?
        }
        "mem" => {
            spec.mem = size(value)
                .filter(|bytes| bytes % PAGE == 0 && (64 << 20..=2 << 40).contains(bytes))
                .ok_or("a multiple of 2MiB from 64MiB to 2TiB, such as 16GiB")?;
        }
        "sm" => spec.sm = number(value, 1, 1024).ok_or("a number of multiprocessors, 1 to 1024")?,
        "driver" => {
            spec.driver = number(value, 11000, 13050)
                .filter(|version| version % 10 == 0)
                .ok_or("a CUDA version as 1000*major+10*minor, 11000 to 13050, such as 12080")?;
        }
        "link" => spec.link = rate(value).ok_or("bytes per second, such as 25GiB/s")?,
        "bw" => spec.bw = rate(value).ok_or("bytes per second, such as 1TiB/s")?,
        "ctx" => {
            spec.ctx = size(value)
                .filter(|bytes| (PAGE..=16 << 30).contains(bytes))
                .ok_or("a size from 2MiB to 16GiB, such as 64MiB")?
        }
        "seed" => {
            spec.seed = value
                .parse()
                .map_err(|_| "a number, 0 to 18446744073709551615")?
        }
        "linger" => {
            spec.linger = number(value, 0, 10_000).ok_or("a number of operations, 0 to 10000")?
        }
        "slice" => {
            spec.slice = time(value)
                .filter(|slice| (10 * MICROSECOND..=1000 * MILLISECOND).contains(slice))
                .ok_or("a time from 10us to 1s, such as 2ms")?
        }
        "switch" => spec.switch = at_most(value, 100 * MILLISECOND).ok_or(UP_TO_100_MS)?,
        "preempt" => spec.preempt = at_most(value, 100 * MILLISECOND).ok_or(UP_TO_100_MS)?,
        "launch" => spec.launch = at_most(value, 100 * MILLISECOND).ok_or(UP_TO_100_MS)?,
        "load" => {
            spec.load =
                at_most(value, 60_000 * MILLISECOND).ok_or("a time up to 60s, such as 50ms")?
        }
        "inst" => {
            spec.inst = at_most(value, MILLISECOND).ok_or("a time up to 1ms, such as 10ns")?
        }
        "watchdog" => {
            spec.watchdog = value
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .ok_or("a number of instructions from 1 on")?;
        }
        "stamp" => {
            spec.stamp = match value {
                "turn" => Stamp::Turn,
                "any" => Stamp::Any,
                _ => return Err("turn or any"),
            }
        }
        "room" => {
            spec.room = match value {
                "locked" => Room::Locked,
                "free" => Room::Free,
                _ => return Err("locked or free"),
            }
        }
        "upload" => {
            spec.upload = match value {
                "waits" => Upload::Waits,
                "along" => Upload::Along,
                _ => return Err("waits or along"),
            }
        }
        "stage" => {
            spec.stage = match value {
                "waits" => Stage::Waits,
                "along" => Stage::Along,
                _ => return Err("waits or along"),
            }
        }
        "free" => {
            spec.free = match value {
                "waits" => Free::Waits,
                "now" => Free::Now,
                _ => return Err("waits or now"),
            }
        }
        "vmm" => spec.vmm = is_on(value)?,
        "decompress" => spec.decompress = is_on(value)?,
        "managed" => {
            spec.managed = match value {
                "concurrent" => ManagedAccess::Concurrent,
                "fixed" => ManagedAccess::Fixed,
                _ => return Err("concurrent or fixed"),
            }
        }
        "home" => {
            spec.home = match value {
                "kept" => HomeMemory::Kept,
                "freed" => HomeMemory::Freed,
                _ => return Err("kept or freed"),
            }
        }
        "listed" => {
            spec.listed = match value {
                "own" => Listed::Own,
                "all" => Listed::All,
                _ => return Err("own or all"),
            }
        }
        "reserved" => {
            spec.reserved = size(value)
                .filter(|bytes| *bytes <= 16 << 30)
                .ok_or("a size up to 16GiB, such as 512MiB")?
        }
        "sessions" => spec.sessions = is_on(value)?,
        "fault" => spec.fault = at_most(value, 100 * MILLISECOND).ok_or(UP_TO_100_MS)?,
        "duplex" => {
            spec.duplex = match value {
                "full" => Duplex::Full,
                "half" => Duplex::Half,
                _ => return Err("full or half"),
            }
        }
        "peer" => spec.peer = is_on(value)?,
        "pin" => {
            spec.pin = match value {
                "0" | "0/s" => 0,
                _ => rate(value).ok_or("0, or bytes per second, such as 6GiB/s")?,
            }
        }
        "vmmcall" => spec.vmmcall = at_most(value, 100 * MILLISECOND).ok_or(UP_TO_100_MS)?,
        "order" => {
            spec.order = match value {
                "strict" => Order::Strict,
                "lenient" => Order::Lenient,
                _ => return Err("strict or lenient"),
            }
        }
        "exit" => {
            spec.exit = match value {
                "abort" => Exit::Abort,
                "refuse" => Exit::Refuse,
                _ => return Err("abort or refuse"),
            }
        }
        "reuse" => {
            spec.reuse = match value {
                "never" => Reuse::Never,
                "lifo" => Reuse::Lifo,
                _ => return Err("never or lifo"),
            }
        }
        _ => {
            return Err(
                "one of the keys name, count, mem, sm, driver, link, bw, ctx, seed, linger, \
                slice, switch, preempt, launch, load, inst, watchdog, stamp, room, upload, stage, free, vmm, managed, home, listed, reserved, sessions, fault, duplex, peer, pin, decompress, vmmcall, order, exit, reuse",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
