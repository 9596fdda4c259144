//! The tenants of one device that may swap, and what their moves cost.

use super::link::Link;
use super::resident::Resident;
use super::terms::SwapPolicy;
use super::thrash::{Detector, Verdict};
use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// A single piece may take this many times what it should at the measured rate.
const ONE_PIECE: u64 = 4;
/// A move may take this many times its expected time in all.
const SLOW: u64 = 10;
/// Both are doubled so many times at most.
const DOUBLED: u32 = 3;

/// What moves of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) bytes: Bytes,
    /// It is managed memory. Pages that are on the host already, or that the program never touched,
    /// move in no time: what its moves take says nothing of other memory.
    pub(crate) paged: bool,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    residents: BTreeMap<TenantId, Resident>,
    link: Link,
    /// The same for managed memory.
    paged: Link,
    detector: Detector,
    /// When it was last said that the host is full.
    pub(crate) full_said: Option<Nanos>,
}

impl Rotation {
    pub(crate) fn get(&self, tenant: TenantId) -> Option<&Resident> {
        self.residents.get(&tenant)
    }

    pub(super) fn get_mut(&mut self, tenant: TenantId) -> Option<&mut Resident> {
        self.residents.get_mut(&tenant)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (TenantId, &Resident)> {
        let all = self.residents.iter();
        all.map(|(tenant, resident)| (*tenant, resident))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.residents.is_empty()
    }

    pub(super) fn add(&mut self, tenant: TenantId) {
        self.residents.entry(tenant).or_default();
    }

    pub(super) fn remove(&mut self, tenant: TenantId) -> Option<Resident> {
        self.residents.remove(&tenant)
    }

    /// So much left in this time. Returns what the thrash detector says; `moving` is the time of
    /// all moves until now.
    pub(crate) fn left(
        &mut self,
        (now, moving): (Nanos, Nanos),
        load: Load,
        took: Nanos,
    ) -> Option<Verdict> {
        self.link_mut(load).left(load.bytes, took);
        self.detector.moved(now, moving)
    }

    /// So much came back in this time.
    pub(crate) fn came(
        &mut self,
        (now, moving): (Nanos, Nanos),
        load: Load,
        took: Nanos,
    ) -> Option<Verdict> {
        self.link_mut(load).came(load.bytes, took);
        self.detector.moved(now, moving)
    }

    fn link_mut(&mut self, load: Load) -> &mut Link {
        match load.paged {
            true => &mut self.paged,
            false => &mut self.link,
        }
    }

    fn link(&self, load: Load) -> Link {
        match load.paged {
            true => self.paged.or(&self.link),
            false => self.link,
        }
    }

    /// How long a tenant with such a load stays at least once it entered. `urgent`: towards a
    /// tenant that ranks above it.
    pub(crate) fn stay(&self, load: Load, urgent: bool, terms: &SwapPolicy) -> Nanos {
        let times = if urgent {
            terms.urgent_stay
        } else {
            terms.stay
        };
        let cost = self.round_trip(load, terms).0;
        let stay = cost
            .saturating_mul(u64::from(times))
            .saturating_mul(self.detector.stretch());
        Nanos(stay).max(terms.stays.0).min(terms.stays.1)
    }

    /// How long such a load takes out and back.
    pub(crate) fn round_trip(&self, load: Load, terms: &SwapPolicy) -> Nanos {
        self.link(load).round_trip(load.bytes, terms.first_rate)
    }

    /// How long a move may report nothing of which so much is left: all of it may be one
    /// piece, a handle that the program made. Twice as long each time that was too short.
    pub(crate) fn patience(
        &self,
        (tenant, left): (TenantId, Load),
        out: bool,
        terms: &SwapPolicy,
    ) -> Nanos {
        let times = ONE_PIECE << if out { self.doubled(tenant) } else { 0 };
        self.silence(left, out, terms, times)
    }

    /// How long a tenant's memory may take to leave in all, of which so much is `left`. Twice as
    /// long each time that was too short: what has not left yet teaches no rate.
    pub(crate) fn whole(
        &self,
        (tenant, all): (TenantId, Load),
        left: Load,
        terms: &SwapPolicy,
    ) -> Nanos {
        let slow = self.round_trip(all, terms).0.saturating_mul(SLOW);
        let once = self.silence(left, true, terms, ONE_PIECE).0;
        let times = 1 << self.doubled(tenant);
        Nanos(once.saturating_add(slow).saturating_mul(times))
    }

    fn silence(&self, left: Load, out: bool, terms: &SwapPolicy, times: u64) -> Nanos {
        let time = self.link(left).one_way(left.bytes, out, terms.first_rate).0;
        terms.progress.max(Nanos(time.saturating_mul(times)))
    }

    fn doubled(&self, tenant: TenantId) -> u32 {
        self.get(tenant).map_or(0, Resident::slow).min(DOUBLED)
    }

    /// A round, in which each tenant of these `loads` leaves and the next one stays the longest
    /// stay of any.
    pub(crate) fn round(&self, loads: impl Iterator<Item = Load>, terms: &SwapPolicy) -> Round {
        let all = self.residents.values().filter(|one| !one.is_empty());
        let drain = all.map(|one| one.drains_for(terms)).max();
        let mut round = Round {
            spare: drain.unwrap_or(terms.drain.0) + terms.seal + terms.look_grace,
            ..Round::default()
        };
        for load in loads {
            round.stay = round.stay.max(self.stay(load, false, terms));
            round.copies = round.copies.max(self.round_trip(load, terms));
            round.steps += 1;
        }
        round
    }
}

/// A round of a device's rotation, as long as it takes at most: so many steps of a stay and its
/// moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    stay: Nanos,
    copies: Nanos,
    /// What drains, seals and looks may take beside the copies.
    spare: Nanos,
    steps: u64,
}

impl Round {
    pub(crate) fn time(&self) -> Nanos {
        self.all_of(self.step())
    }

    /// The same if drains, seals and looks take no time, as they nearly do.
    pub(crate) fn usual_time(&self) -> Nanos {
        self.all_of(self.stay + self.copies)
    }

    fn step(&self) -> Nanos {
        self.stay + self.copies + self.spare
    }

    fn all_of(&self, step: Nanos) -> Nanos {
        Nanos(step.0.saturating_mul(self.steps))
    }

    /// One step of it, or less: after that there is time for moves until the round is over.
    pub(crate) fn step_before_moves(&self) -> Nanos {
        self.step().min(self.time() - (self.copies + self.spare))
    }
}
