//! The processes of the benchmark, seen from the one that measures: started as `gpushare run`
//! starts programs, or without gpushare.

use crate::artefacts;
use crate::bench::clock;
use crate::bench::crew::Backend;
use crate::bench::lines::{Process, START};
use crate::failure::Failure;
use std::process::Command;
use std::time::{Duration, Instant};

/// The slowest that a tenant's memory is expected to be copied, pinned or moved (bytes a second): a
/// fortieth of what was measured.
const SLOWEST: u64 = 32 << 20;

/// One process.
#[derive(Debug)]
pub(super) struct Player {
    /// The name under which its tenant is registered.
    pub(super) name: String,
    process: Process,
    /// The longest that it may take to be ready, and for each answer.
    patience: Duration,
    /// Until when it works.
    to: u64,
}

/// How long a tenant of so many bytes may take for an answer: the memory of others may have to
/// leave for it.
pub(super) fn patience(bytes: u64) -> Duration {
    START + Duration::from_secs(bytes / SLOWEST)
}

impl Player {
    /// Starts a tenant whose memory may move, with so many bytes, which are its limit. Returns once
    /// it has them.
    pub(super) fn tenant(backend: &Backend, name: &str, bytes: u64) -> Result<Self, Failure> {
        Self::limited(backend, name, (bytes, bytes))
    }

    /// The same with so many bytes of this limit.
    pub(super) fn limited(
        backend: &Backend,
        name: &str,
        (bytes, limit): (u64, u64),
    ) -> Result<Self, Failure> {
        let name = format!("bench-{}-{name}", std::process::id());
        let mut command = backend.run("on", &name)?;
        command.args(["--on-collision", "swap"]);
        command.args(["--mem-limit", &limit.to_string(), "--"]);
        command.arg(artefacts::own_executable()?);
        Self::start(command, name, bytes)
    }

    /// Starts one without gpushare.
    pub(super) fn bare(backend: &Backend, bytes: u64) -> Result<Self, Failure> {
        let mut command = Command::new(artefacts::own_executable()?);
        command.env_clear().envs(backend.environment());
        Self::start(command, "bare".to_owned(), bytes)
    }

    fn start(mut command: Command, name: String, bytes: u64) -> Result<Self, Failure> {
        command.args(["bench", "swapper", "--bytes", &bytes.to_string()]);
        let player = Self {
            process: Process::start(command).map_err(Failure::ours)?,
            name,
            patience: patience(bytes),
            to: 0,
        };
        let ready = player.process.is_ready(Instant::now() + player.patience);
        ready.map_err(|why| player.lost(&why))?;
        Ok(player)
    }

    /// How long it took to write contents of this seed.
    pub(super) fn writes(&mut self, seed: u64) -> Result<u64, Failure> {
        self.say(&format!("write {seed}"))?;
        Ok(self.numbers("wrote")?[0])
    }

    /// How long it took to read all of it, and the pages that were otherwise.
    pub(super) fn reads(&mut self, seed: u64) -> Result<(u64, u64), Failure> {
        self.say(&format!("read {seed}"))?;
        let numbers = self.numbers("read")?;
        Ok((numbers[0], numbers[1]))
    }

    /// How long a small allocation and its free take together, the mean of so many (ns).
    pub(super) fn pairs(&mut self, count: u32) -> Result<u64, Failure> {
        self.say(&format!("pairs {count}"))?;
        Ok(self.numbers("pairs")?[0])
    }

    /// Has it work until `to`.
    pub(super) fn begin(&mut self, to: u64) -> Result<(), Failure> {
        self.to = to;
        self.say(&format!("work {to}"))
    }

    /// Waits until it has worked.
    pub(super) fn ends(&mut self) -> Result<(), Failure> {
        self.numbers("worked").map(|_| ())
    }

    /// The device time that it had between these moments.
    pub(super) fn worked(&mut self, (from, to): (u64, u64)) -> Result<u64, Failure> {
        self.say(&format!("worked {from} {to}"))?;
        Ok(self.numbers("worked")?[0])
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        self.process.say(line).map_err(|why| self.lost(&why))
    }

    /// The two numbers behind this word; what is not there is 0.
    fn numbers(&mut self, word: &str) -> Result<[u64; 2], Failure> {
        let works = Duration::from_nanos(self.to.saturating_sub(clock::now()));
        let line = self.process.line(Instant::now() + works + self.patience);
        let line = line.map_err(|why| self.lost(&why))?;
        let rest = line.strip_prefix(word);
        let rest = rest.ok_or_else(|| self.lost(&format!("it said {line:?}")))?;
        let mut numbers = rest
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        Ok([numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
    }

    fn lost(&self, why: &str) -> Failure {
        Failure::ours(format!("tenant {} is lost: {why}", self.name))
    }
}

/// A player that works ends by the signal.
impl Drop for Player {
    fn drop(&mut self) {
        if self.to <= clock::now() {
            self.process.leaves();
        }
    }
}
