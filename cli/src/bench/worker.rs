//! `gpushare bench worker`: one process of a tenant. It says `ready`, is told `FROM TO END` (moments of the monotonic clock: to
//! measure between FROM and TO), works at once until END, and prints its [`Log`] as JSON. It ends when its standard input does.

use super::clock;
use super::log::{Log, Piece};
use super::tenant::{Mode, Tenant, ns};
use crate::args::BenchWorker;
use crate::failure::Failure;
use crate::output;
use gpushare_sys::cuda::{Event, Gpu, Graph, Stream};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::collections::VecDeque;
use std::fs;
use std::io::stdin;
use std::process::ExitCode;

/// Device time after which short kernels get an event: what an event costs is small beside it, and it bounds how wrong the
/// beginning of a piece can be.
const PIECE: u64 = 200_000;
/// Device time submitted ahead in a deep queue, if the tenant does not say a depth in launches.
const AHEAD: u64 = 100_000_000;
/// How often the device's clock is compared with the host's; the closest comparison counts.
const COMPARISONS: u32 = 32;

/// Runs one worker.
pub(crate) fn run(arguments: &BenchWorker) -> Result<ExitCode, Failure> {
    let tenant: Tenant = arguments.tenant.parse().map_err(Failure::ours)?;
    let failed = |error: String| Failure::ours(format!("tenant {}: {error}", tenant.name));
    let gpu = Gpu::open(arguments.device).map_err(failed)?;
    let stream = gpu.stream().map_err(failed)?;
    let mut worker = Worker::new(&gpu, &stream, &tenant).map_err(failed)?;
    output::data("ready")?;
    let mut order = String::new();
    let read = stdin().read_line(&mut order).map_err(Failure::ours)?;
    let moments: Vec<u64> = order
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [from, to, end] = moments[..] else {
        // Whoever started us has gone.
        return Ok(if read == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    };
    worker.meter.span(from, to);
    let worked = match tenant.mode {
        Mode::Sync => worker.one_by_one(end),
        Mode::Queue | Mode::Graph => worker.ahead(end),
    };
    worked.map_err(failed)?;
    let log = serde_json::to_string(&worker.finish()).map_err(Failure::ours)?;
    output::data(&log)?;
    Ok(ExitCode::SUCCESS)
}

struct Worker<'a> {
    gpu: &'a Gpu,
    stream: &'a Stream<'a>,
    tenant: &'a Tenant,
    graph: Option<Graph<'a>>,
    /// An event that the device has passed, and when on the host's clock.
    last: (Event<'a>, u64),
    spare: Vec<Event<'a>>,
    pieces: Vec<Piece>,
    meter: Meter,
}

impl<'a> Worker<'a> {
    fn new(gpu: &'a Gpu, stream: &'a Stream<'a>, tenant: &'a Tenant) -> Result<Self, String> {
        // The first launch loads code, which is not to be measured.
        stream.spin(1_000)?;
        stream.synchronize()?;
        let graph = match tenant.mode {
            Mode::Graph => Some(stream.graph(ns(tenant.kernel), tenant.nodes)?),
            Mode::Queue | Mode::Sync => None,
        };
        Ok(Self {
            gpu,
            stream,
            tenant,
            graph,
            last: compare_clocks(gpu, stream)?,
            spare: Vec::new(),
            pieces: Vec::new(),
            meter: Meter::default(),
        })
    }

    fn launch(&self) -> Result<(), String> {
        match &self.graph {
            Some(graph) => self.stream.launch(graph),
            None => self.stream.spin(ns(self.tenant.kernel)),
        }
    }

    fn event(&mut self) -> Result<Event<'a>, String> {
        self.spare.pop().map_or_else(|| self.gpu.event(), Ok)
    }

    /// Notes a piece whose event has been passed.
    fn note(&mut self, sent: u64, launches: u64, event: Event<'a>) -> Result<(), String> {
        let end = self.last.1 + ns(event.since(&self.last.0)?);
        let known = clock::now();
        self.meter.tick(known);
        let ns = launches * self.tenant.launch_ns();
        self.pieces.push(Piece {
            sent,
            end,
            known,
            ns,
        });
        let (before, _) = std::mem::replace(&mut self.last, (event, end));
        self.spare.push(before);
        Ok(())
    }

    /// Launch, wait; again, or when the next one is due.
    fn one_by_one(&mut self, end: u64) -> Result<(), String> {
        let every = ns(self.tenant.every);
        let mut due = clock::now();
        while due < end {
            clock::sleep_until(due);
            let sent = clock::now();
            let event = self.event()?;
            self.launch()?;
            self.stream.record(&event)?;
            self.stream.synchronize()?;
            self.note(sent, 1, event)?;
            let now = clock::now();
            due = if every == 0 {
                now
            } else {
                due + every * (1 + now.saturating_sub(due + every).div_ceil(every))
            };
        }
        Ok(())
    }

    /// Keeps the stream full.
    fn ahead(&mut self, end: u64) -> Result<(), String> {
        let launch = self.tenant.launch_ns().max(1);
        let each = (PIECE / launch).max(1);
        let depth = match u64::from(self.tenant.depth) {
            0 => (AHEAD / launch).clamp(4, 256),
            depth => depth,
        };
        let most = usize::try_from((depth / each).max(2)).unwrap_or(usize::MAX);
        let mut running: VecDeque<(u64, Event<'a>)> = VecDeque::new();
        while clock::now() < end {
            while running.len() < most && clock::now() < end {
                let sent = clock::now();
                (0..each).try_for_each(|_| self.launch())?;
                let event = self.event()?;
                self.stream.record(&event)?;
                running.push_back((sent, event));
            }
            if let Some((sent, event)) = running.pop_front() {
                event.wait()?;
                self.note(sent, each, event)?;
            }
        }
        // Under a low cap what was launched ahead may have been done long before the end, with the launcher at the gate.
        for (sent, event) in running {
            event.wait()?;
            self.note(sent, each, event)?;
        }
        self.stream.synchronize()
    }

    fn finish(self) -> Log {
        let (cpu_ns, own_cpu_ns) = self.meter.used();
        Log {
            pid: std::process::id(),
            pieces: self.pieces,
            cpu_ns,
            own_cpu_ns,
        }
    }
}

/// An event and the host's time when the device passed it, as exactly as can be told.
fn compare_clocks<'a>(gpu: &'a Gpu, stream: &Stream<'a>) -> Result<(Event<'a>, u64), String> {
    let mut best: Option<(u64, Event<'a>, u64)> = None;
    for _ in 0..COMPARISONS {
        let event = gpu.event()?;
        let before = clock::now();
        stream.record(&event)?;
        while !event.is_done()? {}
        let width = clock::now() - before;
        if best
            .as_ref()
            .is_none_or(|(narrowest, ..)| width < *narrowest)
        {
            best = Some((width, event, before + width / 2));
        }
    }
    best.map(|(_, event, at)| (event, at))
        .ok_or_else(|| "no time".to_owned())
}

/// Processor time between two moments, as far as the worker looks at the clock.
#[derive(Debug, Default)]
struct Meter {
    from: u64,
    to: u64,
    begin: Option<(u64, u64)>,
    end: Option<(u64, u64)>,
}

impl Meter {
    fn span(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
    }

    fn tick(&mut self, now: u64) {
        if self.begin.is_none() && now >= self.from {
            self.begin = Some((processor_time(), own_threads()));
        }
        if self.end.is_none() && now >= self.to {
            self.end = Some((processor_time(), own_threads()));
        }
    }

    fn used(&self) -> (u64, u64) {
        let begin = self.begin.unwrap_or_default();
        let end = self
            .end
            .unwrap_or_else(|| (processor_time(), own_threads()));
        (end.0.saturating_sub(begin.0), end.1.saturating_sub(begin.1))
    }
}

fn processor_time() -> u64 {
    let used =
        getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.user_time() + usage.system_time());
    used.map_or(0, |time| {
        u64::try_from(time.num_microseconds() * 1000).unwrap_or(0)
    })
}

/// Processor time of the threads that gpushare's library runs in this process, by their names (ns).
fn own_threads() -> u64 {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    // This program's first thread has that name too.
    let first = std::process::id().to_string();
    tasks
        .filter(|task| *task.file_name() != *first)
        .filter(|task| {
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("gpushare"))
        })
        .filter_map(|task| {
            let spent = fs::read_to_string(task.path().join("schedstat")).ok()?;
            spent.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}
