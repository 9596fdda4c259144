//! Marks behind a device's work: which streams get one and when, and the facts about streams that
//! could not.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CUcontext, CUstream};

use super::{DeviceGate, Inner, clock, drain, streams};
use crate::driver::green;
use crate::driver::marking::Marked;
use crate::gate::marks::{self, Behind, CompletionEvent, Relaxed};
use gpushare_pacing::follower::GateState;
use gpushare_pacing::window::{BATCH_AGE, StreamKey};

/// An operation that is timed: the event before it.
#[derive(Debug)]
pub(in crate::gate) struct Timing {
    start: CompletionEvent,
    /// Contexts that had gone then.
    gone: u64,
    /// When the device should have done everything before the operation.
    idle_at: u64,
}

/// A batch that is to get its mark.
#[derive(Debug)]
struct Making {
    stream_key: StreamKey,
    number: u64,
    timed: bool,
    /// An event for it; afterwards one that was not needed.
    spare: Option<CompletionEvent>,
    /// Contexts that had gone by then.
    gone: u64,
}

/// Another name of a stream that goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewName {
    old: StreamKey,
    new: StreamKey,
}

impl Inner {
    fn close_batch(&mut self, stream_key: StreamKey, timed: bool) -> Option<Making> {
        let number = self.window.close_batch(stream_key, clock::now())?;
        Some(self.making(stream_key, number, timed))
    }

    /// The batches of `stream_key` whose marks other threads are making. Mostly there is none.
    fn others_make(&mut self, stream_key: StreamKey) -> Vec<Making> {
        let numbers: Vec<u64> = self.window.in_making(stream_key).collect();
        let made = numbers.into_iter();
        made.map(|number| self.making(stream_key, number, false))
            .collect()
    }

    fn making(&mut self, stream_key: StreamKey, number: u64, timed: bool) -> Making {
        Making {
            stream_key,
            number,
            timed,
            spare: self.spares.take(stream_key.context, timed),
            gone: self.gone,
        }
    }

    /// Keeps an event for the next mark, unless it may be of a context that has gone since.
    fn keep(&mut self, mark: Option<CompletionEvent>, gone: u64) {
        if let (Some(mark), true) = (mark, self.gone == gone) {
            self.spares.keep(mark);
        }
    }
}

impl Making {
    fn put(&mut self) -> Marked<CompletionEvent> {
        let context = CUcontext(core::ptr::without_provenance_mut(self.stream_key.context));
        let behind = behind(self.stream_key);
        marks::put(context, behind, &mut self.spare, self.timed)
    }
}

impl DeviceGate {
    fn close_batch(&self, stream_key: StreamKey, timed: bool) -> Option<Making> {
        let mut inner = self.lock();
        let making = inner.close_batch(stream_key, timed)?;
        inner.withhold();
        Some(making)
    }

    /// Puts a mark behind the work of `stream_key`. `true` if all of its work is marked.
    pub(in crate::gate) fn mark(&self, stream_key: StreamKey) -> bool {
        let Some(mut making) = self.close_batch(stream_key, false) else {
            return true;
        };
        let put = making.put();
        self.was_put(&making, put) == Marked::Done(())
    }

    /// Puts a mark behind the work of `stream_key`, into which the calling thread is about to
    /// submit something long. Where another thread is making one, of the stream or of its whole
    /// context, it may come to the driver behind that: so this thread puts one for the same batch,
    /// and the first that is known counts.
    pub(in crate::gate) fn mark_before(&self, stream_key: StreamKey) {
        let _ = self.mark(stream_key);
        let context = StreamKey::of_context(stream_key.context);
        let theirs = {
            let mut inner = self.lock();
            [stream_key, context].map(|key| inner.others_make(key))
        };
        for mut making in theirs.into_iter().flatten() {
            let put = making.put();
            if matches!(put, Marked::Done(_)) {
                let _ = self.was_put(&making, put);
            } else {
                // The other thread says what becomes of the batch.
                self.lock().keep(making.spare, making.gone);
            }
        }
    }

    /// Puts a mark behind untracked work in `stream_key`.
    fn mark_blindly(&self, stream_key: StreamKey) -> Marked<()> {
        let mut making = {
            let mut inner = self.lock();
            let now = clock::now();
            let number = inner.window.close_blindly(stream_key, now);
            inner.making(stream_key, number, false)
        };
        let put = making.put();
        self.was_put(&making, put)
    }

    /// Puts a mark behind all work of a context, if that can be done now.
    fn mark_context(&self, context: usize) -> bool {
        self.mark_blindly(StreamKey::of_context(context)) == Marked::Done(())
    }

