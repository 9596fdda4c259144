//! A guarantee against higher classes: how far a container is behind its explicit request.
//!
//! What it is owed grows with the request's part of the time in which it works or waits, and falls by the time it holds.
//! Both ways a second's worth is the most that is kept. Once a turn's worth is owed, it gets that turn before anybody.

use super::terms::part_of;
use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// How far back it looks.
const SECOND: Nanos = Nanos::secs(1);
/// What a small part is owed at most all the same: enough for a shortest turn.
const LEAST: Nanos = Nanos::millis(10);

/// See the module's page. In nanoseconds of hold time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    part: Permille,
    owed: i64,
}

impl Promise {
    pub(super) fn new(part: Permille) -> Self {
        Self { part, owed: 0 }
    }

    /// The standing of `old`, if there was a request before, under this one.
    pub(super) fn under(old: Option<Self>, part: Permille) -> Self {
        old.map_or_else(|| Self::new(part), |old| Self { part, ..old })
    }

    /// Time passes in which the container works or waits; `held` of it it held the device.
    pub(super) fn pass(&mut self, time: Nanos, held: Nanos) {
        let most = signed(part_of(self.part, SECOND).max(LEAST));
        let owed = self
            .owed
            .saturating_add(signed(part_of(self.part, time)))
            .saturating_sub(signed(held));
        self.owed = owed.clamp(-most, most);
    }

    /// Time passes in which it neither works nor waits: nothing more is owed, and what it had too much is forgiven.
    pub(super) fn idles(&mut self, time: Nanos) {
        let forgiven = self.owed.saturating_add(signed(part_of(self.part, time)));
        self.owed = forgiven.min(0);
    }

    /// Whether anything is owed.
    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// The turn it gets when it is that far behind.
    pub(super) fn turn(&self, quantum: Nanos, shortest: Nanos) -> Nanos {
        part_of(self.part, quantum).max(shortest)
    }

    /// How long from now until that much is owed, if it goes on waiting. Nothing: now.
    pub(super) fn wait(&self, turn: Nanos) -> Nanos {
        let missing = u64::try_from(signed(turn).saturating_sub(self.owed)).unwrap_or(0);
        Nanos(
            missing
                .saturating_mul(1000)
                .div_ceil(self.part.get().into()),
        )
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
