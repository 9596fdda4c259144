//! One device as its launching threads and the gate thread share it: the work under way, and where
//! the gate stands.
//!
//! One lock a device, held for a few hundred instructions and for driver queries that do not wait.
//! Recording a mark in a stream may wait, so it is done without the lock. The gate's word changes
//! under the lock, so that a thread which closes early and the gate thread which opens late cannot
//! cross.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::CUcontext;
use gpushare_protocol::page::MAX_DEVICES;
use gpushare_protocol::page::control::ControlDevice;
use gpushare_protocol::page::lease::NO_DEADLINE;
use gpushare_protocol::page::token::{Hold, Taken};

mod books;
mod going;
mod looking;
mod marking;
mod owing;
mod passing;
mod rounds;
mod telling;
mod unreported;
mod yielding;

use super::{Key, Quiet, apart, drain, thread};
use crate::driver::marking::can_mark_all;
use crate::driver::streams;
use crate::gate::ledger::{Ledger, Named, Open, Rules};
use crate::gate::marks::{CompletionEvent, Relaxed};
use crate::guest::clock;
use crate::guest::fork::ForkLocal;
use crate::guest::frames;
use crate::guest::nap::Exact;
use books::Books;
pub(super) use books::only;
use gpushare_pacing::estimate::Expected;
use gpushare_pacing::follower::{GateState, LeaseFollower};
use gpushare_pacing::report::{Report, Words};
use gpushare_pacing::slices::{Full, Slices};
use gpushare_pacing::window::{Answer, BATCH_AGE, Bounds, Op, StreamKey, Window};
use looking::Spares;
pub(crate) use marking::NewName;
pub(super) use marking::Timing;
use unreported::Unreported;
pub(super) use unreported::has_died;
use yielding::Sleepers;

/// The most work in flight where the daemon does not say (ns).
const WINDOW: u64 = 2_000_000;
/// For how long nothing has come when work gets a mark behind it, at most (ns).
const LONGEST_REST: u64 = 1_000_000;
/// A pause that is not longer (ns) would be twice as long by the system's usual timer slack.
const SHORT_PAUSE: u64 = 200_000;
/// Launches that come after so long (ns) look first whether the device has paused before them.
const PAUSE: u64 = 50_000;
/// The environment variable that makes the driver's launches synchronous; 0 does not.
const LAUNCH_BLOCKING: &str = "CUDA_LAUNCH_BLOCKING";

/// A device.
#[derive(Debug)]
pub(super) struct DeviceGate {
    index: usize,
    /// Whether the driver returns from a launch only when its work is complete.
    synchronous: bool,
    /// Until when a launching thread is known to wait for room in the window.
    pausing: AtomicU64,
    /// Rises when threads that wait for an empty device should look again; they sleep on it.
    emptied: AtomicU32,
    /// The launches that are allowed without the lock; none while a thread has it.
    open: Open,
    inner: Mutex<Inner>,
}

/// The state guarded by the lock.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) window: Window<CompletionEvent>,
    pub(super) follower: LeaseFollower,
    pub(super) bounds: Bounds,
    /// The daemon's page line of this device, while it gives the turns.
    page: Option<&'static ControlDevice>,
    /// What it said when it was last read; nothing in a turn with a deadline.
    rules: Rules,
    /// Ledgers whose launches go to this device, and the launches that their threads are just
    /// making: how many, and expected nanoseconds.
    ledgers: Vec<&'static Ledger>,
    launching: (u32, u64),
    /// Admitted launches that may be loading a module in the driver.
    loading: u32,
    unreported: Unreported,
    slices: Slices,
    /// Its hold of the tenant's token.
    hold: Hold,
    /// Until when a launch last waited for that.
    waited: u64,
    sleepers: Sleepers,
    report: Report,
    published: Words,
    /// Up to when holding was paid for when time was first kept back, while some is.
    kept_back: Option<u64>,
    /// When the marks were last looked at.
    looked: u64,
    /// Untracked work may be in flight, such as what came while the device was unbound. How often
    /// it was tried to mark that since the gate last opened or closed.
    unseen: Option<u32>,
    /// Calls that were found to have been left by a jump since the gate closed.
    left: Vec<u64>,
    spares: Spares,
    /// Contexts that may just be going: their marks are not asked.
    going: Vec<CUcontext>,
    /// Contexts that went. An event that was in use meanwhile may be of one of them, and is left to
    /// the driver.
    gone: u64,
}

