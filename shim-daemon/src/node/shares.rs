//! Shares of devices' time, for `ps`: the brain's totals, and the recent part of them.

use std::collections::VecDeque;

use gpushare_core::{
    Cause, DeviceId, Mode, Nanos, Permille, ShareState as State, ShareView, TenantId,
};
use gpushare_protocol::wire::{
    Alone, Regime, ShareRow, ShareState, SharingRow, Steered, SteeredBy,
};

use super::Node;
use super::tally::DeviceTally;
use super::tenant::{Tenant, index};

/// Over how many looks, one a second, a share is counted.
const LOOKS: usize = 10;

/// A tenant on a device at a look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Nanos,
    /// The time that it had held the device.
    held: Nanos,
    /// The time in which its kernels had run while it was alone there.
    alone: Nanos,
}

/// A tenant on a device at the last few looks.
#[derive(Debug, Default)]
pub(super) struct Past(VecDeque<Seen>);

impl Past {
    fn note(&mut self, at: Nanos, held: Nanos, alone: Nanos) {
        // Less than before: it left the device in between and came back.
        if self.0.back().is_some_and(|before| before.held > held) {
            self.0.clear();
        }
        if self.0.len() >= LOOKS {
            self.0.pop_front();
        }
        self.0.push_back(Seen { at, held, alone });
    }

    /// Thousandths held since the oldest look, and for how many milliseconds that is.
    fn lately(&self, now: Nanos, held: Nanos) -> (u32, u64) {
        let Some(first) = self.0.front().filter(|first| first.held <= held) else {
            return (0, 0);
        };
        part(held - first.held, now - first.at)
    }

    /// Thousandths in which its kernels ran while it was alone, and over how many milliseconds.
    /// From look to look: NVML's samples come with the looks. `None`: it has no share of the
    /// device.
    fn alone(&self) -> Option<Alone> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let (part, over_ms) = part(last.alone - first.alone, last.at - first.at);
        Some(Alone { part, over_ms })
    }
}

/// A time as a part of another one in thousandths, and the other one in milliseconds.
fn part(of: Nanos, over: Nanos) -> (u32, u64) {
    let thousandths = u128::from(of.0) * 1000 / u128::from(over.0.max(1));
    let part = u32::try_from(thousandths).unwrap_or(u32::MAX).min(1000);
    (part, over.0 / 1_000_000)
}

impl Node {
    /// Records a tenant's holdings until now.
    pub(super) fn note_shares(&mut self, now: Nanos, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let tally = known.tally();
        let alone = (0..known.device_ids().len()).map(|at| tally.device(at));
        let alone: Vec<u64> = alone
            .map(|tally| tally.map_or(0, DeviceTally::alone))
            .collect();
        for ((device, past), alone) in known.shares_mut().zip(alone) {
            match self.world.share(tenant, *device) {
                Some(share) => past.note(now, share.held, Nanos(alone)),
                None => past.0.clear(),
            }
        }
    }

    /// How a device's time is shared.
    pub(super) fn sharing_row(&self, device: DeviceId) -> Option<SharingRow> {
        let described = index(device).and_then(|at| self.devices.get(at))?;
        let view = self.world.sharing(device)?;
        Some(SharingRow {
            device: described.uuid,
            regime: match view.mode {
                None => Regime::Turns,
                Some(Mode::Together) => Regime::Together,
                Some(Mode::Yield) => Regime::Yielding,
                Some(Mode::Hold) => Regime::Held,
            },
            changes: view.changes,
            lately: view.lately,
            off: view.off,
        })
    }

