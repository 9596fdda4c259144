//! A tenant's account on one device.

use crate::ids::ReclaimId;
use crate::residency::{Load, STORED, Stays};
use crate::room::Room;
use crate::spec::{Loan, Quota};
use gpushare_protocol::units::Bytes;

/// A reclaim under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lowering {
    pub(crate) reclaim_id: ReclaimId,
    /// The grant it is lowered to. Until it is confirmed, the old one counts.
    pub(crate) to: Bytes,
}

/// A tenant's allowance and usage on one device. All in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The device's, above which no limit reaches.
    capacity: Bytes,
    /// The guaranteed part.
    pub(crate) request: Bytes,
    /// The ceiling for new grants. After a `set` the grant may be above it until the tenant
    /// frees.
    pub(crate) limit: Bytes,
    /// Its grant under the previous daemon where that was above the limit, until its processes have
    /// presented what they hold of it.
    pub(crate) above: Bytes,
    /// The memory that its processes hold or may hold as credit. After a `set` it includes memory
    /// held above the limit.
    pub(crate) grant: Bytes,
    /// The last grant written to its control page: the grant, as far as the limit allows it beside
    /// its dead processes.
    pub(crate) page: Bytes,
    /// The part of the grant known or assumed to be charged.
    pub(crate) in_use: Bytes,
    /// Overhead reserved or measured, over its living processes.
    pub(crate) overhead: Bytes,
    /// Overhead of a first context, promised at admission and firm until one opens.
    pub(crate) promise: Bytes,
    /// Memory that the device shows beyond grant and overhead.
    pub(crate) excess: Bytes,
    /// Bytes of its dead processes.
    pub(crate) limbo: Bytes,
    /// The part of `limbo` that was charged: it counts against the limit.
    pub(crate) limbo_charged: Bytes,
    /// The part of `in_use` that its usage page shows free and the device did not when it was last
    /// looked at.
    pub(crate) late: Bytes,
    /// The held memory in its usage page when a reclaim last found a part of the rest late.
    pub(crate) judged: Option<Bytes>,
    /// The part of `in_use` that is on the host and not on the card.
    pub(crate) away: Bytes,
    /// The part of its memory that did not move when it was last moved, less what it has freed on
    /// the card since.
    residue: Bytes,
    /// The part that cannot move as its processes say, less what it has freed on the card since.
    told: Bytes,
    /// So much of that cannot move in any case: they would have said if it were less.
    least: Bytes,
    /// The part of `in_use` on the card that no list of the device's processes had when it was last
    /// looked at and none of it moved.
    pub(crate) unlisted: Bytes,
    /// The most of the grant that is booked on the card; the rest of managed memory counts as on
    /// the host. [`Bytes::MAX`] where memory is not managed.
    pub(crate) booked: Bytes,
    /// What was booked when the grant last grew or the tenant last came in: facts lower only
    /// `booked`, for as long as they last.
    pub(crate) meant: Bytes,
    /// How memory that it holds above its request may be taken back.
    pub(crate) loan: Loan,
    /// A reclaim under way.
    pub(crate) lowering: Option<Lowering>,
}

impl Account {
    /// An account without holdings. `cost` is the expected memory of a context; `capacity` the
    /// device's.
    pub(crate) fn new(quota: Quota, loan: Loan, cost: Bytes, capacity: Bytes) -> Self {
        let mut account = Self {
            capacity,
            booked: Bytes::MAX,
            meant: Bytes::MAX,
            ..Self::default()
        };
        account.set(quota, loan, cost);
        account
    }

    /// Changes the limits. A request includes a context.
    pub(crate) fn set(&mut self, quota: Quota, loan: Loan, cost: Bytes) {
        self.request = quota.request;
        self.limit = if loan.paged {
            quota.limit
        } else {
            quota.limit.min(self.capacity)
        };
        self.loan = loan;
        self.promise = if quota.request.is_zero() {
            Bytes::ZERO
        } else {
            self.promise.max(cost)
        };
    }

    /// The previous daemon had granted it so much, which is above its limit.
    pub(crate) fn had_above(&mut self, grant: Bytes) {
        self.above = if self.loan.paged {
            grant
        } else {
            grant.min(self.capacity)
        };
    }

