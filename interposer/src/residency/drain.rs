//! Whether a sealed process has drained: no call that can touch device memory is in the driver, and
//! all submitted work is complete.
//!
//! Nothing is waited for in the driver: an event goes behind every stream of every context, and is
//! asked. Stream memory operations go on until those events are passed. Then they are held too. If
//! one came meanwhile, its stream may have more to do, and all begins anew.

use gpushare_pacing::mover::Drained;
use gpushare_protocol::page::MAX_DEVICES;
use gpushare_protocol::wire::Obstacle;

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CUcontext};

use crate::driver::captures;
use crate::driver::marking::{self, Marked};
use crate::driver::streams;
use crate::gate::marks::{self, Asker, Behind, CompletionEvent, Relaxed};
use crate::gate::seal;

/// A drain since the seal was set.
#[derive(Debug, Default)]
pub(super) struct Drain {
    stage: Stage,
    marks: Vec<CompletionEvent>,
    /// The count of stream memory operations before the marks were put.
    operations: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Calls may be in the driver.
    #[default]
    Calls,
    /// Marks stand behind the work.
    Work,
    /// They are passed. Stream memory operations are held.
    Held,
}

/// A mark could not be put everywhere.
enum Unmarked {
    /// A stream captures.
    Captures,
    /// A context is being destroyed, or the driver refused: try again.
    Now,
}

impl Drain {
    /// One look. The seal of the device must be set.
    pub(super) fn look(&mut self, device_index: usize) -> Drained {
        loop {
            match self.stage {
                Stage::Calls if !seal::is_still() => return Drained::No(Obstacle::Call),
                Stage::Calls => {
                    if captures::any() {
                        return Drained::Never(Obstacle::Capture);
                    }
                    self.operations = seal::operations();
                    match self.mark() {
                        Ok(()) => self.stage = Stage::Work,
                        Err(Unmarked::Captures) => return Drained::Never(Obstacle::Capture),
                        Err(Unmarked::Now) => return Drained::No(Obstacle::Driver),
                    }
                }
                Stage::Work => {
                    let mut asker = Asker::new();
                    if !self.marks.iter().all(|mark| asker.is_passed(mark)) {
                        return Drained::No(Obstacle::Work);
                    }
                    drop(asker);
                    self.unmark();
                    seal::hold_operations(device_index, true);
                    self.stage = Stage::Held;
                }
                Stage::Held if !seal::is_still() => return Drained::No(Obstacle::Call),
                Stage::Held if seal::operations() == self.operations => return Drained::Yes,
                Stage::Held => {
                    seal::hold_operations(device_index, false);
                    self.stage = Stage::Calls;
                    return Drained::No(Obstacle::Work);
                }
            }
        }
    }

    /// Behind all work on a device, as far as no stream captures it.
    pub(super) fn behind(device_index: usize) -> Self {
        let mut work = Self::default();
        for (context, _) in streams::contexts_on(device_index) {
            if work.mark_context(context).is_err() {
                for stream in streams::streams_of(context) {
                    let _ = work.put(context, Behind::Stream(stream));
                }
                let _ = work.put(context, Behind::Legacy);
            }
        }
        work
    }

    /// Whether that work is complete.
    pub(super) fn is_passed(&self) -> bool {
        let _relaxed = Relaxed::enter();
        let mut asker = Asker::new();
        self.marks.iter().all(|mark| asker.is_passed(mark))
    }

    /// The seal is taken away, or was set anew.
    pub(super) fn over(&mut self) {
        self.unmark();
        *self = Self::default();
    }

    fn unmark(&mut self) {
        self.marks.drain(..).for_each(CompletionEvent::destroy);
    }

    /// Puts an event behind all work of all contexts.
    fn mark(&mut self) -> Result<(), Unmarked> {
        let contexts = (0..MAX_DEVICES).flat_map(streams::contexts_on);
        let marked = contexts
            .into_iter()
            .try_for_each(|(context, _)| self.mark_context(context));
        if marked.is_err() {
            self.unmark();
        }
        marked
    }

    fn mark_context(&mut self, context: CUcontext) -> Result<(), Unmarked> {
        if marking::can_mark_all() {
            match self.put(context, Behind::All) {
                // The driver is too old for such an event, or will say why below.
                Err(Unmarked::Now) => {}
                done => return done,
            }
        }
        for stream in streams::streams_of(context) {
            self.put(context, Behind::Stream(stream))?;
        }
        // Threads' own streams, and those that no hook saw made: the legacy stream waits for them.
        self.put(context, Behind::Stream(CU_STREAM_LEGACY))
    }

    fn put(&mut self, context: CUcontext, behind: Behind) -> Result<(), Unmarked> {
        let mut unused = None;
        let put = marks::put(context, behind, &mut unused, false);
        unused.into_iter().for_each(CompletionEvent::destroy);
        match put {
            Marked::Done(mark) => self.marks.push(mark),
            Marked::Gone => {}
            Marked::Captures => return Err(Unmarked::Captures),
            Marked::Unknown => return Err(Unmarked::Now),
        }
        Ok(())
    }
}
