//! Memsets and copies of movable memory that the current context's device has no right to. Of plain
//! memory the driver makes them in any context, so they are made for the context that owns the
//! memory, in the order of the program's stream.
//!
//! A copy between two devices is the driver's own between contexts, in the program's stream. All
//! others are made in a stream of ours in the owner's context, which begins behind the work of the
//! program's stream, and which that waits for. Each has its own: in one for several, a copy would
//! wait for the work of another stream. What a capture would record, and what the driver cannot be
//! asked for, is left to the driver, which refuses it. Why: ADR 84.

use core::ffi::c_void;
use std::time::Duration;

use gpushare_cuda_abi::cuda::*;

use crate::driver::across::{self, Memory, Operation, Value};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts::{self, Here};
use crate::driver::current::CurrentContext;
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::entry::args::In;
use crate::guest::frames;
use crate::residency::kept_marks;
use crate::residency::reach::{self, Way};

/// How often a copy that waits looks whether the work is complete.
const LOOK: Duration = Duration::from_micros(50);

/// A memset or copy by its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum What<'a> {
    /// One that is left to the driver.
    Other,
    Fill(CUdeviceptr, Value, usize),
    Rows(CUdeviceptr, usize, Value, usize, usize),
    ToHost(*mut c_void, CUdeviceptr, usize),
    FromHost(CUdeviceptr, *const c_void, usize),
    Line(CUdeviceptr, CUdeviceptr, usize),
    Rectangle(In<'a, CUDA_MEMCPY2D_v2>),
    Box(In<'a, CUDA_MEMCPY3D_v2>),
}

impl What<'_> {
    /// Where a memset writes.
    pub(super) fn fills(self) -> Option<CUdeviceptr> {
        match self {
            Self::Fill(at, ..) | Self::Rows(at, ..) => Some(at),
            _ => None,
        }
    }

    fn read(self) -> Option<Operation> {
        Some(match self {
            Self::Other => return None,
            Self::Fill(at, value, count) => Operation::Fill { at, value, count },
            Self::Rows(at, pitch, value, width, rows) => Operation::FillRows {
                at,
                pitch,
                value,
                width,
                rows,
            },
            Self::ToHost(to, from, count) => Operation::ToHost { to, from, count },
            Self::FromHost(to, from, count) => Operation::FromHost { to, from, count },
            Self::Line(to, from, count) => Operation::Line { to, from, count },
            Self::Rectangle(copy) => Operation::Rectangle(copy.read()?),
            Self::Box(copy) => Operation::Box(copy.read()?),
        })
    }
}

/// Makes a memset or copy of the program's in `stream`: by `call`, or for the owner of its memory.
/// `is_now`: by a function that is synchronous.
#[cold]
pub(super) fn made(
    stream: StreamRef,
    is_now: bool,
    what: What<'_>,
    call: impl Fn() -> CUresult,
) -> CUresult {
    made_for_owner(stream, is_now, what).unwrap_or_else(call)
}

/// `None`: it is left to the driver.
fn made_for_owner(stream: StreamRef, is_now: bool, what: What<'_>) -> Option<CUresult> {
    let operation = what.read()?;
    let (to, from) = operation.ends();
    let way = reach::way(contexts::here()?, to, from);
    if way == Way::Here || stream.records() {
        return None;
    }
    match way {
        Way::Here => None,
        Way::Through(owner) => made_through(owner, stream, is_now, &operation),
        Way::Between(to, from) => frames::away(|| {
            operation.made_between((to, from), stream.handle(), stream.is_per_thread())
        }),
    }
}

