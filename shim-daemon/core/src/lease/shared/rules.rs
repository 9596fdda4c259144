//! The constants of a shared device, all in one place, derived from the driver's time slice.

use crate::lease::arithmetic::{scaled, signed};
use crate::lease::terms::LeasePolicy;
use crate::time::Nanos;

/// See the module's page. Times are spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// The driver's time slice, L: how long a context keeps the device while other contexts have
    /// work queued.
    pub(super) slice: Nanos,
    /// The device's time for a change from one context to another.
    pub(super) switch: Nanos,
}

/// The tenants that others yield to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visits {
    /// How many leave gaps: so many changes of contexts come between two slices of the others, and
    /// one to each context of these.
    pub(super) visitors: u64,
    /// How many contexts of the others have work.
    pub(super) contexts: u64,
    /// The operator promised something to the tenant that is behind: a share, or a higher class.
    pub(super) promised: bool,
    /// The tenant that is behind always has work.
    pub(super) dense: bool,
    /// For so many thousandths of the time it is pending.
    pub(super) presence: u64,
    /// It is far behind.
    pub(super) far: bool,
}

impl Rules {
    /// Time between two samples while several tenants are active.
    pub(super) const TICK: Nanos = Nanos::millis(2);
    /// The same while a tenant is held: it is open again within a millisecond of the device
    /// becoming idle, with a look that is late and a thread that wakes up.
    pub(super) const TICK_HELD: Nanos = Nanos::micros(900);
    /// A tenant counts as pending for this long after it was last seen pending: two ticks and their
    /// jitter.
    pub(super) const LATELY: Nanos = Nanos::millis(5);
    /// The same for as long if it has not been looked at since: on a busy host a sample may be so
    /// late.
    pub(super) const LATE_LOOK: Nanos = Nanos::millis(100);
    /// A tenant that pauses may be back any moment for this long: a process that has nothing
    /// pending says so sooner, unless it was stopped.
    pub(super) const EXPECTED: Nanos = Nanos::millis(25);
    /// Unused lag fades within this time without demand: a tenant is not owed service that it did
    /// not want.
    pub(super) const FADE: Nanos = Nanos::millis(20);
    /// A debt fades by this fraction of the time in which its tenant has no demand.
    pub(super) const PARDON: i64 = 100;
    /// Where nothing is promised one of two tenants may lack this fraction of its part: the
    /// driver's own slices are as even as that, and steering for less costs waits.
    pub(super) const TOLERATED: i64 = 50;
    /// The same where the service of one of them is what the other's leaves of the time: a change
    /// of contexts in the middle of a large kernel takes longer than another.
    pub(super) const TOLERATED_OF_GUESSES: i64 = 10;
    /// The most lag or debt that is remembered.
    pub(super) const MOST: Nanos = Nanos::secs(1);
    /// How long a calm period must be before a mode is relaxed: initially and at most.
    pub(super) const QUIET: (Nanos, Nanos) = (Nanos::secs(1), Nanos::secs(8));
    /// No tenant is held for one that has completed nothing for this long: it may have been
    /// stopped, and the device would be idle.
    pub(super) const SILENT: Nanos = Nanos::millis(250);
    /// How long to watch at least whether a tenant that completes nothing has the device at all:
    /// see [`round`](Self::round).
    pub(super) const STUCK: Nanos = Nanos::millis(20);
    /// A tenant's bills are compared with the clock after this much time alone. A tenant that
    /// claims too little is not helped for this long: the first time, and at most.
    pub(super) const VERDICT: Nanos = Nanos::millis(10);
    /// The same for a deep queue beside tenants that yield to it.
    pub(super) const VERDICT_BESIDE: Nanos = Nanos::millis(50);
    pub(super) const DOUBTED: (Nanos, Nanos) = (Nanos::millis(125), Nanos::secs(4));
    /// What the driver's samples said of work that no gate governs is forgotten after this long:
    /// they are read each second.
    pub(super) const READ: Nanos = Nanos::secs(3);
    /// A device is saturated while a tenant is pending for at least this many thousandths of the
    /// time. On an unsaturated device every tenant gets its demand sooner or later, and none counts
    /// as behind.
    pub(super) const SATURATED: u64 = 950;
    /// From how many thousandths of a span on a tenant counts as pending all the time: looks and
    /// reports are late by a few microseconds.
    pub(super) const ALWAYS: u64 = 990;
    /// A tenant is compared with the clock where it was pending for at least this many thousandths.
    pub(super) const MOSTLY: u64 = 900;
    /// Work of others for fewer thousandths of a span leaves a tenant alone.
    pub(super) const ALONE: u64 = 50;
    /// Whether a silent tenant has the device at all is watched while the pending parts of all
    /// tenants add up to this many thousandths.
    pub(super) const CROWDED: u64 = 1500;
    /// A tenant keeps the device busy by itself (is dense) if this many tenths of its time are
    /// service. It is known from `SEEN` of its time on, and forgotten by halves beyond `HABIT`.
    pub(super) const DENSE: u64 = 9;
    pub(super) const SEEN: Nanos = Nanos::millis(20);
    pub(super) const HABIT: Nanos = Nanos::millis(200);
    /// Samples over which the part of the time that a tenant is pending is a mean.
    pub(super) const SAMPLES: u64 = 20;
    /// A tenant's queue or loop is known for so long after it was last seen.
    pub(super) const JUDGED: Nanos = Nanos::secs(64);
    /// How long a client takes to notice that its streams are empty and to submit again: a median
    /// of 53 to 55 us on softgpu, 2 cores, 2026-11-22 (ADR 66).
    const BUBBLE: Nanos = Nanos::micros(50);
    /// The part of the device's time, in thousandths, that such pauses may cost where kernels are
    /// shorter than a slice: usually, and while a tenant that leaves gaps is far behind.
    const PAUSES: (u64, u64) = (30, 125);
    /// The part of the device's time, in thousandths, that yielding may cost in changes of contexts
    /// beyond those that the driver makes by itself: for any tenant, and for one to which the
    /// operator promised something.
    const CHANGES: (u64, u64) = (80, 250);
    /// A tenant that leaves gaps waits for the device nearly all the time if it is pending for this
    /// many thousandths of it.
    pub(super) const LOOPS: u64 = 900;
    /// Tenants take turns beside one that leaves no gaps if this many thousandths of the time of
    /// their turns are service. The driver's own slices of 2 ms leave 870 where a change takes 150
    /// us, and turns of twice that length cost 40.
    pub(super) const TURNS: u64 = 830;
    /// The same where one that waits for each operation has a request: yielded to by slices it
    /// would have as little of the device as an operation is shorter than a slice.
    pub(super) const TURNS_PROMISED: u64 = 650;
    /// The same where lower classes wait for it.
    pub(super) const TURNS_ABOVE: u64 = 500;
    /// A tenant with a guarantee that is owed so many thousandths of its turn is not repaid by the
    /// gaps of higher classes: these are closed for it. It is due from 1,000 on. A tenant that asks
    /// for little is never owed so much.
    pub(super) const UNPAID: u64 = 2000;
    /// Steering is worth it where this many thousandths of the useful time remain that the driver
    /// alone would leave; compared over so long.
    pub(super) const KEEPS: u64 = 850;
    /// The same of turns that keep a request: as much as slices for a request may cost, the second
    /// of [`Self::CHANGES`].
    pub(super) const KEEPS_PROMISED: u64 = 1000 - Self::CHANGES.1;
    /// The same where no tenant has so many thousandths of what the driver alone gives it.
    pub(super) const VAIN: u64 = 950;
    pub(super) const HELPS: u64 = 1100;
    pub(super) const TRIAL: Nanos = Nanos::millis(400);
    /// Where less than this many thousandths remain a quarter of that time says enough, and so long
    /// by the driver alone.
    pub(super) const HOPELESS: u64 = 650;
    pub(super) const HINT: Nanos = Nanos::millis(40);
    /// The span that says what the driver alone leaves, at most and at least: service comes in
    /// lumps of the driver's slice. That is measured after so much steering if it is not known, and
    /// again after so much.
    pub(super) const BARE: Nanos = Nanos::millis(200);
    pub(super) const SURE: Nanos = Nanos::millis(100);
    pub(super) const STALE: (Nanos, Nanos) = (Nanos::secs(1), Nanos::secs(64));
    /// For how long steering is given up that was not: the first time, and at most.
    pub(super) const GIVEN_UP: (Nanos, Nanos) = (Nanos::secs(4), Nanos::secs(64));
    /// Verdicts are about the tenants that had work, and the steering that there was, within this
    /// time; and the verdicts of so many other sets of tenants are remembered.
    pub(super) const RECENT: Nanos = LeasePolicy::RECENT;
    pub(super) const SETS: usize = 8;
    /// A gang's tenant that is alone on a device is looked at there after so long: whether the gang
    /// uses the device decides how its tenants are steered elsewhere. It must be less than
    /// `RECENT`.
    pub(super) const ASKED: Nanos = Nanos::secs(2);

