//! The gate thread: keeps the gates in step with the control page, drains the work that a close
//! leaves in flight, and reports it.
//!
//! One a process, from the first context on a device that a lease or a cap may bind. It sleeps on
//! the control page's `changes`, or without a daemon on a word of its own, until something is due.
//! It asks marks and never waits in the driver for them; it never synchronises anything. A forked
//! child has none until it makes a context of its own.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gpushare_protocol::page::lease::Turn;
use gpushare_protocol::report::Report;

use crate::account::{self, Compute};
use crate::gate::GATE;
use crate::gate::bell::Bell;
use crate::gate::calm::Published;
use crate::gate::device_gate::{self, DeviceGate};
use crate::gate::marks::Relaxed;
use crate::gate::ringing;
use crate::guest::background;
use crate::guest::barrier;
use crate::guest::clock;
use crate::guest::exit;
use crate::guest::fork::ForkLocal;
use crate::guest::frames;
use crate::guest::futex::{FutexWaiter, wake_all};
use crate::guest::sys::{self, Scope};
use gpushare_pacing::cap::{Bucket, LocalLease};
use gpushare_pacing::follower::{Act, GateState, NEVER};

/// The longest sleep (ns): how often the thread checks whether the daemon lives.
const LONGEST: u64 = 1_000_000_000;
/// How often submitted work is published (ns) while there is some: of two processes the one that
/// seems idle is moved, or ended, first.
const QUICK: u64 = 250_000_000;
/// How often held time is paid for (ns), where processes keep a cap by themselves.
const PAY: u64 = 5_000_000;
/// By how much its sleeps may be longer than asked for (ns).
const SLACK: core::ffi::c_ulong = 1_000;
/// Times the thread is woken where it may be about to fall asleep.
const TRIES: u32 = 16;

/// A function of the layer beside, which the gate thread calls once a second.
static BESIDE: ForkLocal<fn()> = ForkLocal::new();
/// Whether there is a thread.
static STARTED: ForkLocal<AtomicBool> = ForkLocal::new();
/// When the thread last began a round; read by its waiters.
static STIRRED: AtomicU64 = AtomicU64::new(0);
/// A request that the thread looks. Without a daemon it sleeps on this.
static BELL: Bell = ringing::silent();
/// The word that it last slept on. Pages are never unmapped.
static SLEEPS_ON: AtomicPtr<u32> = AtomicPtr::new(ptr::null_mut());

/// Whether the thread calls nothing any more: the process leaves.
static STOPPED: AtomicU32 = AtomicU32::new(0);
/// How long the process's end waits for the thread, which may be held up in the driver.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// After so long it is woken again.
const WAKE_AGAIN: Duration = Duration::from_millis(10);

/// Has the thread call `look` once a second, if there is a thread. It must wait for no other one.
pub(crate) fn each_second(look: fn()) {
    BESIDE.set(look);
}

/// Makes sure that the gates follow the leases of this process's tenant, if there can be any:
/// called before its first context on a device exists. The gates stand as they must when this
/// returns.
pub(crate) fn follow_leases() {
    let Some(compute) = account::compute() else {
        return;
    };
    let started = STARTED.get_or(AtomicBool::default);
    if !compute.may_bind() || started.swap(true, Ordering::AcqRel) {
        return;
    }
    STIRRED.store(clock::now(), Ordering::Relaxed);
    device_gate::found();
    let mut rounds = Rounds::default();
    rounds.all(&compute);
    let began = background::start(c"gpushare-gate", background::DEEP, move || run(rounds));
    if let Err(error) = began {
        // Without the thread no gate would open again, so there are no turns, and the end of the
        // process has no thread to wait for.
        STOPPED.store(1, Ordering::Release);
        tracing::warn!(%error, "no gate thread: launches pass");
        device_gate::all()
            .iter()
            .enumerate()
            .for_each(|(index, _)| super::free(index));
    }
}

/// The daemon has heard that this process makes a context on a device, where it counts as active
/// from then on. What was said of idleness there before was dropped, or is taken back.
pub(crate) fn joins(index: usize) {
    let Some(gate) = device_gate::of(index) else {
        return;
    };
    let said_idle = gate.lock().follower.joins(clock::now());
    if let Some(epoch) = said_idle {
        tell(index, Report::Busy, epoch);
    }
    wake();
}

/// A forked child has no thread. Stores only.
pub(super) fn after_fork_in_child() {
    SLEEPS_ON.store(ptr::null_mut(), Ordering::Relaxed);
    BELL.forget();
    STOPPED.store(0, Ordering::Relaxed);
    exit::after_fork_in_child();
}

