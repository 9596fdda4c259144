//! An ask that is not answered yet.

use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::resolver::Resolver;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// The wanted memory. Bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// A context: overhead.
    Context {
        /// Its expected memory.
        cost: Bytes,
        /// It is beside others that the process has, or has had.
        more: bool,
    },
    /// A grant of `held` and `bytes` together.
    Credit {
        /// The tenant's charges.
        held: Bytes,
        /// The bytes wanted beside them.
        bytes: Bytes,
    },
    /// Memory the driver refused though it was granted.
    Physical {
        /// The tenant's charges, including it.
        held: Bytes,
        /// Its size.
        bytes: Bytes,
        /// It is a context's, and no part of the charges.
        context: bool,
    },
}

impl Want {
    /// Whether it is covered by the request.
    pub(super) fn guaranteed(self, account: &Account) -> bool {
        match self {
            Self::Context { .. } => account.overhead.is_zero() && !account.promise.is_zero(),
            Self::Credit { held, bytes } => held + bytes <= account.request,
            // A request includes a first context.
            Self::Physical {
                bytes,
                context: true,
                ..
            } => !account.promise.is_zero() && account.overhead <= bytes,
            Self::Physical { held, .. } => held <= account.request,
        }
    }

    /// Whether it is a further context of its process.
    pub(super) fn is_more(self) -> bool {
        matches!(self, Self::Context { more: true, .. })
    }

    /// Whether the driver had no memory for a context.
    pub(super) fn is_refused_context(self) -> bool {
        matches!(self, Self::Physical { context: true, .. })
    }

    /// Whether it fits the limit except for memory that its tenant's dead processes still hold.
    pub(super) fn beside_dead(self, account: &Account) -> bool {
        matches!(self, Self::Credit { held, bytes } if held + bytes > account.ceiling())
    }
}

impl Pending {
    /// Whether the bytes on their way to the device suffice for it, at the last visit.
    pub(super) fn counts_on_coming(&self) -> bool {
        matches!(self.told, Some(by) if by != Some(Resolver::Wait))
    }
}

/// The resolvers named in the `Waiting` notices of an ask, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said(u8);

impl Said {
    /// Records a reason; returns whether it is new.
    pub(super) fn add(&mut self, by: Option<Resolver>) -> bool {
        let bit = match by {
            None => 1,
            Some(Resolver::Fail) => 2,
            Some(Resolver::Wait) => 4,
            Some(Resolver::Priority) => 8,
            Some(Resolver::Swap) => 16,
        };
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }
}

/// A waiting ask: its process, its want, its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) tenant: TenantId,
    pub(super) device: DeviceId,
    pub(super) want: Want,
    pub(super) since: Nanos,
    pub(super) until: Nanos,
    /// The same without what it was extended by.
    pub(super) own: Nanos,
    /// Beyond that it is not made to wait even within its request.
    pub(super) latest: Nanos,
    /// Its reason to wait at the last visit: `None` before that, then the resolver that decided so.
    pub(super) told: Option<Option<Resolver>>,
    /// All reasons reported so far: each is reported once.
    pub(super) said: Said,
    /// The bytes that other tenants would have to free, beyond all that are on their way. Zero
    /// unless `wait` decided.
    pub(super) short: Bytes,
    /// Since when no process runs that could free those bytes.
    pub(super) stuck: Option<Nanos>,
    /// Its turn in the rotation is certain: it waits for that, whatever its own time.
    pub(super) turn: bool,
}
