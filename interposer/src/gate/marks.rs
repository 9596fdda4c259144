//! Marks: events of ours behind work in the program's streams, asked instead of waited for, and
//! without timing but for the few that stand with another one around a single operation.
//!
//! A capture must not notice: whoever asks or records does so in [`Relaxed`] mode, and a mark is put into a stream only through
//! [`streams::marking`], which keeps captures, destructions and marks apart. A context that has failed or is destroyed answers with that:
//! nothing runs there any more, so its marks count as passed. Any other error leaves it open what runs; it is logged once.
//!
//! No mark makes one stream of the program's wait for another. So none is put into a legacy stream, which all blocking streams and
//! threads' own ones wait for: a blocking stream of ours stands behind it. All work of a context, in streams that no other thread
//! can name or that nobody saw made, is marked at once by `cuCtxRecordEvent`, which drivers have from 12.5 on, and only while nothing
//! captures: it would invalidate the capture. Why: ADR 36.
//!
//! # Safety
//! `unsafe` makes, records, asks and destroys events of ours. They are destroyed by nobody else, but for their context's end,
//! before which they are forgotten ([`context_going`](crate::gate::drain::context_going)).
#![allow(unsafe_code, reason = "calls the driver with events of ours")]

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
pub(crate) use crate::driver::captures::Relaxed;
use crate::driver::green::Green;
pub(crate) use crate::driver::streams::is_over;
use crate::driver::streams::{self, Marked};

/// What the driver answers where a capture forbids something.
const CAPTURE_ERRORS: RangeInclusive<u32> =
    CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0;

/// An event in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) context: CUcontext,
    event: CUevent,
    /// The event has a time, and so has that of its start.
    pub(crate) timed: bool,
    pub(crate) start: Option<Start>,
}

/// The event before a single operation that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    event: CUevent,
    /// What is timed.
    pub(crate) key: u64,
    /// For so long (ns) the device may have waited for the program between the two.
    pub(crate) gap: u64,
}

/// A time is believed though the device may have waited for the program for so long meanwhile (ns),
/// or for one part in so many of it.
const GAPS: (u64, u64) = (50_000, 16);

/// What became of a mark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put {
    /// It is in its stream.
    Made(Mark),
    /// The context is destroyed, or has failed: nothing is under way there.
    Gone,
    /// The stream records: nothing is under way in it but what was submitted before. The event, if there is one.
    Captures(Option<Mark>),
    /// Not now, or not at all: what is under way there stays unknown. The event, if there is one.
    Unmarked(Option<Mark>),
}

/// Asks marks, each in its own context: the driver wants one to be current.
#[derive(Debug)]
pub(crate) struct Asker {
    current: CUcontext,
    pushed: bool,
}

impl Asker {
    /// With what is current now.
    pub(crate) fn new() -> Self {
        let mut current = CUcontext::NULL;
        // SAFETY: an out parameter that outlives the call.
        let _ = unsafe { calls::cuCtxGetCurrent(&raw mut current) };
        Self {
            current,
            pushed: false,
        }
    }

    /// Whether all work before the mark is complete, or never will be.
    pub(crate) fn is_passed(&mut self, mark: &Mark) -> bool {
        if let Err(why) = self.enter(mark.context) {
            return is_over(why) || report(why);
        }
        // SAFETY: an event of ours, known only while its context lives.
        match unsafe { calls::cuEventQuery(mark.event) } {
            CUresult::SUCCESS => true,
            CUresult::NOT_READY => false,
            // A capture began before the mark was in its stream, and took it: it will never be
            // passed. What the stream holds beside was marked before the capture began.
            CUresult::CAPTURED_EVENT => true,
            why => is_over(why) || report(why),
        }
    }

