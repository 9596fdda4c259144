//! A tenant of the benchmark: its name, its workload and its guarantees. The command line and
//! workers use one text form.

mod keys;

use gpushare_protocol::size::Size;
use serde::Serialize;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// How a tenant submits work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Many launches ahead, like training.
    Queue,
    /// One launch, then a wait for it.
    Sync,
    /// Several launches at once, then a wait for all of them.
    Burst,
    /// Many launches of a CUDA graph ahead.
    Graph,
    /// One CUDA graph, then a wait for it, like a server for each token.
    Decode,
    /// Many copies of pinned host memory to the device ahead, and no kernels.
    Copy,
    /// Many copies within the device ahead, and no kernels: they use its memory's bandwidth.
    Stream,
    /// Many memsets of device memory ahead, and no kernels.
    Memset,
    /// Many launches ahead on several GPUs at once. Each launch holds its GPU until its peers on
    /// the other GPUs run too, like a collective.
    Gang,
}

const MODES: [(&str, Mode); 9] = [
    ("queue", Mode::Queue),
    ("sync", Mode::Sync),
    ("burst", Mode::Burst),
    ("graph", Mode::Graph),
    ("decode", Mode::Decode),
    ("copy", Mode::Copy),
    ("stream", Mode::Stream),
    ("memset", Mode::Memset),
    ("gang", Mode::Gang),
];

/// Accepted values of `mode=`, for messages.
const MODES_ACCEPTED: &str = "queue, sync, burst, graph, decode, copy, stream, memset, gang";

/// When a tenant with pauses starts its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arrivals {
    /// One in each period. If the previous request still runs, the period has no request.
    Regular,
    /// At random, independent of each other; requests that arrive while one runs queue.
    Poisson,
}

const ARRIVALS: [(&str, Arrivals); 2] = [
    ("regular", Arrivals::Regular),
    ("poisson", Arrivals::Poisson),
];

/// Device time after which short kernels get an event. The cost of an event is small beside it, and
/// it bounds the error of a piece's begin.
const PIECE: u64 = 200_000;
/// Device time submitted ahead in a deep queue, if the tenant sets no depth.
const AHEAD: u64 = 100_000_000;

/// Launches of a burst, if the tenant sets no number.
const BURST: u32 = 8;

/// Default bytes of one copy of a tenant that only copies.
const CHUNK: u64 = 64 << 20;
/// Bytes of smaller copies that get one event together, where they are within the device, and the
/// most of them: they take a tenth of a millisecond, in which a program wakes up. Of the host's
/// memory it is one chunk.
const COPIED: (u64, u64) = (4 * CHUNK, 64);
/// The maximum bytes of one copy: the tenant holds as many on the host and on the device.
const LARGEST_CHUNK: u64 = 1 << 30;

/// The GPUs that a tenant may name, and the maximum size of a gang.
const GPUS: std::ops::RangeInclusive<u32> = 0..=15;

/// One tenant: one or more equal processes under one quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// Its share under contention, in percent (`--sm-request`). The part that it got is the
    /// `share` of its row in the JSON.
    #[serde(rename = "promised", skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<u32>,
    /// Its cap in percent, also when alone (`--sm-limit`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cap: Option<u32>,
    /// `--priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u32>,
    /// The duration of one kernel.
    #[serde(rename = "kernel_ns", serialize_with = "nanoseconds")]
    pub(crate) kernel: Duration,
    pub(crate) mode: Mode,
    /// Its GPUs, in ascending order; several for a gang, else one.
    pub(crate) gpus: Vec<u32>,
    pub(crate) procs: u32,
    /// The time between two requests; zero: as fast as it can.
    #[serde(rename = "every_ns", serialize_with = "nanoseconds")]
    pub(crate) every: Duration,
    /// The arrivals of requests, if `every` is set.
    pub(crate) arrivals: Arrivals,
    /// Maximum number of kernels (or graphs) submitted ahead; zero: as many as 100 ms hold, 4 to
    /// 256. For a burst: its launches; zero: 8.
    pub(crate) depth: u32,
    /// Kernels of a graph.
    pub(crate) nodes: u32,
    /// Bytes of one copy of pinned host memory to the device; zero: no copies. A tenant with
    /// kernels makes one copy every [`COPY_EVERY`] on a second stream.
    #[serde(rename = "copy_bytes")]
    pub(crate) copy: u64,
    /// For this time there is a process of the tenant, then for the same time there is none, and so
    /// on; zero: always.
    #[serde(rename = "churn_ns", serialize_with = "nanoseconds")]
    pub(crate) churn: Duration,
    /// Tenants with the same job have one GPU each, and their kernels wait for each other; empty:
    /// no job.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) job: String,
}