    /// The most that is believed of what its processes present after a restart.
    pub(crate) fn most_presented(&self) -> Bytes {
        self.limit.max(self.above)
    }

    /// The most that its processes may hold as credit together: the limit, less the charged memory
    /// that its dead processes still hold.
    pub(crate) fn ceiling(&self) -> Bytes {
        self.limit - self.limbo_charged
    }

    /// The grant to write to its control page.
    pub(crate) fn page_due(&self) -> Bytes {
        let lowered = self.lowering.map_or(Bytes::MAX, |lowering| lowering.to);
        self.grant.min(self.ceiling()).min(lowered)
    }

    /// The reservation for a first context that is expected to take `cost`. If less turns out to be
    /// needed, the reservation shrinks; existing contexts count as overhead.
    pub(crate) fn promise_of(&self, cost: Bytes) -> Bytes {
        if self.promise.is_zero() {
            cost
        } else {
            self.promise.min(cost)
        }
    }

    /// Its part of both sums. To end a tenant takes back also what cannot move.
    pub(crate) fn room(&self) -> Room {
        let kept = match self.loan {
            Loan {
                revocable: false, ..
            } => self.grant,
            Loan { killable: true, .. } => self.grant.min(self.request),
            _ => self.kept(),
        };
        Room {
            taken: self.on_card() + self.overhead + self.excess + self.limbo,
            firm: self.firm_with(kept.min(self.booked)),
        }
    }

    /// The device memory that it needs and that cannot be moved to the host: as `firm`, with the
    /// loan of a tenant that can only be ended.
    pub(crate) fn fixed(&self) -> Bytes {
        let moves = self.loan.moves && self.loan.revocable;
        let kept = if moves { self.kept() } else { self.grant };
        self.firm_with(kept.min(self.booked))
    }

    /// The memory that it needs beside that while it is in: the loan of a tenant that others may
    /// move. `None`: it has no such loan, or it can run with any part of it on the host.
    pub(crate) fn movable(&self) -> Option<Bytes> {
        let moves = self.loan.moves && self.loan.revocable && !self.loan.paged;
        let loan = moves.then(|| self.grant - self.kept());
        loan.filter(|loan| !loan.is_zero())
    }

    /// The part of the grant that nothing takes back.
    fn kept(&self) -> Bytes {
        self.grant.min(self.request.max(self.stays()))
    }

    /// The part of its memory that cannot move: what a look has shown of it, or what its processes
    /// say.
    pub(crate) fn stays(&self) -> Bytes {
        self.residue.max(self.told)
    }

    /// So much did not move, as a look shows: what its processes say beyond that is wrong.
    pub(crate) fn seen_to_stay(&mut self, bytes: Bytes) {
        self.residue = bytes;
        self.told = self.told.min(bytes);
        self.least = self.least.min(bytes);
    }

    /// A process of the tenant says anew how much cannot move. Memory that the tenant has freed
    /// meanwhile may be part of what its other processes told of.
    pub(crate) fn told_to_stay(&mut self, stays: Stays) {
        let freed = (stays.before - self.told).min(stays.loose);
        self.told = stays.all - freed;
        self.least = stays.least;
    }

    /// The device memory beside its request that it was granted and that cannot be moved: contexts,
    /// and a loan that can only be ended.
    pub(crate) fn fixed_beside_request(&self) -> Bytes {
        let moves = self.loan.moves && self.loan.revocable;
        let grant = self.grant.min(self.booked) - self.request;
        self.overhead + if moves { Bytes::ZERO } else { grant }
    }

    fn firm_with(&self, kept: Bytes) -> Bytes {
        self.request.max(kept + self.limbo_charged + self.excess)
            + (self.overhead + self.limbo - self.limbo_charged).max(self.promise)
    }

    /// The account if its grant becomes `level`, of which `booked` may be on the card, or its
    /// overhead grows by `overhead`.
    pub(crate) fn grown(&self, level: Bytes, booked: Bytes, overhead: Bytes) -> Self {
        let mut grown = self.clone();
        if level > grown.grant {
            grown.grant = level;
            grown.book(booked);
        }
        grown.overhead += overhead;
        grown
    }

