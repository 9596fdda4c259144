//! A tenant on a shared device: its terms, its processes, and what it has had against its share.

use super::super::bucket::Bucket;
use super::super::promise::Promise;
use super::super::terms::Compute;
use super::super::word::Lease;
use super::Work;
use super::gang::Bond;
use super::rules::{Rules, signed};
use crate::ids::ProcessId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// What a tenant's gates are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing binds and nothing is noted.
    Free,
    /// Open; what is submitted is noted.
    Noted,
    /// Open, so much at a time.
    Slice(Nanos),
    /// Closed.
    Shut,
}

/// A process as its reports and its pages describe it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Its gate can be closed.
    pub(super) gated: bool,
    /// Its connection has ended: it says nothing, and its gate is open.
    pub(super) away: bool,
    /// It said that it has nothing to do.
    pub(super) idle: bool,
    /// A call waits at its closed gate.
    pub(super) waits: bool,
    /// It closed and what it had submitted is complete.
    pub(super) drained: bool,
    /// Its page at the last sample.
    pub(super) seen: Work,
}

/// What a tenant did since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Nanoseconds of service it claims.
    pub(super) service: u64,
    /// For how much of the time work was pending, in thousandths.
    pub(super) pending: u64,
    /// The service is mostly guessed.
    pub(super) guessed: bool,
}

/// Whether a tenant says that work of its is pending that does not run: its process was stopped, or waits for something
/// other than the device. Its neighbours then have the device's whole time while it should have its part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    pub(super) is: bool,
    /// How long it has been open, silent and beside others, and what they had in that time.
    watched: Nanos,
    others: Nanos,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) class: u16,
    pub(super) compute: Compute,
    pub(super) weight: u64,
    pub(super) members: BTreeMap<ProcessId, Member>,
    pub(super) bucket: Option<Bucket>,
    pub(super) promise: Option<Promise>,
    /// Its guarantee against higher classes is due, and is until it has been paid.
    pub(super) due: bool,
    /// Nanoseconds of service that it is behind its share of its class; negative if ahead.
    pub(super) lag: i64,
    /// Nanoseconds of service that lower classes had while it was pending.
    pub(super) passed_over: i64,
    /// Nanoseconds billed by time for operations that are not complete.
    pub(super) advance: u64,
    /// How long it has been pending without completing anything, and whether that is billed by time.
    pub(super) silent: Nanos,
    pub(super) by_time: bool,
    pub(super) stuck: Stuck,
    /// The most service it may still claim: it grows with the time.
    pub(super) room: u64,
    /// How much longer claims of unknown service leave its lag alone.
    pub(super) unknown: Nanos,
    /// Service had, and time in which nothing was pending, lately: both halved now and then.
    pub(super) solo: u64,
    pub(super) think: u64,
    /// The part of the time it is pending, lately, in thousandths.
    pub(super) presence: u64,
    /// When work was last seen pending.
    pub(super) pending_at: Option<Nanos>,
    pub(super) gate: Gate,
    /// Its membership of a gang.
    pub(super) bond: Option<Bond>,
    /// Its cap allows nothing now.
    pub(super) dry: bool,
    pub(super) epoch: u64,
    pub(super) said: Lease,
    /// All it was billed for.
    pub(super) held: Nanos,
    /// When its gate last changed.
    pub(super) since: Nanos,
    /// Times it was held.
    pub(super) holds: u64,
    /// Whether it was told that a process of it passes no gate.
    pub(super) told_ungated: bool,
}

impl Tenant {
    pub(super) fn new(class: u16, compute: Compute, (epoch, now): (u64, Nanos)) -> Self {
        Self {
            class,
            compute,
            weight: super::super::clock::WHOLE,
            members: BTreeMap::new(),
            bucket: compute.cap().map(Bucket::new),
            promise: compute.request.map(Promise::new),
            due: false,
            lag: 0,
            passed_over: 0,
            advance: 0,
            silent: Nanos::ZERO,
            by_time: false,
            stuck: Stuck::default(),
            room: 0,
            unknown: Rules::UNKNOWN,
            solo: 0,
            think: 0,
            presence: 0,
            pending_at: None,
            gate: Gate::Noted,
            bond: None,
            dry: false,
            epoch,
            said: Lease::FREE,
            held: Nanos::ZERO,
            since: now,
            holds: 0,
            told_ungated: false,
        }
    }

