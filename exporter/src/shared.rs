//! One answer for all that wait for the same, so that many askers cost the daemon little more than
//! one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::http::Answer;

/// An answer that is made by one asker at a time, for all that wait.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often its making has begun.
    begun: u64,
    /// Whether one makes it now.
    is_made: bool,
    /// How many wait for the end of that.
    waits: usize,
    /// Kept while a scrape may still be given it: a body may have tens of megabytes.
    last: Option<Last>,
}

/// The answer that was made last.
#[derive(Debug)]
struct Last {
    /// Which making it is of, from 1.
    number: u64,
    at: Instant,
    answer: Answer,
}

impl Shared {
    /// The answer: one that is younger than `keeps`, else one whose making began after this call.
    /// Waits while another makes one, and makes it where none of those that wait does.
    pub(crate) fn get(&self, keeps: Duration, make: impl FnOnce() -> Answer) -> Answer {
        let mut state = self.state();
        let came = state.begun;
        loop {
            let last = state.last.as_ref();
            if let Some(last) = last.filter(|it| it.number > came || it.at.elapsed() < keeps) {
                let answer = last.answer.clone();
                if state.waits == 0 && keeps.is_zero() {
                    state.last = None;
                }
                return answer;
            }
            if !state.is_made {
                break;
            }
            state.waits += 1;
            let woken = self.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waits -= 1;
        }
        state.begun += 1;
        state.is_made = true;
        let number = state.begun;
        drop(state);
        // Also where `make` panics: others must not wait for it.
        let _ends = Ends(self);
        let answer = make();
        let mut state = self.state();
        let is_kept = state.waits > 0 || !keeps.is_zero();
        state.last = is_kept.then(|| Last {
            number,
            at: Instant::now(),
            answer: answer.clone(),
        });
        answer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A making, which ends when this is dropped.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.state().is_made = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;

    const FOR_EVER: Duration = Duration::from_secs(1 << 30);

    /// An answer that says which one it is.
    fn counted(made: &AtomicU64) -> Answer {
        let number = made.fetch_add(1, Ordering::SeqCst) + 1;
        Answer::plain(200, &number.to_string())
    }

    #[test]
    fn those_that_come_while_one_is_made_share_the_next() {
        let (shared, made) = (Shared::default(), AtomicU64::new(0));
        let (go, wait) = channel();
        let (says, begun) = channel();
        std::thread::scope(|scope| {
            let (shared, made) = (&shared, &made);
            let first = scope.spawn(move || {
                shared.get(Duration::ZERO, || {
                    says.send(()).expect("the test waits");
                    wait.recv().expect("the test goes on");
                    counted(made)
                })
            });
            begun.recv().expect("it is asked");
            let others: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| shared.get(Duration::ZERO, || counted(made))))
                .collect();
            while shared.state().waits < others.len() {
                std::thread::yield_now();
            }
            go.send(()).expect("it waits");
            assert_eq!(&*first.join().expect("it is answered").body, "1\n");
            // The answer that was being made when they came is too old for them.
            for other in others {
                assert_eq!(&*other.join().expect("it is answered").body, "2\n");
            }
        });
        assert!(shared.state().last.is_none(), "nobody is given it any more");
        let alone = shared.get(Duration::ZERO, || counted(&made));
        assert_eq!(&*alone.body, "3\n");
    }

    #[test]
    fn one_that_is_young_enough_is_not_made_anew_and_an_older_one_is() {
        let (shared, made) = (Shared::default(), AtomicU64::new(0));
        let body = |keeps| shared.get(keeps, || counted(&made)).body;
        assert_eq!(&*body(FOR_EVER), "1\n");
        assert_eq!(&*body(FOR_EVER), "1\n");
        assert_eq!(&*body(Duration::ZERO), "2\n");
    }

    #[test]
    fn a_making_that_fails_keeps_nobody_waiting() {
        let (shared, made) = (Shared::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let fails = scope.spawn(|| shared.get(FOR_EVER, || panic!("as the test wants")));
            assert!(fails.join().is_err());
        });
        assert_eq!(&*shared.get(FOR_EVER, || counted(&made)).body, "1\n");
    }
}