/// How often a tenant with kernels copies, on its second stream.
pub(crate) const COPY_EVERY: Duration = Duration::from_millis(10);

fn nanoseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(ns(*time))
}

/// A duration in nanoseconds.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            name: String::new(),
            share: None,
            cap: None,
            priority: None,
            kernel: Duration::from_micros(500),
            mode: Mode::Queue,
            gpus: vec![0],
            procs: 1,
            every: Duration::ZERO,
            arrivals: Arrivals::Regular,
            depth: 0,
            nodes: 20,
            copy: 0,
            churn: Duration::ZERO,
            job: String::new(),
        }
    }
}

impl Tenant {
    /// The time for which one launch has the multiprocessors (ns): a kernel, or a whole graph. A
    /// copy does not use them.
    pub(crate) fn launch_ns(&self) -> u64 {
        match self.mode {
            Mode::Graph | Mode::Decode => ns(self.kernel) * u64::from(self.nodes),
            Mode::Queue | Mode::Sync | Mode::Burst | Mode::Gang => ns(self.kernel),
            Mode::Copy | Mode::Stream | Mode::Memset => 0,
        }
    }

    /// Bytes of one copy or memset; zero for a tenant without any.
    pub(crate) fn chunk(&self) -> u64 {
        match (self.mode, self.copy) {
            (Mode::Copy | Mode::Stream | Mode::Memset, 0) => CHUNK,
            (_, bytes) => bytes,
        }
    }

    /// Of a tenant that only copies: the copies between two events.
    pub(crate) fn copies_a_piece(&self) -> u64 {
        let (within, copies) = COPIED;
        let bytes = if self.mode == Mode::Copy {
            CHUNK
        } else {
            within
        };
        match self.chunk() {
            large if large >= CHUNK => 1,
            small => (bytes / small.max(1)).clamp(1, copies),
        }
    }

    /// The fraction of a device's time that its requests take, if they come at its own pace and not
    /// as fast as possible.
    pub(crate) fn asks(&self) -> Option<f64> {
        let requests = u64::from(self.launches()) * u64::from(self.procs);
        let asks = (self.launch_ns() * requests) as f64 / ns(self.every).max(1) as f64;
        (!self.is_busy()).then_some(asks)
    }

    /// The number of launches that it waits for together, if it waits.
    pub(crate) fn launches(&self) -> u32 {
        match (self.mode, self.depth) {
            (Mode::Burst, 0) => BURST,
            (Mode::Burst, depth) => depth,
            _ => 1,
        }
    }

    /// Of a deep queue: the launches between two events, and the most of such pieces that are
    /// submitted at a time.
    pub(crate) fn pieces(&self) -> (u64, u64) {
        let ns = self.launch_ns().max(1);
        let each = (PIECE / ns).max(1);
        let depth = match u64::from(self.depth) {
            0 => (AHEAD / ns).clamp(4, 256),
            depth => depth,
        };
        (each, (depth / each).max(2))
    }

    /// How long the launches take that a process may have submitted at a time (ns).
    pub(crate) fn submitted_ns(&self) -> u64 {
        let launches = match (self.waits(), self.pieces()) {
            (true, _) => u64::from(self.launches()),
            (false, (each, most)) => each * most,
        };
        launches.saturating_mul(self.launch_ns())
    }

