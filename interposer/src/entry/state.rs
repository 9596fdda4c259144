//! The library's life in one process: a named state machine, started by the first hooked call and
//! by nothing earlier.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::account::law;
use crate::driver::{self, contexts};
use crate::guest::background::Uncancelled;
use crate::guest::frames::{self, Frame, Undisturbed};
use crate::guest::{late, sys};
use crate::holdings::objects::physical;

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No hooked call yet; also a forked child before its first one.
    Fresh = 0,
    /// One thread takes a step, others wait.
    Starting = 1,
    /// The environment is read and good; the driver has not been started.
    Prepared = 2,
    /// The driver runs and the tenant is joined.
    Active = 3,
    /// Stepped aside for good: a privileged program, or `GPUSHARE_DISABLE=1`.
    Inactive = 4,
    /// The limits cannot be had; CUDA is refused rather than given without a limit.
    Refused = 5,
}

/// How far the library must be for a hook's body to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The limits are known: [`Phase::Prepared`] or [`Phase::Active`].
    Limits,
    /// The account is open: [`Phase::Active`].
    Account,
}

/// Why a hook steps aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    /// A call from inside our own code: by a signal handler that interrupted it, or in a thread of
    /// ours.
    Nested,
    /// [`Phase::Inactive`].
    Inactive,
    /// [`Phase::Refused`].
    Refused,
    /// The driver is not initialised, and will say so itself.
    NoDriverYet,
    /// Another thread's step did not end within [`START_LIMIT`].
    StartTimedOut,
}

/// How long a call waits for another thread's step.
const START_LIMIT: Duration = Duration::from_secs(15);

static PHASE: AtomicU8 = AtomicU8::new(Phase::Fresh as u8);

/// Asks to run a hook's body, whose frame this is. The result is proof that this thread is inside a
/// hook and the library is active. Two loads once it is.
#[inline]
pub(crate) fn admit(need: Need, frame: &Frame) -> Result<frames::Inside<'_>, Bypass> {
    let inside = frames::enter(frame).ok_or(Bypass::Nested)?;
    if PHASE.load(Ordering::Acquire) != Phase::Active as u8 {
        settle(need)?;
    }
    Ok(inside)
}

/// The driver's own `cuInit` has succeeded, in this thread: opens the account.
pub(crate) fn driver_started() -> Result<(), Bypass> {
    advance(Need::Account, &|| true)
}

fn phase() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Fresh,
        1 => Phase::Starting,
        2 => Phase::Prepared,
        3 => Phase::Active,
        4 => Phase::Inactive,
        _ => Phase::Refused,
    }
}

/// Brings the library as far as `need`, or waits for the thread that does.
#[cold]
fn settle(need: Need) -> Result<(), Bypass> {
    // The program may have initialised the driver past our hooks: a call that needs the account
    // opens it then.
    advance(need, &driver::calls::is_initialised)
}

fn advance(need: Need, driver_runs: &dyn Fn() -> bool) -> Result<(), Bypass> {
    let began = Instant::now();
    loop {
        match phase() {
            Phase::Active => return Ok(()),
            Phase::Prepared if need == Need::Limits => return Ok(()),
            Phase::Inactive => return Err(Bypass::Inactive),
            Phase::Refused => return Err(Bypass::Refused),
            Phase::Fresh => {
                late::bind();
                // Before the first step: a fork in its middle is seen too.
                watch_forks();
                step(Phase::Fresh, prepare);
            }
            Phase::Prepared if !driver_runs() => return Err(Bypass::NoDriverYet),
            Phase::Prepared => {
                driver::bind();
                step(Phase::Prepared, open_account);
            }
            Phase::Starting if began.elapsed() > START_LIMIT => return Err(Bypass::StartTimedOut),
            Phase::Starting => frames::sleep(Duration::from_micros(50)),
        }
    }
}

