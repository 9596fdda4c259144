//! The conditions of the hooked run.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpushare_protocol::page::lease::{LeaseState, NO_DEADLINE, Turn};
use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use softgpu::inspect::Observer;

use super::Plan;
use super::runs::{Said, counted, run};
use crate::dealer::turn;
use crate::{Alone, Daemon, Dealer, Gpu, Guest, MIB};

/// The quota of modes that have one, and the text that gives it.
const LIMIT: u64 = 96 * MIB;
const LIMIT_TEXT: &str = "96MiB";
/// Between two turns that a played daemon deals.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a daemon that a process has found serves, and how long none does.
const SERVES: Duration = Duration::from_millis(20);
const GONE: Duration = Duration::from_millis(60);
/// After which a played daemon gives the next order though the last one is not answered.
const UNANSWERED: Duration = Duration::from_millis(300);
/// The device, with a driver that has all kinds of pools.
pub(super) const DEVICE: &str = "driver=13050";
/// The memory of the crowded device, and what its neighbour takes: 512 MiB less contexts and what
/// the daemon reserves leave less than the calls ask for.
const CROWDED: &str = "mem=768MiB,driver=13050";
const NEIGHBOUR: u64 = 300 * MIB;

/// The limits of the hooked run, and what goes on beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A quota that binds, beside a neighbour with much memory, without a daemon.
    Quota,
    /// A hard cap of the device's time, without a daemon.
    Cap,
    /// Turns with and without an end that a played daemon deals.
    Turns,
    /// A quota and a cap under a daemon, beside a neighbour that keeps the device busy.
    Beside,
    /// A quota under a daemon that is killed and started again all the time.
    Restarts,
    /// Under a daemon, without a quota, on a device that a neighbour has filled.
    Crowded,
    /// Memory that a played daemon moves to the host and back all the time (`swap`).
    Moves,
    /// The same of managed memory (`uvm`).
    Managed,
}

/// Calls that memory which moves answers otherwise, by design: its legacy IPC handles and what they
/// would refer to (ADR 84).
const OF_FIXED_MEMORY: [&str; 4] = ["ipc_handle", "ipc_close", "peer_open", "peer_close"];

impl Mode {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Quota,
        Self::Cap,
        Self::Turns,
        Self::Beside,
        Self::Restarts,
        Self::Crowded,
        Self::Moves,
        Self::Managed,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Cap => "cap",
            Self::Turns => "turns",
            Self::Beside => "beside",
            Self::Restarts => "restarts",
            Self::Crowded => "crowded",
            Self::Moves => "moves",
            Self::Managed => "managed",
        }
    }

    /// Whether calls that take memory may run out of it though the bare driver has some.
    #[must_use]
    pub fn may_refuse(self) -> bool {
        !matches!(self, Self::Cap | Self::Turns) && !self.moves()
    }

    fn moves(self) -> bool {
        matches!(self, Self::Moves | Self::Managed)
    }

    /// Whether free memory is just what is left of the quota, before and after all calls.
    fn tells_its_quota(self) -> bool {
        matches!(self, Self::Quota | Self::Beside)
    }

    /// Whether memory that moves answers a call otherwise, by design: it has no `SYNC_MEMOPS`,
    /// which plain memory has (ADR 172).
    pub(super) fn excuses(self, hooked: &str, bare: &str) -> bool {
        let place = |line: &str, result: &str| {
            let place = line.strip_suffix(result)?;
            Some(place.strip_suffix(" set_pointer_attribute ")?.to_owned())
        };
        let refused = place(hooked, "801");
        self == Self::Moves && refused.is_some() && refused == place(bare, "0")
    }

    /// The calls of a plan that mean something in this mode.
    pub(super) fn plan(self, mut plan: Plan) -> Plan {
        // A played daemon names no processes of its tenant.
        if self == Self::Turns || self.moves() {
            plan.calls.retain(|call| call.name != "monitor_self");
        }
        if self.moves() {
            let stays = |name: &str| !OF_FIXED_MEMORY.contains(&name);
            plan.calls.retain(|call| stays(&call.name));
        }
        plan
    }

    /// Makes the hooked run.
    ///
    /// # Errors
    /// The run hangs or fails, exceeds its limit, or does not have all of its limit at its end.
    pub(super) fn run(self, program: &Path, script: &str) -> Result<Said, String> {
        let said = match self {
            Self::Quota => quota(program, script),
            Self::Cap => alone(&Gpu::new(DEVICE), &["--sm-limit", "60"], program, script),
            Self::Turns => turns(program, script),
            Self::Beside => beside(program, script),
            Self::Restarts => restarts(program, script),
            Self::Crowded => crowded(program, script),
            Self::Moves => moves(Movability::Swap, program, script),
            Self::Managed => moves(Movability::Managed, program, script),
        }?;
        let (before, after) = said.left;
        if self.tells_its_quota() && before != after {
            return Err(format!(
                "{before} bytes were left of the quota before all calls, {after} after them"
            ));
        }
        Ok(said)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.word() == word);
        found.ok_or_else(|| format!("no mode: {word}"))
    }
}

/// A device's bytes that programs have asked for, now and at most.
struct Books(Observer);

impl Books {
    fn of(gpu: &Gpu) -> Self {
        let spec = gpu.spec().parse().expect("a valid SPEC");
        Self(Observer::open(&spec).expect("softgpu's state opens"))
    }

