//! Marks behind all work of a context, for a move or a free. Each is good for one life of its
//! context: it is neither asked nor destroyed while that is being destroyed, nor after.
//!
//! A driver that has `cuCtxRecordEvent` takes one mark for all of a context. Elsewhere, and beside
//! a capture, each stream gets its own. Work of threads' own streams, and of streams that no hook
//! saw made, can then be marked by an event in the legacy stream alone, which makes the program's
//! blocking streams wait for one another ([`mark_unnamed`]). Why: ADR 183.

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CUcontext};

use crate::driver::contexts::Life;
use crate::driver::green;
use crate::driver::marking::{self, Kept, Marked};
use crate::driver::streams;
use crate::gate::marks::{self, Asker, Behind, CompletionEvent};

/// A mark in a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    life: Life,
    event: CompletionEvent,
}

/// The work that the marks of a context stand behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of its work, or it is no more.
    All,
    /// The work of all streams that have a name.
    Named,
}

/// A mark could not be put everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmarked {
    /// A stream captures.
    Captures,
    /// A context is being destroyed, or the driver refused: try again.
    Now,
}

/// How a stream that captures is treated. Its work was submitted before the capture began, and
/// has a mark that was kept then ([`kept_marks`](super::kept_marks)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capturing {
    /// It is passed by.
    PassedBy,
    /// It is reported.
    Reported,
}

impl Mark {
    /// Puts one. `None`: the context is no more.
    pub(super) fn put(life: Life, behind: Behind) -> Result<Option<Self>, Unmarked> {
        let mut unused = None;
        let put = marks::put(life.handle(), behind, &mut unused, false);
        if let Some(event) = unused {
            Self { life, event }.destroy();
        }
        match put {
            Marked::Done(event) => Ok(Some(Self { life, event })),
            Marked::Gone => Ok(None),
            Marked::Captures => Err(Unmarked::Captures),
            Marked::Unknown => Err(Unmarked::Now),
        }
    }

    /// Whether the work before it is complete, or never will be. In relaxed mode.
    pub(super) fn is_passed(&self) -> bool {
        let ask = || Asker::new().is_passed(&self.event);
        match marking::keeping_life(self.life, ask) {
            Kept::Done(passed) => passed,
            Kept::Gone => true,
            Kept::Going => false,
        }
    }

    /// Gives its event back. That of a context that is going goes with it.
    pub(super) fn destroy(self) {
        let _ = marking::keeping_life(self.life, || self.event.destroy());
    }
}

/// Drops the marks that are passed. Whether all were. In relaxed mode.
pub(super) fn are_passed(marks: &mut Vec<Mark>) -> bool {
    marks.retain(|mark| {
        let passed = mark.is_passed();
        if passed {
            mark.destroy();
        }
        !passed
    });
    marks.is_empty()
}

/// Destroys marks.
pub(super) fn unmark(marks: &mut Vec<Mark>) {
    marks.drain(..).for_each(Mark::destroy);
}

/// Puts marks behind all work of a context as far as it has a name, or behind all. None is left
/// where that fails.
pub(super) fn mark(
    life: Life,
    marks: &mut Vec<Mark>,
    capturing: Capturing,
) -> Result<Extent, Unmarked> {
    if marking::can_mark_all() {
        match Mark::put(life, Behind::All) {
            Ok(mark) => {
                marks.extend(mark);
                return Ok(Extent::All);
            }
            Err(Unmarked::Captures) if capturing == Capturing::Reported => {
                return Err(Unmarked::Captures);
            }
            // The driver is too old for such an event, or will say why below.
            Err(_) => {}
        }
    }
    let mut made = Vec::new();
    for behind in named(life.handle()) {
        match Mark::put(life, behind) {
            Ok(mark) => made.extend(mark),
            Err(Unmarked::Captures) if capturing == Capturing::PassedBy => {}
            Err(why) => {
                unmark(&mut made);
                return Err(why);
            }
        }
    }
    marks.append(&mut made);
    Ok(Extent::Named)
}

/// All that has a name in a context.
fn named(context: CUcontext) -> impl Iterator<Item = Behind> {
    let streams = streams::streams_of(context).into_iter();
    let greens = green::all_in(context).into_iter();
    streams
        .map(Behind::Stream)
        .chain(greens.map(Behind::Green))
        .chain([Behind::Legacy])
}

/// Puts a mark behind what has no name in a context: an event in the legacy stream, which waits for
/// all but non-blocking streams, and for which they wait. It may stand behind nothing that waits
/// for a later operation of another stream, or the two are locked up for ever: so all that has a
/// name must be complete.
pub(super) fn mark_unnamed(
    life: Life,
    marks: &mut Vec<Mark>,
    capturing: Capturing,
) -> Result<(), Unmarked> {
    match Mark::put(life, Behind::Stream(CU_STREAM_LEGACY)) {
        Ok(mark) => {
            marks.extend(mark);
            Ok(())
        }
        Err(Unmarked::Captures) if capturing == Capturing::PassedBy => Ok(()),
        Err(why) => Err(why),
    }
}
