//! Frees that the program was told are done, and whose memory may be in use: no mark could be put
//! behind all work for long ([`behind`](super::behind)). The memory stays in the books, and
//! charged, until that work is known to be over. The mover's thread looks, and is woken where the
//! host waits, and before an allocation is refused.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::behind::Behind;
use super::thread;
use crate::account;
use crate::gate::seal;
use crate::guest::fork::ForkLocal;
use crate::holdings::frees;

struct Later {
    work: Behind,
    then: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.work.fmt(f)
    }
}

#[derive(Debug, Default)]
struct Laters {
    /// Those whose work is not known to be over, also while the thread looks at them.
    count: AtomicUsize,
    list: Mutex<Vec<Later>>,
}

static LATERS: ForkLocal<Laters> = ForkLocal::new();

impl Laters {
    fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn list(&self) -> MutexGuard<'_, Vec<Later>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the mover's thread give memory back by `then` once this work is over, while nothing is
/// sealed.
pub(super) fn put(work: Behind, then: impl FnOnce() + Send + 'static) {
    let then = Box::new(then);
    let laters = LATERS.get_or(Laters::default);
    laters.count.fetch_add(1, Ordering::AcqRel);
    laters.list().push(Later { work, then });
    // The host's next wait is followed.
    frees::freed();
}

/// Has the mover's thread look at once, unless the process is sealed, if there is anything to give
/// back. Whether there is. Neither waits nor calls the driver.
pub(super) fn hurry() -> bool {
    let has_any = LATERS.get().is_some_and(Laters::has_any);
    if has_any
        && !seal::is_set()
        && let Some(session) = account::compute().and_then(|compute| compute.session)
    {
        thread::wake(session);
    }
    has_any
}

/// Gives back what can be. For the mover's thread, while nothing is sealed.
pub(super) fn again() {
    let Some(laters) = LATERS.get() else { return };
    let taken = core::mem::take(&mut *laters.list());
    for mut later in taken {
        if later.work.is_passed() {
            laters.count.fetch_sub(1, Ordering::AcqRel);
            (later.then)();
        } else {
            laters.list().push(later);
        }
    }
}
