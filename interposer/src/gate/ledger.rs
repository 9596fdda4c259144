//! The short way for a launch on a device that other tenants share: no lock, no allocation, no
//! question to the driver but for the current context.
//!
//! A thread keeps the kinds of its last launches, with the device's figures for them. A launch of
//! the same kind takes from the device's allowance, announces itself in the thread's ring
//! ([`ring`](super::ring)) and calls the driver. The accounts get it when a thread next takes the
//! device's lock. A signal handler may interrupt all of this and launch by itself. All other
//! launches take the slow path: an unknown kind or one to be timed; a full ring; an allowance that
//! is used up or too old; a gate that is not open for all devices; and any change since
//! ([`changed`]): destroyed streams and contexts, captures, waits for copies and for other streams,
//! modules, the daemon's page. Why: ADR 76.
//!
//! # Safety
//! `unsafe` turns two pointers into references: a thread's record, and the ledger that is linked
//! from it. Both are never freed. All they hold is atomic.
#![allow(
    unsafe_code,
    reason = "it dereferences the pointer in a thread's record"
)]

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_protocol::page::control::ControlDevice;

use super::{GATE, tls};
use crate::driver::stream_ref::StreamRef;
use crate::driver::{calls, streams};
use crate::gate::ring::{Allowance, Launch, Ring};
use crate::gate::word::{self, ANY_SEALED, FENCED, NOT_READY, Record};
use crate::guest::clock;
use gpushare_pacing::window::{BATCH_OPS, StreamKey};

/// Launches of a thread that the books do not have yet: as many as get one mark.
const SLOTS: usize = BATCH_OPS as usize;
/// Kinds of launches that a thread remembers.
const KINDS: usize = 32;

/// Rises when something may have changed that a remembered launch stands on.
static ERA: AtomicU64 = AtomicU64::new(1);

/// Invalidates all kept kinds. Called before the change that it is about.
pub(super) fn changed() {
    ERA.fetch_add(1, Ordering::AcqRel);
}

/// The era in which a kind was determined. Read before determining it.
pub(super) fn era() -> u64 {
    ERA.load(Ordering::Acquire)
}

/// A stream as the program names it, with the current context where that determines it, and the
/// launched kind: a hash of these, as a launch's key is one of its function and shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(u64);

/// An odd number without a pattern (the golden ratio): multiplying by it mixes.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl Named {
    /// `None` where the driver does not report the current context.
    #[inline(always)]
    pub(super) fn of(stream: StreamRef, key: u64) -> Option<Self> {
        let handle = stream.handle();
        let context = if streams::is_default(handle) {
            let current = calls::current_context().ok()?;
            if current.is_null() {
                return None;
            }
            current.0.addr()
        } else {
            0
        };
        let mix = |sum: u64, part: usize| (sum ^ part as u64).wrapping_mul(MIX).rotate_left(29);
        let twin = usize::from(stream.is_per_thread());
        let stream = mix(key, handle.0.addr().wrapping_add(twin));
        Some(Self(mix(stream, context)))
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest bits are enough"
    )]
    fn place(self) -> u32 {
        self.0 as u32 % KINDS as u32
    }
}

/// The accounts' figures for one kind of launch.
#[derive(Debug)]
struct Kind {
    era: AtomicU64,
    named: AtomicU64,
    key: AtomicU64,
    /// Its expected duration (ns).
    ns: AtomicU64,
    /// So many more go the short way before the books are asked again.
    fuel: AtomicU32,
    /// The stream as the books know it.
    lane: [AtomicUsize; 3],
}

impl Kind {
    const fn new() -> Self {
        Self {
            era: AtomicU64::new(0),
            named: AtomicU64::new(0),
            key: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            fuel: AtomicU32::new(0),
            lane: [const { AtomicUsize::new(0) }; 3],
        }
    }

    #[inline(always)]
    fn is(&self, named: Named) -> bool {
        self.named.load(Ordering::Relaxed) == named.0
    }
}

/// The kinds of one thread, and its ring.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The device that its launches go to, plus one; 0 for none. Changed under that device's lock,
    /// as is what that lets launches do.
    bound: AtomicUsize,
    open: AtomicPtr<Open>,
    ring: Ring<SLOTS>,
    kinds: [Kind; KINDS],
}

/// A launch as the books get it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) lane: StreamKey,
    pub(super) key: u64,
    /// Its expected duration (ns).
    pub(super) ns: u64,
    /// When it was announced, in ticks.
    pub(super) at: u64,
}

impl Ledger {
    fn new() -> Self {
        Self {
            bound: AtomicUsize::new(0),
            open: AtomicPtr::new(core::ptr::null_mut()),
            ring: Ring::new(),
            kinds: [const { Kind::new() }; KINDS],
        }
    }

