//! What a container's page stands on: a file among processes of one user, or a daemon.
//!
//! This is the one place where the two differ: who is alive, what credit may be had in all, and what can still be done
//! before a charge is refused.

use std::io;
use std::time::Duration;

use gpushare_protocol::page::{NO_LIMIT, UNIT, units_within};

use super::file::{self, FileLock, UsageFile};
use super::grow::Asking;
use super::join::Membership;
use super::limbo;
use crate::driver::captures;
use crate::session::{Bound, Deadline, Session, Waiting};

/// Something with a container lock.
pub(crate) trait Lockable {
    /// Tries to take it, without waiting. `None` if another process or thread holds it.
    ///
    /// # Errors
    /// If what it lies on is gone.
    fn try_lock(&self) -> io::Result<Option<FileLock>>;
}

impl Lockable for UsageFile {
    fn try_lock(&self) -> io::Result<Option<FileLock>> {
        Self::try_lock(self)
    }
}

/// See the module's page.
#[derive(Debug)]
pub(crate) enum Backend {
    /// A file; its locks say who lives.
    File(UsageFile),
    /// A daemon, which says who lives, clears the slots of the dead and grants what may be held.
    Daemon(&'static Session),
}

impl Lockable for Backend {
    fn try_lock(&self) -> io::Result<Option<FileLock>> {
        match self {
            Self::File(file) => file.try_lock(),
            Self::Daemon(session) => {
                let (path, identity) = session.usage()?;
                file::try_lock_opened(&path, identity)
            }
        }
    }
}

/// What is left of a charge's ways to wait.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    asking: Asking,
    call: &'a Deadline,
    bound: Option<Bound>,
    /// Times the daemon was asked although the limit seemed to be reached.
    beyond: u8,
}

/// The most of these times: who dies meanwhile is rare.
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

    /// How long the next attempt may wait for the container's lock.
    pub(super) fn for_lock(&self, member: &Membership) -> Duration {
        match self.asking {
            // The caller keeps others waiting itself.
            Asking::Never => self.call.lock_patience(Duration::ZERO),
            Asking::Now | Asking::Waiting => member.backend.lock_patience(self.call),
        }
    }
}

/// A charge that did not fit, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) column: usize,
    /// The limit; what is above it fits never.
    pub(super) limit: u64,
    /// What was charged by all.
    pub(super) charged: u64,
    /// What of it was charged by this process.
    pub(super) own: u64,
    /// What was wanted.
    pub(super) units: u32,
}

impl Short {
    /// Whether it would fit if other processes held nothing: one of them may have died, which only
    /// the daemon knows.
    fn may_be_the_deads(&self) -> bool {
        self.own + u64::from(self.units) <= self.limit
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

impl Backend {
    /// Whether a daemon keeps the page.
    pub(crate) fn is_daemons(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// Whether the process of a taken slot lives, as far as it is our business.
    pub(crate) fn is_alive(&self, slot: usize) -> bool {
        match self {
            Self::File(file) => file.is_alive(slot),
            Self::Daemon(_) => true,
        }
    }

    /// Units of credit that all processes may hold on a column together; `None` without an end.
    pub(super) fn ceiling(&self, column: usize, limit: u64) -> Option<u64> {
        match self {
            Self::File(_) if limit == NO_LIMIT => None,
            Self::File(_) => Some(units_within(limit)),
            Self::Daemon(session) => Some(units_within(limit.min(session.grant(column)))),
        }
    }

    /// What the container's charges could come to if it asked now.
    pub(crate) fn reach(&self, column: usize) -> Option<u64> {
        match self {
            Self::File(_) => None,
            Self::Daemon(session) => session.reach(column),
        }
    }

    /// Whether giving back is somebody's business beside the page's.
    pub(super) fn freed(&self, column: usize) {
        if let Self::Daemon(session) = self {
            session.freed(column);
        }
    }

    /// Does what can be done, and waits as long as that takes. `true` if it is worth trying again. Not under the container lock.
    pub(super) fn make_room(
        &self,
        member: &Membership,
        short: Short,
        patience: &mut Patience<'_>,
    ) -> bool {
        let wanted = short.charged + u64::from(short.units);
        match self {
            Self::File(_) => limbo::wait(member, &short, patience.call),
            Self::Daemon(_) if patience.asking == Asking::Never => false,
            Self::Daemon(_) if wanted > short.limit && !short.may_be_the_deads() => false,
            Self::Daemon(session) => {
                if wanted > short.limit {
                    patience.beyond += 1;
                    // Only a daemon could say that siblings have died: without one the limit is
                    // reached.
                    if patience.beyond > BEYOND || !session.is_connected() {
                        return false;
                    }
                }
                // Within its request a container is served by taking back what others borrowed: that is waited for at once.
                let guaranteed = wanted <= units_within(member.request(short.column));
                let waiting = match patience.asking {
                    _ if guaranteed => Waiting::Guaranteed,
                    Asking::Waiting => Waiting::AsLimitsSay,
                    _ => Waiting::Not,
                };
                let bound = patience
                    .bound
                    .get_or_insert_with(|| session.bound(here(waiting), patience.call.began()));
                let (held, bytes) = (short.charged * UNIT, u64::from(short.units) * UNIT);
                session.ask_for(short.column, (held, bytes), bound, patience.call)
            }
        }
    }

    /// How long one call may wait for the container's lock.
    pub(super) fn lock_patience(&self, call: &Deadline) -> Duration {
        call.lock_patience(match self {
            Self::File(_) => Duration::MAX,
            Self::Daemon(session) => session.longest_wait(),
        })
    }
}
