//! Captures in progress in this process, and the threads that began them. No mark is made while a
//! capture begins or is joined, and a thread with a capture in progress never waits.
//!
//! The hooks of begins, ends and destructions keep the list. A capture that ended where no hook saw
//! it would be missed. So before an entry of the list blocks marks or prevents a wait, the driver
//! is asked whether that capture is still in progress. A stale entry therefore blocks nothing for
//! ever. The driver is asked about a stream only while that is kept from being destroyed, or by the
//! thread that began the capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_PER_THREAD, CUcontext, CUresult, CUstream, CUstreamCaptureStatus,
};

pub(crate) use super::state::CaptureSite;
use super::state::{Beginning, Capture, Origin, State, TRACKER, Tracker};
use super::{contexts, streams};
use crate::driver::calls;
pub(crate) use crate::driver::relaxed::{Relaxed, unnoticed};
use crate::driver::stream_ref::StreamRef;
use crate::guest::clock;
use crate::guest::sys;

/// A capture has begun, some time, in this process or an ancestor.
static EVER: AtomicBool = AtomicBool::new(false);
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl CaptureSite {
    /// Of a stream.
    pub(crate) fn of(stream: StreamRef) -> Self {
        let here = stream.place();
        let context = here.map_or(CUcontext::NULL, |here| here.handle);
        let origin = if stream.is_own() {
            Origin::Own(context)
        } else {
            Origin::Stream(stream.handle())
        };
        Self { origin, context }
    }

    /// The stream, for the thread that may ask about it.
    fn stream(self) -> CUstream {
        match self.origin {
            Origin::Stream(stream) => stream,
            Origin::Own(_) => CU_STREAM_PER_THREAD,
        }
    }
}

impl Capture {
    /// Whether it began on this stream.
    pub(super) fn is_on(&self, stream: CUstream) -> bool {
        self.place.origin == Origin::Stream(stream)
    }

    /// Whether it is in this context.
    pub(super) fn is_in(&self, context: CUcontext) -> bool {
        self.place.context == context
    }

    /// Whether a capture that `thread` begins at `place` takes its place.
    fn is_at(&self, place: CaptureSite, thread: i64) -> bool {
        let anyones = matches!(place.origin, Origin::Stream(_));
        self.place.origin == place.origin && (anyones || self.thread == thread)
    }
}

impl Tracker {
    /// Takes out what `over` says is over. The list is this tracker's.
    pub(super) fn drop_captures(&self, list: &mut Vec<Capture>, over: impl Fn(&Capture) -> bool) {
        let before = list.len();
        list.retain(|capture| !over(capture));
        self.captures
            .fetch_sub(before - list.len(), Ordering::AcqRel);
    }

    /// Calls the driver while no mark is made. A capture that is new is counted before it begins,
    /// so that no thread sees zero.
    fn without_marks<R>(&self, is_new: bool, call: impl FnOnce() -> R) -> R {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.lock();
            self.begins(&mut state, number, is_new);
            if state.marking > 0 {
                state = self.wait(state, |state| state.marking > 0);
                // Else the thread that was counted left by a jump, or is stuck: it is not waited
                // for again.
                state.marking = 0;
                // From now on the driver takes its time.
                self.begins(&mut state, number, is_new);
            }
        }
        let answer = call();
        let mut state = self.lock();
        state.beginning.retain(|other| other.number != number);
        self.count(&state);
        drop(state);
        self.changed.notify_all();
        answer
    }

    fn begins(&self, state: &mut State, number: u64, is_new: bool) {
        state.beginning.retain(|other| other.number != number);
        state.beginning.push(Beginning {
            number,
            is_new,
            since: clock::now(),
        });
        self.count(state);
    }
}

/// Begins a capture by `call` while no mark is made.
pub(crate) fn beginning(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    // Known, so that it is kept from being destroyed while it is asked about.
    let _ = streams::locate(stream);
    let (place, thread) = (CaptureSite::of(stream), sys::this_thread());
    let tracker = Tracker::get();
    EVER.store(true, Ordering::Release);
    tracker.without_marks(true, || {
        let answer = call();
        if !answer.is_success() {
            return answer;
        }
        let mut state = tracker.lock();
        tracker.drop_captures(&mut state.captures, |other| other.is_at(place, thread));
        state.captures.push(Capture {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            place,
            thread,
        });
        tracker.count(&state);
        answer
    })
}

