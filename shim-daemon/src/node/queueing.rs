//! What a tenant waits for before its admission, in words with numbers.

use std::collections::BTreeSet;

use gpushare_core::{DeviceId, Preemptible, TenantId};
use gpushare_protocol::units::Bytes;

use super::Node;

impl Node {
    /// Describes, with numbers, what a tenant waits for before its admission.
    pub(super) fn waits_for(&self, tenant: TenantId) -> String {
        if self.is_recovering() {
            return "waits until programs of the previous daemon have reported their memory"
                .to_owned();
        }
        if let Some(first) = self.world.queues_behind(tenant) {
            let first = self.name(first);
            return format!(
                "fits, and waits behind {first}, which no later request overtakes (gpushare why {first}); to start it sooner, end {first} or lower its request (gpushare set {first} --mem-request SIZE)"
            );
        }
        let mut least: Option<Bytes> = None;
        let (mut asked, mut fits, mut holders) = (Vec::new(), Vec::new(), BTreeSet::new());
        let device_ids = self.tenants.get(&tenant).map(|known| known.device_ids());
        for device in device_ids.into_iter().flatten() {
            let quota = self.world.spec(tenant).and_then(|spec| spec.quota(*device));
            let (Some(quota), Some(view)) = (quota, self.world.device(*device)) else {
                continue;
            };
            if quota.request.is_zero() {
                continue;
            }
            let context = self.world.context_cost(*device);
            let left = view.usable - view.firm - context;
            least = Some(least.map_or(left, |least| least.min(left)));
            let above = self.held_above(*device, tenant);
            let text = format!(
                "{} and {} for a context on {}, where {} of {} are promised{}",
                quota.request.human(),
                context.human(),
                self.device_name(*device),
                view.firm.human(),
                view.usable.human(),
                parts(
                    above.map_or(Bytes::ZERO, |(bytes, _)| bytes),
                    view.unmanaged
                )
            );
            // A device with room for it is not what it waits for.
            match quota.request <= left {
                true => fits.push(text),
                false => {
                    asked.push(text);
                    holders.extend(above.map(|(_, holder)| self.name(holder)));
                }
            }
        }
        if asked.is_empty() {
            asked = fits;
        }
        let left = least.unwrap_or(Bytes::ZERO);
        let start = if left.is_zero() {
            String::new()
        } else {
            format!(
                ", or start this with a --mem-request of at most {}",
                left.human()
            )
        };
        let stays = match holders.is_empty() {
            true => String::new(),
            false => {
                let holders: Vec<_> = holders.into_iter().collect();
                format!(
                    " (not that of {}, whose memory above it is not taken back)",
                    holders.join(" or ")
                )
            }
        };
        format!(
            "waits until its request fits beside all others: {}; to start it sooner, end another (gpushare ps), lower another's request (gpushare set NAME --mem-request SIZE){stays}{start}",
            asked.join("; ")
        )
    }

    /// What others than this tenant hold on a device above their requests and that is not taken
    /// back, and the one that holds most of it.
    fn held_above(&self, device: DeviceId, tenant: TenantId) -> Option<(Bytes, TenantId)> {
        let others = self.tenants.keys().copied();
        let others = others.filter(|other| *other != tenant);
        let held = others.filter_map(|other| {
            let spec = self.world.spec(other)?;
            if spec.preemptible != Preemptible::Never {
                return None;
            }
            let account = self.world.account(other, device)?;
            Some((account.grant - account.quota.request, other))
        });
        let held: Vec<(Bytes, TenantId)> = held.filter(|(bytes, _)| !bytes.is_zero()).collect();
        let (_, most) = held.iter().max()?;
        Some((held.iter().map(|(bytes, _)| *bytes).sum(), *most))
    }
}

/// What of a device's promised memory no tenant requested.
fn parts(above: Bytes, unmanaged: Bytes) -> String {
    let mut parts = Vec::new();
    if !above.is_zero() {
        parts.push(format!("{} above requests", above.human()));
    }
    if !unmanaged.is_zero() {
        parts.push(format!(
            "{} by processes of no tenant (gpushare events --kind unmanaged)",
            unmanaged.human()
        ));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(", of which are held {}", parts.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_memory_that_no_tenant_requested_is_told_apart() {
        let none = Bytes::ZERO;
        assert_eq!(parts(none, none), "");
        let above = ", of which are held 14 GiB above requests";
        assert_eq!(parts(Bytes::gib(14), none), above);
        let both = parts(Bytes::gib(1), Bytes::gib(8));
        assert!(both.contains("1 GiB above requests and 8 GiB by"), "{both}");
    }
}
