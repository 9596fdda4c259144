//! Two registrations of one process at once. Once armed, a played daemon answers the first greeting
//! only when another connection has registered, and gives memory only to the connection that
//! registered last, as gpushared does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::waiting::{PATIENCE, until};

/// What has happened since it was armed.
#[derive(Debug, Default)]
pub struct Rivals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: bool,
    /// The connections so far.
    count: u64,
    /// The connection that greeted first.
    first: Option<u64>,
    /// Whether it has registered, or ended.
    first_is_done: bool,
    /// The connection that registered last.
    last: Option<u64>,
    registrations: u64,
}

impl Rivals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on.
    pub fn arm(&self) {
        self.state().armed = true;
    }

    /// Waits until the first connection has greeted. Its greeting is not answered yet.
    #[track_caller]
    pub fn until_the_first_greets(&self) {
        until("a process greets", || self.state().first.is_some());
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.state().count
    }

    /// How often processes have registered.
    pub fn registrations(&self) -> u64 {
        self.state().registrations
    }

    /// A connection begins. Returns its number.
    pub(crate) fn comes(&self) -> u64 {
        let mut state = self.state();
        state.count += 1;
        state.count
    }

    /// Whether the greeting of this connection may be answered.
    pub(crate) fn may_be_greeted(&self, number: u64) -> bool {
        let mut state = self.state();
        if state.armed {
            state.first.get_or_insert(number);
        }
        !state.armed || state.first != Some(number) || state.last.is_some()
    }

    /// A connection registers.
    pub(crate) fn registers(&self, number: u64) {
        let mut state = self.state();
        state.last = Some(number);
        state.registrations += 1;
        state.first_is_done |= state.first == Some(number);
        self.changed.notify_all();
    }

    /// A connection has ended.
    pub(crate) fn ends(&self, number: u64) {
        let mut state = self.state();
        state.first_is_done |= state.first == Some(number);
        self.changed.notify_all();
    }

    /// Whether this connection registered last, once the first one has registered or ended.
    pub(crate) fn has_its_place(&self, number: u64) -> bool {
        let pending = |state: &mut State| state.armed && !state.first_is_done;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), PATIENCE, pending);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.armed || state.last == Some(number)
    }
}
