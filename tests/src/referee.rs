//! The differential fuzzer: runs one sequence of driver calls without gpushare and with it. The
//! answers must be equal, except for the effects of a quota.
//!
//! `tests/clients/fuzz.c` generates the sequence from a seed. Under a quota the hooked run goes
//! first. Its calls that ran out of memory are passed to the bare run. The bare run makes these
//! calls, undoes their allocations, and reports out of memory too, or reports the call's other
//! error. Then the two transcripts must be equal: a quota may only turn a success into out of
//! memory. Without a quota they must be equal directly. A run that does not end counts as a
//! difference.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use gpushare_protocol::page::lease::{LeaseState, NO_DEADLINE, Turn};
use softgpu::inspect::Observer;

use crate::dealer::turn;
use crate::guest::plain;
use crate::{Alone, Dealer, Gpu, Guest, MIB, clients};

/// The longest a run may take before it counts as hung. A run takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// The quota of [`Mode::Quota`], and the flag that gives it.
const LIMIT: u64 = 96 * MIB;
const LIMIT_FLAG: &str = "96MiB";
/// The pause between two leases that a played daemon publishes.
const PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of runs for shrinking.
const SHRINKING: u32 = 120;
/// Calls that a quota may refuse: those that allocate memory.
const TAKES_MEMORY: [&str; 11] = [
    "alloc",
    "alloc_pitch",
    "alloc_managed",
    "create",
    "alloc_async",
    "alloc_from_pool",
    "array_create",
    "mipmap_create",
    "graph_launch",
    "graph_upload",
    "context_use",
];

/// The limits of the hooked run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A quota that binds, with a neighbour, without a daemon.
    Quota,
    /// A hard cap of the device's time, without a daemon.
    Cap,
    /// Turns with and without a deadline, published by a played daemon.
    Turns,
}

/// One sequence of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The mode of the run.
    pub mode: Mode,
    /// The seed of the calls.
    pub seed: u64,
    /// Calls per thread.
    pub calls: usize,
    /// Threads, each with its own sequence.
    pub threads: usize,
    /// Indices of the calls that are made; all if empty.
    pub only: Vec<usize>,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quota => "quota",
            Self::Cap => "cap",
            Self::Turns => "turns",
        })
    }
}

/// One line of `tests/data/fuzz.txt`.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mode,
            seed,
            calls,
            threads,
            ..
        } = self;
        write!(f, "{mode} {seed} {calls} {threads}")?;
        if self.only.is_empty() {
            return Ok(());
        }
        write!(f, " {}", list(&self.only))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        let mode = match words.first() {
            Some(&"quota") => Some(Mode::Quota),
            Some(&"cap") => Some(Mode::Cap),
            Some(&"turns") => Some(Mode::Turns),
            _ => None,
        };
        let only = words.get(4).map_or(Some(Vec::new()), |words| {
            words.split(',').map(|index| index.parse().ok()).collect()
        });
        let case = |mode: Option<Mode>| {
            Some(Self {
                mode: mode?,
                seed: words.get(1)?.parse().ok()?,
                calls: number(2)?,
                threads: number(3)?,
                only: only?,
            })
        };
        case(mode).ok_or_else(|| format!("not MODE SEED CALLS THREADS [INDEX,…]: {line}"))
    }
}

fn list(indices: &[usize]) -> String {
    let words: Vec<String> = indices.iter().map(ToString::to_string).collect();
    words.join(",")
}

/// The output of a run, line by line, sorted by thread.
type Transcript = Vec<String>;

/// The difference between two runs, as text.
type Difference = String;

