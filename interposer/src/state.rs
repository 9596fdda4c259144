//! The library's life in one process: a named state machine, started by the first hooked call and by nothing earlier.
//!
//! # Safety
//! `unsafe` calls libc without pointers, apart from one `write` of a buffer that outlives it.
#![allow(
    unsafe_code,
    reason = "libc calls: auxv, fork handler, one line on stderr"
)]

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No hooked call yet; also a forked child before its first one.
    Fresh = 0,
    /// One thread is starting the library, others wait.
    Starting = 1,
    /// At work.
    Active = 2,
    /// Stepped aside for good: a privileged program, or `GPUSHARE_DISABLE=1`.
    Inactive = 3,
    /// The limits cannot be had; CUDA is refused rather than given without a limit.
    Refused = 4,
}

/// Why a hook steps aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// A call from inside one of our own hooks (the driver calling itself, a callback).
    Nested,
    /// [`Phase::Inactive`].
    Inactive,
    /// [`Phase::Refused`].
    Refused,
    /// Another thread's start did not end within [`START_LIMIT`].
    StartTimedOut,
}

/// How long a call waits for another thread's start.
const START_LIMIT: Duration = Duration::from_secs(15);

static PHASE: AtomicU8 = AtomicU8::new(Phase::Fresh as u8);

thread_local! {
    // Const and without a destructor, so that it is there in signal handlers and after other destructors ran.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Proof that this thread is inside a hook and the library is at work; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Admitted(());

impl Drop for Admitted {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Asks to run a hook's body. One load once the library is at work.
#[inline]
pub(crate) fn admit() -> Result<Admitted, Aside> {
    if INSIDE.get() {
        return Err(Aside::Nested);
    }
    if PHASE.load(Ordering::Acquire) != Phase::Active as u8 {
        settle()?;
    }
    INSIDE.set(true);
    Ok(Admitted(()))
}

fn phase() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Fresh,
        1 => Phase::Starting,
        2 => Phase::Active,
        3 => Phase::Inactive,
        _ => Phase::Refused,
    }
}

/// Starts the library or waits for the thread that does.
#[cold]
fn settle() -> Result<(), Aside> {
    let began = Instant::now();
    loop {
        match phase() {
            Phase::Active => return Ok(()),
            Phase::Inactive => return Err(Aside::Inactive),
            Phase::Refused => return Err(Aside::Refused),
            Phase::Fresh => start(),
            Phase::Starting if began.elapsed() > START_LIMIT => return Err(Aside::StartTimedOut),
            Phase::Starting => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

fn start() {
    let (fresh, starting) = (Phase::Fresh as u8, Phase::Starting as u8);
    if PHASE
        .compare_exchange(fresh, starting, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    INSIDE.set(true);
    let end = catch_unwind(AssertUnwindSafe(prepare)).unwrap_or(Phase::Refused);
    INSIDE.set(false);
    PHASE.store(end as u8, Ordering::Release);
}

/// Everything that happens once in a process, and again in a forked child.
fn prepare() -> Phase {
    if is_secure() || std::env::var_os("GPUSHARE_DISABLE").is_some_and(|value| value == "1") {
        return Phase::Inactive;
    }
    // This copy of std is the library's own: the program's panics are not affected, ours print nothing.
    std::panic::set_hook(Box::new(
        |panic| tracing::error!(%panic, "a defect in gpushare"),
    ));
    crate::log::open();
    watch_forks();
    tracing::info!(pid = std::process::id(), "gpushare started");
    Phase::Active
}

/// True in a program that runs with more rights than its user: set-user-id, file capabilities. Nothing of ours runs there.
pub(crate) fn is_secure() -> bool {
    static SECURE: AtomicU8 = AtomicU8::new(0);
    match SECURE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: reads the auxiliary vector the kernel gave the process.
            let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
            SECURE.store(1 + u8::from(secure), Ordering::Relaxed);
            secure
        }
        known => known == 2,
    }
}

/// Has forked children start anew. Handlers are inherited, so once per process tree is enough.
fn watch_forks() {
    static WATCHING: AtomicU8 = AtomicU8::new(0);
    if WATCHING.swap(1, Ordering::AcqRel) == 0 {
        // SAFETY: the handler only stores to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Runs in a child right after fork, where locks may be held by threads that are gone: stores only.
extern "C" fn forked() {
    if matches!(phase(), Phase::Active | Phase::Starting) {
        PHASE.store(Phase::Fresh as u8, Ordering::Release);
    }
    INSIDE.set(false);
}
