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
//! | `ctx` | memory that a process's context takes on a device | `64MiB` |
//! | `seed` | selects legal orders and delays | 1 |
//! | `linger` | number of operations for which a dead process's memory stays taken, 0–10000 | 0 |
//! | `slice` | the longest a context holds the multiprocessors while other contexts wait, 10us–1s | `2ms` |
//! | `switch` | time of a context switch if the previous context has no more work, up to 100ms | 0 |
//! | `preempt` | time of a context switch if the previous context has work left | 0 |
//! | `launch` | time a launch of a kernel or graph takes on the host, up to 100ms | 0 |
//! | `load` | time in which a module's code is loaded, in the call that needs it, up to 60s | 0 |
//! | `stamp` | when an event in a stream without work completes: in the context's next `turn` on the multiprocessors, or at `any` time | `turn` |
//! | `room` | whether a thread that waits for room in a stream, or loads a module, keeps its context `locked` or `free` for other threads that submit | `locked` |
//! | `vmm` | whether the devices have virtual memory management, `on` or `off`: vGPUs may lack it | `on` |
//! | `exit` | a call after the driver's teardown at exit `abort`s the process, or is `refuse`d | `abort` |
//!
//! The defaults of `slice` to `room` are **unverified**: none was recorded on a GPU, and NVIDIA
//! publishes neither time slices nor costs of context switches for desktops and servers (its forum
//! says so, topic 188437). What is known of each:
//!
//! - `slice`: reports give 2 ms as the order of magnitude. For its DRIVE platform NVIDIA recommends
//!   at most 1.5 ms for applications of low priority and 2 ms for medium priority; the shortest
//!   value that can be set is 1 ms ("Setting the Timeslice", DRIVE OS 6.0).
//! - `switch`, `preempt`: no source. 0 is the minimum; every scheme that shares a device looks best
//!   with it.
//! - `launch`: users report 4 to 5 us, and a queue of about 1000 launches a stream (Stack Overflow,
//!   question 53970187). 0 makes tests fast.
//! - `load`: no source; it depends on the module. 0 makes tests fast.
//! - `stamp`: no source. A context that is not scheduled executes nothing, so `turn` is the
//!   default.
//! - `room`: no documentation. ADR 60 lists reports of calls that hang because another thread is in
//!   the driver.

use std::fmt;

/// The environment variable that holds SPEC.
pub const VARIABLE: &str = "SOFTGPU";
/// The maximum number of devices of a machine.
pub const MAX_DEVICES: u32 = 16;
/// The default of `slice` (ns), unverified. NVIDIA documents no value; reports give 2 ms as the
/// order of magnitude of its default time slice.
pub const SLICE: u64 = 2_000_000;
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
    /// Bytes that a process's context takes on a device.
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
    /// When an event completes that has no unfinished work before it. The default is unverified.
    pub stamp: Stamp,
    /// Whether a thread that waits for room in a stream, or loads a module, blocks other threads.
    /// The default is unverified.
    pub room: Room,
    /// Whether the devices have virtual memory management. vGPUs may lack it.
    pub vmm: bool,
    /// The effect of a call after the driver's teardown.
    pub exit: Exit,
}

/// When an event completes that has no unfinished work before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// When its context has the multiprocessors, or no context has them.
    Turn,
    /// At once.
    Any,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turn => "turn",
            Self::Any => "any",
        })
    }
}

/// The calls that other threads of a context cannot make while a thread waits inside a submitting
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All calls that submit, or that destroy an event or a stream.
    Locked,
    /// None.
    Free,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locked => "locked",
            Self::Free => "free",
        })
    }
}

/// The effect of a call after the driver's teardown at process exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process aborts: such a call is undefined for a real driver.
    Abort,
    /// The call returns `CUDA_ERROR_DEINITIALIZED`.
    Refuse,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "abort",
            Self::Refuse => "refuse",
        })
    }
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
            switch: 0,
            preempt: 0,
            launch: 0,
            load: 0,
            stamp: Stamp::Turn,
            room: Room::Locked,
            vmm: true,
            exit: Exit::Abort,
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

/// The canonical text: every key in a fixed order, sizes in bytes. Two SPECs describe the same
/// machine exactly if their texts are equal.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "name={name},")?;
        }
        let Self {
            name: _,
            count,
            mem,
            sm,
            driver,
            link,
            bw,
            ctx,
            seed,
            linger,
            slice,
            switch,
            preempt,
            launch,
            load,
            stamp,
            room,
            vmm,
            exit,
        } = self;
        let vmm = if *vmm { "on" } else { "off" };
        write!(
            f,
            "count={count},mem={mem},sm={sm},driver={driver},link={link}/s,bw={bw}/s,ctx={ctx},seed={seed},\
            linger={linger},slice={slice}ns,switch={switch}ns,preempt={preempt}ns,launch={launch}ns,load={load}ns,stamp={stamp},room={room},vmm={vmm},exit={exit}"
        )
    }
}

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
                .filter(|bytes| *bytes <= 16 << 30)
                .ok_or("a size up to 16GiB, such as 64MiB")?
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
        "vmm" => {
            spec.vmm = match value {
                "on" => true,
                "off" => false,
                _ => return Err("on or off"),
            }
        }
        "exit" => {
            spec.exit = match value {
                "abort" => Exit::Abort,
                "refuse" => Exit::Refuse,
                _ => return Err("abort or refuse"),
            }
        }
        _ => {
            return Err(
                "one of the keys name, count, mem, sm, driver, link, bw, ctx, seed, linger, \
                slice, switch, preempt, launch, load, stamp, room, vmm, exit",
            );
        }
    }
    Ok(())
}

fn name(value: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = (1..=64).contains(&value.len()) && !value.starts_with('.');
    (fits && value.bytes().all(legal)).then(|| value.to_owned())
}

fn number(value: &str, least: u32, most: u32) -> Option<u32> {
    value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
}

fn rate(value: &str) -> Option<u64> {
    size(value.strip_suffix("/s")?).filter(|bytes| *bytes > 0)
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const UP_TO_100_MS: &str = "a time up to 100ms, such as 50us";

fn at_most(value: &str, most: u64) -> Option<u64> {
    time(value).filter(|time| *time <= most)
}

/// A time in nanoseconds: 0, or a whole number and `ns`, `us`, `ms` or `s`.
fn time(value: &str) -> Option<u64> {
    let split = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(split.unwrap_or(value.len()));
    let number: u64 = number.parse().ok()?;
    let scale = match unit {
        "ns" => 1,
        "us" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => 1000 * MILLISECOND,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Bytes: a whole number or a decimal with up to three places, and a unit (`KiB` … `TiB` or `Ki` …
/// for powers of two, `KB` … `TB` or `K` … for powers of ten, no unit for bytes). A decimal must
/// give whole bytes.
fn size(value: &str) -> Option<u64> {
    let split = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let unit = unit
        .strip_suffix('B')
        .filter(|rest| !rest.is_empty())
        .unwrap_or(unit);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    let (whole, places) = number.split_once('.').unwrap_or((number, "0"));
    if places.is_empty() || places.len() > 3 {
        return None;
    }
    let tenth_power = 10_u64.pow(u32::try_from(places.len()).ok()?);
    let thousandths = scale.checked_mul(places.parse().ok()?)?;
    let part = (thousandths % tenth_power == 0).then(|| thousandths / tenth_power)?;
    scale.checked_mul(whole.parse().ok()?)?.checked_add(part)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
