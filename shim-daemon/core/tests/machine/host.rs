//! The wake-up latency of a host: none, or that of a machine with more threads than processors.

use crate::node::rng::Rng;
use gpushare_core::Nanos;

/// One stall in so long.
const PERIOD: u64 = 1_500_000_000;

#[derive(Debug)]
pub struct Host {
    /// The longest time that all its processes stand still at once. `None`: a process runs as soon
    /// as it is woken.
    stalls: Option<Nanos>,
    rng: Rng,
}

impl Host {
    pub fn quiet() -> Self {
        Self {
            stalls: None,
            rng: Rng(1),
        }
    }

    /// Every tenth wake is 0.1 to 1 ms late, every two hundredth 1 to 5 ms. Once in 1.5 s all
    /// processes stand still for `stall` / 2 to `stall`.
    pub fn loaded(stall: Nanos, seed: u64) -> Self {
        Self {
            stalls: Some(stall),
            rng: Rng(seed | 1),
        }
    }

    /// When a process runs that is woken at `at`.
    pub fn runs(&mut self, at: Nanos) -> Nanos {
        let Some(stall) = self.stalls else {
            return at;
        };
        let late = match self.rng.below(200) {
            0 => 1_000_000 + self.rng.below(4_000_000),
            1..=20 => 100_000 + self.rng.below(900_000),
            _ => 0,
        };
        let at = at.0 + late;
        let mut own = Rng((at / PERIOD) << 1 | 1);
        let from = at / PERIOD * PERIOD + own.below(PERIOD - stall.0);
        let to = from + stall.0 / 2 + own.below(stall.0 / 2);
        Nanos(if (from..to).contains(&at) { to } else { at })
    }
}