/// The process exits: waits until the thread, if there is one, has stopped calling the driver, or
/// for [`STOPS_WITHIN`]. A thread that stays in the driver for longer makes no other call when it
/// returns.
pub(super) fn stop() {
    let started = STARTED
        .get()
        .is_some_and(|started| started.load(Ordering::Acquire));
    let end = Instant::now() + STOPS_WITHIN;
    while started && STOPPED.load(Ordering::Acquire) == 0 && Instant::now() < end {
        let stopped = FutexWaiter::own(&STOPPED);
        wake();
        stopped.sleep(WAKE_AGAIN);
    }
}

/// The thread's last call.
fn rest() -> ! {
    STOPPED.store(1, Ordering::Release);
    wake_all(&STOPPED);
    loop {
        FutexWaiter::own(&STOPPED).sleep(Duration::from_secs(3600));
    }
}

/// When the thread last stirred.
pub(super) fn stirred() -> u64 {
    STIRRED.load(Ordering::Relaxed)
}

/// Tells the daemon, if there is one.
pub(super) fn tell(device_index: usize, report: Report, epoch: u64) {
    if let Some(session) = account::compute().and_then(|compute| compute.session) {
        session.tell(device_index, report, epoch);
    }
}

/// Says that a launch waits, if one does: before it is said that the turn ends, as the daemon must
/// not think for an instant that no more is wanted.
fn tell_of_waiting(index: usize, gate: &DeviceGate) {
    if let Some(epoch) = gate.wanted() {
        tell(index, Report::Wanted, epoch);
    }
}

/// Says that the process is idle. A launch since the gate thread found that may have said before
/// that it works. The daemon keeps the last word, so it is said again.
fn say_idle(is_idle: impl FnOnce() -> bool, mut say: impl FnMut(Report)) {
    say(Report::Idle);
    if !is_idle() {
        say(Report::Busy);
    }
}

/// For a thread that waits at `gate`: opens it if the daemon has given the turn. Returns the futex
/// to sleep on until then; `None` while turns are not the daemon's, and the gate thread opens.
pub(super) fn follow(index: usize, gate: &DeviceGate) -> Option<FutexWaiter> {
    let session = account::compute()?.session?;
    let waiter = FutexWaiter::of_page(session.changes());
    if !session.daemon_alive(clock::now()) {
        return None;
    }
    gate.follow(|| session.turn(index));
    Some(waiter)
}

/// Has the thread look at once.
pub(crate) fn wake() {
    ringing::ring(&BELL, TRIES, rouse);
}

/// A thread waits for what the thread was woken for: wakes it once more, if it may not have heard.
pub(super) fn wake_again() {
    ringing::again(&BELL, rouse);
}

/// Wakes all that sleep where the thread does.
fn rouse() {
    // It was stored before the thread said that it is about to sleep.
    let word = SLEEPS_ON.load(Ordering::Relaxed);
    if !word.is_null() {
        sys::futex_wake_at(word, i32::MAX, Scope::Shared);
    }
}

fn run(mut rounds: Rounds) {
    frames::work_unseen();
    exit::is_ours();
    // Its sleeps are often shorter than the system's default slack.
    sys::set_timer_slack(SLACK);
    let _relaxed = Relaxed::enter();
    while !exit::is_leaving() {
        // A defect here must not take the program with it, nor leave its gates shut.
        let round = catch_unwind(AssertUnwindSafe(|| rounds.one()));
        if round.is_err() {
            std::thread::sleep(Duration::from_nanos(LONGEST));
        }
    }
    // A program that is started again and again, each time with one long kernel, has its cap too.
    let _ = catch_unwind(|| {
        let gates = device_gate::all().iter();
        gates.for_each(|gate| gate.pay_at_end(clock::now()));
    });
    rest()
}

/// The thread's own memory.
#[derive(Debug, Default)]
struct Rounds {
    /// By device, the turns that the tenant's own cap gives.
    own: [LocalLease; gpushare_protocol::page::MAX_DEVICES],
    /// The number of the last connection to a daemon.
    connection: u64,
    /// The process is registered for the barrier that closing needs.
    is_registered: bool,
    /// The published part of the count of submissions.
    published: Published,
    /// When the thread looks again for the layer beside.
    beside: u64,
}

impl Rounds {
    fn one(&mut self) {
        let Some(compute) = account::compute() else {
            std::thread::sleep(Duration::from_nanos(LONGEST));
            return;
        };
        let session = compute.session;
        let word = session.map_or_else(|| BELL.rope(), |session| session.changes());
        // In this order: a request after this keeps it from sleeping on the bell.
        BELL.take();
        let waiter = FutexWaiter::of_page(word);
        STIRRED.store(clock::now(), Ordering::Relaxed);
        let until = self.all(&compute).min(self.look_beside());
        SLEEPS_ON.store(word.as_ptr(), Ordering::Relaxed);
        if BELL.arm() {
            waiter.sleep(Duration::from_nanos(until.saturating_sub(clock::now())));
        }
        BELL.disarm();
    }

