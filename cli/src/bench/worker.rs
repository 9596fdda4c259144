//! `gpushare bench worker`: one process of a tenant. It prints `ready`, reads `FROM TO END`
//! (moments of the monotonic clock: to measure between FROM and TO), works at once until END, and
//! prints its [`Log`]s as JSON, one for each of its GPUs. Until it works it ends when its standard
//! input does; the kernel ends it with the benchmark.

use super::arrivals::Requests;
use super::churn;
use super::clock;
use super::copies::Copies;
use super::gang::Gang;
use super::log::{Log, Piece};
use super::meter::Meter;
use super::tenant::{Mode, Tenant, ns};
use crate::args::BenchWorker;
use crate::failure::Failure;
use crate::output;
use gpushare_sys::cuda::{Cargo, Event, Gpu, Stream};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::stdin;
use std::process::ExitCode;

/// Pieces of copies submitted ahead by a tenant that only copies.
const COPIES_AHEAD: usize = 4;
/// The number of comparisons of the device's clock with the host's; the closest one counts.
const COMPARISONS: u32 = 32;

/// The span of the measurement, and the end of the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) end: u64,
}

/// Runs one worker.
pub(crate) fn run(arguments: &BenchWorker) -> Result<ExitCode, Failure> {
    let tenant: Tenant = arguments.tenant.parse().map_err(Failure::ours)?;
    let failed = |error: String| Failure::ours(format!("tenant {}: {error}", tenant.name));
    if tenant.mode == Mode::Gang {
        let gang = Gang::start(&tenant, arguments).map_err(failed)?;
        return match ordered()? {
            Ok(moments) => tell(&gang.work(moments).map_err(failed)?),
            Err(status) => Ok(status),
        };
    }
    if !tenant.churn.is_zero() {
        return match ordered()? {
            Ok(moments) => tell(&churn::work(&tenant, arguments.device, moments).map_err(failed)?),
            Err(status) => Ok(status),
        };
    }
    let gpu = Gpu::open(arguments.device).map_err(failed)?;
    let stream = gpu.stream().map_err(failed)?;
    let on = tenant.gpus.first().copied().unwrap_or_default();
    let mut worker = Worker::new(&gpu, &stream, &tenant, on).map_err(failed)?;
    let graph = match tenant.mode {
        Mode::Graph | Mode::Decode => Some(stream.graph(ns(tenant.kernel), tenant.nodes)),
        Mode::Queue | Mode::Sync | Mode::Burst => None,
        Mode::Copy | Mode::Stream | Mode::Memset | Mode::Gang => None,
    };
    let graph = graph.transpose().map_err(failed)?;
    let copies = Copies::start(&tenant, arguments.device).map_err(failed)?;
    let chunk = usize::try_from(tenant.chunk()).unwrap_or(usize::MAX);
    let cargo = match tenant.mode {
        Mode::Copy => Some(gpu.cargo(chunk)),
        Mode::Stream => Some(gpu.cargo_within(chunk)),
        Mode::Memset => Some(gpu.cargo_set(chunk)),
        _ => None,
    };
    let cargo = cargo.transpose().map_err(failed)?;
    let moments = match ordered()? {
        Ok(moments) => moments,
        Err(status) => return Ok(status),
    };
    worker.span(moments);
    if let Some(copies) = &copies {
        copies.go(moments);
    }
    let launch = || match &graph {
        Some(graph) => stream.launch(graph),
        None => stream.spin(ns(tenant.kernel)),
    };
    let worked = match (&cargo, tenant.waits()) {
        (Some(cargo), _) => worker.copy_ahead(cargo, moments.end),
        (None, true) => worker.request_by_request(launch, moments.end),
        (None, false) => worker.ahead(launch, |over| !over, moments.end),
    };
    worked.map_err(failed)?;
    let mut log = worker.finish();
    if let Some(copies) = copies {
        log.copies = copies.finish().map_err(failed)?;
    }
    tell(&[log])
}

/// Reports that this process is ready, and reads the command. The error is the exit status if the
/// parent has gone, or sent no valid command.
fn ordered() -> Result<Result<Moments, ExitCode>, Failure> {
    output::data("ready")?;
    let mut order = String::new();
    let read = stdin().read_line(&mut order).map_err(Failure::ours)?;
    let moments: Vec<u64> = order
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    Ok(match moments[..] {
        [from, to, end] => Ok(Moments { from, to, end }),
        _ if read == 0 => Err(ExitCode::SUCCESS),
        _ => Err(ExitCode::FAILURE),
    })
}

fn tell(logs: &[Log]) -> Result<ExitCode, Failure> {
    let logs = serde_json::to_string(logs).map_err(Failure::ours)?;
    output::data(&logs)?;
    Ok(ExitCode::SUCCESS)
}

