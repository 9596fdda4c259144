//! Paying for held time from the bucket of the tenant's own cap, also for time that could not be
//! paid while it ran.
//!
//! The gate thread pays every few milliseconds. It does not pay for work that may wait for a
//! launch: a gate that this closed would not open for it (ADR 171). Such work is paid for when it
//! is complete, and the next launch may come before the gate thread knows that. So that launch pays
//! first.

use gpushare_pacing::cap::Bucket;

use super::{DeviceGate, Inner};
use crate::account;

impl Inner {
    /// Pays for the time held until now, as far as that may be told.
    pub(in crate::gate) fn pay(&mut self, bucket: &Bucket<'_>, now: u64) {
        let held = self.window.take_busy(now);
        self.pay_for(held, bucket, now);
    }

    /// As [`Self::pay`] where the process ends.
    fn pay_last(&mut self, bucket: &Bucket<'_>, now: u64) {
        let held = self.window.take_last(now);
        self.pay_for(held, bucket, now);
    }

    fn pay_for(&mut self, held: Option<(u64, u64)>, bucket: &Bucket<'_>, now: u64) {
        match held {
            Some(held) => match self.kept_back.take() {
                Some(paid) => bucket.pay_late(held, paid, now),
                None => bucket.pay(held.0, held.1, now),
            },
            None if self.window.is_unpaid() => {
                // Other processes pay for later times meanwhile.
                self.kept_back.get_or_insert_with(|| bucket.paid(now));
            }
            None => self.kept_back = None,
        }
    }
}

impl DeviceGate {
    /// The process ends: pays for all it held, where no daemon keeps the cap. What is seen of the
    /// work was seen before: the driver is not asked any more.
    pub(in crate::gate) fn pay_at_end(&self, now: u64) {
        let mut inner = self.lock();
        let bucket = account::compute().and_then(|compute| compute.bucket(self.index));
        if let Some(bucket) = bucket.filter(|_| inner.page.is_none()) {
            inner.pay_last(&bucket, now);
        }
    }

    /// Whether the bucket of the tenant's own cap is empty, once time that was kept back is paid
    /// for. The gate thread closes the gate for that, too, but after this: it has paid before it
    /// closes, and where this process is idle it looks once a second, while others of the tenant
    /// empty the bucket.
    pub(super) fn has_spent(&self, inner: &mut Inner, now: u64) -> bool {
        if inner.page.is_some() {
            return false;
        }
        let bucket = account::compute().and_then(|compute| compute.bucket(self.index));
        let Some(bucket) = bucket else { return false };
        if inner.window.owes(now) {
            inner.pay(&bucket, now);
            if inner.window.is_unpaid() {
                return false;
            }
        }
        bucket.is_empty(now)
    }
}
