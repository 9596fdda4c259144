//! Looks at the device show how much of a tenant's memory is on the card. A tenant's own report of
//! it only tells when to look.

use crate::decision::{Decision, Notice};
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::{Load, Place};
use crate::time::Nanos;
use crate::timers::Timer;
use crate::world::World;
use crate::world::unlisted::Gaps;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// The longest pause between looks at a tenant whose memory is reported gone.
const PAUSE: Nanos = Nanos::millis(64);
/// By how much less may be seen gone than was reported: 8 MiB and a part in 32.
const TOLERANCE: (Bytes, u64) = (Bytes::mib(8), 32);
/// A look reads the device's total and the list of its processes one after the other. For so long
/// after a tenant's report, memory in the total that no process lists is taken for the tenant's.
const APART: Nanos = Nanos::millis(200);

impl World {
    /// A look that was `taken` then shows what each tenant's processes hold. `None`: the device
    /// does not list them, and only the total is known; then reports count, and what the total
    /// shows beyond them is no tenant's. Of managed memory they always count: the driver keeps the
    /// memory of pages that have left, and gives it to whatever needs it.
    pub(in crate::world) fn update_away(
        &mut self,
        device: DeviceId,
        taken: Nanos,
        living: Option<&BTreeMap<TenantId, Bytes>>,
    ) {
        if let Some(living) = living {
            self.hand_over(device, taken, living);
        }
        let Some(rotation) = self.residency.on(device) else {
            return;
        };
        let seen = rotation.all().filter_map(|(tenant, resident)| {
            let after = match resident.place() {
                Place::Out => true,
                Place::Confirming => taken > resident.since(),
                _ => false,
            };
            after.then(|| (tenant, resident.told_away()))
        });
        let seen: Vec<(TenantId, Bytes)> = seen.collect();
        for (tenant, told) in seen {
            self.ledger.change(device, tenant, |account| {
                let living = living.filter(|_| !account.loan.paged);
                // What it has freed and the device did not show free counts as on the card.
                let in_use = account.used_by_page();
                account.away = match living {
                    None => told.min(in_use),
                    Some(living) => {
                        let used = living.get(&tenant).copied().unwrap_or_default();
                        in_use - (used - account.overhead)
                    }
                };
            });
        }
    }

    /// The memory that a tenant with managed memory has reported gone.
    pub(in crate::world) fn gone_by_report(
        &self,
        device: DeviceId,
        tenant: TenantId,
        account: &Account,
    ) -> Bytes {
        let resident = self.residency.get(device, tenant);
        let resident = resident.filter(|resident| {
            account.loan.paged && matches!(resident.place(), Place::Confirming | Place::Out)
        });
        let told = resident.map_or(Bytes::ZERO, |resident| resident.told_away());
        told.min(account.used_by_page())
    }

    /// Takes out of what is `living` the memory that the driver keeps of managed pages which are
    /// reported gone: it gives that away before it moves anything. So it counts for nothing, up to
    /// what was reported. Returns its sum.
    pub(in crate::world) fn drop_kept(
        &self,
        device: DeviceId,
        living: &mut BTreeMap<TenantId, Bytes>,
    ) -> Bytes {
        let mut all = Bytes::ZERO;
        let books = self.ledger.get(device).into_iter();
        for (tenant, account) in books.flat_map(|books| books.accounts()) {
            let told = self.gone_by_report(device, tenant, account);
            let Some(shown) = living.get_mut(&tenant).filter(|_| !told.is_zero()) else {
                continue;
            };
            let stays = account.used_by_page() - told + account.overhead;
            let kept = (*shown - stays).min(told);
            *shown -= kept;
            all += kept;
        }
        all
    }