/// The answer to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing binds.
    Free,
    /// It goes.
    Go {
        /// Its expected duration.
        expected: Expected,
        /// The epoch in which the holder had been called idle before.
        was_idle: Option<u64>,
        /// It is to be timed.
        timed: bool,
        /// It may be the first of its function or graph, and load that.
        first: bool,
    },
    /// Outside the gate: in so many nanoseconds again.
    Wait(u64),
    /// Outside the gate: once nothing is under way.
    Full(Full),
    /// Outside the gate: once another process of the tenant has submitted its slice.
    Taken(Taken),
    /// The gate is closed.
    Closed,
}

/// Bounds by a page, on which no window leaves it to the library.
fn bounds(window: u64, deadline: u64) -> Bounds {
    let window = if window == 0 { WINDOW } else { window };
    Bounds { window, deadline }
}

static GATES: ForkLocal<Box<[DeviceGate]>> = ForkLocal::new();

/// All devices of this process, from now on.
pub(super) fn found() -> &'static [DeviceGate] {
    let blocking = std::env::var_os(LAUNCH_BLOCKING);
    let synchronous = blocking.is_some_and(|value| !value.is_empty() && value != "0");
    // One after another: the calling thread may have little stack.
    let gate = |index| DeviceGate::new(index, synchronous);
    GATES.get_or(|| (0..MAX_DEVICES).map(gate).collect())
}

/// All devices, none before anything could bind.
pub(super) fn all() -> &'static [DeviceGate] {
    GATES.get().map_or(&[], |gates| &**gates)
}

/// A device.
pub(super) fn of(index: usize) -> Option<&'static DeviceGate> {
    all().get(index)
}

impl DeviceGate {
    fn new(index: usize, synchronous: bool) -> Self {
        Self {
            index,
            synchronous,
            pausing: AtomicU64::new(0),
            emptied: AtomicU32::new(0),
            open: Open::new(index),
            inner: Mutex::new(Inner {
                bounds: bounds(0, NO_DEADLINE),
                unseen: Some(0),
                ..Inner::default()
            }),
        }
    }

