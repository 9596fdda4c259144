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
//! `unsafe` turns pointers into references: the ledger that is linked from a thread's record, the
//! device that it is bound to, and that device's page. None is ever freed, and all they hold is
//! atomic.
#![allow(
    unsafe_code,
    reason = "it dereferences the pointer in a thread's record"
)]

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};
use gpushare_protocol::page::control::ControlDevice;

use super::{GATE, tls};
use crate::driver::stream_ref::StreamRef;
use crate::driver::{real, streams};
use crate::gate::ring::{Allowance, Launch, Ring};
use crate::gate::word::{self, ANY_SEALED, CALM, FENCED, NOT_READY, Record};
use crate::guest::clock;
use gpushare_pacing::estimate::Expected;
use gpushare_pacing::window::{BATCH_OPS, Op, StreamKey};

/// Launches of a thread that the books do not have yet: as many as get one mark.
const SLOTS: usize = BATCH_OPS as usize;
/// Kinds of launches that a thread remembers.
const KINDS: usize = 32;

/// Another number whenever something may have changed that a remembered launch stands on. It is
/// mixed into names, so its values have no pattern.
static ERA: AtomicU64 = AtomicU64::new(1);

/// Invalidates all kept kinds. Called before the change that it is about.
pub(super) fn changed() {
    ERA.fetch_add(MIX, Ordering::AcqRel);
}

/// The era in which a kind was determined. Read before determining it.
pub(super) fn era() -> u64 {
    ERA.load(Ordering::Acquire)
}

/// A launch as the program names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// A hash of the stream's handle, the launch's key, and the era.
    hash: u64,
    /// The current context where that determines the stream, else 0.
    context: usize,
}

/// An odd number without a pattern (the golden ratio): multiplying by it mixes.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl Named {
    /// In this `era`. `None` where the driver does not report the current context.
    pub(super) fn of(stream: StreamRef, key: u64, era: u64) -> Option<Self> {
        let context = if streams::is_default(stream.handle()) {
            real::launching_context()?.0.addr()
        } else {
            0
        };
        let hash = hash(stream, key, era);
        Some(Self { hash, context })
    }
}

#[inline(always)]
fn hash(stream: StreamRef, key: u64, era: u64) -> u64 {
    // A bit of its own: handles of default streams follow one another.
    let twin = usize::from(stream.is_per_thread());
    let stream = (stream.handle().0.addr() << 1 | twin) as u64;
    key ^ stream.wrapping_mul(MIX).rotate_left(29) ^ era
}

/// The place of a kind with this hash.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a few bits are enough")]
fn place(hash: u64) -> u32 {
    // A graph's key is its address, of which the lowest bits say nothing.
    (hash >> 7) as u32 % KINDS as u32
}

/// The accounts' figures for one kind of launch.
#[derive(Debug)]
struct Kind {
    named: AtomicU64,
    context: AtomicUsize,
    key: AtomicU64,
    /// Its expected duration (ns), and in its stream: not less. That it takes from the allowance,
    /// all of which may go to one stream.
    ns: AtomicU64,
    in_stream: AtomicU64,
    /// So many more go the short way before the books are asked again.
    fuel: AtomicU32,
    /// The stream as the books know it.
    stream_key: [AtomicUsize; 3],
}

/// [`Kind::named`] of no kind.
const NONE: u64 = 0;

impl Kind {
    /// Whether one more goes the short way; it is counted.
    #[inline(always)]
    fn has_fuel(&self) -> bool {
        let fuel = self.fuel.load(Ordering::Relaxed).checked_sub(1);
        fuel.inspect(|fuel| self.fuel.store(*fuel, Ordering::Relaxed))
            .is_some()
    }

    /// Whether it is the kind of a launch in `stream` whose name has this hash.
    #[inline(always)]
    fn is(&self, stream: StreamRef, hash: u64) -> bool {
        if self.named.load(Ordering::Relaxed) != hash {
            return false;
        }
        let is_here = |context: CUcontext| {
            let known = self.context.load(Ordering::Relaxed);
            context.0.addr() == known
        };
        !streams::is_default(stream.handle()) || real::launching_context().is_some_and(is_here)
    }
}

/// The kinds of one thread, and its ring. All zeros at first.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The device that its launches go to; null for none. Changed under that device's lock.
    open: AtomicPtr<Open>,
    /// How often that or a kind has changed.
    changes: AtomicU64,
    ring: Ring<SLOTS>,
    kinds: [Kind; KINDS],
}

