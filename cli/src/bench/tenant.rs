//! A tenant of the benchmark: who it is, what it runs and what it was promised. One text form, for the command line and for workers.

use serde::Serialize;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// How a tenant gives the device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Many launches ahead, as training does.
    Queue,
    /// One launch, then a wait for it.
    Sync,
    /// Several launches at once, then a wait for all of them.
    Burst,
    /// Many launches of a CUDA graph ahead.
    Graph,
    /// Many launches ahead on several GPUs at once, each of which holds its GPU until its peers on the others run too, as collectives do.
    Gang,
}

const MODES: [(&str, Mode); 5] = [
    ("queue", Mode::Queue),
    ("sync", Mode::Sync),
    ("burst", Mode::Burst),
    ("graph", Mode::Graph),
    ("gang", Mode::Gang),
];

/// When a tenant with pauses starts its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arrivals {
    /// One in each period; a period in which the one before still runs has none.
    Regular,
    /// At random, independent of each other; those that come while one runs wait in line.
    Poisson,
}

const ARRIVALS: [(&str, Arrivals); 2] = [
    ("regular", Arrivals::Regular),
    ("poisson", Arrivals::Poisson),
];

/// Launches of a burst, if the tenant does not say how many.
const BURST: u32 = 8;

/// The GPUs a tenant may name, and how many a gang has at most.
const GPUS: std::ops::RangeInclusive<u32> = 0..=15;

/// One tenant: a container with one or more equal processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// Its share under contention, percent (`--sm-request`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<u32>,
    /// Its cap, percent, also when alone (`--sm-limit`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cap: Option<u32>,
    /// `--priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u32>,
    /// How long one kernel takes.
    #[serde(rename = "kernel_ns", serialize_with = "nanoseconds")]
    pub(crate) kernel: Duration,
    pub(crate) mode: Mode,
    /// On which of the GPUs, in ascending order; several for a gang, else one.
    pub(crate) gpus: Vec<u32>,
    pub(crate) procs: u32,
    /// Starts work this often instead of as fast as it can; zero: as fast as it can.
    #[serde(rename = "every_ns", serialize_with = "nanoseconds")]
    pub(crate) every: Duration,
    /// How, with `every`.
    pub(crate) arrivals: Arrivals,
    /// Kernels (or graphs) submitted ahead, at most; zero: what 100 ms hold, 4 to 256. Of a burst: its
    /// launches; zero: 8.
    pub(crate) depth: u32,
    /// Kernels of a graph.
    pub(crate) nodes: u32,
}

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
        }
    }
}

impl Tenant {
    /// How long one launch takes on the device (ns): a kernel, or a whole graph.
    pub(crate) fn launch_ns(&self) -> u64 {
        match self.mode {
            Mode::Graph => ns(self.kernel) * u64::from(self.nodes),
            Mode::Queue | Mode::Sync | Mode::Burst | Mode::Gang => ns(self.kernel),
        }
    }

    /// How many launches are waited for together, by a tenant that waits.
    pub(crate) fn launches(&self) -> u32 {
        match (self.mode, self.depth) {
            (Mode::Burst, 0) => BURST,
            (Mode::Burst, depth) => depth,
            _ => 1,
        }
    }