    /// Memory of tenants that report it gone, or a part of it, which their processes no longer list
    /// and the device's total still has, of so much that no process lists. It is added to what is
    /// `living`, beside what fills its gap.
    pub(in crate::world) fn not_gone(
        &self,
        device: DeviceId,
        mut unlisted: Bytes,
        gaps: &mut Gaps,
        living: &mut BTreeMap<TenantId, Bytes>,
    ) -> Bytes {
        let mut all = Bytes::ZERO;
        let now = self.timers.now();
        let rotation = self.residency.on(device).into_iter();
        let reported = rotation
            .flat_map(|rotation| rotation.all())
            .filter(|(_, one)| {
                let leaves = matches!(one.place(), Place::Leaving | Place::Confirming);
                leaves && now < one.since() + APART
            });
        for (tenant, _) in reported {
            let account = self.ledger.account(device, tenant);
            // Of managed memory that stays evictable, its gap is as wide as before.
            let Some(account) = account.filter(|account| !account.loan.paged) else {
                continue;
            };
            let listed = living.entry(tenant).or_default();
            let shown = *listed + gaps.held(tenant);
            let held = unlisted.min(account.in_use + account.overhead - shown);
            gaps.narrow(tenant, held);
            *listed += held;
            unlisted -= held;
            all += held;
        }
        all
    }

    /// After a look: tenants whose memory it shows gone are out.
    pub(in crate::world) fn confirm(&mut self, device: DeviceId, taken: Nanos) {
        let Some(rotation) = self.residency.on(device) else {
            return;
        };
        let reported = rotation.all().filter(|(_, resident)| {
            let reports = resident.place() == Place::Confirming || resident.unseen;
            reports && taken > resident.since()
        });
        let reported: Vec<(TenantId, Bytes, bool)> = reported
            .map(|(tenant, resident)| (tenant, resident.told_away(), resident.unseen))
            .collect();
        for (tenant, told, unseen) in reported {
            if unseen {
                self.is_seen(tenant, device, told);
            } else if !self.is_short_of(tenant, device, told) {
                self.is_out(tenant, device, told, false);
            }
        }
    }

    /// Whether the device shows clearly less memory gone than a tenant reported. Contexts of the
    /// previous daemon's time may take more than was guessed, which looks the same.
    fn is_short_of(&self, tenant: TenantId, device: DeviceId, told: Bytes) -> bool {
        if self.is_guessed(tenant, device) {
            return false;
        }
        let account = self.ledger.account(device, tenant);
        let away = account.map_or(Bytes::ZERO, |account| account.away);
        away + TOLERANCE.0 + Bytes(told.0 / TOLERANCE.1) < told
    }

    /// Whether a context of a tenant was not measured since the previous daemon: what stays on the
    /// card is it, or memory that cannot move, or memory that did not leave.
    fn is_guessed(&self, tenant: TenantId, device: DeviceId) -> bool {
        let account = self.ledger.account(device, tenant);
        // Of managed memory the report counts.
        let is_listed = account.is_some_and(|account| !account.loan.paged);
        let mut members = self.tenants.members(tenant);
        is_listed
            && members.any(|(_, known)| known.on(device).is_some_and(|opened| opened.is_found()))
    }

    /// No look has confirmed a tenant's report yet: the device is looked at again. A look that
    /// began a while after the report and still shows the memory contradicts it: the tenant counts
    /// as out with what was seen gone, and is not asked again for the longest time. What of its
    /// memory cannot move is not known then. A look that is late or fails says nothing of the
    /// tenant.
    pub(super) fn confirm_later(&mut self, tenant: TenantId, device: DeviceId) {
        let (now, terms) = (self.timers.now(), self.policy.swap);
        let sampled = self.ledger.get(device).and_then(|books| books.sampled());
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let (told, since) = (resident.told_away(), resident.since());
        let seen = sampled.is_some_and(|(taken, _)| taken >= since + terms.look_grace);
        if seen {
            self.is_out(tenant, device, told, true);
            self.facts_changed(device);
            return;
        }
        if now >= since + terms.unseen {
            self.is_out_unseen(tenant, device, told);
            self.facts_changed(device);
            return;
        }
        resident.pause = (resident.pause + resident.pause).min(PAUSE);
        let at = now + resident.pause;
        self.timers.set(Timer::Move(device, tenant), at);
        self.decide(Decision::Resample { device });
    }