/// Launches that followed one another, as the books get them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) stream_key: StreamKey,
    pub(super) op: Op,
    /// When the last was announced, in ticks.
    pub(super) at: u64,
}

impl Ledger {
    fn entry(&self, launch: Launch, count: u32) -> Entry {
        let kind = &self.kinds[launch.of as usize % KINDS];
        let [context, stream, thread] = &kind.stream_key;
        let expected = Expected {
            ns: kind.ns.load(Ordering::Relaxed),
            in_stream: kind.in_stream.load(Ordering::Relaxed),
            known: true,
        };
        Entry {
            stream_key: StreamKey {
                context: context.load(Ordering::Relaxed),
                stream: stream.load(Ordering::Relaxed),
                thread: thread.load(Ordering::Relaxed),
            },
            op: Op {
                count,
                key: kind.key.load(Ordering::Relaxed),
                expected,
                waits: false,
                first: false,
            },
            at: launch.at,
        }
    }

    /// Takes out completed launches, and returns the launch in progress. With the device's lock
    /// held and its allowance taken away.
    pub(super) fn take_out(&self, mut made: impl FnMut(Entry)) -> Option<Entry> {
        let made = |last, count| made(self.entry(last, count));
        let launching = self.ring.take_out(made);
        launching.map(|launch| self.entry(launch, 1))
    }

    #[cold]
    #[inline(never)]
    fn not_made(&self, number: u64) {
        self.ring.ended(number, false);
    }

    /// No launch is inside: the launch in progress never ends.
    pub(super) fn abandon(&self) {
        self.ring.abandon();
    }

    /// The number of the launch in progress; `None` if all is in the books. With the device's lock
    /// held.
    pub(super) fn in_progress(&self) -> Option<u64> {
        (!self.ring.is_empty()).then(|| self.ring.taken_out())
    }

    /// No kind is remembered any more: they were of another device, or of another thread's streams.
    fn forget(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        for kind in &self.kinds {
            kind.named.store(NONE, Ordering::Relaxed);
        }
    }