    /// Lag from which the other tenants yield.
    pub(super) fn yield_at(&self) -> i64 {
        signed(self.slice) * 2
    }

    /// A tenant that leaves gaps and has been pending for this long gets nothing of its gaps: the
    /// others yield at half of that lag.
    pub(super) fn starved(&self) -> Nanos {
        Nanos(self.slice.0 * 4)
    }

    /// Lag from which the other tenants are held, and the largest lag of a tenant that leaves gaps.
    pub(super) fn hold_at(&self) -> i64 {
        signed(self.slice) * 5
    }

    /// Lag below which it is calm: the driver's own slices make tenants lag by up to one.
    pub(super) fn calm_below(&self) -> i64 {
        signed(self.slice)
    }

    /// How long the other tenants must have yielded before any is held.
    pub(super) fn patience(&self) -> Nanos {
        Nanos(self.slice.0 * 10)
    }

    /// Work that completes nothing for this long is billed by time: one operation takes longer than
    /// the driver's slice, so estimates would be wrong.
    pub(super) fn silent(&self) -> Nanos {
        Nanos(self.slice.0 * 4)
    }

    /// The work that all contexts of the yielding tenants together submit at a time. The pauses
    /// between their slices cost device time only while the tenant that is behind is not pending.
    /// So the rarer it is pending, the longer the slices, up to a quarter of the driver's slice:
    /// longer ones would keep the driver from switching at once. But each slice costs changes of
    /// contexts. Where these would cost too much, slices are longer.
    pub(super) fn yield_slice(&self, visits: &Visits) -> Nanos {
        let pauses = if visits.far {
            Self::PAUSES.1
        } else {
            Self::PAUSES.0
        };
        let absent = 1000_u64.saturating_sub(visits.presence);
        let wanted = Self::BUBBLE.0 * absent / pauses;
        let least = self.worthwhile(visits).max(self.least_slice());
        Nanos(wanted.clamp(least.0, least.0.max(self.slice.0 / 4)))
    }

