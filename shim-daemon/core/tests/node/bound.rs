//! How long a wait for the rotation may take at most: by the terms of a device's tenants and by how
//! their processes move. Nothing of it is what the brain has measured.

use super::Node;
use gpushare_core::{Bytes, Decision, DeviceId, Nanos, Notice, Oversubscribe};

impl Node {
    /// How long two rounds of a device's rotation take at most. In a round each tenant that can be
    /// moved leaves once, and the next one stays as long as the longest stay: eleven times as long
    /// as all that any of them may have takes out and back over the slowest link. Beside that each
    /// step has the time that drains, a seal and a look may take.
    pub fn two_rounds(&self, device: DeviceId) -> Nanos {
        let terms = &self.policy.swap;
        // Before a rate was measured this one counts.
        let mut rate = terms.first_rate;
        let (mut steps, mut bytes, mut drain) = (0, Bytes::ZERO, Nanos::ZERO);
        for (tenant, guest) in &self.guests {
            let here = guest.spec.quotas.iter().any(|(on, _)| *on == device);
            let paged = match guest.spec.oversubscribe {
                Oversubscribe::Off => continue,
                Oversubscribe::Swap => false,
                Oversubscribe::Uvm => true,
            };
            if !here {
                continue;
            }
            let page = guest.page.get(&device).copied().unwrap_or_default();
            let mut own = page.max(self.charged(*tenant, device));
            if paged {
                own = own.min(self.devices[&device].capacity);
            }
            steps += 1;
            bytes = bytes.max(own);
            rate = rate.min(guest.moves.rate);
            drain = drain.max(guest.moves.drain);
        }
        let copy = u128::from(bytes.0) * 1_000_000_000 / u128::from(rate);
        let copy = Nanos(u64::try_from(copy).expect("a time"));
        let trip = drain + copy + copy;
        let stretch = self.returns.stretch.get(&device).copied().unwrap_or(1);
        let stay = Nanos(trip.0 * u64::from(terms.stay) * stretch);
        let stay = stay.max(terms.stays.0).min(terms.stays.1);
        let mut step = stay + trip + terms.drain.0 + terms.seal + terms.look_grace;
        if drain > terms.drain.0 {
            // Times and pauses that were too short, each twice the one before.
            step = step + Nanos(4 * drain.0);
        }
        Nanos(2 * steps * step.0)
    }

    /// The brain says that it doubles the stays on a device, or halves them again.
    pub(super) fn notes_stretch(&mut self, decision: &Decision) {
        let Decision::Notice(notice) = decision else {
            return;
        };
        match notice {
            Notice::Thrashing { device, .. } => {
                *self.returns.stretch.entry(*device).or_insert(1) *= 2;
            }
            Notice::Settled { device } => {
                *self.returns.stretch.entry(*device).or_insert(1) /= 2;
            }
            _ => (),
        }
    }
}