    /// Remembers a launch of `op`'s kind, of which so many more need not ask. With the lock of the
    /// device that the ledger is bound to.
    pub(super) fn remember(&self, named: Named, stream_key: StreamKey, op: &Op, fuel: u32) {
        // The kind to be replaced may be that of the launch in progress.
        let Expected { ns, in_stream, .. } = op.expected;
        let takes = ns.max(in_stream);
        if !self.ring.is_empty() || ns == 0 || takes > Allowance::MOST {
            return;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        let kind = &self.kinds[place(named.hash) as usize];
        kind.named.store(named.hash, Ordering::Relaxed);
        kind.context.store(named.context, Ordering::Relaxed);
        kind.key.store(op.key, Ordering::Relaxed);
        kind.ns.store(ns, Ordering::Relaxed);
        kind.in_stream.store(takes, Ordering::Relaxed);
        kind.fuel.store(fuel, Ordering::Relaxed);
        let StreamKey {
            context,
            stream,
            thread,
        } = stream_key;
        for (to, from) in kind.stream_key.iter().zip([context, stream, thread]) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Binds it to a device, with that device's lock held: it knows no launches there. `false` if
    /// it is bound already.
    pub(super) fn bind(&self, open: &'static Open) -> bool {
        let is_free = self.open().is_none();
        if is_free {
            let open = core::ptr::from_ref(open).cast_mut();
            self.forget();
            self.open.store(open, Ordering::Release);
        }
        is_free
    }

    #[inline(always)]
    fn open(&self) -> Option<&'static Open> {
        // SAFETY: null, or a device's, which stays for the life of the process.
        unsafe { self.open.load(Ordering::Acquire).as_ref() }
    }

    /// The device that it is bound to.
    pub(super) fn device(&self) -> Option<usize> {
        self.open().map(|open| open.index)
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
            self.changes.fetch_add(1, Ordering::Relaxed);
            self.open.store(core::ptr::null_mut(), Ordering::Release);
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

    /// How much may be submitted at a time (ns); `None` for any.
    pub(super) fn yields(&self) -> Option<u64> {
        (self.slice > 0 && self.contended != 0).then_some(self.slice)
    }
}

/// The launches that a device allows without its lock.
#[derive(Debug)]
pub(super) struct Open {
    index: usize,
    /// The value in the record of a thread that is inside, and the bits of the gate's word that end
    /// the short path: the device is closed, the process is sealed or was calm, launches need a
    /// barrier of their own, or the library is not at work.
    seat: u64,
    barred: u64,
    allowance: Allowance,
    /// No longer than until then, in ticks.
    until: AtomicU64,
    /// The daemon's page, and its values when it was last read.
    page: AtomicPtr<ControlDevice>,
    slice: AtomicU64,
    contended: AtomicU32,
}

impl Open {
    /// Nothing, on this device.
    pub(super) const fn new(index: usize) -> Self {
        Self {
            index,
            seat: word::to(1 << index),
            barred: word::closed(index) | ANY_SEALED | CALM | FENCED | NOT_READY,
            allowance: Allowance::of(AtomicU64::new(0)),
            until: AtomicU64::new(0),
            page: AtomicPtr::new(core::ptr::null_mut()),
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
        self.slice.store(rules.slice, Ordering::Relaxed);
        self.contended.store(rules.contended, Ordering::Relaxed);
        let page = core::ptr::from_ref(page).cast_mut();
        self.page.store(page, Ordering::Release);
        self.allowance.grant(ns);
    }

    /// Takes a launch of `ns` from the allowance, if that holds at `now` (ticks). Another window
    /// counts when the lock is next taken.
    #[inline(always)]
    fn takes(&self, ns: u64, now: u64) -> bool {
        if now >= self.until.load(Ordering::Relaxed) || !self.allowance.takes(ns) {
            return false;
        }
        // SAFETY: there was an allowance, so a page was stored before it; pages are never unmapped.
        let page = unsafe { &*self.page.load(Ordering::Acquire) };
        page.slice.load(Ordering::Relaxed) == self.slice.load(Ordering::Relaxed)
            && page.contended.load(Ordering::Relaxed) == self.contended.load(Ordering::Relaxed)
    }
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

/// Whether a ledger is that of this record.
pub(super) fn is_of(ledger: &Ledger, record: &Record) -> bool {
    linked(record).is_some_and(|linked| core::ptr::eq(linked, ledger))
}

/// The calling thread's ledger, if it has one.
pub(super) fn known() -> Option<&'static Ledger> {
    tls::get().and_then(linked)
}

/// The calling thread's ledger, made where it has none. `None` if it has no record either.
pub(super) fn mine() -> Option<&'static Ledger> {
    let record = tls::get()?;
    Some(linked(record).unwrap_or_else(|| {
        // Not by way of the thread's stack, of which there may be little.
        let made = Box::<Ledger>::new_zeroed();
        // SAFETY: a ledger holds atomics of numbers and of pointers, for which zeros are values.
        let made: &'static Ledger = Box::leak(unsafe { made.assume_init() });
        let link = core::ptr::from_ref(made).cast_mut().cast();
        record.ledger.store(link, Ordering::Release);
        made
    }))
}

/// A record changes hands. Its last owner's own stream is not the next one's.
pub(super) fn hand_on(record: &Record) {
    if let Some(ledger) = linked(record) {
        ledger.abandon();
        ledger.forget();
    }
}

/// The call that is inside was left by a jump.
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
        if answer.is_success() {
            self.ledger.ring.ended(self.number, true);
        } else {
            self.ledger.not_made(self.number);
        }
        self.record.count();
        self.record.step_out();
    }
}

/// Begins a launch of `key` in `stream` by the call at `frame`. `None`: it takes the slow way.
#[inline(always)]
pub(super) fn go(stream: StreamRef, key: u64, frame: u64) -> Option<Going> {
    let record = tls::get()?;
    let ledger = linked(record)?;
    if record.is_inside() {
        return None;
    }
    let changes = ledger.changes.load(Ordering::Relaxed);
    let hash = hash(stream, key, era());
    let place = place(hash);
    let kind = &ledger.kinds[place as usize];
    if !kind.is(stream, hash) {
        return None;
    }
    let open = ledger.open()?;
    let word = record.step_in(frame, open.seat, &GATE.word);
    if word & open.barred == 0 {
        let now = clock::ticks();
        if let Some(number) = ledger.ring.announce(Launch { of: place, at: now }) {
            // A signal handler may have launched something else until then, and the ledger hold
            // that. From now on it stays as it is.
            let is_same = ledger.changes.load(Ordering::Relaxed) == changes;
            let takes = kind.in_stream.load(Ordering::Relaxed);
            if is_same && kind.has_fuel() && open.takes(takes, now) {
                return Some(Going {
                    record,
                    ledger,
                    number,
                });
            }
            ledger.not_made(number);
        }
    }
    record.step_out();
    None
}

#[cfg(test)]
pub(super) mod tests;