impl Case {
    /// Runs it with and without gpushare.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self) -> Result<(), Difference> {
        let hooked = self.hooked()?;
        let refused = match self.mode {
            Mode::Quota => refusals(&hooked),
            Mode::Cap | Mode::Turns => Vec::new(),
        };
        same(&hooked, &self.bare(&refused)?)
    }

    /// Runs it with and without gpushare and without the quota model: every effect of a quota
    /// counts as a difference.
    ///
    /// # Errors
    /// The difference.
    pub fn check_without_model(&self) -> Result<(), Difference> {
        same(&self.hooked()?, &self.bare(&[])?)
    }
    fn arguments(&self, refused: &[usize]) -> Vec<String> {
        let mut arguments = vec![
            self.seed.to_string(),
            self.calls.to_string(),
            self.threads.to_string(),
        ];
        if !self.only.is_empty() {
            arguments.push(format!("only={}", list(&self.only)));
        }
        if !refused.is_empty() {
            arguments.push(format!("refused={}", list(refused)));
        }
        arguments
    }

    fn bare(&self, refused: &[usize]) -> Result<Transcript, Difference> {
        let mut command = plain(&Gpu::new(""), &clients::compile("fuzz", &[]));
        command.args(self.arguments(refused));
        transcript("bare", command)
    }

    fn hooked(&self) -> Result<Transcript, Difference> {
        let gpu = Gpu::new("");
        let program = clients::compile("fuzz", &[]);
        let alone = |flags: &[&str]| {
            let tenant = Alone::on(&gpu);
            let mut command = tenant.command(flags, &program);
            command.args(self.arguments(&[]));
            transcript("hooked", command)
        };
        match self.mode {
            Mode::Quota => {
                let mut neighbour =
                    Guest::client(&gpu, &["--mem-limit", "1GiB"], "quota").started();
                let fills = neighbour.ask(&format!("fill {}", 256 * MIB));
                assert_eq!(fills, "fill 4 2");
                let spec = gpu.spec().parse().expect("a valid SPEC");
                let observer = Observer::open(&spec).expect("softgpu's state opens");
                let before = observer.snapshot().expect("readable").devices[0].requested_now;
                let said = alone(&["--mem-limit", LIMIT_FLAG])?;
                let peak = observer.snapshot().expect("readable").devices[0].requested_peak;
                neighbour.finish().silently();
                if peak > before + LIMIT {
                    return Err(format!("{} bytes under a limit of {LIMIT}", peak - before));
                }
                Ok(said)
            }
            Mode::Cap => alone(&["--sm-limit", "60"]),
            Mode::Turns => self.under_turns(&gpu),
        }
    }

    /// Publishes turns of a few milliseconds: one without a deadline, one with a deadline, a pause,
    /// and so on.
    fn under_turns(&self, gpu: &Gpu) -> Result<Transcript, Difference> {
        let dealer = Dealer::start(gpu);
        let mut command = dealer.command(&clients::compile("fuzz", &[]));
        command.env("LD_LIBRARY_PATH", crate::gpu::links());
        command.args(self.arguments(&[]));
        let runs = std::thread::spawn(move || transcript("hooked", command));
        let mut epoch = 1;
        while !runs.is_finished() {
            dealer.open(epoch);
            std::thread::sleep(PAUSE);
            dealer.close(epoch);
            std::thread::sleep(PAUSE);
            let deadline = crate::turns::now() + 20_000_000;
            dealer.deal(&Turn {
                deadline,
                ..turn(epoch + 1, LeaseState::Open)
            });
            std::thread::sleep(PAUSE);
            dealer.deal(&Turn {
                deadline: NO_DEADLINE,
                ..turn(epoch + 1, LeaseState::Closed)
            });
            std::thread::sleep(PAUSE);
            epoch += 2;
        }
        runs.join().expect("it reports")
    }

    /// Removes calls as long as the runs still differ.
    #[must_use]
    pub fn shrunk(&self) -> Self {
        let mut least = self.clone();
        if least.only.is_empty() {
            least.only = (0..self.calls).collect();
        }
        let (mut part, mut runs) = (least.only.len().div_ceil(2), 0);
        loop {
            let mut from = 0;
            while from < least.only.len() && runs < SHRINKING {
                let mut fewer = least.clone();
                let end = (from + part).min(fewer.only.len());
                fewer.only.drain(from..end);
                runs += 1;
                if !fewer.only.is_empty() && fewer.check().is_err() {
                    least = fewer;
                } else {
                    from += part;
                }
            }
            if part == 1 || runs >= SHRINKING {
                return least;
            }
            part = part.div_ceil(2);
        }
    }
}

/// Checks that two runs have equal output.
fn same(hooked: &Transcript, bare: &Transcript) -> Result<(), Difference> {
    match hooked
        .iter()
        .zip(bare)
        .find(|(hooked, bare)| hooked != bare)
    {
        Some((hooked, bare)) => Err(format!("hooked: {hooked}\n  bare: {bare}")),
        None if hooked.len() == bare.len() => Ok(()),
        None => Err(format!(
            "{} calls hooked, {} bare",
            hooked.len(),
            bare.len()
        )),
    }
}

/// Indices of the calls that allocate memory and ran out of it.
fn refusals(said: &Transcript) -> Vec<usize> {
    let mut refused = Vec::new();
    for line in said {
        let words: Vec<&str> = line.split(' ').collect();
        let [place, name, "2", ..] = words[..] else {
            continue;
        };
        // The driver gives the result of a call that allocates no memory, so the bare run must have
        // it too.
        if !TAKES_MEMORY.contains(&name) {
            continue;
        }
        let index = place.split('.').nth(1).and_then(|index| index.parse().ok());
        refused.push(index.expect("a thread and an index"));
    }
    refused
}

/// Runs a command to its end and sorts its output by thread.
fn transcript(which: &str, mut command: Command) -> Result<Transcript, Difference> {
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().expect("it starts");
    let (mut out, mut errors) = (String::new(), String::new());
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let reads = std::thread::spawn(move || {
        let read = stdout.read_to_string(&mut out);
        read.expect("it writes text");
        out
    });
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > end {
            child.kill().expect("a child");
            child.wait().expect("a child");
            let out = reads.join().expect("it reads");
            let last = out.lines().last().unwrap_or("nothing");
            return Err(format!("{which}: hangs after {last}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = child.wait().expect("a child");
    stderr.read_to_string(&mut errors).expect("it writes text");
    let out = reads.join().expect("it reads");
    let mut lines: Transcript = out.lines().map(ToOwned::to_owned).collect();
    if !status.success() || !errors.is_empty() || lines.pop().as_deref() != Some("end") {
        let last = out.lines().last().unwrap_or("nothing");
        return Err(format!("{which}: {status} after {last}: {errors}"));
    }
    // The lines of each thread stay in order.
    lines.sort_by_key(|line| {
        line.split('.')
            .next()
            .and_then(|word| word.parse::<u32>().ok())
    });
    Ok(lines)
}