    pub(super) fn share_row(
        &self,
        now: Nanos,
        (tenant, known): (TenantId, &Tenant),
        (device_index, device): (usize, DeviceId),
    ) -> Option<ShareRow> {
        let described = index(device).and_then(|at| self.devices.get(at))?;
        let terms = known
            .compute()
            .get(device_index)
            .copied()
            .unwrap_or_default();
        let part = |part: Option<Permille>| part.map(|part| u32::from(part.get()));
        let view = self.world.share(tenant, device);
        let held = view.map_or(Nanos::ZERO, |view| view.held);
        let own = known.shares().get(device_index);
        let past = own.filter(|_| view.is_some());
        let (lately, over_ms) = past.map_or((0, 0), |past| past.lately(now, held));
        Some(ShareRow {
            name: known.name().to_owned(),
            device: described.uuid,
            weight: view.map_or(0, |view| view.weight),
            request: part(terms.request),
            cap: part(terms.cap()),
            held: lately,
            over_ms,
            state: view.map_or(ShareState::Idle, |view| state(now, &view)),
            turns: view.map_or(0, |view| view.turns),
            overruns: view.map_or(0, |view| view.overruns),
            ungated: view.map_or(0, |view| view.ungated),
            alone: own
                .and_then(Past::alone)
                .filter(|_| self.is_sampled(known, device_index)),
            steered: view.and_then(|view| self.steered(view)),
        })
    }

    /// Why a tenant yields or is held, and for which.
    fn steered(&self, view: ShareView) -> Option<Steered> {
        let steered = view.steered?;
        let other = steered.tenant.and_then(|other| self.tenants.get(&other));
        Some(Steered {
            cause: match steered.cause {
                Cause::Share => SteeredBy::Share,
                Cause::Request => SteeredBy::Request,
                Cause::Priority => SteeredBy::Priority,
                Cause::Turn => SteeredBy::Turn,
                Cause::Gang => SteeredBy::Gang,
            },
            tenant: other.map(|other| other.name().to_owned()),
        })
    }
}

fn state(now: Nanos, view: &ShareView) -> ShareState {
    let for_us = (now - view.since).0 / 1_000;
    match view.state {
        State::Free => ShareState::Free,
        State::Idle => ShareState::Idle,
        State::Holding => ShareState::Holding { for_us },
        State::Draining => ShareState::Draining { for_us },
        State::Waiting => ShareState::Waiting { for_us },
        State::Capped => ShareState::Capped { for_us },
        State::Sharing => ShareState::Sharing { for_us },
        State::Yielding => ShareState::Yielding { for_us },
        State::Held => ShareState::Held { for_us },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_is_counted_over_the_last_looks() {
        let mut past = Past::default();
        assert_eq!(past.lately(Nanos::secs(1), Nanos::ZERO), (0, 0));
        // Half of the first ten seconds, all of the next ten.
        for second in 0..=20 {
            let held = Nanos::millis(second * 500) + Nanos::millis(second.saturating_sub(10) * 500);
            past.note(Nanos::secs(second), held, Nanos::ZERO);
        }
        assert_eq!(
            past.lately(Nanos::secs(21), Nanos::secs(16)),
            (1000, 10_000)
        );
    }

    #[test]
    fn what_one_had_alone_is_counted_from_look_to_look() {
        let mut past = Past::default();
        assert_eq!(past.alone(), None);
        // Nine tenths of the time, for which nothing is billed.
        for second in 0..=20 {
            let alone = Nanos::millis(second * 900);
            past.note(Nanos::secs(second), Nanos::ZERO, alone);
        }
        let (part, over_ms) = (900, 9_000);
        assert_eq!(past.alone(), Some(Alone { part, over_ms }));
        assert_eq!(past.lately(Nanos::secs(21), Nanos::ZERO), (0, 10_000));
    }

    #[test]
    fn one_that_left_and_came_back_is_counted_anew() {
        let mut past = Past::default();
        past.note(Nanos::secs(1), Nanos::secs(1), Nanos::ZERO);
        past.note(Nanos::secs(2), Nanos::millis(100), Nanos::ZERO);
        assert_eq!(past.lately(Nanos::secs(3), Nanos::millis(350)), (250, 1000));
        // Before the next look has noticed.
        assert_eq!(past.lately(Nanos::secs(3), Nanos::ZERO), (0, 0));
    }
}
