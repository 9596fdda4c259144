//! Unused grants are taken back in two steps. The grant in the control page is lowered first. Then
//! only the memory that the usage page and the device show as unused is free. Until that answer the
//! old grant counts.

use super::World;
use super::pending::Pending;
use crate::decision::{Answer, Decision};
use crate::ids::{DeviceId, ReclaimId, TenantId};
use crate::room::Room;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;

impl World {
    /// The room that reclaims under way will give if all goes well.
    pub(super) fn lowering(&self, device: DeviceId) -> Room {
        let Some(books) = self.ledger.get(device) else {
            return Room::default();
        };
        let lowered = books.accounts().filter_map(|(tenant, account)| {
            let to = account.lowering?.to;
            let mut after = account.clone();
            after.grant = to;
            Some(books.given_by(tenant, &after))
        });
        lowered.fold(Room::default(), |sum, room| sum + room)
    }

    /// [`Self::reclaim_unused`] for a waiter that is not within its request: what a tenant freed a
    /// moment ago in its turn of the rotation stays its own for a while.
    pub(super) fn reclaim_spared(
        &mut self,
        device: DeviceId,
        except: Option<TenantId>,
        short: Room,
    ) -> Room {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let spared: Vec<(TenantId, Nanos)> = all
            .filter_map(|(tenant, _)| Some((tenant, self.spared_until(tenant, device)?)))
            .collect();
        let soonest = spared.iter().map(|(_, until)| *until).min();
        let spared: Vec<TenantId> = spared.iter().map(|(tenant, _)| *tenant).collect();
        let given = self.reclaim_but(
            device,
            |tenant| Some(tenant) == except || spared.contains(&tenant),
            short,
        );
        if !(short - given).is_zero() {
            self.wait_turn_until(device, soonest);
        }
        given
    }

    /// Reclaims unused grants, largest first, until `short` is covered. Returns the reclaimed
    /// amount.
    pub(super) fn reclaim_unused(
        &mut self,
        device: DeviceId,
        except: Option<TenantId>,
        short: Room,
    ) -> Room {
        self.reclaim_but(device, |tenant| Some(tenant) == except, short)
    }

    fn reclaim_but(
        &mut self,
        device: DeviceId,
        except: impl Fn(TenantId) -> bool,
        short: Room,
    ) -> Room {
        let Some(books) = self.ledger.get(device) else {
            return Room::default();
        };
        let mut lenders: Vec<(Reverse<Bytes>, TenantId)> = books
            .accounts()
            .filter(|(tenant, account)| {
                !except(*tenant) && account.lowering.is_none() && !account.unused().is_zero()
            })
            .map(|(tenant, account)| (Reverse(account.unused()), tenant))
            .collect();
        lenders.sort_unstable();
        let mut called_back = Room::default();
        for (_, lender) in lenders {
            let missing = short - called_back;
            if missing.is_zero() {
                break;
            }
            let ends = self
                .tenants
                .get(lender)
                .is_some_and(|known| known.ending().is_some());
            if self.all_adopted(lender) && !ends {
                called_back += self.lower_for(lender, device, missing);
            }
        }
        called_back
    }

    /// Lowers one grant by the missing amount, if that helps. Returns the reduction.
    fn lower_for(&mut self, tenant: TenantId, device: DeviceId, missing: Room) -> Room {
        let account = self.ledger.account(device, tenant);
        let Some(account) = account else {
            return Room::default();
        };
        let least = account.in_use + self.late_credit(tenant, device);
        // Firm memory shrinks only above the request, so that much more of the grant has to go.
        let to = [missing.taken.max(missing.firm), Bytes::MAX]
            .map(|bytes| (account.grant - bytes).max(least.min(account.grant)));
        let Some(books) = self.ledger.get(device) else {
            return Room::default();
        };
        let gives = |to: Bytes| {
            let mut after = account.clone();
            after.grant = to;
            books.given_by(tenant, &after)
        };
        let to = if missing.within(gives(to[0])) {
            to[0]
        } else {
            to[1]
        };
        let given = gives(to);
        if given.min(missing).is_zero() {
            return Room::default();
        }
        self.lower(tenant, device, to);
        given
    }

    fn lower(&mut self, tenant: TenantId, device: DeviceId, to: Bytes) {
        let Some((reclaim_id, to)) = self.ledger.lower(device, tenant, to) else {
            return;
        };
        self.decide(Decision::Reclaim {
            reclaim_id,
            tenant,
            device,
            to,
        });
    }

    /// A grant above a lowered limit follows the usage down. The control page shows the allowed
    /// grant at once.
    pub(super) fn trim(&mut self, tenant: TenantId, device: DeviceId) {
        let account = self.ledger.account(device, tenant);
        let Some(account) = account else {
            return;
        };
        let least = account.in_use + self.late_credit(tenant, device);
        let to = account.ceiling().max(least).min(account.grant);
        let under_way = account.lowering.is_some_and(|lowering| lowering.to <= to);
        let due = to < account.grant || account.ceiling() < account.page;
        if due && !under_way && self.all_adopted(tenant) {
            self.lower(tenant, device, to);
        } else {
            self.show_grant(tenant, device);
        }
    }