/// Takes one step out of `from`, unless another thread is faster. A panic on the way ends in
/// refusal, not in "no limit".
///
/// A step asks the dynamic linker nothing: other threads wait for it, and one of them may be in a
/// constructor of a library that is being loaded, with the linker's lock.
fn step(from: Phase, work: fn() -> Phase) {
    let starting = Phase::Starting as u8;
    let _uncancelled = Uncancelled::begin();
    // All other threads wait for this one, so a signal handler must not jump out of the step.
    let _undisturbed = Undisturbed::begin();
    if PHASE
        .compare_exchange(from as u8, starting, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    let end = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Phase::Refused);
    PHASE.store(end as u8, Ordering::Release);
    if end == Phase::Active {
        crate::gate::started();
        crate::account::started();
    }
}

/// Everything that needs no driver, once in a process and again in a forked child.
fn prepare() -> Phase {
    if is_secure() {
        return Phase::Inactive;
    }
    silence_panics();
    crate::guest::clock::find_namespace();
    crate::guest::log::open();
    let limits = law::limits();
    let limits = limits.and_then(|limits| match limits.socket() {
        // The daemon's registered limits apply: no variable raises or disables them.
        Some(_) => Ok((limits, true)),
        None => Ok((limits.without_daemon()?, false)),
    });
    match limits {
        Ok((limits, false)) if limits.disabled() => Phase::Inactive,
        Ok((limits, _)) => {
            crate::gate::prepare();
            tracing::info!(%limits, "started");
            Phase::Prepared
        }
        Err(error) => refuse(&error),
    }
}

/// This copy of std is the library's own: the program's panics are not affected, ours print
/// nothing. Once a process tree: a child may be forked while another thread holds the hook's lock.
/// A build for tests ends instead: the walls and the threads pass over a panic so well that no test
/// would see it.
fn silence_panics() {
    static SILENT: AtomicBool = AtomicBool::new(false);
    if !SILENT.swap(true, Ordering::AcqRel) {
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, "a defect in gpushare");
            if cfg!(debug_assertions) {
                let line = format!("a defect in gpushare: {panic}\n");
                sys::write(libc::STDERR_FILENO, line.as_bytes());
                std::process::abort();
            }
        }));
    }
}

/// Joins the tenant, once the driver can tell its devices.
fn open_account() -> Phase {
    contexts::when_noticed(crate::gate::follow_leases);
    crate::gate::each_second(physical::credit_closed_if_free);
    match crate::account::start(crate::gate::wake) {
        Ok(()) => {
            crate::residency::start();
            Phase::Active
        }
        Err(error) if error.is_for_want_of_a_daemon() && law::allows_without_daemon() => {
            tracing::warn!(%error, "started without limits, as the operator says");
            Phase::Inactive
        }
        Err(error) => refuse(&error),
    }
}

/// Says on stderr why CUDA is refused: the only line this library ever prints, once a process tree.
fn refuse(reason: &dyn core::fmt::Display) -> Phase {
    let line = format!("gpushare: {reason}\n");
    tracing::error!(%reason, "refused");
    sys::write(libc::STDERR_FILENO, line.as_bytes());
    Phase::Refused
}

/// True in a program that runs with more rights than its user: set-user-id, file capabilities.
/// Nothing of ours runs there.
pub(crate) fn is_secure() -> bool {
    static SECURE: AtomicU8 = AtomicU8::new(0);
    match SECURE.load(Ordering::Relaxed) {
        0 => {
            let secure = sys::is_secure();
            SECURE.store(1 + u8::from(secure), Ordering::Relaxed);
            secure
        }
        known => known == 2,
    }
}

/// Has forked children start anew. Handlers are inherited, so once per process tree is enough; of
/// threads that race here each has its own called, which changes nothing.
fn watch_forks() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !is_secure() && !WATCHING.load(Ordering::Acquire) {
        sys::at_fork_in_child(forked);
        WATCHING.store(true, Ordering::Release);
    }
}

/// Runs in a child right after fork, where locks may be held by threads that are gone: stores only.
extern "C" fn forked() {
    if matches!(phase(), Phase::Starting | Phase::Prepared | Phase::Active) {
        crate::account::after_fork_in_child();
        crate::gate::after_fork_in_child();
        PHASE.store(Phase::Fresh as u8, Ordering::Release);
    }
    frames::forget();
}