    fn gated(&self) -> impl Iterator<Item = &Member> {
        let members = self.members.values();
        members.filter(|member| member.gated && !member.away)
    }

    /// Whether a process that can be steered has not said that it is idle.
    pub(super) fn is_active(&self) -> bool {
        self.gated().any(|member| !member.idle)
    }

    /// Whether its closed gates hold nothing under way any more.
    pub(super) fn is_drained(&self) -> bool {
        self.gated().all(|member| member.drained)
    }

    /// Whether its gang is closed for the sake of another device than this one.
    pub(super) fn is_barred(&self) -> bool {
        let bond = self.bond;
        bond.is_some_and(|bond| bond.shut && bond.wish.is_none())
    }

    /// Whether what its gang left on the device when it was closed occupies it, waiting for a peer that was not launched.
    pub(super) fn spins(&self) -> bool {
        self.bond.is_some() && self.gate == Gate::Shut && !self.is_drained()
    }

    pub(super) fn waits(&self) -> bool {
        self.members.values().any(|member| member.waits)
    }

    /// Whether it asks for the device, or did a moment ago.
    pub(super) fn is_pending(&self, now: Nanos) -> bool {
        self.waits() || self.pending_at.is_some_and(|at| now <= at + Rules::LATELY)
    }

    /// Whether its work may run on the device now, or did a moment ago.
    pub(super) fn may_run(&self, now: Nanos) -> bool {
        let shut = self.gate == Gate::Shut && self.is_drained();
        !shut && self.is_pending(now)
    }

    /// Whether it would keep the device nine tenths busy by itself.
    pub(super) fn is_dense(&self) -> bool {
        let all = self.solo + self.think;
        all >= Nanos::millis(20).0 && self.solo * 10 >= all * 9
    }

    /// How far it is behind what it is promised, for comparison.
    pub(super) fn behind(&self) -> i64 {
        self.lag.saturating_add(self.passed_over)
    }

    /// What it did in the last `span`: so much service, pending for so much of it.
    pub(super) fn note(&mut self, now: Nanos, span: Nanos, bill: u64, pending: u64) {
        if pending > 0 {
            self.pending_at = Some(now);
        }
        self.solo += bill;
        self.think += span.0 * (1000 - pending) / 1000;
        if self.solo + self.think > Nanos::millis(200).0 {
            (self.solo, self.think) = (self.solo / 2, self.think / 2);
        }
        // A mean over some 20 samples.
        self.presence = (self.presence * 19 + pending) / 20;
        self.held = self.held + Nanos(bill);
    }

    /// While it completes nothing: whether others had so much of the time (`others` of `span`) that it cannot have had half of
    /// its even part. `beside` is who was pending, in thousandths.
    pub(super) fn watch(&mut self, (span, beside): (Nanos, u64), others: u64) {
        if self.silent == Nanos::ZERO || self.gate == Gate::Shut || beside < 1500 {
            return;
        }
        let stuck = &mut self.stuck;
        stuck.watched = stuck.watched + span;
        stuck.others = stuck.others + Nanos(others);
        let half = stuck.watched.0 * 500 / beside;
        stuck.is = stuck.watched >= Rules::STUCK && (stuck.watched - stuck.others).0 < half;
    }

    /// Keeps its lag within what is remembered. Who leaves gaps can be owed no more than starts a hold.
    pub(super) fn bound(&mut self, rules: &Rules) {
        let most = if self.is_dense() {
            signed(Rules::MOST)
        } else {
            rules.hold_at()
        };
        self.lag = self.lag.clamp(-signed(Rules::MOST), most);
        self.passed_over = self.passed_over.clamp(0, rules.hold_at());
    }

    /// Time passes in which it asks for nothing.
    pub(super) fn fade(&mut self, span: Nanos) {
        let part = |lag: i64| {
            let gone = i128::from(lag) * i128::from(span.0) / i128::from(Rules::FADE.0);
            i64::try_from(gone).unwrap_or(lag).min(lag).max(1)
        };
        if self.lag > 0 {
            self.lag -= part(self.lag);
        } else {
            self.lag = (self.lag + signed(span) / Rules::PARDON).min(0);
        }
        if self.passed_over > 0 {
            self.passed_over -= part(self.passed_over);
        }
    }
}
