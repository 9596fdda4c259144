//! What the daemon is shown of a device's work, and what the page says of it since the gate thread
//! last looked.

use gpushare_protocol::page::lease::{NO_DEADLINE, Turn};

use gpushare_protocol::page::control::ControlDevice;

use super::{Column, Inner, PAUSE, Stand, WINDOW};
use crate::account;
use crate::gate::ledger::Rules;
use crate::gate::waits_at;

/// Times that work which came while nothing bound is tried to be marked before it is let be.
const GLANCES: u32 = 50;

/// Whether tenants work on the device at the same time under this turn.
pub(super) fn is_shared(turn: &Turn) -> bool {
    turn.deadline == NO_DEADLINE && turn.idle_after > 0
}

impl Column {
    /// The daemon's page says what holds, or nobody does. What was held until now is not paid here:
    /// the daemon charges for it.
    pub(in crate::gate) fn is_led_by(&self, page: Option<&'static ControlDevice>, now: u64) {
        let mut inner = self.lock();
        if page.is_some() {
            // Should the daemon go, the bucket begins with what comes then.
            let _ = inner.window.take_busy(now);
        }
        inner.page = page;
    }

    /// A launch waits at the closed gate. The epoch if nobody has said so in it yet.
    pub(in crate::gate) fn waits(&self) -> Option<u64> {
        let mut inner = self.lock();
        self.settle(&mut inner, crate::gate::now());
        inner.mirror.want()
    }

    /// After anything that may have ended or begun something: tells the daemon, and those who wait
    /// for an empty device.
    pub(super) fn settle(&self, inner: &mut Inner, now: u64) {
        let service = inner.window.take_service();
        inner.report.completed(service.measured, service.guessed);
        let is_free = inner.mirror.stand() == Stand::Free;
        let is_empty = inner.window.is_empty();
        if is_empty {
            inner.slices.emptied();
            self.wake_sleeper(inner);
        }
        // While nothing binds nobody looks: what may be under way then is not counted.
        let ended = if is_free {
            now
        } else {
            inner.window.last_active()
        };
        let waits = !is_free && waits_at(self.index, now);
        inner
            .report
            .stands(now, !is_free && !is_empty, waits, ended);
        let words = inner.report.words();
        if words != inner.published
            && let Some(compute) = account::compute()
        {
            compute.reports(self.index, words.service, words.busy, words.pending);
            inner.published = words;
        }
    }

    /// The gate has opened for the first time: work that nobody noted gets marks, so that it is
    /// known when it ends. Launches that are still inside may come behind them; a close marks
    /// again.
    pub(super) fn glance(&self, turn: &Turn) {
        if !is_shared(turn) || !self.lock().wants_glance() {
            return;
        }
        let done = self.mark_unseen();
        let mut inner = self.lock();
        inner.glances = if done { GLANCES } else { inner.glances + 1 };
    }
}

impl Inner {
    /// Whether work may be under way that nobody noted, and marks behind it were not tried for in
    /// vain for long.
    pub(super) fn wants_glance(&self) -> bool {
        self.unseen && self.glances < GLANCES
    }

    /// Reads what the page may have changed in the same epoch. A turn with a deadline keeps what it
    /// was opened with.
    pub(super) fn refresh(&mut self, now: u64) {
        let shared = self.page.filter(|_| self.bounds.deadline == NO_DEADLINE);
        let Some(page) = shared else {
            (self.slice, self.contended) = (0, false);
            self.window.contends(now, false);
            return;
        };
        self.rules = Rules::of(page);
        self.slice = self.rules.slice;
        self.contended = self.rules.contended != 0;
        self.window.contends(now, self.contended);
        let window = self.rules.window;
        self.bounds.window = if window == 0 { WINDOW } else { window };
    }

    /// Whether everything should be complete, and there are marks to ask: what comes now may come
    /// after a pause.
    pub(super) fn may_have_paused(&self, now: u64) -> bool {
        self.page.is_some()
            && now.saturating_sub(self.looked) >= PAUSE
            && self.window.has_marks()
            && self.window.left(now) == 0
    }
}