    fn entry(&self, launch: Launch) -> Entry {
        let kind = &self.kinds[launch.of as usize % KINDS];
        let [context, stream, thread] = &kind.lane;
        Entry {
            lane: StreamKey {
                context: context.load(Ordering::Relaxed),
                stream: stream.load(Ordering::Relaxed),
                thread: thread.load(Ordering::Relaxed),
            },
            key: kind.key.load(Ordering::Relaxed),
            ns: kind.ns.load(Ordering::Relaxed),
            at: launch.at,
        }
    }

    /// Takes out completed launches, as entries and how many of each followed one another, with the
    /// time of the last; returns the launch in progress. With the device's lock held and its
    /// allowance taken away.
    pub(super) fn take_out(&self, mut made: impl FnMut(Entry, u32)) -> Option<Entry> {
        let mut run: Option<(Launch, u32)> = None;
        let launching = self.ring.take_out(|launch| match &mut run {
            Some((last, count)) if last.of == launch.of => {
                *last = launch;
                *count += 1;
            }
            _ => {
                if let Some((last, count)) = run.replace((launch, 1)) {
                    made(self.entry(last), count);
                }
            }
        });
        if let Some((last, count)) = run {
            made(self.entry(last), count);
        }
        launching.map(|launch| self.entry(launch))
    }

    /// No launch is inside: the launch in progress never ends.
    pub(super) fn abandon(&self) {
        self.ring.abandon();
    }

    /// Remembers a launch of `entry`'s kind, of which so many more need not ask. With the lock of
    /// the device that the ledger is bound to.
    pub(super) fn remember(&self, named: Named, era: u64, entry: &Entry, fuel: u32) {
        // The kind to be replaced may be that of the launch in progress.
        if !self.ring.is_empty() {
            return;
        }
        let kind = &self.kinds[named.place() as usize];
        kind.named.store(named.0, Ordering::Relaxed);
        kind.key.store(entry.key, Ordering::Relaxed);
        kind.ns.store(entry.ns, Ordering::Relaxed);
        kind.fuel.store(fuel, Ordering::Relaxed);
        let StreamKey {
            context,
            stream,
            thread,
        } = entry.lane;
        for (to, from) in kind.lane.iter().zip([context, stream, thread]) {
            to.store(from, Ordering::Relaxed);
        }
        kind.era.store(era, Ordering::Relaxed);
    }

    /// Binds it to a device that it is not bound to, with that device's lock held. `false` if it
    /// still has launches of another device.
    pub(super) fn bind(&self, device_index: usize, open: &'static Open) -> bool {
        let is_free = self.bound.load(Ordering::Acquire) == 0;
        if is_free {
            let open = core::ptr::from_ref(open).cast_mut();
            self.open.store(open, Ordering::Release);
            self.bound.store(device_index + 1, Ordering::Release);
        }
        is_free
    }

    /// The device that it is bound to.
    #[inline(always)]
    pub(super) fn device(&self) -> Option<usize> {
        self.bound.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether all that was announced is in the books.
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Releases it, with the lock of the device that it is bound to. `false` if a launch is under
    /// way in the thread, which this one interrupted.
    pub(super) fn release(&self) -> bool {
        let is_empty = self.ring.is_empty();
        if is_empty {
            self.bound.store(0, Ordering::Release);
        }
        is_empty
    }
}

/// Values of the daemon's page about a device that may change without a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) window: u64,
    pub(super) slice: u64,
    pub(super) contended: u32,
}

impl Rules {
    #[inline(always)]
    pub(super) fn of(page: &ControlDevice) -> Self {
        Self {
            window: page.window.load(Ordering::Relaxed),
            slice: page.slice.load(Ordering::Relaxed),
            contended: page.contended.load(Ordering::Relaxed),
        }
    }
}

/// The launches that a device allows without its lock.
#[derive(Debug)]
pub(super) struct Open {
    allowance: Allowance,
    /// No longer than until then, in ticks.
    until: AtomicU64,
    /// The daemon's page, and its values when it was last read.
    page: AtomicPtr<ControlDevice>,
    window: AtomicU64,
    slice: AtomicU64,
    contended: AtomicU32,
}

impl Open {
    /// Nothing.
    pub(super) const fn new() -> Self {
        Self {
            allowance: Allowance::of(AtomicU64::new(0)),
            until: AtomicU64::new(0),
            page: AtomicPtr::new(core::ptr::null_mut()),
            window: AtomicU64::new(0),
            slice: AtomicU64::new(0),
            contended: AtomicU32::new(0),
        }
    }

    /// Nothing any more.
    pub(super) fn revoke(&self) {
        self.allowance.revoke();
    }