    /// A tenant reports its memory gone, and no look shows whether it is: the tenant is out, so
    /// that it may return. Its memory is still on its way, and nothing of it is free, until a look
    /// shows that. Its report is told as it is, and teaches nothing.
    fn is_out_unseen(&mut self, tenant: TenantId, device: DeviceId, told: Bytes) {
        let account = self.ledger.account(device, tenant);
        let of = |account: &Account| (account.in_use, account.load_of(told.min(account.in_use)));
        let (in_use, moved) = account.map(of).unwrap_or_default();
        self.reserve(device, tenant, told.min(in_use));
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        resident.split = false;
        let (took, dropped) = (resident.since() - resident.begun(), resident.taken_back);
        if !dropped {
            resident.count_move(true, moved.bytes);
        }
        self.go(tenant, device, Place::Out, false);
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.unseen = true;
        }
        if !dropped {
            self.notice(Notice::Left {
                tenant,
                device,
                bytes: moved.bytes,
                residue: in_use - told,
                took,
            });
        }
    }

    /// A look shows at last what of a tenant's memory is gone that has been out since.
    fn is_seen(&mut self, tenant: TenantId, device: DeviceId, told: Bytes) {
        let lied = self.is_short_of(tenant, device, told);
        let guessed = self.is_guessed(tenant, device);
        let (now, terms) = (self.timers.now(), self.policy.swap);
        let away = self.ledger.change(device, tenant, |account| {
            if !lied && !guessed {
                account.seen_to_stay(account.in_use - account.away);
            }
            account.away
        });
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        resident.unseen = false;
        if !lied {
            resident.has_left();
            return;
        }
        resident.back_off(now, terms.backoff.1, &terms);
        resident.comes_back(now);
        self.notice(Notice::LeftLess {
            tenant,
            device,
            told,
            seen: away.unwrap_or_default(),
        });
    }

    /// A tenant is out, with the memory that a look showed gone.
    fn is_out(&mut self, tenant: TenantId, device: DeviceId, told: Bytes, lied: bool) {
        let (now, terms) = (self.timers.now(), self.policy.swap);
        let guessed = self.is_guessed(tenant, device);
        let gone = self.ledger.change(device, tenant, |account| {
            let stays = account.in_use - account.away;
            if !lied && !guessed {
                account.seen_to_stay(stays);
            }
            // Of managed memory most may have been on the host before.
            let moved = account.load_of(account.away + account.stays());
            let bytes = moved.bytes - account.stays();
            (account.away, stays, Load { bytes, ..moved })
        });
        let (away, residue, moved) = gone.unwrap_or_default();
        // No more of it has left than it has, whatever its processes say.
        self.reserve(device, tenant, away.max(told).min(away + residue));
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        resident.split = false;
        let (took, timed) = (now - resident.begun(), resident.is_timed());
        // What a return has brought and gives up is dropped: no copy, and no move.
        let dropped = resident.taken_back;
        if lied {
            // It left for nothing: it may come back, and is not a victim for a while.
            resident.back_off(now, terms.backoff.1, &terms);
            resident.comes_back(now);
        } else {
            resident.has_left();
            if !dropped {
                resident.count_move(true, moved.bytes);
            }
        }
        self.go(tenant, device, Place::Out, false);
        if lied {
            self.notice(Notice::LeftLess {
                tenant,
                device,
                told,
                seen: away,
            });
            return;
        }
        if dropped {
            return;
        }
        let moving = self.residency.moving(now, device);
        let rotation = self.residency.on_mut(device).filter(|_| timed);
        let thrash = rotation.and_then(|rotation| rotation.left((now, moving), moved, took));
        // A look within the tolerance confirms the report; the next one shows the rest.
        let left = away.max(told);
        self.notice(Notice::Left {
            tenant,
            device,
            bytes: if moved.paged { moved.bytes } else { left },
            residue: away + residue - left,
            took,
        });
        self.note_thrash(device, thrash);
    }
}