    /// Runs it; more than the limit is an error.
    fn within_limit(&self, runs: impl FnOnce() -> Result<Said, String>) -> Result<Said, String> {
        let now = || self.0.snapshot().expect("readable").devices.swap_remove(0);
        let before = now().requested_now;
        let said = runs()?;
        let peak = now().requested_peak;
        if peak > before + LIMIT {
            return Err(format!("{} bytes under a limit of {LIMIT}", peak - before));
        }
        Ok(said)
    }
}

fn alone(gpu: &Gpu, flags: &[&str], program: &Path, script: &str) -> Result<Said, String> {
    let tenant = Alone::on(gpu);
    run("hooked", tenant.command(flags, program), script)
}

fn quota(program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(DEVICE);
    let mut neighbour = Guest::client(&gpu, &["--mem-limit", "1GiB"], "quota").started();
    assert_eq!(neighbour.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    let flags = ["--mem-limit", LIMIT_TEXT];
    let said = Books::of(&gpu).within_limit(|| alone(&gpu, &flags, program, script));
    neighbour.finish().silently();
    said
}

/// Runs it in a thread, and repeats `meanwhile`, which is told how many lines it has printed, until
/// it has ended.
fn while_it_runs(
    command: Command,
    script: &str,
    mut meanwhile: impl FnMut(usize),
) -> Result<Said, String> {
    let lines = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| counted("hooked", command, script, &lines));
        while !runs.is_finished() {
            meanwhile(lines.load(Ordering::Relaxed));
        }
        runs.join().expect("it reports")
    })
}

/// In turns of a few milliseconds: one without an end, one with an end, a pause, and so on.
fn turns(program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(DEVICE);
    let dealer = Dealer::start(&gpu);
    let mut command = dealer.command(program);
    command.env("LD_LIBRARY_PATH", crate::gpu::links());
    let mut epoch = 1;
    while_it_runs(command, script, |_| {
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
    })
}

/// All memory leaves and comes back, again and again.
fn moves(kind: Movability, program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(DEVICE);
    let mut dealer = Dealer::start(&gpu);
    dealer.moves(kind);
    let mut command = dealer.command(program);
    command.env("LD_LIBRARY_PATH", crate::gpu::links());
    let processes = 1 + usize::from(script.contains(" peer_"));
    let (mut epoch, mut order, mut since) = (0, Order::Return, Instant::now());
    let mut answers = processes;
    while_it_runs(command, script, |_| {
        std::thread::sleep(PAUSE);
        let said = dealer.said();
        answers += said
            .iter()
            .filter(|said| ended(said) == Some(epoch))
            .count();
        let answered = answers >= processes;
        // A process without memory, or without a context, does not answer. On a slow machine a
        // process that returns has not answered yet: it must come to the end of that, or it would
        // never work again.
        if answered || since.elapsed() > UNANSWERED {
            order = match order {
                Order::Return if answered => Order::Leave,
                _ => Order::Return,
            };
            (epoch, since, answers) = (epoch + 1, Instant::now(), 0);
            dealer.order(epoch, order);
        }
    })
}

/// The number of the order that a process has come to the end of.
fn ended(said: &Request) -> Option<u32> {
    match *said {
        Request::Away { epoch, .. }
        | Request::Back { epoch, .. }
        | Request::NoRoom { epoch, .. }
        | Request::SealBusy { epoch, .. } => Some(epoch),
        _ => None,
    }
}

fn beside(program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let other = daemon.tenant("neighbour", &[]);
    let mut neighbour = other.client("turns", &[]);
    assert_eq!(neighbour.ask("init"), "init 0");
    assert_eq!(neighbour.ask("work 300000"), "work 0");
    let limits = [
        ("GPUSHARE_MEM_LIMIT", LIMIT_TEXT),
        ("GPUSHARE_SM_LIMIT", "70"),
    ];
    let tenant = daemon.tenant("judged", &limits);
    let runs = || run("hooked", tenant.command(program), script);
    let said = Books::of(&gpu).within_limit(runs);
    neighbour.kill();
    said
}

fn restarts(program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(DEVICE);
    let mut daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_LIMIT", LIMIT_TEXT),
        // For memory within the request a call waits much longer, also until a daemon serves again.
        ("GPUSHARE_MEM_REQUEST", "2MiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "20ms"),
    ];
    let tenant = daemon.tenant("judged", &limits);
    let books = Books::of(&gpu);
    let mut began = false;
    books.within_limit(|| {
        while_it_runs(tenant.command(program), script, |lines| {
            // A tenant that no process has joined ends with its daemon, and while one daemon counts
            // the processes of the one before, no new process joins.
            began |= lines > 0;
            let rows = daemon.rows("judged");
            if !began || rows.iter().all(|row| row.processes.is_empty()) {
                std::thread::sleep(PAUSE);
                return;
            }
            std::thread::sleep(SERVES);
            daemon.kill();
            std::thread::sleep(GONE);
            daemon.restart();
        })
    })
}

fn crowded(program: &Path, script: &str) -> Result<Said, String> {
    let gpu = Gpu::new(CROWDED);
    let daemon = Daemon::start(&gpu);
    let other = daemon.tenant("neighbour", &[]);
    let mut neighbour = other.client("quota", &[]).started();
    assert_eq!(neighbour.ask(&format!("alloc {NEIGHBOUR}")), "alloc 0");
    let tenant = daemon.tenant("judged", &[("GPUSHARE_WAIT_TIMEOUT", "1ms")]);
    let said = run("hooked", tenant.command(program), script);
    neighbour.finish().silently();
    said
}