    /// Whether it waits for its launches before it continues.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.mode, Mode::Sync | Mode::Burst | Mode::Decode)
    }

    /// The number of GPUs that it needs.
    pub(crate) fn needs(&self) -> usize {
        let last = self.gpus.iter().max();
        last.map_or(0, |last| *last as usize + 1)
    }

    /// Whether it always wants the device.
    pub(crate) fn is_busy(&self) -> bool {
        self.every.is_zero()
    }

    /// Whether its own work fills a device, without gaps between its launches.
    pub(crate) fn fills(&self) -> bool {
        self.is_busy() && !self.waits() && self.launch_ns() > 0 && self.mode != Mode::Gang
    }

    /// The same tenant without guarantees and caps, for a run alone.
    pub(crate) fn unbound(&self) -> Self {
        Self {
            share: None,
            cap: None,
            priority: None,
            ..self.clone()
        }
    }

    /// Checks that its settings are compatible.
    fn check(&self) -> Result<(), String> {
        let (gang, job, paced) = (
            self.mode == Mode::Gang,
            !self.job.is_empty(),
            !self.every.is_zero(),
        );
        let wrong = match self.gpus.len() {
            1 if gang && !job => {
                "mode=gang needs the GPUs whose kernels wait for each other, gpus=0+1, or with one GPU a job=NAME"
            }
            _ if gang && paced => "every= is not for mode=gang",
            _ if job && !gang => "job= is for mode=gang",
            2.. if job => "a tenant with a job= has one GPU",
            2.. if !gang => "several GPUs are for mode=gang",
            _ if job && self.procs > 1 => "a tenant with a job= has one process",
            _ if paced && !self.waits() => "every= is for mode=sync, mode=burst and mode=decode",
            _ if self.arrivals == Arrivals::Poisson && !paced => {
                "arrivals=poisson needs the mean time between two: every=10ms"
            }
            _ if !(self.churn.is_zero() || self.waits() && paced) => {
                "churn= is for a tenant with every="
            }
            _ if !self.churn.is_zero() && self.churn < Duration::from_millis(500) => {
                "churn= is at least 500ms: a process needs time to start"
            }
            _ if self.copy > 0 && gang => "copy= is not for mode=gang",
            _ => return Ok(()),
        };
        Err(wrong.to_owned())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" if is_name(value) => self.name = value.to_owned(),
            "name" => return Err(refused(key, value, "1 to 20 of a-z, 0-9 and -")),
            "share" => self.share = Some(number(key, value, 1..=100)?),
            "cap" => self.cap = Some(number(key, value, 1..=100)?),
            "priority" => self.priority = Some(number(key, value, 0..=1000)?),
            "procs" => self.procs = number(key, value, 1..=16)?,
            "depth" => self.depth = number(key, value, 1..=100_000)?,
            "nodes" => self.nodes = number(key, value, 1..=10_000)?,
            "kernel" => self.kernel = time(key, value)?,
            "every" => self.every = time(key, value)?,
            "gpus" => self.gpus = gpus(key, value)?,
            "copy" => self.copy = bytes(key, value)?,
            "churn" => self.churn = time(key, value)?,
            "job" if is_name(value) => self.job = value.to_owned(),
            "job" => return Err(refused(key, value, "1 to 20 of a-z, 0-9 and -")),
            "mode" => {
                let known = MODES.iter().find(|(name, _)| *name == value);
                let (_, mode) = known.ok_or_else(|| refused(key, value, MODES_ACCEPTED))?;
                self.mode = *mode;
            }
            "arrivals" => {
                let known = ARRIVALS.iter().find(|(name, _)| *name == value);
                let (_, arrivals) = known.ok_or_else(|| refused(key, value, "regular, poisson"))?;
                self.arrivals = *arrivals;
            }
            _ => {
                return Err(format!(
                    "{key:?} is no key; accepted: name, share, cap, priority, kernel, mode, gpus, procs, every, arrivals, depth, nodes, copy, churn, job"
                ));
            }
        }
        Ok(())
    }
}

