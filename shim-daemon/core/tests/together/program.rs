//! The behaviour of a process: its launches, their times, and its waits.

use super::meeting::Board;
use super::{MS, Sample, US};
use crate::node::rng::Rng;

/// When requests come, and how many launches each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Launches without a wait, at most so many ahead of the device.
    Queue(usize),
    /// One request in each period of so many ns. Periods in which the one before still runs have
    /// none.
    Every(u64),
    /// The next request comes so many ns after the one before is complete.
    Sync(u64),
    /// Requests at random, this many ns apart on average. Requests that arrive while one runs
    /// queue.
    Poisson(u64),
}

/// A program with one thread and one stream.
#[derive(Clone, Debug)]
pub struct Program {
    pub pattern: Pattern,
    /// How long the operations take alone (ns), in turn. An operation is a kernel or a graph.
    pub kernels: Vec<u64>,
    /// Operations of a request. The thread waits for the last of them.
    pub burst: usize,
    /// The host's time for a launch (ns).
    pub launch: u64,
    /// Each operation waits for a copy from the host of so many ns, which the program submits in
    /// its second stream before it; 0: none. Copies pass no gate and occupy no engine.
    pub copy: u64,
    /// Work that it submits from the first moment on reaches the device so many ns after that
    /// moment, as behind a stream's wait for the host.
    pub stalls: Option<(u64, u64)>,
    /// Its kernels meet those of its peers: the board of all, and its own side.
    pub meets: Option<(Board, usize)>,
    /// It joins at `from`, launches nothing for `starts` ns, and works until `until`, in turns of
    /// so many ns with work and so many without.
    pub from: u64,
    pub starts: u64,
    pub until: u64,
    pub pauses: Option<(u64, u64)>,
    /// Its estimate of an operation's length, in thousandths of the truth.
    pub estimate: u64,
    /// Its estimates are guesses until this moment.
    pub guesses_until: u64,
    /// How it falsifies its reports to the daemon.
    pub lie: Option<fn(&mut Sample)>,
    /// It ignores its gate.
    pub ungated: bool,
    /// Its process is not registered: the daemon knows only what the driver's samples say of it.
    pub outside: bool,
}

/// Device time that a deep queue holds, and its length in launches: as in `gpushare bench share`.
const AHEAD: u64 = 100 * MS;
const DEPTH: std::ops::RangeInclusive<u64> = 4..=256;

impl Program {
    fn new(pattern: Pattern, kernel: u64) -> Self {
        Self {
            pattern,
            kernels: vec![kernel],
            burst: 1,
            launch: 5 * US,
            copy: 0,
            stalls: None,
            meets: None,
            from: 0,
            starts: 0,
            until: u64::MAX,
            pauses: None,
            estimate: 1_000,
            guesses_until: 0,
            lie: None,
            ungated: false,
            outside: false,
        }
    }

    /// A deep queue of kernels of `kernel` ns, as training has.
    pub fn queue(kernel: u64) -> Self {
        let depth = (AHEAD / kernel.max(1)).clamp(*DEPTH.start(), *DEPTH.end());
        Self::new(Pattern::Queue(depth as usize), kernel)
    }

    /// A deep queue of kernels of 500 us.
    pub fn trainer() -> Self {
        Self::queue(500 * US)
    }

    /// One kernel in each `period`, as a server under regular load.
    pub fn every(period: u64, kernel: u64) -> Self {
        Self::new(Pattern::Every(period), kernel)
    }

    /// 30 % of a device.
    pub fn server() -> Self {
        Self::every(MS, 300 * US)
    }

    /// 20 % of a device.
    pub fn fifth() -> Self {
        Self::every(MS, 200 * US)
    }

    /// One kernel, a wait for it, and `think` ns on the host.
    pub fn sync(kernel: u64, think: u64) -> Self {
        Self::new(Pattern::Sync(think), kernel)
    }

    /// Requests of one kernel at random, `mean` ns apart.
    pub fn poisson(mean: u64, kernel: u64) -> Self {
        Self::new(Pattern::Poisson(mean), kernel)
    }

    /// Each request is `launches` operations.
    pub fn burst(self, launches: usize) -> Self {
        let burst = launches.max(1);
        Self { burst, ..self }
    }

    /// The operations take these times, in turn.
    pub fn mixed(self, kernels: &[u64]) -> Self {
        let kernels = kernels.to_vec();
        Self { kernels, ..self }
    }

    /// At most `depth` launches ahead of the device, for a deep queue.
    pub fn depth(self, depth: usize) -> Self {
        let pattern = Pattern::Queue(depth.max(1));
        Self { pattern, ..self }
    }

    /// A launch takes `launch` ns on the host.
    pub fn launch(self, launch: u64) -> Self {
        Self { launch, ..self }
    }

    /// Each operation waits for a copy of `copy` ns.
    pub fn copies(self, copy: u64) -> Self {
        Self { copy, ..self }
    }

    /// What it submits in `time` ns from `from` on waits until these have passed.
    pub fn stalls(self, from: u64, time: u64) -> Self {
        let stalls = Some((from, time));
        Self { stalls, ..self }
    }

    /// Its kernels meet those of the other sides.
    pub fn meets(self, board: &Board, side: usize) -> Self {
        let meets = Some((Board::clone(board), side));
        Self { meets, ..self }
    }

    /// Its estimates are guesses until `guesses_until`.
    pub fn guesses(self, guesses_until: u64) -> Self {
        Self {
            guesses_until,
            ..self
        }
    }

    /// It joins at `from`.
    pub fn from(self, from: u64) -> Self {
        Self { from, ..self }
    }

    /// Its first launch comes `starts` ns after it joins: it makes its context and loads modules.
    pub fn starts(self, starts: u64) -> Self {
        Self { starts, ..self }
    }

    /// It submits nothing more from `until` on, and ends when all is complete.
    pub fn until(self, until: u64) -> Self {
        Self { until, ..self }
    }

    /// It works for `on` ns, and then has nothing to do for `off` ns.
    pub fn pauses(self, on: u64, off: u64) -> Self {
        let pauses = Some((on, off));
        Self { pauses, ..self }
    }

    /// Its estimates are `thousandths` of the truth.
    pub fn estimates(self, thousandths: u64) -> Self {
        let estimate = thousandths;
        Self { estimate, ..self }
    }

    /// Its process is not registered.
    pub fn outside(self) -> Self {
        Self {
            ungated: true,
            outside: true,
            ..self
        }
    }

    /// Whether it has work at `now`.
    pub fn works(&self, now: u64) -> bool {
        self.resumes(now) == Some(now)
    }

    /// The first moment from `now` on at which it has work; `None` if it ends before.
    pub fn resumes(&self, now: u64) -> Option<u64> {
        let first = self.from + self.starts;
        let mut at = now.max(first);
        if let Some((on, off)) = self.pauses {
            let into = (at - first) % (on + off);
            at += if into < on { 0 } else { on + off - into };
        }
        (at < self.until).then_some(at)
    }

    /// When work that it submits at `now` reaches the device.
    pub fn reaches(&self, now: u64) -> u64 {
        let stalled = self.stalls.map(|(from, time)| from..from + time);
        stalled
            .filter(|stalled| stalled.contains(&now))
            .map_or(now, |stalled| stalled.end)
    }

    /// The time from one random request to the next (ns), exponentially distributed.
    pub fn gap(mean: u64, rng: &mut Rng) -> u64 {
        let uniform = ((rng.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * mean as f64) as u64
    }
}