/// A thread that works on one GPU.
pub(crate) struct Worker<'a> {
    gpu: &'a Gpu,
    stream: &'a Stream<'a>,
    tenant: &'a Tenant,
    /// The GPU, in the tenant's numbering.
    on: u32,
    /// A complete event, and the time of its completion on the host's clock.
    last: (Event<'a>, u64),
    spare: Vec<Event<'a>>,
    pieces: Vec<Piece>,
    missed: u64,
    in_line: Vec<u64>,
    copies: Vec<(u64, u64)>,
    meter: Meter,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        gpu: &'a Gpu,
        stream: &'a Stream<'a>,
        tenant: &'a Tenant,
        on: u32,
    ) -> Result<Self, String> {
        // The first launch loads code, which must not be measured.
        stream.spin(1_000)?;
        stream.synchronize()?;
        Ok(Self {
            gpu,
            stream,
            tenant,
            on,
            last: compare_clocks(gpu, stream)?,
            spare: Vec::new(),
            pieces: Vec::new(),
            missed: 0,
            in_line: Vec::new(),
            copies: Vec::new(),
            meter: Meter::default(),
        })
    }

    pub(crate) fn span(&mut self, moments: Moments) {
        self.meter.span(moments.from, moments.to);
    }

    fn event(&mut self) -> Result<Event<'a>, String> {
        self.spare.pop().map_or_else(|| self.gpu.event(), Ok)
    }

    /// Records a piece whose event is complete: the times before and after its launch calls.
    fn note(
        &mut self,
        (sent, submitted): (u64, u64),
        launches: u64,
        event: Event<'a>,
    ) -> Result<(), String> {
        let known = clock::now();
        let end = self.last.1 + ns(event.since(&self.last.0)?);
        self.meter.tick(known);
        let ns = launches * self.tenant.launch_ns();
        self.pieces.push(Piece {
            sent,
            submitted,
            end,
            known,
            ns,
        });
        let (before, _) = std::mem::replace(&mut self.last, (event, end));
        self.spare.push(before);
        Ok(())
    }

    /// Makes the launches of a request and waits for them, for each request when it is due.
    fn request_by_request(
        &mut self,
        mut launch: impl FnMut() -> Result<(), String>,
        end: u64,
    ) -> Result<(), String> {
        let (every, launches) = (ns(self.tenant.every), self.tenant.launches());
        let mut requests = Requests::new(every, self.tenant.arrivals, self.seed(), clock::now());
        while let Some(due) = requests.next(clock::now(), end) {
            clock::sleep_until(due);
            let sent = requests.sent(clock::now());
            let event = self.event()?;
            (0..launches).try_for_each(|_| launch())?;
            self.stream.record(&event)?;
            let submitted = clock::now();
            self.stream.synchronize()?;
            self.note((sent, submitted), u64::from(launches), event)?;
            requests.done(clock::now());
        }
        let (from, to) = (self.meter.from, self.meter.to);
        self.missed = requests.missed(from, to);
        self.in_line = requests.in_line((from, to), end);
        Ok(())
    }

    /// A lone process has the same random arrivals in each run; several processes have different
    /// ones.
    fn seed(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.tenant.name.hash(&mut hash);
        if self.tenant.procs > 1 {
            std::process::id().hash(&mut hash);
        }
        hash.finish()
    }

    /// Keeps the stream full while `more` returns true. Its argument says whether the end has come.
    pub(crate) fn ahead(
        &mut self,
        mut launch: impl FnMut() -> Result<(), String>,
        mut more: impl FnMut(bool) -> bool,
        end: u64,
    ) -> Result<(), String> {
        let (each, most) = self.tenant.pieces();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut running: VecDeque<((u64, u64), Event<'a>)> = VecDeque::new();
        loop {
            while running.len() < most && more(clock::now() >= end) {
                let sent = clock::now();
                (0..each).try_for_each(|_| launch())?;
                let event = self.event()?;
                self.stream.record(&event)?;
                running.push_back(((sent, clock::now()), event));
            }
            // Under a low cap earlier launches may have completed long before the end, while the
            // launcher waits at the gate.
            let Some((times, event)) = running.pop_front() else {
                return self.stream.synchronize();
            };
            event.wait()?;
            self.note(times, each, event)?;
        }
    }

    /// Keeps the stream full of copies.
    fn copy_ahead(&mut self, cargo: &Cargo<'a>, end: u64) -> Result<(), String> {
        let each = self.tenant.copies_a_piece();
        let mut running: VecDeque<Event<'a>> = VecDeque::new();
        loop {
            while running.len() < COPIES_AHEAD && clock::now() < end {
                let event = self.event()?;
                (0..each).try_for_each(|_| self.stream.copy(cargo))?;
                self.stream.record(&event)?;
                running.push_back(event);
            }
            let Some(event) = running.pop_front() else {
                return self.stream.synchronize();
            };
            event.wait()?;
            let known = clock::now();
            self.meter.tick(known);
            self.copies.push((known, each * self.tenant.chunk()));
            self.spare.push(event);
        }
    }

    pub(crate) fn finish(self) -> Log {
        let (cpu_ns, own_cpu_ns) = self.meter.used();
        Log {
            pid: std::process::id(),
            gpu: self.on,
            pieces: self.pieces,
            missed: self.missed,
            in_line: self.in_line,
            copies: self.copies,
            visits: Vec::new(),
            cpu_ns,
            own_cpu_ns,
        }
    }
}

/// An event and the host's time of its completion, as exactly as possible.
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