    /// The shortest slice after which changes of contexts cost no more than they may. The driver's
    /// own slices set the part of the time that they cost in any case.
    fn worthwhile(&self, visits: &Visits) -> Nanos {
        let changes = self.switch.0 * (visits.visitors + visits.contexts);
        if changes == 0 {
            return Nanos::ZERO;
        }
        let bare = self.slice.0 * visits.contexts;
        if visits.dense {
            return Nanos(bare / 4);
        }
        let more = if visits.promised {
            Self::CHANGES.1
        } else {
            Self::CHANGES.0
        };
        let part = changes * 1000 / (bare + changes) + more;
        Nanos((changes * 1000 / part).saturating_sub(changes).min(bare))
    }

    /// How much less than another one the tenant that has the device may be behind before it is the
    /// other one's turn, where they take turns.
    pub(super) fn turn(&self) -> i64 {
        signed(self.slice)
    }

    /// The longest turn where they take turns.
    pub(super) fn longest_turn(&self) -> Nanos {
        Nanos(self.slice.0 * 4)
    }

    /// The same while its tenant is behind by its own bills, whatever is known of its service: a
    /// deep queue beside it fills its window however short its own turn is.
    pub(super) fn last_turn(&self) -> Nanos {
        Nanos(self.slice.0 * 16)
    }

    /// Work that has been pending for so long without a break is a queue, not a loop: one operation
    /// may have to wait for a slice of each of so many other tenants.
    pub(super) fn deep(&self, others: usize) -> Nanos {
        Nanos(self.slice.0 * (others as u64 + 2))
    }

    /// So many samples tell such a queue from a loop.
    pub(super) fn queue_samples(&self, others: usize) -> u64 {
        let time = self.deep(others).0 * 2;
        time.div_ceil(Self::TICK.0).min(Self::SAMPLES)
    }

    /// The longest time in which the driver gives the device to each context once, and to one of
    /// them again. So many thousandths of them are pending.
    pub(super) fn round(&self, pending: u64) -> Nanos {
        Nanos((self.slice.0 + self.switch.0).saturating_mul(pending / 1000 + 1))
    }

    /// The part of the time, in thousandths, that changes of contexts leave where several tenants
    /// have the device in turn, a slice of the driver's each.
    pub(super) fn between_changes(&self) -> u64 {
        scaled(1000, self.slice.0, self.slice.0 + self.switch.0)
    }

    /// The part (ns) of a `span` that a tenant's `own` contexts have where each has an even part
    /// and so many are `pending` in all; both in thousandths. From two contexts on the time that
    /// changes of contexts take is left out.
    pub(super) fn even(&self, span: Nanos, (own, pending): (u64, u64)) -> u64 {
        let even = scaled(span.0, own, pending.max(own).max(1000));
        let several = scaled(even, pending.clamp(1000, 2000) - 1000, 1000);
        even - several + scaled(several, self.between_changes(), 1000)
    }

    /// No slice is shorter.
    pub(super) fn least_slice(&self) -> Nanos {
        Nanos(self.slice.0 / 40)
    }
}
