//! The hard cap of a tenant's compute time, as pure arithmetic: the daemon and the library keep the
//! same one.
//!
//! A cap is a bucket of time. It fills with the cap's part of all time and pays for every
//! nanosecond in which the tenant holds the device. In any span the tenant holds cap × span less
//! what the level rose, so the cap is kept in *every* window as closely as the level is bounded: it
//! moves between [`BURST_CAPACITY`] and what one kernel overdraws. 10 ms of it are one percentage
//! point of a second.
//!
//! A tenant whose bucket ran empty is *throttled*: it waits until the bucket holds a whole turn.
//! Every turn costs a handoff of 0.2 to 0.4 ms in which the tenant is billed and not served. So a
//! turn is long enough that the tenant goes on and off once in 0.1 s, and takes no more than 12.5
//! ms out of the bucket. The room above that is for delays: while a daemon or a gate is woken late,
//! the tenant's time keeps collecting.
//!
//! [`Cap`] holds the values that follow from the percentage alone. [`Bucket`] keeps a level that
//! one owner changes. The library keeps its level in a shared word instead (see [`Cap::level_at`]),
//! because its processes have no lock and no owner.

use crate::units::Permille;

/// The most time that collects, in nanoseconds: the tenant's excess over its cap's rate after a
/// pause.
pub const BURST_CAPACITY: u64 = 18_000_000;
/// The on and off time together of a tenant that always has work, if a turn takes no more than
/// [`MOST_TURN`], in nanoseconds.
const CYCLE: u64 = 100_000_000;
/// The most that a throttled tenant waits for, in nanoseconds of the bucket: with a cap of a half a
/// cycle of 50 ms.
const MOST_TURN: u64 = 12_500_000;
/// No turn after the bucket ran empty is shorter, in nanoseconds: a tiny cap pauses longer instead.
const SHORTEST: u64 = 2_000_000;
/// The most that a tenant waits for where its gate opens without a turn, in nanoseconds of the
/// bucket.
const REOPENS: u64 = 1_000_000;

/// A cap: a part of the device's time that is never exceeded. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(Permille);

impl Cap {
    /// A cap of this part of the time. The whole is a cap that never throttles.
    pub const fn new(part: Permille) -> Self {
        Self(part)
    }

    /// The part of the time.
    pub const fn part(self) -> Permille {
        self.0
    }

    /// The time that flows into the bucket during `time`, rounded down.
    pub const fn inflow(self, time: u64) -> u64 {
        self.0.of(time)
    }

    /// How long `level` takes to flow in, rounded up.
    pub const fn fill_time(self, level: u64) -> u64 {
        level.saturating_mul(1000).div_ceil(self.0.get() as u64)
    }

    /// How long `level` lasts while the tenant holds the device all the time, rounded down.
    pub const fn lasts(self, level: u64) -> u64 {
        let part = if self.0.get() > 999 {
            999
        } else {
            self.0.get()
        };
        level.saturating_mul(1000) / (1000 - part as u64)
    }

    /// The level from which a throttled tenant may hold the device again: the cost of a turn, at
    /// least 1.
    pub const fn turn_worth(self) -> u64 {
        let cycle = self.inflow(CYCLE);
        let turn = if cycle > SHORTEST { cycle } else { SHORTEST };
        let net = turn - self.inflow(turn);
        match net {
            0 => 1,
            net if net > MOST_TURN => MOST_TURN,
            net => net,
        }
    }

    /// For a level that is stored as the time at which the bucket was or will be empty: that time,
    /// kept between a full bucket and `most_debt` (nanoseconds of the bucket) at `now`.
    pub fn bound_empty_at(self, empty_at: u64, now: u64, most_debt: u64) -> u64 {
        let full = now.saturating_sub(self.fill_time(BURST_CAPACITY));
        empty_at.clamp(full, now.saturating_add(self.fill_time(most_debt)))
    }

    /// The level at `now` of a bucket that was or will be empty at `empty_at`; 0 for a debt.
    pub fn level_at(self, empty_at: u64, now: u64) -> u64 {
        self.inflow(now.saturating_sub(empty_at))
    }

    /// When a bucket that was or will be empty at `empty_at` has this level, if nothing is taken.
    pub const fn reaches(self, level: u64, empty_at: u64) -> u64 {
        empty_at.saturating_add(self.fill_time(level))
    }
}

/// A tenant's allowance on one device, with a single owner. Times and levels in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    cap: Cap,
    level: i64,
    /// The level from which its tenant may hold the device: more than nothing, or what it waits for
    /// after it ran empty.
    goal: i64,
}

impl Bucket {
    /// A bucket with one turn's worth in it.
    pub fn new(part: Permille) -> Self {
        let cap = Cap::new(part);
        Self {
            cap,
            level: signed(cap.turn_worth()),
            goal: 1,
        }
    }

    /// The level of `old`, if there was a cap before, under this one.
    #[must_use]
    pub fn under(old: Option<Self>, part: Permille) -> Self {
        let cap = Cap::new(part);
        old.map_or_else(
            || Self::new(part),
            |old| Self {
                cap,
                goal: old.goal.min(signed(cap.turn_worth())),
                ..old
            },
        )
    }

    /// Time passes; the tenant held the device for `held` of it. The debt is bounded by
    /// `most_debt`.
    pub fn pass(&mut self, time: u64, held: u64, most_debt: u64) {
        let level = self
            .level
            .saturating_add(signed(self.cap.inflow(time)))
            .saturating_sub(signed(held));
        self.level = level.clamp(-signed(most_debt), signed(BURST_CAPACITY));
    }

    /// The turn is over, `cut` short or given up: throttles where too little is left for another. A
    /// turn that was cut continues only with a whole turn's worth: the rest would cost as much
    /// again to hand over, and its last kernel would overdraw.
    pub fn turn_over(&mut self, cut: bool) {
        let least = self.cap.turn_worth();
        let goes_on = self.level >= signed(if cut { least } else { least / 4 });
        self.goal = if goes_on { 1 } else { signed(least) };
    }

    /// It was paid from where a gate opens and closes without a turn of its own: a short time open
    /// costs no more than a long one there. So its tenant uses all that collected, and then waits
    /// for little.
    pub fn used(&mut self) {
        if self.allows() {
            self.goal = 1;
        } else if self.goal == 1 {
            self.goal = signed(self.cap.turn_worth().min(REOPENS));
        }
    }

    /// Whether the tenant may hold the device.
    pub fn allows(&self) -> bool {
        self.level >= self.goal
    }

    /// How long from now until it allows a turn, if nothing is taken from it.
    pub fn wait(&self) -> u64 {
        let missing = u64::try_from(self.goal.saturating_sub(self.level)).unwrap_or(0);
        self.cap.fill_time(missing)
    }

    /// How long the tenant may hold the device from now on; 0 for a debt.
    pub fn lasts(&self) -> u64 {
        self.cap.lasts(u64::try_from(self.level).unwrap_or(0))
    }

    /// Whether less is in it than in a fresh one.
    pub fn is_short(&self) -> bool {
        self.level < signed(self.cap.turn_worth())
    }

    /// Whether the debt is at its bound: a tenant that holds the device now is not billed any more.
    pub fn at_most_debt(&self, most_debt: u64) -> bool {
        self.level <= -signed(most_debt)
    }
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
