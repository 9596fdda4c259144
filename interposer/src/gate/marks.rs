//! Marks: events of ours behind work in the program's streams, asked instead of waited for, and
//! without timing but for the few that stand with another one around a single operation.
//!
//! A capture must not be affected: queries and records run in [`Relaxed`] mode, and a mark is
//! recorded in a stream only through [`marking::marking`], which keeps captures, destructions and
//! marks apart. A context that has failed or is destroyed returns that error: nothing runs there
//! any more, so its marks count as passed. After any other error it is unknown what runs; it is
//! logged once.
//!
//! No mark makes one stream of the program wait for another. So none is recorded in a legacy stream
//! for which blocking streams or per-thread ones wait: a blocking stream of ours stands behind it.
//! Work in streams that no other thread can name, or that no hook saw made, is
//! marked for the whole context by `cuCtxRecordEvent`, which drivers have from 12.5 on. That is
//! done only while no stream captures, because it would invalidate the capture. Why: ADR 36.
//!
//! Only this library destroys the events, or the end of their context does, before which they are
//! dropped ([`context_going`](crate::gate::drain::context_going)).

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
pub(crate) use crate::driver::captures::Relaxed;
use crate::driver::current::CurrentContext;
use crate::driver::green::Green;
pub(crate) use crate::driver::marking::is_over;
use crate::driver::marking::{self, Marked};
use gpushare_pacing::estimate::Timed;

/// The driver's errors where a capture forbids a call.
const CAPTURE_ERRORS: RangeInclusive<u32> =
    CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0;

/// An event in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletionEvent {
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
    /// Another one straight before it.
    before: Option<CUevent>,
    /// The timed kind of operation.
    pub(crate) key: u64,
    /// For so long (ns) the device may have waited for the program between the two.
    pub(crate) gap: u64,
}

/// A time is used though the device may have waited for the program for so long meanwhile (ns), or
/// for one part in so many of it. That contains the launch and the second event: a few
/// microseconds, and some tens of them on a busy machine.
const GAPS: (u64, u64) = (80_000, 16);

/// Asks marks, each in its own context: the driver wants one to be current.
#[derive(Debug, Default)]
pub(crate) struct Asker(Option<(CUcontext, CurrentContext)>);

impl Asker {
    /// With the current context and mode.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Whether all work before the mark is complete, or never will be.
    pub(crate) fn is_passed(&mut self, mark: &CompletionEvent) -> bool {
        if let Err(why) = self.enter(mark.context) {
            return is_over(why) || report(why);
        }
        match calls::event_status(mark.event) {
            CUresult::SUCCESS => true,
            CUresult::NOT_READY => false,
            // A capture began before the mark was in its stream, and recorded it: it will never be
            // passed. The stream's other work was marked before the capture began.
            CUresult::CAPTURED_EVENT => true,
            why => is_over(why) || report(why),
        }
    }

    /// How long the operation between a mark and its start took, if that can be said.
    pub(crate) fn took(&mut self, mark: &CompletionEvent) -> Option<Timed> {
        let start = mark.start?;
        self.enter(mark.context).ok()?;
        if let Some(before) = start.before {
            COST.learn(between(before, start.event)?);
        }
        let ns = COST.taken_off(between(start.event, mark.event)?);
        let is_whole = start.gap <= GAPS.0 || start.gap <= ns / GAPS.1;
        is_whole.then_some(Timed {
            key: start.key,
            ns,
            gap: start.gap,
        })
    }

    fn enter(&mut self, context: CUcontext) -> Result<(), CUresult> {
        if self
            .0
            .as_ref()
            .is_some_and(|(current, _)| *current == context)
        {
            return Ok(());
        }
        // The earlier state is restored first.
        self.0 = None;
        self.0 = Some((context, CurrentContext::make(context)?));
        Ok(())
    }
}

/// Nanoseconds between two events that are passed; 0 where the driver's answer makes no sense.
fn between(from: CUevent, to: CUevent) -> Option<u64> {
    let milliseconds = calls::elapsed(from, to).ok()?;
    let is_sound = milliseconds.is_finite() && (0.0..=1e9).contains(&milliseconds);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked"
    )]
    let ns = (f64::from(milliseconds) * 1e6) as u64;
    Some(if is_sound { ns } else { 0 })
}

/// How much of the time between two events is an event's own: two straight behind each other, with
/// nothing between, are 1.25 us apart on an H200 (ADR 67). Taken from the first times of the
/// process, on whatever device of it.
struct Cost {
    /// The least time so far (ns).
    least: AtomicU32,
    /// So many are still to be taken.
    due: AtomicU32,
}

static COST: Cost = Cost::new();

impl Cost {
    /// More is no event's: the device waited for the program.
    const MOST: u64 = 2_500;

    const fn new() -> Self {
        Self {
            least: AtomicU32::new(u32::MAX),
            due: AtomicU32::new(8),
        }
    }

    fn learn(&self, ns: u64) {
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        self.least.fetch_min(ns, Ordering::Relaxed);
        let less = |due: u32| due.checked_sub(1);
        let _ = self
            .due
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// A time without it, but at least half of that: an operation takes some time.
    fn taken_off(&self, ns: u64) -> u64 {
        match self.least.load(Ordering::Relaxed) {
            u32::MAX => ns,
            least => ns - u64::from(least).min(Self::MOST).min(ns / 2),
        }
    }
}

/// Whether another event is to be put straight before one that starts a time.
pub(crate) fn wants_two() -> bool {
    COST.due.load(Ordering::Relaxed) > 0
}

impl CompletionEvent {
    /// Gives the event back to the driver.
    pub(crate) fn destroy(self) {
        for mark in self.split().into_iter().flatten() {
            let _ = calls::destroy_event(mark.event);
        }
    }