    /// Facts overdrew the device: unused grants are called back until it holds again, asked for or
    /// not.
    pub(super) fn call_back_deficit(&mut self, device: DeviceId) {
        let deficit = self
            .ledger
            .get(device)
            .map_or(Bytes::ZERO, |books| books.deficit());
        if !deficit.is_zero() {
            let missing = deficit - self.lowering(device).taken;
            self.reclaim_unused(
                device,
                None,
                Room {
                    taken: missing,
                    firm: Bytes::ZERO,
                },
            );
        }
    }

    /// A reclaim was carried out. Memory that the page still shows held, or the device shows used,
    /// stays granted.
    pub(super) fn reclaimed(
        &mut self,
        reclaim_id: ReclaimId,
        tenant: TenantId,
        device: DeviceId,
        held: Bytes,
        used: Option<Bytes>,
    ) {
        let account = self.ledger.account(device, tenant);
        let gone = account.map(|account| self.gone_by_report(device, tenant, account));
        let gone = gone.unwrap_or_default().min(held);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let settled = books.change(tenant, |account| {
            let lowering = account
                .lowering
                .take_if(|lowering| lowering.reclaim_id == reclaim_id)?;
            let shown = used.map_or(Bytes::ZERO, |used| {
                // What the driver keeps of managed pages that have gone is listed, and nobody's.
                let kept = (used - (held - gone + account.overhead)).min(gone);
                used - kept - account.overhead + account.away
            });
            let (before, away) = (account.used_by_page(), account.away);
            account.in_use = held.max(shown).min(account.grant);
            account.late = account.in_use - held;
            account.grant = lowering.to.max(account.in_use);
            account.away = account.away.min(account.in_use);
            account.lower_residue(before, away);
            let lags = shown > held && account.grant > lowering.to;
            if account.late.is_zero() {
                account.judged = None;
                return Some((false, lags));
            }
            // Only memory given back since a reclaim was last found late is worth an immediate
            // look.
            let before = account.judged.replace(held);
            Some((before.is_none_or(|before| held < before), lags))
        });
        let Some((given_back, lags)) = settled.flatten() else {
            return;
        };
        if lags {
            books.lag(self.timers.now());
        }
        self.show_grant(tenant, device);
        self.trim(tenant, device);
        self.freed(device);
        if given_back {
            self.look_soon(device);
        }
    }

    /// Memory that a tenant has freed since one of its processes asked: that ask need not wait for
    /// it.
    pub(super) fn lower_wants(&mut self, tenant: TenantId, device: DeviceId) {
        let account = self.ledger.account(device, tenant);
        let in_use = account.map_or(Bytes::ZERO, |account| account.in_use);
        self.asks.lower(device, tenant, in_use);
    }

    /// A waiting ask was granted, and its tenant holds `level` with it: what its siblings wait for
    /// comes on top of that. An ask that the limit has no room for by that is answered all the
    /// same: its process asks again by what is charged then, which may be less.
    pub(super) fn raise_wants(&mut self, granted: &Pending, level: Bytes) {
        let (tenant, device) = (granted.tenant, granted.device);
        let Some(account) = self.ledger.account(device, tenant) else {
            return;
        };
        let (grant, bounds) = (account.page, [account.ceiling(), account.limit]);
        for ask in self.asks.raise(device, tenant, level, bounds) {
            self.answer(ask, Answer::Granted { grant });
        }
    }

    /// The content of a usage page. It is believed only within the grant, and changes only that
    /// tenant's own accounts.
    pub(super) fn usage(&mut self, tenant: TenantId, device: DeviceId, in_use: Bytes) {
        let (mut moved, mut freed) = (false, None);
        let changed = self.ledger.change(device, tenant, |account| {
            let shown = account.used_by_page();
            let before = std::mem::replace(&mut account.in_use, in_use.min(account.grant));
            freed = Some(before).filter(|before| account.in_use < *before);
            account.late = Bytes::ZERO;
            let away = account.away;
            // While it is out it frees what stays on the card: a free of the rest waits for the
            // seal.
            account.away = away.min(account.in_use);
            account.lower_residue(shown, away);
            moved = away != account.away;
            before != account.in_use
        });
        if moved {
            // Memory that was away and is freed leaves credit, which counts as on the card.
            self.trim(tenant, device);
            self.facts_changed(device);
        }
        if changed == Some(true) {
            self.note_holding(tenant, device, freed);
            if freed.is_some() {
                self.trim_host(tenant, device);
            }
            self.lower_wants(tenant, device);
            self.trim(tenant, device);
            self.freed(device);
        }
    }
}