/// Makes a stream wait for an event by `call`. The stream joins a capture if the event is part of
/// one. `before` runs first.
pub(crate) fn joining(before: impl FnOnce(), call: impl FnOnce() -> CUresult) -> CUresult {
    if !EVER.load(Ordering::Acquire) {
        return call();
    }
    if go_on() {
        before();
    }
    Tracker::get().without_marks(false, call)
}

/// Notes the driver's answer to the end of a capture, which may leave it as it is.
pub(crate) fn ended(stream: StreamRef, answer: CUresult) {
    let Some(tracker) = TRACKER.get().filter(|_| !none_seen()) else {
        return;
    };
    let (place, thread) = (CaptureSite::of(stream), sys::this_thread());
    if answer.is_success() || !still_records(place.stream()) {
        let mut state = tracker.lock();
        tracker.drop_captures(&mut state.captures, |capture| capture.is_at(place, thread));
    }
}

/// The calling thread's own default stream executes work: if it captured, the capture is over.
pub(crate) fn own_stream_runs() {
    if none_seen() {
        return;
    }
    if let Some(here) = contexts::here() {
        let place = CaptureSite {
            origin: Origin::Own(here.handle),
            context: here.handle,
        };
        let (tracker, thread) = (Tracker::get(), sys::this_thread());
        let mut state = tracker.lock();
        tracker.drop_captures(&mut state.captures, |capture| capture.is_at(place, thread));
    }
}

/// Whether no capture is under way that a hook saw begin.
#[inline]
pub(crate) fn none_seen() -> bool {
    // Most programs never capture.
    !EVER.load(Ordering::Acquire) || seen() == 0
}

#[cold]
fn seen() -> usize {
    let Some(tracker) = TRACKER.get() else {
        return 0;
    };
    if tracker.captures.load(Ordering::Acquire) > 0
        && let Ok(mut state) = tracker.state.try_lock()
        && !state.beginning.is_empty()
    {
        tracker.drop_left(&mut state, clock::now());
    }
    tracker.captures.load(Ordering::Acquire)
}

/// Whether a capture goes on anywhere in this process, or may just begin. For a thread of ours.
pub(crate) fn any() -> bool {
    go_on()
}

/// Whether the calling thread has a capture under way.
pub(crate) fn by_this_thread() -> bool {
    let me = sys::this_thread();
    under_way(|capture| capture.thread == me)
}

/// Whether a capture goes on anywhere in this process, or may just begin.
pub(super) fn go_on() -> bool {
    let _ = under_way(|_| true);
    if !EVER.load(Ordering::Acquire) {
        return false;
    }
    // One may have begun meanwhile.
    let tracker = Tracker::get();
    let mut state = tracker.lock();
    if !state.beginning.is_empty() {
        tracker.drop_left(&mut state, clock::now());
    }
    !(state.captures.is_empty() && state.beginning.is_empty())
}

/// Whether this thread may wait: not while it records a graph, because other threads may depend on
/// it. Where no hook saw a capture begin, the driver is asked about the capture it reports, that of
/// a blocking stream in the current context; its thread is unknown.
pub(crate) fn may_wait() -> bool {
    if none_seen() {
        !StreamRef::legacy(CUstream::NULL).records()
    } else {
        !by_this_thread()
    }
}

/// Whether any capture in progress is `wanted`. Captures that the driver reports as ended are
/// dropped.
fn under_way(wanted: impl Fn(&Capture) -> bool) -> bool {
    let Some(tracker) = TRACKER.get().filter(|_| !none_seen()) else {
        return false;
    };
    let found: Vec<Capture> = {
        let state = tracker.lock();
        let captures = state.captures.iter().copied();
        captures.filter(|capture| wanted(capture)).collect()
    };
    let (over, going): (Vec<Capture>, Vec<Capture>) = found
        .into_iter()
        .partition(|capture| tracker.is_over(capture));
    if !over.is_empty() {
        let mut state = tracker.lock();
        tracker.drop_captures(&mut state.captures, |capture| {
            // A capture that began again is another one.
            over.iter().any(|over| over.number == capture.number)
        });
    }
    !going.is_empty()
}

