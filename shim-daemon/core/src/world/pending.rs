//! An ask that is not answered yet.

use crate::ids::{ContainerId, DeviceId};
use crate::ledger::Account;
use crate::resolver::Resolver;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// What is wanted. Bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// A context: overhead.
    Context {
        /// What it is expected to take.
        cost: Bytes,
    },
    /// A grant of `held` and `bytes` together.
    Credit {
        /// What the container has charged.
        held: Bytes,
        /// What is wanted beside it.
        bytes: Bytes,
    },
    /// Memory the driver refused though it was granted.
    Physical {
        /// What the container has charged, with it.
        held: Bytes,
        /// Its size.
        bytes: Bytes,
    },
}

impl Want {
    /// Whether it is covered by the request.
    pub(super) fn guaranteed(self, account: &Account) -> bool {
        match self {
            Self::Context { .. } => account.overhead.is_zero() && !account.promise.is_zero(),
            Self::Credit { held, bytes } => held + bytes <= account.request,
            Self::Physical { held, .. } => held <= account.request,
        }
    }

    /// Whether it fits the limit but for what its tenant's dead still hold of it.
    pub(super) fn beside_dead(self, account: &Account) -> bool {
        matches!(self, Self::Credit { held, bytes } if held + bytes > account.ceiling())
    }
}

impl Pending {
    /// Whether what is on its way to the device is enough for it, as last looked.
    pub(super) fn counts_on_coming(&self) -> bool {
        matches!(self.told, Some(by) if by != Some(Resolver::Wait))
    }
}

/// Who was named in the `Waiting` notices of an ask, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said(u8);

impl Said {
    /// Notes one; says whether it is new.
    pub(super) fn add(&mut self, by: Option<Resolver>) -> bool {
        let bit = match by {
            None => 1,
            Some(Resolver::Fail) => 2,
            Some(Resolver::Wait) => 4,
            Some(Resolver::Priority) => 8,
        };
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }
}

/// Who waits, for what, until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) container: ContainerId,
    pub(super) device: DeviceId,
    pub(super) want: Want,
    pub(super) since: Nanos,
    pub(super) until: Nanos,
    /// Beyond that it is not made to wait even within its request.
    pub(super) latest: Nanos,
    /// What it waits for as last looked: `None` before that, then who decided so.
    pub(super) told: Option<Option<Resolver>>,
    /// All that was given in a notice so far: each state is told once.
    pub(super) said: Said,
    /// What others would have to free, beyond all that is on its way. Zero unless `wait` decided.
    pub(super) short: Bytes,
    /// Since when nobody who could free that is running.
    pub(super) stuck: Option<Nanos>,
}