/// Makes it in the owner's context. `None`: that could not be begun.
fn made_through(
    owner: CUcontext,
    stream: StreamRef,
    is_now: bool,
    operation: &Operation,
) -> Option<CUresult> {
    let waits = waits(operation, is_now);
    let before = Event::behind(stream)?;
    if waits != Wait::None {
        // Here, where no context of ours is current: the copy itself is then all that the driver
        // waits for.
        before.await_it();
    }
    let lane = Lane::make(owner)?;
    let behind = Event::make(owner)?;
    let current = CurrentContext::make(owner).ok()?;
    unnoticed(|| across::wait_event(lane.stream, before.event, false).ok()).ok()?;
    let answer = frames::away(|| operation.made(lane.stream));
    let recorded = unnoticed(|| calls::record_event(behind.event, lane.stream, false).ok());
    drop(current);
    let is_ordered = recorded.is_ok()
        && unnoticed(|| {
            across::wait_event(stream.handle(), behind.event, stream.is_per_thread()).is_success()
        });
    if !is_ordered {
        // What the program submits next must find it complete.
        lane.await_it();
    } else if waits == Wait::Copy {
        behind.await_it();
    }
    Some(answer)
}

/// What is complete when the driver returns from an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    None,
    /// The work before it, perhaps.
    Before,
    /// That work and the copy.
    Copy,
}

/// What the driver returns from it behind. The copy: from a synchronous one that has an end on the
/// host, and from one to host memory that it does not know. Of one from such memory it may wait for
/// the stream before it takes the bytes: NVIDIA's "API synchronization behavior" allows it.
fn waits(operation: &Operation, is_now: bool) -> Wait {
    let (to, from) = operation.hosts();
    let to = to.map_or(Memory::Device, across::memory);
    let from = from.map_or(Memory::Device, across::memory);
    if to == Memory::Pageable || is_now && (to != Memory::Device || from != Memory::Device) {
        Wait::Copy
    } else if from == Memory::Pageable {
        Wait::Before
    } else {
        Wait::None
    }
}

/// An event of ours.
#[derive(Debug)]
struct Event {
    context: CUcontext,
    event: CUevent,
}

impl Event {
    fn make(context: CUcontext) -> Option<Self> {
        let _current = CurrentContext::make(context).ok()?;
        let make = || calls::create_event(CUevent_flags::DISABLE_TIMING);
        let event = unnoticed(make).ok()?;
        Some(Self { context, event })
    }

    /// Behind the work of a stream of the program's.
    fn behind(stream: StreamRef) -> Option<Self> {
        let context = if streams::is_default(stream.handle()) {
            calls::current_context().ok()?
        } else {
            stream.place()?.handle
        };
        let made = Self::make(context)?;
        unnoticed(|| stream.record(made.event)).ok()?;
        Some(made)
    }

    /// Waits until it is passed, or never will be.
    fn await_it(&self) {
        let status = || {
            let _current = CurrentContext::make(self.context)?;
            Ok(unnoticed(|| calls::event_status(self.event)))
        };
        while status() == Ok::<_, CUresult>(CUresult::NOT_READY) {
            frames::sleep(LOOK);
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = calls::destroy_event(self.event);
    }
}

/// A stream of ours for one operation.
#[derive(Debug)]
struct Lane {
    owner: CUcontext,
    here: Here,
    stream: CUstream,
}

impl Lane {
    fn make(owner: CUcontext) -> Option<Self> {
        let here = contexts::of(owner)?;
        let _current = CurrentContext::make(owner).ok()?;
        let stream = unnoticed(|| calls::create_stream(CUstream_flags::NON_BLOCKING)).ok()?;
        // Known: a move and a free put their marks behind its work, too.
        streams::stream_made(stream);
        Some(Self {
            owner,
            here,
            stream,
        })
    }

    fn await_it(&self) {
        while unnoticed(|| calls::stream_status(self.stream)) == CUresult::NOT_READY {
            frames::sleep(LOOK);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _current = CurrentContext::make(self.owner);
        // The driver finishes its work in its own time: a move and a free ask the mark of it.
        kept_marks::stream_going(self.here, StreamRef::legacy(self.stream));
        let going = streams::going(&[self.stream]);
        if calls::destroy_stream(self.stream).is_err() {
            going.stay();
        }
    }
}
