//! Looks at a device again while an ask or a return waits for bytes that its accounts show as free,
//! or will, or that the driver may give back without a word.
//!
//! A regular look comes once a second. A driver that gave memory back a millisecond after the last
//! one would keep a waiter for the whole of that second, so the device is looked at again after 1,
//! 2, 4 … milliseconds, within the bounds of [`Looks`].
//!
//! [`Looks`]: crate::ledger::Looks

use super::World;
use super::pending::Want;
use crate::decision::Decision;
use crate::ids::DeviceId;
use crate::timers::Timer;

impl World {
    /// Memory was, or may have been, given back on the device: a look is due at once, and more soon
    /// if an ask waits.
    pub(super) fn look_soon(&mut self, device: DeviceId) {
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        books.looks.given_back();
        self.look_again(device);
    }

    /// A look is due, if it still matters and may be taken now.
    pub(super) fn look_again(&mut self, device: DeviceId) {
        let waited_for = self.is_waited_for(device);
        let now = self.timers.now();
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        if !waited_for && !books.looks.is_owed() {
            return;
        }
        match books.looks.take(now) {
            Err(at) => self.timers.set(Timer::Look(device), at),
            Ok(()) => {
                let next = waited_for.then(|| books.looks.next(now)).flatten();
                match next {
                    Some(at) => self.timers.set(Timer::Look(device), at),
                    None => self.timers.stop(Timer::Look(device)),
                }
                self.decide(Decision::Resample { device });
            }
        }
    }

    /// The waiting asks on the device may have changed: starts repeated looks where they help, ends
    /// them where they do not.
    pub(super) fn mind_looks(&mut self, device: DeviceId) {
        let waited_for = self.is_waited_for(device);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        if books.looks.is_owed() {
            return;
        }
        if !waited_for {
            books.looks.rest();
            self.timers.stop(Timer::Look(device));
        } else if books.looks.is_fresh() {
            let next = books.looks.next(self.timers.now());
            if let Some(at) = next {
                self.timers.set(Timer::Look(device), at);
            }
        }
    }

    /// Whether an ask or a return waits that a look could let through.
    fn is_waited_for(&self, device: DeviceId) -> bool {
        let Some(books) = self.ledger.get(device) else {
            return false;
        };
        // The driver has it, or a context that has just ended may be about to return it.
        let is_of_driver = |want: Want| matches!(want, Want::Physical { .. }) || want.is_more();
        let any_is = || {
            let mut asks = self.asks.on(device);
            asks.any(|(_, pending)| is_of_driver(pending.want))
        };
        let returns = || self.returning(device).next().is_some();
        let waits = self.asks.count_on(device) > 0 || returns();
        waits && (books.may_return() || any_is())
    }
}
