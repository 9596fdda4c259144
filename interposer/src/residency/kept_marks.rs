//! Marks that are put while that is possible: behind the work of a stream that is about to be
//! destroyed, whose work the driver finishes in its own time, or to capture. Each move and free
//! that comes later asks them. Without them no mark would stand behind that work, unless the driver
//! has `cuCtxRecordEvent` and nothing captures. Why: ADR 183.
//!
//! The list is locked while its marks are asked, which does not wait, so that none is destroyed
//! meanwhile. No mark is put with the lock held: that may wait for room in a stream.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::marked::{Mark, Unmarked};
use super::memory::blocks;
use crate::driver::contexts::{self, Here, Life};
use crate::driver::green::Green;
use crate::driver::stream_ref::StreamRef;
use crate::gate::marks::{self, Behind, Relaxed};
use crate::gate::seal;
use crate::guest::background::Uncancelled;
use crate::guest::clock;
use crate::guest::fork::ForkLocal;
use crate::guest::frames;
use gpushare_cuda_abi::cuda::CU_STREAM_PER_THREAD;

#[derive(Debug, Default)]
struct KeptMarks {
    made: u64,
    all: Vec<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    number: u64,
    device_index: usize,
    life: Life,
    /// `None`: the driver has refused it. One behind all of the context serves as well.
    mark: Option<Mark>,
}

impl Kept {
    fn is_of(&self, devices: impl Fn(usize) -> bool, so_far: u64) -> bool {
        self.number < so_far && devices(self.device_index)
    }
}

/// How long the driver's refusal of a mark holds up the stream's end (ns), and how often it is
/// asked.
const PATIENCE: u64 = 2_000_000_000;
const AGAIN: Duration = Duration::from_micros(200);

static KEPT: ForkLocal<Mutex<KeptMarks>> = ForkLocal::new();

fn locked(kept: &Mutex<KeptMarks>) -> MutexGuard<'_, KeptMarks> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream is about to be destroyed, or to capture.
pub(crate) fn stream_going(here: Here, stream: StreamRef) {
    if !seal::may_move() {
        return;
    }
    let handle = match stream.is_own() {
        true => CU_STREAM_PER_THREAD,
        false => stream.handle(),
    };
    let _relaxed = Relaxed::enter();
    if !marks::is_idle(here.handle, handle) {
        keep(here, Behind::Stream(handle));
    }
}

/// A green context is about to be destroyed, which has its own default stream.
pub(crate) fn green_going(green: &Green) {
    if seal::may_move()
        && let Some(here) = contexts::of(green.primary)
    {
        let _relaxed = Relaxed::enter();
        keep(here, Behind::Green(*green));
    }
}

/// Keeps a mark there. Where a capture is in the way it began behind a mark. A device that is lost
/// takes none, and has no work.
fn keep(here: Here, behind: Behind) {
    if blocks().lost[here.device.index()] {
        return;
    }
    let Some(life) = contexts::life_of(here.handle) else {
        return;
    };
    let end = clock::now().saturating_add(PATIENCE);
    let mark = loop {
        match Mark::put(life, behind) {
            Ok(Some(mark)) => break Some(mark),
            Ok(None) | Err(Unmarked::Captures) => return,
            // The context may be just released, not for the last time. Afterwards no mark can stand
            // behind this work alone.
            Err(Unmarked::Now) if clock::now() < end => frames::sleep(AGAIN),
            Err(Unmarked::Now) => break None,
        }
    };
    // Those before are mostly passed.
    let _ = are_passed(|_| true, u64::MAX);
    let mut kept = locked(KEPT.get_or(Mutex::default));
    let number = kept.made;
    kept.made += 1;
    kept.all.push(Kept {
        number,
        device_index: here.device.index(),
        life,
        mark,
    });
}

/// How many there were until now.
pub(super) fn so_far() -> u64 {
    KEPT.get().map_or(0, |kept| locked(kept).made)
}

/// Whether the work on these devices that the first so many stand behind is complete. In relaxed
/// mode.
pub(super) fn are_passed(devices: impl Fn(usize) -> bool, so_far: u64) -> bool {
    let Some(kept) = KEPT.get() else { return true };
    // The lock must not go with a thread that is cancelled in the driver.
    let _uncancelled = Uncancelled::begin();
    mark_again(kept, &devices, so_far);
    let (gone, all_passed) = {
        let mut kept = locked(kept);
        let is_gone = |kept: &mut Kept| {
            let is_asked = kept.is_of(&devices, so_far);
            is_asked && kept.mark.is_some_and(|mark| mark.is_passed())
        };
        let gone: Vec<Kept> = kept.all.extract_if(.., is_gone).collect();
        let mut left = kept.all.iter();
        (gone, !left.any(|kept| kept.is_of(&devices, so_far)))
    };
    let marks = gone.into_iter().filter_map(|kept| kept.mark);
    marks.for_each(Mark::destroy);
    all_passed
}

/// Tries to put those that the driver refused: behind all of their contexts.
fn mark_again(kept: &Mutex<KeptMarks>, devices: impl Fn(usize) -> bool, so_far: u64) {
    let refused: Vec<Kept> = {
        let kept = locked(kept);
        let here = kept.all.iter();
        let refused = here.filter(|kept| kept.mark.is_none() && kept.is_of(&devices, so_far));
        refused.copied().collect()
    };
    for one in refused {
        let is_over = contexts::life_of(one.life.handle()) != Some(one.life);
        let mark = if is_over {
            None
        } else if let Ok(mark) = Mark::put(one.life, Behind::All) {
            mark
        } else {
            continue;
        };
        let mut unused = mark;
        {
            let mut kept = locked(kept);
            let at = kept.all.iter().position(|kept| kept.number == one.number);
            match (at, mark) {
                // The context is no more.
                (Some(at), None) => drop(kept.all.swap_remove(at)),
                (Some(at), Some(_)) if kept.all[at].mark.is_none() => {
                    kept.all[at].mark = unused.take();
                }
                _ => {}
            }
        }
        unused.into_iter().for_each(Mark::destroy);
    }
}

/// Whether one of them stands behind nothing: the driver refused it.
pub(super) fn is_unknown(device_index: usize, so_far: u64) -> bool {
    KEPT.get().is_some_and(|kept| {
        let kept = locked(kept);
        let mut here = kept.all.iter();
        here.any(|kept| kept.mark.is_none() && kept.is_of(|index| index == device_index, so_far))
    })
}
