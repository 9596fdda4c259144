//! The steps before a charge is refused: waiting for dead processes' memory, or asking the daemon.

use std::time::Duration;

use gpushare_protocol::page::{UNIT, units_within};

use super::backend::Backend;
use super::join::Membership;
use super::limbo::{self, Short};
use crate::driver::captures;
use crate::session::{Bound, Deadline, Waiting};

/// How far a charge goes for a larger grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// Not at all: the caller holds a lock.
    Never,
    /// The daemon is asked for memory that can be had at once. Memory within the tenant's own
    /// request is waited for.
    Now,
    /// The thread waits as the tenant's limits say.
    Waiting,
}

/// The remaining waits of a charge.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    asking: Asking,
    call: &'a Deadline,
    bound: Option<Bound>,
    /// Times the daemon was asked although the limit seemed to be reached.
    beyond: u8,
}

/// The most of these times: processes rarely die meanwhile.
const BEYOND: u8 = 3;

impl<'a> Patience<'a> {
    pub(super) fn new(asking: Asking, call: &'a Deadline) -> Self {
        Self {
            asking,
            call,
            bound: None,
            beyond: 0,
        }
    }

    /// How long the next attempt may wait for the tenant's lock.
    pub(super) fn for_lock(&self, member: &Membership) -> Duration {
        match self.asking {
            // The caller holds up other threads itself.
            Asking::Never => self.call.lock_patience(Duration::ZERO),
            Asking::Now | Asking::Waiting => member.backend.lock_patience(self.call),
        }
    }
}

/// As much of the waiting as this thread may do.
pub(super) fn here(waiting: Waiting) -> Waiting {
    if waiting == Waiting::Not || captures::may_wait() {
        waiting
    } else {
        Waiting::Not
    }
}

/// Takes the possible steps, and waits as long as they take. Returns `true` if it is worth trying
/// again. Not under the tenant lock.
pub(super) fn make(member: &Membership, short: Short, patience: &mut Patience<'_>) -> bool {
    let wanted = short.charged + u64::from(short.units);
    match &member.backend {
        _ if patience.asking == Asking::Never => false,
        Backend::File(_) => limbo::wait(member, &short, patience.call),
        Backend::Daemon(_) if wanted > short.limit && !short.may_be_the_deads() => false,
        Backend::Daemon(session) => {
            if wanted > short.limit {
                patience.beyond += 1;
                // Only a daemon could say that siblings have died: without one the limit is
                // reached.
                if patience.beyond > BEYOND || !session.is_connected() {
                    return false;
                }
            }
            // Within its request a tenant is served by taking back borrowed memory: that is waited
            // for from the start.
            let guaranteed = wanted <= units_within(member.request(short.device_index));
            let waiting = match patience.asking {
                _ if guaranteed => Waiting::Guaranteed,
                Asking::Waiting => Waiting::AsLimitsSay,
                _ => Waiting::Not,
            };
            let bound = patience
                .bound
                .get_or_insert_with(|| session.bound(here(waiting), patience.call.began()));
            let (held, bytes) = (short.charged * UNIT, u64::from(short.units) * UNIT);
            session.ask_for(short.device_index, (held, bytes), bound, patience.call)
        }
    }
}
