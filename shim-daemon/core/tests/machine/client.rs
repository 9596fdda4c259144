//! A process: its program, and its gate, which keeps the library's rules: window, marks, soft
//! landing, reports. Latencies are drawn from those of futex wakes and sockets.

use crate::node::rng::Rng;
use gpushare_core::{Lease, LeaseKind, Nanos, ProcessId, TenantId};
use std::collections::VecDeque;

/// How long kernels are.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// All the same.
    Fixed(Nanos),
    /// Anything between, short ones as often as long ones on a logarithmic scale.
    Mixed(Nanos, Nanos),
}

impl Length {
    pub fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(length) => length.0,
            Self::Mixed(from, to) => {
                let doublings = u64::from((to.0 / from.0.max(1)).max(1).ilog2()) + 1;
                let base = from.0 << rng.below(doublings);
                (base + rng.below(base)).min(to.0)
            }
        }
    }
}

/// A program's behaviour.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// Launches ahead for as long as it is let.
    Deep(Length),
    /// Launches, synchronises, thinks, and again.
    Loop(Length, Nanos),
    /// As `Deep` for the first time, then nothing for the second, and again.
    Bursts(Length, Nanos, Nanos),
    /// This many kernels, synchronised, and then a pause; the next request comes a pause later.
    Requests(Length, u64, Nanos),
    /// Nothing.
    Sleeps,
}

/// How a process deviates from the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    Good,
    /// Stopped: it reports and submits nothing from then on; its work on the device runs to its
    /// end.
    Stopped,
    /// Obeys its gate and never says that it has drained.
    Mute,
    /// Ignores its gate.
    Deaf,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub process: ProcessId,
    pub tenant: TenantId,
    pub program: Program,
    pub manners: Manners,
    pub rng: Rng,
    /// Its turn as its gate knows it.
    pub lease: Lease,
    /// Estimates of its submitted work that is not known to be complete.
    pub flying: VecDeque<u64>,
    /// Whether its program has something to launch now.
    pub ready: bool,
    /// Launches left of a request.
    pub left: u64,
    /// The next kernel, if it is drawn already.
    pub next: Option<u64>,
    /// It closed by itself in this turn.
    pub landed: bool,
    pub launched_in_turn: bool,
    pub said_drained: bool,
    pub said_wanted: bool,
    /// When the device, as far as the process knows, began the first of `flying`.
    pub working_since: Nanos,
    pub said_idle: bool,
    pub submitted: Nanos,
    /// Since when a launch waits at its gate.
    pub waits_since: Option<Nanos>,
    /// Whether its bursts are on.
    pub on: bool,
    pub gone: bool,
    /// When its last message reaches the daemon.
    pub arrives: Nanos,
    /// When it sees the last word of its page.
    pub hears: Nanos,
}

impl Client {
    pub fn new(process: ProcessId, tenant: TenantId, program: Program, rng: Rng) -> Self {
        Self {
            process,
            tenant,
            program,
            manners: Manners::Good,
            rng,
            lease: Lease::FREE,
            flying: VecDeque::new(),
            ready: false,
            left: u64::MAX,
            next: None,
            landed: false,
            launched_in_turn: false,
            said_drained: false,
            said_wanted: false,
            working_since: Nanos::ZERO,
            said_idle: false,
            submitted: Nanos::ZERO,
            waits_since: None,
            on: false,
            gone: false,
            arrives: Nanos::ZERO,
            hears: Nanos::ZERO,
        }
    }

    pub fn is_open(&self) -> bool {
        match self.lease.kind {
            LeaseKind::Free => true,
            LeaseKind::Open { .. } => !self.landed,
            LeaseKind::Closed { .. } => self.manners == Manners::Deaf,
        }
    }

    /// Whether its program uses, or would use, the device: fair shares are computed over such
    /// programs.
    pub fn demands(&self) -> bool {
        !self.gone
            && match self.program {
                Program::Deep(_) | Program::Loop(..) => true,
                Program::Bursts(..) => self.on || self.ready || !self.flying.is_empty(),
                Program::Requests(..) => self.ready || !self.flying.is_empty(),
                Program::Sleeps => false,
            }
    }

    /// Whether it has work for the device at this moment: a program that launches ahead always has.
    pub fn could_run(&self) -> bool {
        let ahead = match self.program {
            Program::Deep(_) => true,
            Program::Bursts(..) => self.on,
            _ => false,
        };
        !self.gone && self.manners == Manners::Good && (ahead || self.waits_since.is_some())
    }

    pub fn length(&self) -> Option<Length> {
        match self.program {
            Program::Deep(length)
            | Program::Loop(length, _)
            | Program::Bursts(length, ..)
            | Program::Requests(length, ..) => Some(length),
            Program::Sleeps => None,
        }
    }

    /// How many kernels go behind each other up to one mark.
    pub fn batch(&self, length: u64, window: u64) -> u64 {
        match (self.program, self.length()) {
            (Program::Deep(_) | Program::Bursts(..), Some(Length::Fixed(_))) => {
                (window / 4 / length.max(1)).clamp(1, 64)
            }
            _ => 1,
        }
    }

    /// Whether a batch of this estimate may go now, by the rules of an open gate: `Err` if the turn
    /// is over.
    pub fn fits(&self, now: Nanos, estimate: u64) -> Result<bool, ()> {
        let LeaseKind::Open {
            deadline, window, ..
        } = self.lease.kind
        else {
            return Ok(self.flying.len() < 1000);
        };
        let flying: u64 = self.flying.iter().sum();
        if let Some(deadline) = deadline {
            let lands = now + Nanos(flying + estimate);
            if now >= deadline || (self.launched_in_turn && lands > deadline) {
                return Err(());
            }
        }
        Ok(flying < window.0 || (self.flying.len() < 2 && estimate <= 2_000_000))
    }
}
