//! The reports on a device's work to the daemon, and the page's changes since the gate thread last
//! looked.

use core::sync::atomic::Ordering;

use gpushare_protocol::page::lease::{NO_DEADLINE, Turn};

use gpushare_protocol::page::control::ControlDevice;

use super::{DeviceGate, GateState, Inner, PAUSE, bounds};
use crate::account;
use crate::gate::is_waited_for;
use crate::gate::ledger::Rules;
use crate::guest::clock;
use gpushare_pacing::window::LOOK;

/// The most attempts to mark untracked work at an open gate; also once that was done.
const GLANCES: u32 = 50;

impl DeviceGate {
    /// The daemon's page gives the turns, or no page does; whether one did before. The time held
    /// until now is not paid here: the daemon bills it.
    pub(in crate::gate) fn is_led_by(
        &self,
        page: Option<&'static ControlDevice>,
        now: u64,
    ) -> bool {
        let mut inner = self.lock();
        if page.is_some() {
            // If the daemon exits, the bucket begins with the time after that.
            let _ = inner.window.take_busy(now);
            inner.kept_back = None;
        }
        let was_led = core::mem::replace(&mut inner.page, page).is_some();
        if was_led && page.is_none() {
            inner.follower.falls_silent();
        }
        was_led
    }

    /// A launch waits at the closed gate. The epoch, if that was not reported in it yet.
    pub(in crate::gate) fn waits(&self) -> Option<u64> {
        let mut inner = self.lock();
        inner.window.keeps();
        self.settle(&mut inner, clock::now());
        inner.follower.want()
    }

    /// Whether the `first` launch of a function or graph may load something in the driver. Where
    /// launches are synchronous their work is done in the call as well, and that counts.
    pub(super) fn may_load(&self, first: bool) -> bool {
        first && !self.synchronous
    }

    /// Called when work may have begun or ended: reports to the daemon, and wakes threads that wait
    /// for an empty device.
    pub(super) fn settle(&self, inner: &mut Inner, now: u64) {
        let service = inner.window.take_service();
        inner.report.completed(service.measured, service.guessed);
        inner.report.ran_longer(service.longer);
        let is_free = inner.follower.stand() == GateState::Free;
        let is_empty = inner.window.is_empty();
        if is_empty {
            self.emptied(inner, now);
            self.wake_sleeper(inner);
        }
        // While the device is unbound no thread looks: work that may be in flight then is not
        // counted.
        let ended = if is_free {
            now
        } else {
            inner.window.last_active()
        };
        let waits = !is_free && is_waited_for(self.index, now);
        let under_way = !is_free && inner.has_work();
        inner.report.stands(now, under_way, waits, ended);
        let words = inner.report.words();
        if words != inner.published
            && let Some(compute) = account::compute()
        {
            compute.reports(self.index, &words);
            inner.published = words;
        }
    }

    /// The gate has opened for the first time: untracked work gets marks, so that its end is
    /// noticed. Launches that are still inside may come behind them; a close marks again.
    pub(super) fn glance(&self, turn: &Turn) {
        if !turn.is_shared() || !self.lock().wants_glance() {
            return;
        }
        let done = self.mark_unseen();
        let mut inner = self.lock();
        let tried = |tries| if done { GLANCES } else { tries + 1 };
        inner.unseen = inner.unseen.map(tried);
    }
}

impl Inner {
    /// Whether work is in flight as far as the daemon is told. While a call loads a module, that is
    /// what the driver has taken: the load is no work, and other calls may wait for it.
    fn has_work(&self) -> bool {
        if self.loading > 0 {
            !self.window.is_drained()
        } else {
            !self.window.is_empty()
        }
    }

    /// A launch that might load (`loads`) has come back from the driver.
    pub(super) fn has_loaded(&mut self, loads: bool) {
        self.loading = self.loading.saturating_sub(loads.into());
    }

    /// Whether untracked work may be in flight, and attempts to mark it have not failed for long.
    pub(super) fn wants_glance(&self) -> bool {
        self.unseen.is_some_and(|tries| tries < GLANCES)
    }

    /// The gate opens or closes.
    pub(super) fn moved(&mut self, was_free: bool) {
        if was_free || self.unseen.is_some() {
            self.unseen = Some(0);
        }
        self.left.clear();
    }

    /// Reads changes of the page within the same epoch. A turn with a deadline keeps its initial
    /// values.
    pub(super) fn refresh(&mut self, now: u64) {
        let shared = self.page.filter(|_| self.bounds.deadline == NO_DEADLINE);
        self.rules = shared.map_or_else(Rules::default, Rules::of);
        self.window.contends(now, self.rules.contended != 0);
        if let Some(page) = shared {
            let slice = page.driver_slice.load(Ordering::Relaxed);
            self.window.set_slice(slice);
            self.bounds = bounds(self.rules.window, NO_DEADLINE);
        }
    }

    /// Whether so much is under way that the marks are worth a look, and the last one was not just
    /// now.
    pub(super) fn should_look(&self, now: u64) -> bool {
        self.window.is_half_full(self.bounds) && now.saturating_sub(self.looked) >= LOOK
    }

    /// Whether all work should be complete, and there are marks to query: the next work may come
    /// after a pause.
    pub(super) fn may_have_paused(&self, now: u64) -> bool {
        self.page.is_some()
            && now.saturating_sub(self.looked) >= PAUSE
            && self.window.has_marks()
            && self.window.left(now) == 0
    }
}
