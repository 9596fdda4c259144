//! A calm: the process has submitted nothing for a while, and its next submission must be published
//! at once.
//!
//! The daemon learns from a count in the page whether a process works, which the gate thread
//! publishes now and then. From that alone a process that has just begun to work again would look
//! idle until the thread's next round. So once a round has found nothing new, [`CALM`] stands in
//! the gate's word. It sends the next launch or copy the slow way, where it is published before
//! the driver is called. All others pass as before. Why: ADR 163.

use core::sync::atomic::Ordering;

use super::Gate;
use super::word::CALM;
use crate::account;

/// What of the process's submissions is published.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// So many of them, by the count of the records. Ahead of it while one that ended a calm is not
    /// counted yet.
    count: u64,
    /// A calm began in an earlier round.
    calm: bool,
}

impl Published {
    /// Publishes by `worked` what was submitted since the last time; where nothing was, a calm
    /// begins. Whether there is one: then there is nothing to publish before it ends.
    pub(super) fn publish(&mut self, gate: &Gate, worked: impl FnOnce(u64)) -> bool {
        let ended = gate.ended_calms.swap(0, Ordering::AcqRel);
        self.count = self.count.wrapping_add(ended);
        let count = gate.records.submissions();
        let more = count.wrapping_sub(self.count);
        if more.cast_signed() > 0 {
            worked(more);
            (self.count, self.calm) = (count, false);
        } else if self.calm {
            self.calm = gate.word.load() & CALM != 0;
        } else if gate.records.counted() == Some(count) {
            // No call is in the driver that would be counted without having been seen here.
            gate.word.change(0, CALM);
            (self.count, self.calm) = (count, true);
        }
        self.calm
    }
}

impl Gate {
    /// Work comes: if that ends a calm, the daemon can see it from here on.
    #[inline]
    pub(super) fn stirs(&self) {
        if self.word.load() & CALM != 0 {
            self.ends_calm();
        }
    }

    #[cold]
    fn ends_calm(&self) {
        // In this order: a thread that finds the calm over can rely on it.
        if let Some(compute) = account::compute() {
            compute.worked(1);
        }
        self.ended_calms.fetch_add(1, Ordering::AcqRel);
        self.word.change(CALM, 0);
        // What follows is published in its rounds.
        super::wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{NOT_READY, tls};
    use crate::guest::frames::Frame;

    /// A gate at work, and what was published of it.
    fn gate() -> (&'static Gate, Published) {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new(NOT_READY)));
        gate.word.change(NOT_READY, 0);
        (gate, Published::default())
    }

    /// One launch. Whether it took the fast way.
    fn launch(gate: &'static Gate) -> bool {
        if tls::get().is_none() {
            tls::set(gate.records.claim());
        }
        let inside = gate.fast(&Frame::new());
        let fast = inside.is_some();
        match inside {
            Some(inside) => inside.leave(),
            None => {
                gate.stirs();
                gate.records.count();
            }
        }
        fast
    }

    #[test]
    fn only_the_first_launch_after_a_calm_takes_the_slow_way() {
        let (gate, mut published) = gate();
        assert!(launch(gate));
        let mut told = 0;
        assert!(!published.publish(gate, |more| told = more));
        assert_eq!(told, 1, "it works: no calm");
        assert!(launch(gate), "nor does it cost anything");
        assert!(!published.publish(gate, |_| ()));
        assert!(published.publish(gate, |_| panic!("nothing was submitted")));
        assert!(!launch(gate) && launch(gate));
        assert!(!published.publish(gate, |more| told += more));
        assert_eq!(told, 2, "one of the two was published before");
        tls::set(None);
    }

    #[test]
    fn a_calm_that_ended_is_not_begun_again_before_its_work_is_counted() {
        let (gate, mut published) = gate();
        assert!(published.publish(gate, |_| ()));
        gate.stirs();
        // The launch is on its way to the driver, and not counted yet.
        assert!(!published.publish(gate, |_| panic!("it is published")));
        gate.records.count();
        assert!(published.publish(gate, |_| panic!("once")));
        // Nor is one missed where what ended the calm was no submission.
        gate.stirs();
        assert!(!published.publish(gate, |_| ()));
        assert!(published.publish(gate, |_| ()));
        assert!(!launch(gate) && launch(gate));
        let mut told = 0;
        assert!(!published.publish(gate, |more| told = more));
        assert_eq!(told, 1);
        tls::set(None);
    }

    #[test]
    fn no_calm_begins_while_a_launch_is_in_the_driver() {
        let (gate, mut published) = gate();
        tls::set(gate.records.claim());
        let inside = gate.fast(&Frame::new()).expect("all is free");
        assert!(!published.publish(gate, |_| ()));
        inside.leave();
        assert!(!published.publish(gate, |_| ()), "it is published");
        assert!(published.publish(gate, |_| ()));
        tls::set(None);
    }
}