    /// So much may be booked on the card from now on.
    pub(crate) fn book(&mut self, booked: Bytes) {
        (self.booked, self.meant) = (booked, booked);
    }

    /// The part of the grant that is booked on the card.
    pub(crate) fn on_card(&self) -> Bytes {
        (self.grant - self.away).min(self.booked)
    }

    /// The part of the host budget that so much of its memory takes there, in the store's steps:
    /// managed memory is on the host in the processes' own memory.
    pub(crate) fn host_for(&self, bytes: Bytes) -> Bytes {
        if self.loan.paged {
            Bytes::ZERO
        } else {
            bytes.round_up(STORED)
        }
    }

    /// The part of the grant that its processes may have on the card: also what the driver lets
    /// managed memory take beyond what is booked.
    pub(crate) fn may_be_on_card(&self) -> Bytes {
        self.grant - self.away
    }

    /// The memory that ending the tenant would give back on this device.
    pub(crate) fn held(&self) -> Bytes {
        self.on_card() + self.overhead + self.excess
    }

    /// The memory in use according to the page.
    pub(crate) fn used_by_page(&self) -> Bytes {
        self.in_use - self.late
    }

    /// It has freed memory: before, its page showed so much in use and so much was away. What it
    /// freed on the card is taken for memory that could not move, as far as its processes would not
    /// have said so yet. An estimate that is too low by that may cost a move, which measures anew.
    /// One that is too high would keep the rest on the card for ever.
    pub(crate) fn lower_residue(&mut self, in_use: Bytes, away: Bytes) {
        let freed = (in_use - self.used_by_page()) - (away - self.away);
        self.residue -= freed;
        self.told = (self.told - freed).max(self.least);
    }

    /// The memory that ending the tenant would have the driver give back: grants that it does not
    /// use, and memory on the host, are none of it.
    pub(crate) fn held_by_driver(&self) -> Bytes {
        (self.in_use - self.away).min(self.booked) + self.overhead + self.excess
    }

    /// What is booked on the card for `held` bytes of its memory there, those of one process: each
    /// has the same part of its own.
    pub(crate) fn booked_of(&self, held: Bytes) -> Bytes {
        let all = (self.in_use - self.away).max(held);
        let bytes = u128::from(all.min(self.booked).0) * u128::from(held.0);
        let part = bytes / u128::from(all.0.max(1));
        Bytes(u64::try_from(part).unwrap_or(u64::MAX)).min(held)
    }

    /// The part of its memory in use that can move and is booked on the card: what does not move
    /// is there too.
    pub(crate) fn gives(&self) -> Bytes {
        self.in_use.min(self.booked) - self.stays()
    }

    /// What moves with it: the part of its memory in use that is booked on the card.
    pub(crate) fn load(&self) -> Load {
        self.load_of(self.in_use)
    }

    /// The same if it uses so much.
    pub(crate) fn load_of(&self, in_use: Bytes) -> Load {
        Load {
            bytes: in_use.min(self.booked),
            paged: self.loan.paged,
        }
    }

    /// Granted and not in use.
    pub(crate) fn unused(&self) -> Bytes {
        self.grant - self.in_use
    }

    /// Whether it holds borrowed bytes: only then it may be a victim (I3).
    pub(crate) fn over_request(&self) -> bool {
        self.in_use > self.request
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.in_use > self.grant {
            return Err(format!(
                "uses {:?} of a grant of {:?}",
                self.in_use, self.grant
            ));
        }
        if self.away > self.in_use {
            return Err(format!(
                "{:?} are away of {:?} in use",
                self.away, self.in_use
            ));
        }
        if self.page > self.grant.min(self.ceiling()) {
            return Err(format!(
                "I2: the page shows {:?} of a grant of {:?}; the limit is {:?} and the dead hold {:?} of it",
                self.page, self.grant, self.limit, self.limbo_charged
            ));
        }
        match self.lowering {
            Some(lowering) if lowering.to > self.grant => Err(format!(
                "is lowered to {:?} from {:?}",
                lowering.to, self.grant
            )),
            _ => Ok(()),
        }
    }
}