impl Tracker {
    /// Whether the driver says that a capture is over. Where it may not be asked, it goes on.
    fn is_over(&self, capture: &Capture) -> bool {
        let is_mine = capture.thread == sys::this_thread();
        match capture.place.origin {
            Origin::Stream(stream) => {
                let kept = self.keep(stream);
                let over = (kept || is_mine) && !still_records(stream);
                if kept {
                    self.let_go(stream);
                }
                over
            }
            Origin::Own(context) => {
                let here = contexts::here().map(|here| here.handle);
                let mine = is_mine && here == Some(context);
                // A thread's own stream ends with it.
                !sys::is_alive(capture.thread) || mine && !still_records(CU_STREAM_PER_THREAD)
            }
        }
    }

    /// Keeps a known stream from being destroyed.
    fn keep(&self, stream: CUstream) -> bool {
        let mut state = self.lock();
        let known = state.streams.get_mut(&stream);
        known.map(|known| known.busy += 1).is_some()
    }

    fn let_go(&self, stream: CUstream) {
        release_stream(&mut self.lock(), stream);
        self.changed.notify_all();
    }
}

pub(super) fn release_stream(state: &mut State, stream: CUstream) {
    if let Some(known) = state.streams.get_mut(&stream) {
        known.busy = known.busy.saturating_sub(1);
    }
}

/// Whether a stream captures, or the driver will not say: then it is taken to.
fn still_records(stream: CUstream) -> bool {
    calls::capture_status(stream, false) != Ok(CUstreamCaptureStatus::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture of a thread's own default stream.
    fn own(thread: i64) -> Capture {
        let context = CUcontext(core::ptr::without_provenance_mut(0x100));
        let origin = Origin::Own(context);
        Capture {
            number: 1,
            place: CaptureSite { origin, context },
            thread,
        }
    }

    /// Captures that count after the begin of one, and after `later` seconds more.
    fn counted(is_new: bool, later: u64) -> [usize; 2] {
        let tracker = Tracker::default();
        let mut state = tracker.lock();
        let count = || tracker.captures.load(Ordering::Acquire);
        tracker.begins(&mut state, 7, is_new);
        let before = count();
        let now = clock::now() + later * 1_000_000_000;
        tracker.drop_left(&mut state, now);
        [before, count()]
    }

    #[test]
    fn a_capture_that_is_about_to_begin_counts_and_one_never_begun_does_not() {
        assert_eq!(counted(true, 1), [1, 1]);
        assert_eq!(counted(true, 2), [1, 0]);
        assert_eq!(counted(false, 1), [0, 0], "that one is counted already");
    }

    #[test]
    fn a_begin_that_comes_back_late_takes_no_others_place() {
        let tracker = Tracker::default();
        let count = || tracker.captures.load(Ordering::Acquire);
        tracker.without_marks(true, || {
            assert_eq!(count(), 1);
            tracker.drop_left(&mut tracker.lock(), u64::MAX);
            assert_eq!(count(), 0, "it is not waited for");
            tracker.begins(&mut tracker.lock(), u64::MAX, true);
        });
        assert_eq!(count(), 1, "the other one");
    }

    #[test]
    fn a_capture_of_an_own_stream_is_over_when_its_thread_has_ended() {
        let tracker = Tracker::get();
        assert!(!tracker.is_over(&own(sys::this_thread())), "it may go on");
        let ended = std::thread::spawn(sys::this_thread).join().unwrap();
        // The kernel may know it for a moment longer.
        while sys::is_alive(ended) {
            std::thread::yield_now();
        }
        assert!(tracker.is_over(&own(ended)));
    }
}