    /// How long the operation between a mark and its start took (ns), with its key, if that can be
    /// said.
    pub(crate) fn took(&mut self, mark: &Mark) -> Option<(u64, u64)> {
        let start = mark.start?;
        self.enter(mark.context).ok()?;
        let mut milliseconds = 0.0_f32;
        let (from, to) = (start.event, mark.event);
        // SAFETY: events of ours, known only while their context lives, and an out parameter that
        // outlives the call.
        unsafe { calls::cuEventElapsedTime(&raw mut milliseconds, from, to) }
            .ok()
            .ok()?;
        let is_sound = milliseconds.is_finite() && (0.0..=1e9).contains(&milliseconds);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked"
        )]
        let ns = if is_sound {
            (f64::from(milliseconds) * 1e6) as u64
        } else {
            0
        };
        let is_whole = start.gap <= GAPS.0 || start.gap <= ns / GAPS.1;
        is_whole.then_some((start.key, ns))
    }

    fn enter(&mut self, context: CUcontext) -> Result<(), CUresult> {
        if self.current == context {
            return Ok(());
        }
        self.leave();
        self.current = CUcontext::NULL;
        // SAFETY: a context that lives as long as its marks are known.
        unsafe { calls::cuCtxPushCurrent_v2(context) }.ok()?;
        (self.current, self.pushed) = (context, true);
        Ok(())
    }

    fn leave(&mut self) {
        if core::mem::take(&mut self.pushed) {
            let mut popped = CUcontext::NULL;
            // SAFETY: what was pushed is popped.
            let _ = unsafe { calls::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Mark {
    /// Gives the event back to the driver.
    pub(crate) fn destroy(self) {
        for mark in self.split().into_iter().flatten() {
            // SAFETY: an event of ours, known only while its context lives; it is not used after
            // this.
            let _ = unsafe { calls::cuEventDestroy_v2(mark.event) };
        }
    }

    /// The mark behind an operation of `key` that `start` is before. The device may have waited for
    /// the program for so long between.
    pub(crate) fn behind(self, start: Self, key: u64, gap: u64) -> Self {
        let event = start.event;
        let start = Some(Start { event, key, gap });
        Self { start, ..self }
    }

    /// Its one or two events: each may be used again.
    pub(crate) fn split(self) -> [Option<Self>; 2] {
        let one = |event| Self {
            event,
            start: None,
            ..self
        };
        [
            self.start.map(|start| one(start.event)),
            Some(one(self.event)),
        ]
    }
}

/// Where a mark is put.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behind {
    /// A stream of the program's that is not a legacy one; `CU_STREAM_PER_THREAD` means the calling thread's own.
    Stream(CUstream),
    /// The context's legacy stream.
    Legacy,
    /// Everything in a green context of it.
    Green(Green),
    /// Everything in the context.
    All,
}

/// Puts a mark behind everything that was submitted there, with the event of `spare` if there is
/// one; `timed` says whether it has a time, as that of `spare` then does.
pub(crate) fn put(context: CUcontext, behind: Behind, spare: Option<Mark>, timed: bool) -> Put {
    let record = |context, spare, call: &mut dyn FnMut(CUevent) -> CUresult| {
        record(context, spare, timed, call)
    };
    let marked = match behind {
        Behind::Stream(stream) => streams::marking(context, stream, false, || {
            // SAFETY: the stream is kept from being destroyed; the event is of the same context, or the driver refuses.
            record(context, spare, &mut |event| unsafe {
                calls::cuEventRecord(event, stream)
            })
        }),
        Behind::Legacy => streams::marking_legacy(context, |own| match own {
            // SAFETY: a stream of ours, which lives as long as its context.
            Ok(own) => record(context, spare, &mut |event| unsafe {
                calls::cuEventRecord(event, own)
            }),
            Err(why) => refused(why, spare),
        }),
        Behind::Green(green) => streams::marking_green(&green, || {
            // SAFETY: a green context that is kept from being destroyed, and an event of its primary context.
            record(context, spare, &mut |event| unsafe {
                calls::cuGreenCtxRecordEvent(green.handle, event)
            })
        }),
        Behind::All => streams::marking_all(context, || {
            // SAFETY: a context that is kept from being destroyed, and an event of it.
            record(context, spare, &mut |event| unsafe {
                calls::cuCtxRecordEvent(context, event)
            })
        }),
    };
    match marked {
        Marked::Done(put) => put,
        Marked::Captures => Put::Captures(spare),
        Marked::Gone => Put::Gone,
        Marked::Unknown => Put::Unmarked(spare),
    }
}

/// Whether everything that was submitted to a stream of the program's is complete. Not in a stream that records.
pub(crate) fn is_idle(context: CUcontext, stream: CUstream) -> bool {
    let ask = || {
        // SAFETY: the stream is kept from being destroyed.
        unsafe { calls::cuStreamQuery(stream) }
    };
    match streams::marking(context, stream, false, ask) {
        Marked::Done(answer) => answer.is_success() || is_over(answer),
        Marked::Gone => true,
        Marked::Captures | Marked::Unknown => false,
    }
}

/// Records an event by `call`.
fn record(
    context: CUcontext,
    spare: Option<Mark>,
    timed: bool,
    call: &mut dyn FnMut(CUevent) -> CUresult,
) -> Put {
    let mark = match spare.map_or_else(|| make(context, timed), Ok) {
        Ok(mark) => mark,
        Err(why) => return refused(why, None),
    };
    match call(mark.event) {
        CUresult::SUCCESS => Put::Made(mark),
        why => refused(why, Some(mark)),
    }
}

fn refused(why: CUresult, mark: Option<Mark>) -> Put {
    if is_over(why) {
        return Put::Gone;
    }
    if CAPTURE_ERRORS.contains(&why.0) {
        return Put::Captures(mark);
    }
    if matches!(why, CUresult::NOT_SUPPORTED | CUresult::NOT_FOUND) {
        streams::is_older();
    } else {
        let _ = report(why);
    }
    Put::Unmarked(mark)
}

/// Says once, for all errors, that work may run which no mark stands behind. Always `false`: it is not known to be over.
fn report(why: CUresult) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let is_usual = CAPTURE_ERRORS.contains(&why.0)
        || matches!(why, CUresult::OUT_OF_MEMORY | CUresult::NOT_PERMITTED);
    if !is_usual && !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            ?why,
            "the driver refused a mark: work cannot be followed, and turns end late"
        );
    }
    false
}

/// A new event in the context, which is current.
fn make(context: CUcontext, timed: bool) -> Result<Mark, CUresult> {
    let flags = if timed {
        CUevent_flags(0)
    } else {
        CUevent_flags::DISABLE_TIMING
    };
    let mut event = CUevent::NULL;
    // SAFETY: an out parameter that outlives the call.
    unsafe { calls::cuEventCreate(&raw mut event, flags.0) }.ok()?;
    Ok(Mark {
        context,
        event,
        timed,
        start: None,
    })
}