fn is_name(text: &str) -> bool {
    (1..=20).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn refused(key: &str, value: &str, accepted: &str) -> String {
    format!("{key}={value:?} is refused; accepted: {accepted}")
}

fn number(key: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let parsed = value.parse().ok().filter(|number| range.contains(number));
    parsed.ok_or_else(|| refused(key, value, &format!("{} to {}", range.start(), range.end())))
}

/// `64MiB`, at most [`LARGEST_CHUNK`].
fn bytes(key: &str, value: &str) -> Result<u64, String> {
    match Size::parse(value) {
        Ok(Size::Bytes(bytes)) if (1..=LARGEST_CHUNK).contains(&bytes) => Ok(bytes),
        _ => Err(refused(key, value, "a size such as 64MiB, at most 1GiB")),
    }
}

/// `1`, `0+1`.
fn gpus(key: &str, value: &str) -> Result<Vec<u32>, String> {
    let accepted = "numbers of different GPUs from 0 to 15, such as 1 or 0+1";
    let mut gpus: Vec<u32> = value
        .split('+')
        .map(|gpu| number(key, gpu, GPUS))
        .collect::<Result<_, _>>()
        .map_err(|_| refused(key, value, accepted))?;
    let given = gpus.len();
    gpus.sort_unstable();
    gpus.dedup();
    if gpus.len() < given {
        return Err(refused(key, value, accepted));
    }
    Ok(gpus)
}

/// `50us`, `0.5ms`, `2s`: from 1 µs to 10 s.
fn time(key: &str, value: &str) -> Result<Duration, String> {
    let split = value
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let unit = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    };
    let seconds = unit.and_then(|unit| Some(number.parse::<f64>().ok()? * unit));
    seconds
        .filter(|seconds| (1e-6..=10.0).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            refused(
                key,
                value,
                "a time such as 50us, 0.5ms, 2s, from 1us to 10s",
            )
        })
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut tenant, mut given) = (Self::default(), Vec::new());
        for pair in text.split(',') {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is not key=value"))?;
            let key = key.trim();
            tenant.set(key, value.trim())?;
            if given.contains(&key) {
                return Err(format!("{key}= is given twice"));
            }
            given.push(key);
        }
        if tenant.name.is_empty() {
            return Err("a tenant needs a name: name=a,…".to_owned());
        }
        tenant.check()?;
        keys::check(tenant.mode, &given)?;
        Ok(tenant)
    }
}

/// The form that is parsed, without default values.
impl Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_default = Self::default();
        write!(f, "name={}", self.name)?;
        if keys::reads(self.mode, "kernel") {
            write!(f, ",kernel={}us", self.kernel.as_nanos() as f64 / 1e3)?;
        }
        for (key, value) in [
            ("share", self.share),
            ("cap", self.cap),
            ("priority", self.priority),
            ("procs", Some(self.procs).filter(|n| *n != by_default.procs)),
            ("depth", Some(self.depth).filter(|n| *n != by_default.depth)),
            ("nodes", Some(self.nodes).filter(|n| *n != by_default.nodes)),
        ] {
            if let Some(value) = value {
                write!(f, ",{key}={value}")?;
            }
        }
        if let Some((name, _)) = MODES
            .iter()
            .find(|(_, mode)| *mode == self.mode && self.mode != by_default.mode)
        {
            write!(f, ",mode={name}")?;
        }
        if self.gpus != by_default.gpus {
            let gpus: Vec<String> = self.gpus.iter().map(u32::to_string).collect();
            write!(f, ",gpus={}", gpus.join("+"))?;
        }
        if !self.every.is_zero() {
            write!(f, ",every={}us", self.every.as_nanos() as f64 / 1e3)?;
        }
        if self.arrivals == Arrivals::Poisson {
            f.write_str(",arrivals=poisson")?;
        }
        if self.copy > 0 {
            write!(f, ",copy={}", self.copy)?;
        }
        if !self.churn.is_zero() {
            write!(f, ",churn={}us", self.churn.as_nanos() as f64 / 1e3)?;
        }
        if !self.job.is_empty() {
            write!(f, ",job={}", self.job)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