    /// So much, until then (ticks), while `page` says `rules`.
    pub(super) fn grant(&self, ns: u64, until: u64, page: &'static ControlDevice, rules: Rules) {
        self.until.store(until, Ordering::Relaxed);
        self.window.store(rules.window, Ordering::Relaxed);
        self.slice.store(rules.slice, Ordering::Relaxed);
        self.contended.store(rules.contended, Ordering::Relaxed);
        let page = core::ptr::from_ref(page).cast_mut();
        self.page.store(page, Ordering::Release);
        self.allowance.grant(ns);
    }

    #[inline(always)]
    fn holds(&self, now: u64) -> bool {
        // SAFETY: null, or a page that is never unmapped.
        let page = unsafe { self.page.load(Ordering::Acquire).as_ref() };
        let seen = Rules {
            window: self.window.load(Ordering::Relaxed),
            slice: self.slice.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed),
        };
        now < self.until.load(Ordering::Relaxed) && page.is_some_and(|page| Rules::of(page) == seen)
    }
}

/// The calling thread's record.
#[inline(always)]
fn record() -> Option<&'static Record> {
    // SAFETY: null, or a record, which stays mapped.
    unsafe { tls::get().as_ref() }
}

/// The ledger linked from a record.
#[inline(always)]
fn linked(record: &Record) -> Option<&'static Ledger> {
    // SAFETY: null, or a ledger that was leaked for this record.
    unsafe {
        record
            .ledger
            .load(Ordering::Acquire)
            .cast::<Ledger>()
            .as_ref()
    }
}

/// The calling thread's ledger, if it has one.
pub(super) fn known() -> Option<&'static Ledger> {
    record().and_then(linked)
}

/// The calling thread's ledger, made where it has none. `None` if it has no record either.
pub(super) fn mine() -> Option<&'static Ledger> {
    let record = record()?;
    Some(linked(record).unwrap_or_else(|| {
        let made: &'static Ledger = Box::leak(Box::new(Ledger::new()));
        let link = core::ptr::from_ref(made).cast_mut().cast();
        record.ledger.store(link, Ordering::Release);
        made
    }))
}

/// A record changes hands, or the call that is inside was left by a jump.
pub(super) fn abandon(record: &Record) {
    if let Some(ledger) = linked(record) {
        ledger.abandon();
    }
}

/// A launch on the short path; [`ended`](Self::ended) takes the driver's answer.
#[derive(Debug)]
#[must_use = "a close waits for this thread to leave"]
pub(crate) struct Going {
    record: &'static Record,
    ledger: &'static Ledger,
    number: u64,
}

impl Going {
    /// The driver has answered.
    #[inline(always)]
    pub(crate) fn ended(self, answer: CUresult) {
        self.ledger.ring.ended(self.number, answer.is_success());
        self.record.count();
        self.record.step_out();
    }
}

/// Begins a launch of `key` in `stream` by the call at `frame`. `None`: it takes the slow way.
#[inline(always)]
pub(super) fn go(stream: StreamRef, key: u64, frame: u64) -> Option<Going> {
    let record = record()?;
    let ledger = linked(record)?;
    if record.is_inside() {
        return None;
    }
    let named = Named::of(stream, key)?;
    let place = named.place();
    let kind = &ledger.kinds[place as usize];
    let fuel = kind.fuel.load(Ordering::Relaxed);
    if fuel == 0 || !kind.is(named) || kind.era.load(Ordering::Relaxed) != era() {
        return None;
    }
    let device_index = ledger.device()?;
    // SAFETY: null, or a device's, which stays for the life of the process.
    let open = unsafe { ledger.open.load(Ordering::Relaxed).as_ref() }?;
    record.at.store(frame, Ordering::Relaxed);
    let word = record.step_in(word::to(1 << device_index), false, &GATE.word);
    let now = clock::ticks();
    // Not closed or sealed, and launches need no barrier of their own.
    if word & (word::closed(device_index) | ANY_SEALED | FENCED | NOT_READY) == 0 && open.holds(now)
    {
        let launch = Launch { of: place, at: now };
        if let Some(number) = ledger.ring.announce(launch) {
            // A signal handler may have launched something else until then, and the ledger hold
            // that. From now on it stays as it is.
            let is_same = kind.is(named) && ledger.device() == Some(device_index);
            if is_same && open.allowance.takes(kind.ns.load(Ordering::Relaxed)) {
                kind.fuel.store(fuel - 1, Ordering::Relaxed);
                return Some(Going {
                    record,
                    ledger,
                    number,
                });
            }
            ledger.ring.ended(number, false);
        }
    }
    record.step_out();
    None
}