    /// Looks for the layer beside, if it is time. When to look again.
    fn look_beside(&mut self) -> u64 {
        let now = clock::now();
        if now >= self.beside {
            self.beside = now.saturating_add(LONGEST);
            if let Some(look) = BESIDE.get() {
                look();
            }
        }
        self.beside
    }

    /// Looks at all devices. When to look again.
    fn all(&mut self, compute: &Compute) -> u64 {
        let connection = compute.session.map_or(0, |session| session.connection());
        if connection != self.connection {
            self.connection = connection;
            let gates = device_gate::all().iter();
            gates.for_each(|gate| gate.lock().follower.forget());
        }
        // Lets the daemon see whether the process works.
        let calm = self.published.publish(&GATE, |count| compute.worked(count));
        let longest = if calm { LONGEST } else { QUICK };
        let mut until = clock::now().saturating_add(longest);
        for (index, gate) in device_gate::all()
            .iter()
            .enumerate()
            .take(compute.device_count())
        {
            until = until.min(self.device(compute, index, gate));
        }
        until
    }

    /// Handles one device. Returns when to look at it again.
    fn device(&mut self, compute: &Compute, index: usize, gate: &DeviceGate) -> u64 {
        loop {
            let now = clock::now();
            let stands = gate.stands();
            let (turn, again) = self.turn(compute, index, gate, now);
            let act = gate.step(&turn, stands);
            if exit::is_leaving() {
                // A failed query leaves the state unknown.
                return now;
            }
            match act {
                Act::Sleep(until) => return until.min(again),
                Act::Drained(epoch) => {
                    compute.drained(index, epoch);
                    tell_of_waiting(index, gate);
                    tell(index, Report::Drained, epoch);
                }
                Act::Idle(epoch) => say_idle(
                    || gate.lock().follower.is_idle(),
                    |report| tell(index, report, epoch),
                ),
                Act::Busy(epoch) => tell(index, Report::Busy, epoch),
                // Work that waits for its peer on another device ends only when this one has its
                // turn.
                Act::Missed => tell_of_waiting(index, gate),
                // The first close needs it, and comes later: an end of the process before would
                // have had to wait for it.
                Act::Open => self.register(),
                Act::Free | Act::Close => {}
            }
        }
    }

    /// The turn that holds now: the daemon's while it lives, else the turn that the tenant's own
    /// cap gives. And until when.
    fn turn(
        &mut self,
        compute: &Compute,
        index: usize,
        gate: &DeviceGate,
        now: u64,
    ) -> (Turn, u64) {
        if let Some(session) = compute.session.filter(|session| session.daemon_alive(now)) {
            let _ = gate.is_led_by(session.device(index), now);
            return (session.turn(index), NEVER);
        }
        if gate.is_led_by(None, now) {
            tracing::warn!(
                index,
                "the daemon is silent: only the tenant's own cap holds"
            );
        }
        match compute.bucket(index) {
            Some(bucket) => own_turn(&mut self.own[index], &bucket, gate, now),
            None => (Turn::default(), NEVER),
        }
    }

    /// Registers the process for the barrier that closing needs, once: its first use does that
    /// where it was not done before.
    fn register(&mut self) {
        if !core::mem::replace(&mut self.is_registered, true) {
            let _ = barrier::heavy();
        }
    }
}

/// Pays for the held time, and asks the bucket.
fn own_turn(
    lease: &mut LocalLease,
    bucket: &Bucket<'_>,
    gate: &DeviceGate,
    now: u64,
) -> (Turn, u64) {
    let mut inner = gate.lock();
    inner.pay(bucket, now);
    let stand = inner.follower.stand();
    let landed = matches!(stand, GateState::Closing | GateState::Drained);
    let (mut turn, mut again) = lease.turn(bucket, now, landed);
    if inner.follower.is_idle() {
        // The bucket fills by itself; the next launch rings.
        turn.deadline = NEVER;
        again = NEVER;
    }
    if !inner.window.is_empty() {
        again = again.min(now.saturating_add(PAY));
    }
    (turn, again)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said where a launch comes while the first report is on its way, or none does.
    fn said(launches: bool) -> Vec<Report> {
        let mut said = Vec::new();
        say_idle(|| !launches, |report| said.push(report));
        said
    }

    #[test]
    fn a_launch_while_idleness_is_said_has_the_last_word() {
        assert_eq!(said(true), [Report::Idle, Report::Busy]);
    }

    #[test]
    fn idleness_without_a_launch_is_said_alone() {
        assert_eq!(said(false), [Report::Idle]);
    }
}
