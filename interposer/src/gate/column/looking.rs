//! Looking at a device's marks, and the events that are kept for the next ones.

use core::cell::RefCell;

use super::{Asker, Inner, Mark, Relaxed, Sample};

/// Events kept for the next mark.
const SPARE: usize = 64;

impl Inner {
    /// Asks the marks. In relaxed mode, or by a thread that always is.
    pub(super) fn look(&mut self, now: u64) {
        let Self {
            window,
            spare,
            timed,
            going,
            looked,
            ..
        } = self;
        *looked = now;
        if window.is_drained() {
            return;
        }
        let asker = RefCell::new(Asker::new());
        let is_passed =
            |mark: &Mark| !going.contains(&mark.context) && asker.borrow_mut().is_passed(mark);
        window.look(now, is_passed, |mark| {
            let took = mark.start.and_then(|_| asker.borrow_mut().took(&mark));
            keep(spare, timed, mark);
            Sample(took)
        });
    }

    pub(super) fn look_relaxed(&mut self, now: u64) {
        let _relaxed = Relaxed::enter();
        self.look(now);
    }

    pub(super) fn take_spare(&mut self, context: usize) -> Option<Mark> {
        take(&mut self.spare, context)
    }

    pub(super) fn take_timed(&mut self, context: usize) -> Option<Mark> {
        take(&mut self.timed, context)
    }

    pub(super) fn keep(&mut self, mark: Mark) {
        keep(&mut self.spare, &mut self.timed, mark);
    }

    pub(super) fn keep_timed(&mut self, mark: Mark) {
        keep_one(&mut self.timed, mark);
    }
}

fn take(marks: &mut Vec<Mark>, context: usize) -> Option<Mark> {
    let is_there = |mark: &Mark| mark.context.0.addr() == context;
    let at = marks.iter().rposition(is_there)?;
    Some(marks.swap_remove(at))
}

/// Keeps the events of a mark for the next ones.
pub(super) fn keep(spare: &mut Vec<Mark>, timed: &mut Vec<Mark>, mark: Mark) {
    match mark.split() {
        Some(both) => both.into_iter().for_each(|mark| keep_one(timed, mark)),
        None => keep_one(spare, mark),
    }
}

fn keep_one(marks: &mut Vec<Mark>, mark: Mark) {
    if marks.len() < SPARE {
        marks.push(mark);
    } else {
        mark.destroy();
    }
}
