//! The end of the process: nothing of this library's own calls the driver once the driver's exit
//! handlers run.
//!
//! Exit handlers run in the reverse order of their registration. The driver registers its own while
//! it is initialised; ours is registered after that, and so runs before it, and after all handlers
//! that the program registers later: in those the program may still use CUDA, and turns and caps
//! still hold. From then on the gate thread calls nothing, launches go straight to the driver, and
//! a launch that waited for a turn is not made any more. Processes that end without exit handlers
//! (`_exit`, `quick_exit`, a signal) have no teardown either. A forked child inherits the handler,
//! and has no gate thread that it could stop.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::guest::fork::ForkLocal;
use crate::guest::sys;

/// A registered handler, and its callback.
#[derive(Debug)]
struct Watch {
    registered: AtomicBool,
    stop: fn(),
}

/// In a forked child that begins CUDA anew, behind that driver's handler once more.
static WATCHING: ForkLocal<Watch> = ForkLocal::new();
/// The handler has run.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// The thread that runs the handlers; 0: none does.
static ENDING: AtomicI64 = AtomicI64::new(0);
/// How long a thread is held whose call is not made any more. Most processes end within that time.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Another thread of ours to stop.
static BESIDE: ForkLocal<fn()> = ForkLocal::new();
/// What is said of the process when it ends.
static LAST: ForkLocal<fn()> = ForkLocal::new();

thread_local! {
    // Const and without a destructor.
    static OURS: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Registers the handler, which has `stop` stop this library's own threads. Called when the driver
/// has been initialised.
pub(crate) fn watch(stop: fn()) {
    let watch = WATCHING.get_or(|| Watch {
        registered: AtomicBool::new(false),
        stop,
    });
    if watch.registered.swap(true, Ordering::AcqRel) {
        return;
    }
    if !sys::at_exit(leave) {
        tracing::warn!("no exit handler: the gate thread goes on until the process is gone");
    }
}

/// Has the handler stop one more thread, by `stop`.
pub(crate) fn watch_beside(stop: fn()) {
    BESIDE.set(stop);
}

/// Has the handler call `say` in the end. Only the first one counts.
pub(crate) fn say_last(say: fn()) {
    LAST.get_or(|| say);
}

extern "C" fn leave(_: *mut c_void) {
    // In a forked child that has not begun CUDA anew there is nothing to stop.
    if let Some(watch) = WATCHING.get()
        && !LEAVING.swap(true, Ordering::SeqCst)
    {
        ENDING.store(sys::this_thread(), Ordering::SeqCst);
        (watch.stop)();
        if let Some(stop) = BESIDE.get() {
            stop();
        }
        if let Some(say) = LAST.get() {
            say();
        }
    }
}

/// A forked child does not end with its parent. A store.
pub(crate) fn after_fork_in_child() {
    LEAVING.store(false, Ordering::Relaxed);
    ENDING.store(0, Ordering::Relaxed);
}

/// Holds the calling thread, whose call is not made any more because the process ends: its program
/// need not see the error. It is held once. The thread that runs the exit handlers is not held:
/// the process ends when it is done.
pub(crate) fn hold() {
    if ENDING.load(Ordering::SeqCst) != sys::this_thread() && !HELD.replace(true) {
        std::thread::sleep(LAST_WAIT);
    }
}

/// Whether the process ends, and the driver is or will soon be torn down.
#[inline]
pub(crate) fn is_leaving() -> bool {
    LEAVING.load(Ordering::Relaxed)
}

/// The calling thread is one of this library's own.
pub(crate) fn is_ours() {
    OURS.set(true);
}

/// Whether the calling thread may not call the driver any more.
#[inline]
pub(crate) fn forbids() -> bool {
    is_leaving() && is_this_ours()
}

// By itself, so that a call which is not forbidden does not look for the variable.
#[cold]
#[inline(never)]
fn is_this_ours() -> bool {
    OURS.get()
}