    /// Puts an event before an operation of `stream_key` that is to be timed.
    pub(in crate::gate) fn time(&self, stream_key: StreamKey) -> Option<Timing> {
        let (mut making, idle_at) = {
            let mut inner = self.lock();
            let now = clock::now();
            let idle_at = now.saturating_add(inner.window.left(now));
            (inner.making(stream_key, 0, true), idle_at)
        };
        let _relaxed = Relaxed::enter();
        match making.put() {
            Marked::Done(start) => Some(Timing {
                start: self.behind_another(stream_key, start),
                gone: making.gone,
                idle_at: idle_at.max(clock::now()),
            }),
            Marked::Gone => None,
            Marked::Captures | Marked::Unknown => {
                self.lock().keep(making.spare, making.gone);
                None
            }
        }
    }

    /// While it is not known what an event takes: another one straight behind `first`.
    fn behind_another(&self, stream_key: StreamKey, first: CompletionEvent) -> CompletionEvent {
        if !marks::wants_two() {
            return first;
        }
        let mut making = self.lock().making(stream_key, 0, true);
        match making.put() {
            Marked::Done(second) => second.behind(first, 0, 0),
            Marked::Gone | Marked::Captures | Marked::Unknown => {
                self.lock().keep(making.spare, making.gone);
                first
            }
        }
    }

    /// Puts the mark behind an operation of `key` that is timed, and all before it in its stream.
    pub(super) fn mark_timed(&self, stream_key: StreamKey, key: u64, timing: &Timing) {
        let Some(mut making) = self.close_batch(stream_key, true) else {
            return self.untimed(timing);
        };
        let put = match making.put() {
            Marked::Done(end) => {
                let gap = clock::now().saturating_sub(timing.idle_at);
                Marked::Done(end.behind(timing.start, key, gap))
            }
            other => {
                self.untimed(timing);
                other
            }
        };
        let _ = self.was_put(&making, put);
    }

    /// The operation was not submitted after all.
    pub(in crate::gate) fn untimed(&self, timing: &Timing) {
        self.lock().keep(Some(timing.start), timing.gone);
    }

    /// Enters whether the mark of a batch was made. `Done`: the work has a mark behind it, or there
    /// is none any more.
    fn was_put(&self, making: &Making, put: Marked<CompletionEvent>) -> Marked<()> {
        let mut inner = self.lock();
        let without_mark = match put {
            Marked::Done(mark) => {
                let lost = inner.window.marked(making.number, mark).err();
                inner.keep(lost, making.gone);
                return Marked::Done(());
            }
            // A context has gone since: the handle may be another one's by now.
            Marked::Gone if inner.gone != making.gone => Marked::Unknown,
            Marked::Gone => {
                let of_context = |known: &StreamKey| known.context == making.stream_key.context;
                inner.window.forget(of_context);
                return Marked::Done(());
            }
            Marked::Captures => Marked::Captures,
            Marked::Unknown => Marked::Unknown,
        };
        inner.window.unmarked(making.number);
        inner.keep(making.spare, making.gone);
        without_mark
    }

    /// Puts marks behind all unmarked work. `thread` is the calling thread's number. Work that it
    /// cannot mark, mostly in other threads' default streams, is marked with its whole context once
    /// it is older than `age`. `false` if some of it has no mark now.
    pub(in crate::gate) fn mark_rest(&self, thread: usize, age: u64) -> bool {
        let now = clock::now();
        let streams: Vec<(StreamKey, u64)> = self.lock().window.unmarked_streams().collect();
        let mut contexts = Vec::new();
        let mut all = true;
        for (stream_key, since) in streams {
            let can_mark = stream_key.thread == 0 || stream_key.thread == thread;
            if can_mark && self.mark(stream_key) {
                continue;
            }
            if now.saturating_sub(since) < age {
                all = false;
            } else if !contexts.contains(&stream_key.context) {
                contexts.push(stream_key.context);
            }
        }
        for context in contexts {
            all &= self.mark_context(context);
        }
        all
    }

    /// Makes room for a launching thread outside the gate: marks unmarked work, and checks the
    /// marks.
    pub(in crate::gate) fn make_room(&self, thread: usize) {
        let _relaxed = Relaxed::enter();
        let _ = self.mark_rest(thread, BATCH_AGE);
        self.lock().look(clock::now());
    }

    /// The gate had been closed when the follower returned `stands`, and no launch was inside: puts
    /// a mark behind all work that may be in flight.
    pub(super) fn mark_all(&self, stands: u64) {
        let unseen = {
            let mut inner = self.lock();
            // A thread that waited may have opened meanwhile, and be inside.
            if inner.follower.stands() == stands {
                inner.nobody_inside();
            }
            // The first attempt since the gate closed is due now. A further attempt waits until the
            // marked work is complete.
            let due = inner.unseen == Some(0) || inner.window.is_drained();
            inner.unseen = inner.unseen.map(|tries| tries.saturating_add(1));
            inner.unseen.is_some() && due
        };
        if unseen && self.mark_unseen() {
            self.lock().unseen = None;
        }
        let _ = self.mark_rest(0, 0);
    }