    /// The device's books, with all that was launched without them.
    pub(super) fn lock(&self) -> Books<'_> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.open.revoke();
        inner.gather();
        Books {
            gate: self,
            grants: true,
            inner,
        }
    }

    /// A thread has left its launch by a jump: if it submitted work, that was not recorded.
    pub(super) fn was_left(&self) {
        self.lock().unseen = Some(0);
    }

    /// Whether launches are inside the closed gate.
    fn quiet(&self) -> Quiet {
        let mut left = self.lock().left.clone();
        let known = left.len();
        let quiet = super::quiet(self.index, &mut left);
        if left.len() > known {
            let mut inner = self.lock();
            inner.left = left;
            inner.unseen = Some(0);
        }
        quiet
    }

    /// May a launch of `key` in `stream_key` go? Asked inside the gate. Where its work would not
    /// end in time, the gate closes. With `insists` it need not wait for room in the window or in a
    /// slice.
    pub(super) fn ask(&self, stream_key: StreamKey, key: Key, insists: bool) -> Told {
        let now = clock::now();
        let mut inner = self.lock();
        match inner.follower.stand() {
            GateState::Free => return Told::Free,
            GateState::Closing | GateState::Drained => return Told::Closed,
            GateState::Open => {}
        }
        inner.refresh(now);
        if inner.should_look(now) || inner.may_have_paused(now) {
            inner.look_relaxed(now);
            self.settle(&mut inner, now);
        }
        let first = key.loads && inner.window.is_first(key.number, apart::era());
        if first {
            // The function's address may have been another one's.
            inner.window.doubt(key.number);
        }
        let bounds = inner.bounds;
        let expected = inner.window.expected(bounds, key.number);
        if !insists && let Some(told) = self.has_to_yield(&mut inner, now, stream_key, expected) {
            return told;
        }
        if self.has_spent(&mut inner, now) {
            return self.is_over(&mut inner, now);
        }
        match inner
            .window
            .admit(now, bounds, stream_key, expected, insists)
        {
            Answer::Go => {
                inner.withhold();
                let loads = self.may_load(first);
                inner.loading += u32::from(loads);
                // One that loads may have been pending while it waited, and is not now.
                if loads || !inner.report.is_pending() {
                    self.settle(&mut inner, now);
                }
                inner.unreported.admitted += 1;
                inner.slices.admitted(1, expected.ns);
                self.wake_sleeper(&mut inner);
                Told::Go {
                    expected,
                    was_idle: inner.follower.work(),
                    timed: inner.window.is_timed(key.number) && !first,
                    first,
                }
            }
            Answer::Wait(pause) => Told::Wait(pause),
            Answer::Over => self.is_over(&mut inner, now),
        }
    }

    /// The turn ends early.
    fn is_over(&self, inner: &mut Inner, now: u64) -> Told {
        inner.follower.land(now);
        super::close(self.index);
        Told::Closed
    }

    /// A launch that was admitted for `ns` nanoseconds is not made.
    pub(super) fn refused(&self, ns: u64, first: bool) {
        let mut inner = self.lock();
        inner.has_loaded(self.may_load(first));
        inner.window.put_back(1, ns);
        inner.slices.put_back(1, ns);
        self.settle(&mut inner, clock::now());
    }

    /// Waits for room in the window, `ns` nanoseconds.
    pub(super) fn pause(&self, ns: u64) {
        let until = clock::now().saturating_add(ns);
        self.pausing.fetch_max(until, Ordering::AcqRel);
        let _exact = (ns <= SHORT_PAUSE).then(Exact::begin);
        frames::sleep(Duration::from_nanos(ns));
    }

    /// The epoch, if a launch waits on this device and that was not reported in it yet.
    pub(super) fn wanted(&self) -> Option<u64> {
        let now = clock::now();
        let pauses = self.pausing.load(Ordering::Acquire) > now;
        let waits = pauses || super::is_waited_for(self.index, now);
        waits.then(|| self.lock().follower.want()).flatten()
    }

    /// Notes a launch that the driver took, and puts a mark behind it where one belongs.
    /// The next of its kind, as it was `named`, may go without being asked about.
    pub(super) fn note(
        &'static self,
        stream_key: StreamKey,
        op: Op,
        timing: Option<Timing>,
        named: Option<Named>,
        first: bool,
    ) {
        let now = clock::now();
        let (wants_mark, fills, lags) = {
            let mut inner = self.lock();
            let bounds = inner.bounds;
            let mut wants_mark = inner.window.submitted(now, bounds, stream_key, op);
            inner.has_loaded(self.may_load(first));
            if first {
                inner.window.launched(op.key, apart::era());
            }
            // A launch beside a load is pending only from here on.
            if !inner.report.is_pending() {
                self.settle(&mut inner, now);
            }
            // No other thread could mark it later.
            wants_mark |= stream_key.thread != 0 && !can_mark_all();
            let fills = inner.fills_slice(now, stream_key, op.expected);
            if let Some(named) = named {
                inner.remember(self, named, stream_key, op);
            }
            if wants_mark || fills || timing.is_some() {
                inner.withhold();
            }
            let is_shared = bounds.deadline == NO_DEADLINE;
            (
                wants_mark,
                fills,
                is_shared && inner.window.lags(now, stream_key),
            )
        };
        if let Some(timing) = timing {
            let _relaxed = Relaxed::enter();
            self.mark_timed(stream_key, op.key, &timing);
        }
        if fills {
            // Right behind the last operation of the slice, before the program puts a copy there.
            let _relaxed = Relaxed::enter();
            let _ = self.mark_rest(drain::thread_number(), 0);
        } else if wants_mark {
            let _relaxed = Relaxed::enter();
            let _ = self.mark(stream_key);
        }
        if lags && !fills {
            thread::wake();
        }
    }
}
