//! Looking at a device's marks, and the events that are kept for the next ones.

use core::cell::RefCell;

use super::{CompletionEvent, DeviceGate, Inner, Relaxed, clock};
use crate::gate::ledger;
use crate::gate::marks::Asker;
use gpushare_cuda_abi::cuda::CUcontext;
use gpushare_pacing::window::StreamKey;

/// Events kept for the next mark, of those with times and of those without.
const SPARE: usize = 64;

impl DeviceGate {
    /// The program waited for these streams; `stamp` and `since` say when that began.
    pub(in crate::gate) fn waited_for(
        &self,
        is_stream: impl Fn(&StreamKey) -> bool,
        stamp: u64,
        blocked: bool,
    ) {
        let now = clock::now();
        let mut inner = self.lock();
        inner.refresh(now);
        let Inner { window, spares, .. } = &mut *inner;
        window.waited_for(now, is_stream, stamp, blocked, |mark| {
            let took = mark.start.and_then(|_| {
                let _relaxed = Relaxed::enter();
                Asker::new().took(&mark)
            });
            spares.keep(mark);
            took
        });
        inner.drop_doubtful();
        self.settle(&mut inner, now);
    }

    /// Launches of `key` may be other work than before. `true` if they are measured again now.
    pub(in crate::gate) fn doubt(&self, key: u64) -> bool {
        self.lock().window.doubt(key)
    }

    /// Launches of `key` are other work from now on.
    pub(in crate::gate) fn forget_key(&self, key: u64) {
        self.lock().window.forget_key(key);
    }
}

impl Inner {
    /// The kinds that threads keep have the figures of before: where one has changed much, the
    /// books are asked again.
    fn drop_doubtful(&mut self) {
        if self.window.take_doubt() {
            ledger::changed();
        }
    }

    /// Asks the marks. In relaxed mode, or by a thread that always is.
    pub(super) fn look(&mut self, now: u64) {
        self.looked = now;
        if self.window.is_drained() {
            return;
        }
        let (spares, going) = (&mut self.spares, &self.going);
        let asker = RefCell::new(Asker::new());
        let is_going = |stream_key: &StreamKey| {
            let mut going = going.iter();
            going.any(|context| context.0.addr() == stream_key.context)
        };
        let is_passed = |mark: &CompletionEvent| asker.borrow_mut().is_passed(mark);
        self.window.look_except(now, is_going, is_passed, |mark| {
            let took = asker.borrow_mut().took(&mark);
            spares.keep(mark);
            took
        });
        self.drop_doubtful();
    }

    pub(super) fn look_relaxed(&mut self, now: u64) {
        let _relaxed = Relaxed::enter();
        self.look(now);
    }
}

/// Events that were used, and may be again.
#[derive(Debug, Default)]
pub(super) struct Spares([Vec<CompletionEvent>; 2]);

impl Spares {
    /// One of this context, with a time or without.
    pub(super) fn take(&mut self, context: usize, timed: bool) -> Option<CompletionEvent> {
        let marks = &mut self.0[usize::from(timed)];
        let is_there = |mark: &CompletionEvent| mark.context.0.addr() == context;
        let at = marks.iter().rposition(is_there)?;
        Some(marks.swap_remove(at))
    }

    /// Keeps the events of a mark, each by itself.
    pub(super) fn keep(&mut self, mark: CompletionEvent) {
        for mark in mark.split().into_iter().flatten() {
            let marks = &mut self.0[usize::from(mark.timed)];
            if marks.len() < SPARE {
                marks.push(mark);
            } else {
                mark.destroy();
            }
        }
    }

    /// The context has gone, and its events with it.
    pub(super) fn forget(&mut self, context: CUcontext) {
        for marks in &mut self.0 {
            marks.retain(|mark| mark.context != context);
        }
    }
}