    /// Puts marks behind all untracked work that may be in flight. `true` if that was done. The
    /// work of a stream that captures now was marked before its capture began.
    pub(super) fn mark_unseen(&self) -> bool {
        let mut done = true;
        for (context, going) in streams::contexts_on(self.index) {
            done &= !going && (self.mark_context(context.0.addr()) || self.mark_streams(context));
        }
        done
    }

    /// The same for one context where that cannot be done at once. Per-thread default streams are
    /// left out: other threads cannot name them.
    fn mark_streams(&self, context: CUcontext) -> bool {
        let mut done = true;
        let all = streams::streams_of(context).into_iter();
        for stream in all.chain([CU_STREAM_LEGACY]) {
            let stream_key = StreamKey {
                context: context.0.addr(),
                stream: stream.0.addr(),
                thread: 0,
            };
            done &= self.mark_blindly(stream_key) != Marked::Unknown;
        }
        for green in green::all_in(context) {
            done &= self.mark_blindly(drain::stream_key_of_green(&green)) != Marked::Unknown;
        }
        done
    }

    /// A stream is about to capture, by the calling thread: its work is marked while that is
    /// possible.
    pub(in crate::gate) fn capture_begins(&self, stream_key: StreamKey) {
        let _relaxed = Relaxed::enter();
        if !self.is_unseen() {
            let _ = self.mark(stream_key);
            let others = |(other, _): &(StreamKey, u64)| {
                other.thread != stream_key.thread && other.thread != 0
            };
            let left = self
                .lock()
                .window
                .unmarked_streams()
                .any(|other| others(&other));
            if left {
                let _ = self.mark_context(stream_key.context);
            }
        } else if !self.mark_context(stream_key.context) {
            let _ = self.mark_blindly(stream_key);
        }
    }

    /// Whether untracked work may be in flight. Passed marks are dropped here: while the gate is
    /// free no other code checks them.
    fn is_unseen(&self) -> bool {
        let mut inner = self.lock();
        if inner.follower.stand() == GateState::Free {
            inner.look(clock::now());
            return true;
        }
        inner.unseen.is_some()
    }

    /// A stream is about to be destroyed: its work is marked while that is possible.
    pub(in crate::gate) fn stream_going(&self, stream_key: StreamKey) {
        let _relaxed = Relaxed::enter();
        let noted = self
            .lock()
            .window
            .unmarked_streams()
            .any(|(other, _)| other == stream_key);
        if noted {
            let _ = self.mark(stream_key);
        } else if self.is_unseen() {
            let context = CUcontext(core::ptr::without_provenance_mut(stream_key.context));
            let stream = CUstream(core::ptr::without_provenance_mut(stream_key.stream));
            if !marks::is_idle(context, stream) {
                let _ = self.mark_blindly(stream_key);
            }
        }
    }

    /// A stream goes: its work is known by a name that no other stream will have.
    pub(in crate::gate) fn stream_gone(&self, stream: CUstream) -> Vec<NewName> {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let mut inner = self.lock();
        let streams = inner.window.streams();
        let going: Vec<StreamKey> = streams
            .filter(|stream_key| stream_key.stream == stream.0.addr())
            .collect();
        let rename = |old: StreamKey| {
            // Handles are addresses, and even; the default streams' are small.
            let number = NAMES.fetch_add(2, Ordering::Relaxed);
            let new = StreamKey {
                stream: number.wrapping_add(1 << 32) | 1,
                ..old
            };
            inner.window.rename(old, new);
            NewName { old, new }
        };
        going.into_iter().map(rename).collect()
    }

    /// It did not go: its work has the old name again. Where work came under that meanwhile, the
    /// earlier work keeps the new one, and is marked with its whole context.
    pub(in crate::gate) fn stream_stays(&self, names: &[NewName]) {
        let mut inner = self.lock();
        for NewName { old, new } in names {
            if !inner.window.streams().any(|known| known == *old) {
                inner.window.rename(*new, *old);
            }
        }
    }
}

/// Where a mark for `stream_key` belongs.
fn behind(stream_key: StreamKey) -> Behind {
    if stream_key.is_context() {
        Behind::All
    } else if stream_key.stream == CU_STREAM_LEGACY.0.addr() {
        Behind::Legacy
    } else if let Some(green) = green::of_default(stream_key.stream) {
        Behind::Green(green)
    } else {
        Behind::Stream(CUstream(core::ptr::without_provenance_mut(
            stream_key.stream,
        )))
    }
}

#[cfg(test)]
mod tests;
