//! Taking the tenant lock: never without a bound, because it is taken inside other people's
//! programs.
//!
//! Two layers. A mutex keeps the threads of this process in line, so that only one of them polls
//! the file; the file's lock keeps the processes in line, and the kernel frees it when its holder
//! dies. A holder that was *stopped* keeps it: then growth fails after [`PATIENCE`], while charges
//! within credit and all frees go on.

use std::io;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::lock_file::{LockFile, Lockable};
use crate::guest::frames::Undisturbed;

/// Longest wait for the lock.
pub(crate) const PATIENCE: Duration = crate::session::LOCK_PATIENCE;

/// First and longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

/// Both layers, held.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    // Dropped in this order: the file's lock first.
    lock: Lock,
    threads: MutexGuard<'a, LockFile>,
    _undisturbed: Undisturbed,
}

/// The file by which the lock is held.
#[derive(Debug)]
enum Lock {
    /// The process's own, which stays open.
    Kept,
    /// One for this taking alone, closed when dropped.
    Once(LockFile),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match self.lock {
            Lock::Kept => self.threads.unlock(),
            Lock::Once(ref mut file) => file.unlock(),
        }
    }
}

/// Why the lock could not be had.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// Another process held it for the whole of [`PATIENCE`].
    Busy,
    /// The usage file is gone or was replaced.
    Lost(io::Error),
}

/// Takes the tenant lock of `file`, among the threads by `threads`.
///
/// # Errors
/// [`Unavailable`] after [`PATIENCE`], or at once if the file is lost.
pub(crate) fn take<'a>(
    file: &impl Lockable,
    threads: &'a Mutex<LockFile>,
) -> Result<Held<'a>, Unavailable> {
    take_within(file, threads, PATIENCE)
}

/// As [`take`], with another bound.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_within<'a>(
    file: &impl Lockable,
    threads: &'a Mutex<LockFile>,
    patience: Duration,
) -> Result<Held<'a>, Unavailable> {
    take_by(threads, patience, |kept| {
        Ok(kept.try_lock(file)?.then_some(Lock::Kept))
    })
}

/// As [`take`], for a thread whose descriptors may be its own: the kept one's number means nothing
/// there, and one that it opens means nothing to the other threads.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_apart<'a>(
    file: &impl Lockable,
    threads: &'a Mutex<LockFile>,
) -> Result<Held<'a>, Unavailable> {
    take_by(threads, PATIENCE, |_| {
        let mut once = LockFile::once();
        Ok(once.try_lock(file)?.then_some(Lock::Once(once)))
    })
}

/// Polls by `attempt`, which is `None` while another process holds the lock.
fn take_by(
    threads: &Mutex<LockFile>,
    patience: Duration,
    attempt: impl Fn(&mut LockFile) -> io::Result<Option<Lock>>,
) -> Result<Held<'_>, Unavailable> {
    let mut wait = Wait::new(patience);
    loop {
        // Nothing is held in a pause: the thread may jump out of it, but of nothing else.
        let undisturbed = Undisturbed::begin();
        let taken = match threads.try_lock() {
            Ok(guard) => Some(guard),
            // A thread panicked while it held the lock; the file is looked at before each use.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut threads) = taken {
            match attempt(&mut threads) {
                Ok(Some(lock)) => {
                    return Ok(Held {
                        lock,
                        threads,
                        _undisturbed: undisturbed,
                    });
                }
                Ok(None) => {}
                Err(error) => return Err(Unavailable::Lost(error)),
            }
        }
        drop(undisturbed);
        wait.pause()?;
    }
}

/// Pauses that grow, up to an end.
struct Wait {
    end: Instant,
    next: Duration,
}

impl Wait {
    fn new(patience: Duration) -> Self {
        Self {
            end: Instant::now() + patience,
            next: PAUSES.0,
        }
    }

    fn pause(&mut self) -> Result<(), Unavailable> {
        if Instant::now() >= self.end {
            return Err(Unavailable::Busy);
        }
        crate::guest::frames::sleep(self.next);
        self.next = (self.next * 2).min(PAUSES.1);
        Ok(())
    }
}