    /// Whether it waits for what it launched before it goes on.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.mode, Mode::Sync | Mode::Burst)
    }

    /// How many GPUs there must be for it.
    pub(crate) fn needs(&self) -> usize {
        let last = self.gpus.iter().max();
        last.map_or(0, |last| *last as usize + 1)
    }

    /// Whether it always wants the device.
    pub(crate) fn is_busy(&self) -> bool {
        self.every.is_zero()
    }

    /// What it would be without promises, for a run alone.
    pub(crate) fn unbound(&self) -> Self {
        Self {
            share: None,
            cap: None,
            priority: None,
            ..self.clone()
        }
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
            "mode" => {
                let known = MODES.iter().find(|(name, _)| *name == value);
                let (_, mode) =
                    known.ok_or_else(|| refused(key, value, "queue, sync, burst, graph, gang"))?;
                self.mode = *mode;
            }
            "arrivals" => {
                let known = ARRIVALS.iter().find(|(name, _)| *name == value);
                let (_, arrivals) = known.ok_or_else(|| refused(key, value, "regular, poisson"))?;
                self.arrivals = *arrivals;
            }
            _ => {
                return Err(format!(
                    "{key:?} is no key; accepted: name, share, cap, priority, kernel, mode, gpus, procs, every, arrivals, depth, nodes"
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
        let mut tenant = Self::default();
        for pair in text.split(',') {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is not key=value"))?;
            tenant.set(key.trim(), value.trim())?;
        }
        if tenant.name.is_empty() {
            return Err("a tenant needs a name: name=a,…".to_owned());
        }
        match (tenant.mode, tenant.gpus.len()) {
            (Mode::Gang, 1) => {
                return Err(
                    "mode=gang needs the GPUs whose kernels wait for each other: gpus=0+1"
                        .to_owned(),
                );
            }
            (Mode::Gang, _) if !tenant.every.is_zero() => {
                return Err("every= is not for mode=gang".to_owned());
            }
            (Mode::Queue | Mode::Sync | Mode::Burst | Mode::Graph, 2..) => {
                return Err("several GPUs are for mode=gang".to_owned());
            }
            _ if !tenant.waits() && !tenant.every.is_zero() => {
                return Err("every= is for mode=sync and mode=burst".to_owned());
            }
            _ if tenant.arrivals == Arrivals::Poisson && tenant.every.is_zero() => {
                return Err(
                    "arrivals=poisson needs the mean time between two: every=10ms".to_owned(),
                );
            }
            _ => {}
        }
        Ok(tenant)
    }
}

/// The form that is parsed, without what is as by default.
impl Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_default = Self::default();
        write!(
            f,
            "name={},kernel={}us",
            self.name,
            self.kernel.as_nanos() as f64 / 1e3
        )?;
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_read_as_it_is_written() {
        let text = "name=a,share=70,cap=80,priority=900,kernel=50us,mode=sync,procs=2,every=10ms,depth=8,nodes=3";
        let tenant: Tenant = text.parse().unwrap();
        assert_eq!(tenant.kernel, Duration::from_micros(50));
        assert_eq!(
            (tenant.share, tenant.cap, tenant.priority),
            (Some(70), Some(80), Some(900))
        );
        assert_eq!(tenant.to_string().parse::<Tenant>().unwrap(), tenant);
        let gang: Tenant = "name=g,mode=gang,gpus=3+1".parse().unwrap();
        assert_eq!((&gang.gpus[..], gang.needs()), (&[1, 3][..], 4));
        assert_eq!(gang.to_string().parse::<Tenant>().unwrap(), gang);
        let random: Tenant = "name=r,mode=burst,every=10ms,arrivals=poisson"
            .parse()
            .unwrap();
        assert_eq!((random.launches(), random.waits()), (8, true));
        assert_eq!(random.to_string().parse::<Tenant>().unwrap(), random);
        let plain: Tenant = "name=b".parse().unwrap();
        assert_eq!((plain.launches(), plain.waits()), (1, false));
        assert_eq!((&plain.gpus[..], plain.needs()), (&[0][..], 1));
        assert_eq!(plain.to_string().parse::<Tenant>().unwrap(), plain);
    }

    #[test]
    fn what_is_not_accepted_is_refused_by_key_and_value() {
        for (text, blamed) in [
            ("kernel=1ms", "needs a name"),
            ("name=A", "name=\"A\""),
            ("name=a,share=0", "share=\"0\""),
            ("name=a,share=101", "share=\"101\""),
            ("name=a,kernel=5", "kernel=\"5\""),
            ("name=a,kernel=11s", "kernel=\"11s\""),
            ("name=a,mode=deep", "queue, sync, burst, graph, gang"),
            ("name=a,every=5ms", "mode=sync and"),
            ("name=a,mode=sync,arrivals=poisson", "every=10ms"),
            (
                "name=a,mode=sync,every=5ms,arrivals=even",
                "regular, poisson",
            ),
            ("name=a,mode=gang", "gpus=0+1"),
            ("name=a,mode=gang,gpus=1", "gpus=0+1"),
            ("name=a,mode=gang,gpus=0+1,every=5ms", "every="),
            ("name=a,gpus=0+1", "are for mode=gang"),
            ("name=a,mode=gang,gpus=1+1", "different GPUs"),
            ("name=a,gpus=16", "gpus=\"16\""),
            ("name=a,gpus=", "gpus=\"\""),
            ("name=a,weight=2", "\"weight\" is no key"),
            ("name=a,share", "\"share\" is not key=value"),
        ] {
            let said = text.parse::<Tenant>().unwrap_err();
            assert!(said.contains(blamed), "{text}: {said}");
        }
    }

    #[test]
    fn a_graph_takes_as_long_as_its_nodes() {
        let tenant: Tenant = "name=a,kernel=50us,mode=graph,nodes=20".parse().unwrap();
        assert_eq!(tenant.launch_ns(), 1_000_000);
    }
}
