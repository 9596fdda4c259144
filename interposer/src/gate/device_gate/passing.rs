//! While the tenant yields, its processes submit their slices one after another: the process that
//! has the tenant's token of the device. Why: ADR 274.

use std::time::Duration;

use gpushare_protocol::page::token::Taken;

use super::{DeviceGate, Inner, clock};
use crate::account;
use crate::gate::{has_waited, will_wait};
use crate::guest::frames;
use crate::guest::futex::{FutexWaiter, wake_one_of_page, wake_page};

impl DeviceGate {
    /// Nothing of this process is under way: the next slice may be another process's.
    pub(super) fn emptied(&self, inner: &mut Inner, now: u64) {
        let waits = inner.slices.emptied();
        if !inner.hold.is_held() {
            return;
        }
        let token = account::compute().and_then(|compute| compute.token(self.index));
        if let Some((token, slot)) = token
            && inner.hold.emptied(token, slot, now, waits)
        {
            wake_one_of_page(&token.freed);
        }
    }

    /// The tenant does not yield: no process of it waits for another one.
    pub(super) fn rests(&self, inner: &mut Inner, now: u64) {
        inner.slices.rest();
        if !inner.hold.is_held() {
            return;
        }
        let token = account::compute().and_then(|compute| compute.token(self.index));
        if let Some((token, slot)) = token
            && inner.hold.ends(token, slot, now)
        {
            wake_page(&token.freed);
        }
    }

    /// Whether a launch has to wait because it begins a slice, which should take so long, and it is
    /// another process's turn.
    pub(super) fn begins_slice(&self, inner: &mut Inner, now: u64, expected: u64) -> Option<Taken> {
        if !inner.slices.is_new() {
            return None;
        }
        let (token, slot) = account::compute()?.token(self.index)?;
        inner.hold.begins(token, slot, now, expected).err()
    }

    /// Sleeps outside the gate until another process of the tenant may have freed the token. It is
    /// said meanwhile that a launch waits.
    pub(in crate::gate) fn wait_for_token(&self, taken: Taken) {
        let Some((token, _)) = account::compute().and_then(|compute| compute.token(self.index))
        else {
            return;
        };
        let now = clock::now();
        let until = now.saturating_add(taken.nap);
        will_wait(self.index, until);
        {
            let mut inner = self.lock();
            inner.waited = until;
            self.settle(&mut inner, now);
        }
        let waiter = FutexWaiter::of_page_at(&token.freed, taken.seen);
        frames::away(|| waiter.sleep(Duration::from_nanos(taken.nap)));
        has_waited(self.index, until);
    }
}