    /// The mark behind an operation of `key` that `start` is before. The device may have waited for
    /// the program for so long between.
    pub(crate) fn behind(self, start: Self, key: u64, gap: u64) -> Self {
        let start = Some(Start {
            event: start.event,
            before: start.start.map(|first| first.event),
            key,
            gap,
        });
        Self { start, ..self }
    }

    /// Its events, up to three: each may be used again.
    pub(crate) fn split(self) -> [Option<Self>; 3] {
        let one = |event| Self {
            event,
            start: None,
            ..self
        };
        [
            self.start.and_then(|start| start.before).map(one),
            self.start.map(|start| one(start.event)),
            Some(one(self.event)),
        ]
    }
}

/// Where a mark is put.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behind {
    /// A stream of the program's that is not a legacy one; `CU_STREAM_PER_THREAD` means the calling
    /// thread's own.
    Stream(CUstream),
    /// The context's legacy stream.
    Legacy,
    /// Everything in a green context of it.
    Green(Green),
    /// Everything in the context.
    All,
}

/// Puts a mark behind everything that was submitted there, with the event of `spare` if there is
/// one, else with a new one; `timed` says whether it has a time, as that of `spare` then does.
/// Where no mark is made the event, if there is one, is left in `spare`: the driver may refuse
/// marks for long, and a new event would be made and destroyed for each.
///
/// A stream that captures has no work in flight but what was submitted before; what an unknown one
/// has stays unknown.
pub(crate) fn put(
    context: CUcontext,
    behind: Behind,
    spare: &mut Option<CompletionEvent>,
    timed: bool,
) -> Marked<CompletionEvent> {
    let mut record =
        |call: &mut dyn FnMut(CUevent) -> CUresult| record(context, spare, timed, call);
    match behind {
        Behind::Stream(stream) => marking::marking(context, stream, false, || {
            record(&mut |event| calls::record_event(event, stream, false))
        }),
        Behind::Legacy => marking::marking_legacy(context, |own| match own {
            Ok(own) => record(&mut |event| calls::record_event(event, own, false)),
            Err(why) => refused(why),
        }),
        Behind::Green(green) => marking::marking_green(&green, || {
            record(&mut |event| calls::record_in_green(green.handle, event))
        }),
        Behind::All => marking::marking_all(context, || {
            record(&mut |event| calls::record_in_context(context, event))
        }),
    }
}

/// Whether everything that was submitted to a stream of the program's is complete. Not in a stream
/// that records.
pub(crate) fn is_idle(context: CUcontext, stream: CUstream) -> bool {
    let ask = || Marked::Done(calls::stream_status(stream));
    match marking::marking(context, stream, false, ask) {
        Marked::Done(answer) => answer.is_success() || is_over(answer),
        Marked::Gone => true,
        Marked::Captures | Marked::Unknown => false,
    }
}

/// Records an event by `call`: that of `spare`, which a new one becomes if need be.
fn record(
    context: CUcontext,
    spare: &mut Option<CompletionEvent>,
    timed: bool,
    call: &mut dyn FnMut(CUevent) -> CUresult,
) -> Marked<CompletionEvent> {
    let mark = match spare.map_or_else(|| make(context, timed), Ok) {
        Ok(mark) => mark,
        Err(why) => return refused(why),
    };
    match call(mark.event) {
        CUresult::SUCCESS => {
            *spare = None;
            Marked::Done(mark)
        }
        why => {
            *spare = Some(mark);
            refused(why)
        }
    }
}

fn refused(why: CUresult) -> Marked<CompletionEvent> {
    if is_over(why) {
        return Marked::Gone;
    }
    if CAPTURE_ERRORS.contains(&why.0) {
        return Marked::Captures;
    }
    if matches!(why, CUresult::NOT_SUPPORTED | CUresult::NOT_FOUND) {
        marking::is_older();
    } else {
        let _ = report(why);
    }
    Marked::Unknown
}

/// Says once, for all errors, that work may run which no mark stands behind. Always `false`: it is
/// not known to be over.
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
fn make(context: CUcontext, timed: bool) -> Result<CompletionEvent, CUresult> {
    let flags = if timed {
        CUevent_flags(0)
    } else {
        CUevent_flags::DISABLE_TIMING
    };
    let event = calls::create_event(flags)?;
    Ok(CompletionEvent {
        context,
        event,
        timed,
        start: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_takes_is_no_part_of_an_operation() {
        let cost = Cost::new();
        assert_eq!(cost.taken_off(53_400), 53_400, "not known yet");
        for ns in [9_000, 1_250, 4_000] {
            cost.learn(ns);
        }
        assert_eq!(cost.taken_off(53_400), 52_150);
        assert_eq!(cost.taken_off(2_000), 1_000, "it takes some time");
        assert_eq!(cost.taken_off(0), 0);
        let slow = Cost::new();
        slow.learn(40_000);
        assert_eq!(slow.taken_off(53_400), 50_900);
    }

    #[test]
    fn it_is_learned_from_the_first_times_only() {
        let cost = Cost::new();
        for left in (0..8).rev() {
            cost.learn(1_250);
            assert_eq!(cost.due.load(Ordering::Relaxed), left);
        }
        cost.learn(1_250);
        assert_eq!(cost.due.load(Ordering::Relaxed), 0);
    }
}
