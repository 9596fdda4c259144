//! Frees that the program was told are done, and whose memory may be in use: no mark could be put
//! behind all work for long ([`behind`](super::behind)). The memory stays in the books, and
//! charged, until that work is known to be over. The mover's thread looks.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::behind::Behind;
use crate::guest::fork::ForkLocal;

struct Later {
    work: Behind,
    then: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.work.fmt(f)
    }
}

static LIST: ForkLocal<Mutex<Vec<Later>>> = ForkLocal::new();

fn list(of: &Mutex<Vec<Later>>) -> MutexGuard<'_, Vec<Later>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the mover's thread give memory back by `then` once this work is over, while nothing is
/// sealed.
pub(super) fn put(work: Behind, then: impl FnOnce() + Send + 'static) {
    let then = Box::new(then);
    list(LIST.get_or(Mutex::default)).push(Later { work, then });
}

/// Gives back what can be. For the mover's thread, while nothing is sealed.
pub(super) fn again() {
    let Some(of) = LIST.get() else { return };
    let taken = core::mem::take(&mut *list(of));
    for mut later in taken {
        if later.work.is_passed() {
            (later.then)();
        } else {
            list(of).push(later);
        }
    }
}
