//! An agreement on the number of launches. Threads whose kernels wait for each other must launch
//! equally many kernels: a thread with one more launch than its peers would occupy its GPU for
//! ever.

use std::sync::{Mutex, PoisonError};

/// The number of launches that each of several threads may make. The threads continue until one of
/// them wants to end; then all make as many launches as the thread that is furthest ahead.
#[derive(Debug)]
pub(crate) struct Pact(Mutex<State>);

#[derive(Debug)]
struct State {
    claimed: Vec<u64>,
    most: Option<u64>,
}

impl Pact {
    /// An agreement between `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self(Mutex::new(State {
            claimed: vec![0; threads],
            most: None,
        }))
    }

    /// Whether this thread makes another launch; if so, it must make it. `over`: the thread wants
    /// to end.
    pub(crate) fn claim(&self, thread: usize, over: bool) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if over && state.most.is_none() {
            state.most = state.claimed.iter().max().copied();
        }
        let most = state.most.unwrap_or(u64::MAX);
        match state.claimed.get_mut(thread) {
            Some(claimed) if *claimed < most => {
                *claimed += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_make_as_many_launches_as_the_furthest_when_one_is_told_to_end() {
        let pact = Pact::new(2);
        assert!((0..5).all(|_| pact.claim(0, false)));
        assert!(pact.claim(1, false));
        assert!(pact.claim(1, true), "it is behind");
        let rest = (0..).take_while(|_| pact.claim(1, false)).count();
        assert_eq!(1 + 1 + rest, 5);
        assert!(!pact.claim(0, false) && !pact.claim(0, true));
    }

    #[test]
    fn nobody_ends_while_nobody_is_told_to() {
        let pact = Pact::new(2);
        assert!((0..1_000).all(|_| pact.claim(0, false)));
    }
}
