//! How long a tenant waits for the rotation at most.
//!
//! In one round of the rotation every tenant that may be moved leaves once and the next one stays
//! its time. An ask or a return that has waited a whole round goes before all asks that are not
//! within a request, whatever their priority. So it is in after another round at the latest: the
//! bound is two rounds.

use crate::decision::Decision;
use crate::ids::{AskKey, DeviceId};
use crate::residency::{Load, Round};
use crate::time::Nanos;
use crate::timers::Timer;
use crate::world::World;

impl World {
    /// How long one round of a device's rotation takes at most.
    pub(in crate::world) fn round(&self, device: DeviceId) -> Nanos {
        self.round_of(device).time()
    }

    pub(super) fn round_of(&self, device: DeviceId) -> Round {
        let (Some(rotation), Some(books)) = (self.residency.on(device), self.ledger.get(device))
        else {
            return Round::default();
        };
        let loads = rotation.all().filter_map(|(tenant, resident)| {
            let account = books.account(tenant)?;
            (!resident.is_empty()).then(|| Load {
                // More of managed memory is never booked.
                bytes: match account.loan.paged {
                    true => account.grant.min(books.usable()),
                    false => account.grant,
                },
                paged: account.loan.paged,
            })
        });
        rotation.round(loads, &self.policy.swap)
    }

    /// The latest end of a wait for the rotation that began `since`.
    pub fn rotation_bound(&self, device: DeviceId, since: Nanos) -> Nanos {
        let round = self.round(device);
        since + round + round
    }

    /// An ask whose turn is certain waits past its own time: until its bound, extended by at most
    /// [`SwapPolicy::extension`](crate::SwapPolicy::extension) at once.
    pub(in crate::world) fn extend_turn(&mut self, ask: AskKey) {
        let Some(pending) = self.asks.get(ask).copied() else {
            return;
        };
        let now = self.timers.now();
        if !pending.turn || pending.until > now {
            return;
        }
        let bound = self.rotation_bound(pending.device, pending.since);
        let until = bound.min(now + self.policy.swap.extension);
        if until > now {
            self.asks.wait_turn(ask, until);
            self.timers.set(Timer::Patience(ask), until);
            self.decide(Decision::Extend { ask, until });
        }
    }
}
