//! Tenants move to the host and back: orders, the processes' reports, and the end of each step.
//!
//! In the accounts all memory of a tenant is on the card from the order to return until a look that
//! began after its report shows it gone, but for what [`pairs`] counts in parts. So no byte is ever
//! given to two tenants.

mod beside;
mod bound;
mod confirm;
mod host;
mod late;
mod later;
mod members;
pub(super) mod movers;
mod owed;
mod pairs;
mod returns;
mod spill;
mod spread;
pub(crate) mod suspend;

use super::World;
use crate::decision::{Decision, Notice};
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::ledger::Account;
use crate::residency::{Load, Order, Place, Thrash, Told, Turned};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

impl World {
    /// Where a tenant's movable memory is. `None`: it cannot be moved.
    pub fn place(&self, tenant: TenantId, device: DeviceId) -> Option<Place> {
        self.residency.get(device, tenant).map(|one| one.place())
    }

    /// Sends a tenant to a place. `anew`: a move begins.
    fn go(&mut self, tenant: TenantId, device: DeviceId, place: Place, anew: bool) {
        let now = self.timers.now();
        let bytes = self.on_card(tenant, device);
        let worked_until = self.blocked(tenant).unwrap_or(now);
        let rest = self.policy.swap.rest;
        let halted = self.wait_of(tenant, Some(device));
        let beside = (place == Place::Sealing).then(|| self.residency.beside(device, tenant));
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        // A tenant that drains still has the card; one that could not be sealed has stayed.
        let has = |place| matches!(place, Place::In | Place::Sealing);
        if has(resident.place()) && !has(place) {
            let from = resident.stay().from();
            let halted = halted.map_or(Nanos::ZERO, |(_, since)| worked_until - since.max(from));
            resident.count(bytes, worked_until - from, halted);
        }
        if matches!(place, Place::Sealing | Place::Leaving) {
            resident
                .stay_mut()
                .leaves(now, rest, place == Place::Sealing);
        }
        let (epoch, order) = resident.go(now, place, anew);
        resident.seals_beside(beside.unwrap_or_default());
        let drain = match order {
            Order::Seal | Order::Leave => resident.drain.given(),
            _ => Nanos::ZERO,
        };
        if place != Place::Confirming {
            self.decide(Decision::Reside {
                tenant,
                device,
                epoch,
                order,
                drain,
            });
        }
        match place {
            Place::In | Place::Leaving => self.tell_gates(tenant, device),
            _ => {}
        }
        self.residency.note_moves(now, device);
        self.set_move_timer(tenant, device);
    }

    /// When the current step of a move is looked at next.
    fn set_move_timer(&mut self, tenant: TenantId, device: DeviceId) {
        let terms = self.policy.swap;
        let bytes = self.in_use(tenant, device);
        let Load { paged, .. } = self.load(tenant, device);
        let Some(rotation) = self.residency.on(device) else {
            return;
        };
        let Some(resident) = rotation.get(tenant) else {
            return;
        };
        // More of it may be on the card than is booked there.
        let load = |bytes| Load { bytes, paged };
        let out = resident.is_leaving();
        let there = resident.told_away();
        let left = load(if out { bytes - there } else { bytes });
        let patience = rotation.patience((tenant, left), out, &terms);
        let whole = rotation.whole((tenant, load(bytes)), left, &terms);
        let sealed = resident.drain.given().max(terms.drain.0) + terms.seal;
        let latest = resident.begun() + sealed + whole;
        let at = match resident.place() {
            Place::In | Place::Out => None,
            Place::Sealing => Some(resident.since() + sealed),
            Place::Leaving if resident.taken_back => Some(resident.since() + terms.progress),
            Place::Leaving => Some((resident.since() + patience).min(latest)),
            Place::Confirming => Some(self.timers.now() + resident.pause),
            Place::Entering if self.is_follower(tenant, device) => Some(self.follower_due()),
            Place::Entering if resident.complete().is_some() => Some(self.timers.now()),
            Place::Entering => Some(resident.since() + patience),
        };
        match at {
            Some(at) => self.timers.set(Timer::Move(device, tenant), at),
            None => self.timers.stop(Timer::Move(device, tenant)),
        }
    }

    /// Begins to move a tenant out, once the host has room for all of it. `false`: it has not.
    pub(super) fn begin_leave(
        &mut self,
        tenant: TenantId,
        device: DeviceId,
        wanted_by: Option<TenantId>,
    ) -> bool {
        let bytes = self.in_use(tenant, device);
        if !self.reserve(device, tenant, bytes) {
            return false;
        }
        if wanted_by.is_some() {
            self.note_rest(tenant, device);
        }
        let least = wanted_by.map(|by| self.drain_for(by, tenant, device));
        let terms = self.policy.swap;
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.drain.begin(least.unwrap_or_default(), &terms);
        }
        self.notice(Notice::Leaving {
            tenant,
            device,
            bytes,
            wanted_by,
        });
        self.go(tenant, device, Place::Sealing, true);
        true
    }

    /// A process reports on an order.
    pub(super) fn moved(&mut self, process: ProcessId, device: DeviceId, epoch: u32, told: Told) {
        let Some(tenant) = self.tenants.process(process).map(|known| known.tenant()) else {
            return;
        };
        let now = self.timers.now();
        let resident = self.residency.get_mut(device, tenant);
        let turned = resident.and_then(|one| {
            if one.owes(process) {
                one.heard = Some(now);
            }
            one.told(process, epoch, told)
        });
        if let Some(turned) = turned {
            self.follow_move(tenant, device, turned);
        }
        self.place_anew(tenant, device);
    }

    /// The consequences of a report, or of the end of a process that did not report.
    fn follow_move(&mut self, tenant: TenantId, device: DeviceId, turned: Turned) {
        let now = self.timers.now();
        match turned {
            Turned::Sealed => {
                if let Some(resident) = self.residency.get_mut(device, tenant) {
                    resident.drain.took(now - resident.since());
                }
                // Nothing can be charged any more: this is what leaves.
                let bytes = self.in_use(tenant, device);
                match self.reserve(device, tenant, bytes) {
                    true => {
                        self.go(tenant, device, Place::Leaving, false);
                        // The next one may begin to return.
                        self.settle(device);
                    }
                    false => self.did_not_leave(tenant, device, Nanos::ZERO),
                }
            }
            Turned::Busy { retry, late } => {
                let terms = self.policy.swap;
                let resident = self.residency.get_mut(device, tenant);
                let drains = resident.filter(|one| late && one.place() == Place::Sealing);
                let pause = drains.map(|one| one.drain.was_short(now - one.since(), &terms));
                let least = retry.min(terms.backoff.1).max(pause.unwrap_or_default());
                self.did_not_leave(tenant, device, least);
            }
            Turned::Progress => {
                let Some(resident) = self.residency.get_mut(device, tenant) else {
                    return;
                };
                // After a refusal the timer is that of the next attempt.
                let goes_on = match resident.place() {
                    Place::Leaving => true,
                    Place::Entering => !resident.refused,
                    _ => false,
                };
                if goes_on {
                    resident.progress(now);
                    self.set_move_timer(tenant, device);
                    self.look_at_step(tenant, device);
                }
            }
            Turned::Away => {
                self.go(tenant, device, Place::Confirming, false);
                self.decide(Decision::Resample { device });
            }
            // A process that says nothing may have what is still withheld.
            Turned::Back if self.is_follower(tenant, device) => (),
            Turned::Back => self.entered(tenant, device),
            Turned::NoRoom(bytes) => self.found_no_room(tenant, device, bytes),
            Turned::Lacks(bytes) => self.lacks_room(tenant, device, bytes),
        }
    }

    /// A step of a move takes too long, or its end may be seen.
    pub(super) fn move_due(&mut self, device: DeviceId, tenant: TenantId) {
        let follows = self.is_follower(tenant, device);
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let complete = resident.complete();
        match resident.place() {
            Place::Leaving if resident.taken_back => {
                self.go(tenant, device, Place::Leaving, false);
            }
            Place::Sealing => {
                resident.drain.was_silent();
                self.did_not_leave(tenant, device, Nanos::ZERO);
            }
            Place::Leaving => {
                resident.was_slow();
                self.did_not_leave(tenant, device, Nanos::ZERO);
            }
            Place::Confirming => self.confirm_later(tenant, device),
            Place::Entering if follows => {
                self.look_after(tenant, device);
            }
            Place::Entering if complete == Some(Turned::Back) => {
                self.entered(tenant, device);
            }
            Place::Entering if self.waits_anew(tenant, device) => (),
            Place::Entering => {
                // Its memory is set aside: all it needs is to be asked again.
                self.notice(Notice::SlowReturn { tenant, device });
                self.go(tenant, device, Place::Entering, false);
            }
            Place::In | Place::Out => (),
        }
    }

    /// A tenant could not be sealed, or does not move on: it runs again with all its memory, for
    /// which the card still has the room.
    fn did_not_leave(&mut self, tenant: TenantId, device: DeviceId, retry: Nanos) {
        let (now, terms) = (self.timers.now(), self.policy.swap);
        let handed = self.ledger.account(device, tenant);
        let handed = handed.map_or(Bytes::ZERO, |account| account.away);
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let returned = resident.taken_back;
        if returned && !handed.is_zero() {
            // Its room is another's: it has to go, and is asked again.
            self.timers
                .set(Timer::Move(device, tenant), now + terms.backoff.0);
            return;
        }
        resident.taken_back = false;
        resident.back_off(now, retry, &terms);
        let (again, moved) = (resident.backs_off(), resident.told_away());
        let split = resident.split;
        self.notice(Notice::DidNotLeave {
            tenant,
            device,
            again,
            moved,
        });
        if !handed.is_zero() {
            self.take_back(device);
        }
        if split {
            // It was partly out before, and has no room to return.
            self.stay_split(tenant, device, true);
        } else if returned || !moved.is_zero() || !handed.is_zero() {
            // A return that was taken back goes on: of its room no part was another's.
            self.return_by_parts(tenant, device);
        } else {
            self.residency.reserve(device, tenant, Bytes::ZERO);
            self.go(tenant, device, Place::In, false);
        }
        self.keep_promise(device);
        self.timers.set_no_later(Timer::Settle(device), again);
        self.settle(device);
    }

    /// Reserves host memory for so much of a tenant's memory, instead of what is reserved for it.
    /// What is in the file of a command needs none. `false`: the budget does not allow it.
    fn reserve(&mut self, device: DeviceId, tenant: TenantId, bytes: Bytes) -> bool {
        let resident = self.residency.get(device, tenant);
        let stored = resident.map_or(Bytes::ZERO, |resident| resident.elsewhere());
        let host = self.needed_on_host(tenant, device, bytes - stored);
        self.residency.reserve(device, tenant, host)
    }

    /// Sets the room aside that a tenant needs, and orders it to return. The caller has made sure
    /// that there is room.
    pub(super) fn enter(&mut self, tenant: TenantId, device: DeviceId) {
        let books = self.ledger.get(device);
        let booked = books.map_or(Bytes::MAX, |books| books.bookable(tenant));
        self.ledger.change(device, tenant, |account| {
            account.away = Bytes::ZERO;
            account.book(booked);
        });
        self.tell_withheld(tenant, device);
        self.go(tenant, device, Place::Entering, true);
    }

    /// All processes of a tenant are back.
    fn entered(&mut self, tenant: TenantId, device: DeviceId) {
        let now = self.timers.now();
        let load = self.load(tenant, device);
        let moving = self.residency.moving(now, device);
        let Some(rotation) = self.residency.on_mut(device) else {
            return;
        };
        let known = rotation.get(tenant);
        let known = known.map(|resident| {
            let bytes = match load.paged {
                true => load.bytes,
                false => resident.moved_out(),
            };
            let bytes = bytes.min(resident.brings());
            (bytes, now - resident.begun(), resident.is_timed())
        });
        let Some((bytes, took, timed)) = known else {
            return;
        };
        let thrash = match timed {
            true => rotation.came((now, moving), Load { bytes, ..load }, took),
            false => None,
        };
        self.residency.reserve(device, tenant, Bytes::ZERO);
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.misses = 0;
            resident.count_move(false, bytes);
        }
        self.notice(Notice::Returned {
            tenant,
            device,
            bytes,
            took,
        });
        let halted = self.halted_on(tenant, device);
        self.go(tenant, device, Place::In, false);
        self.goes_on(tenant, halted);
        self.note_thrash(device, thrash);
        self.settle(device);
    }

    /// A process could not return though the room is set aside: the device has less free memory
    /// than its accounts say. It is asked again later; the look shows what takes the memory.
    fn found_no_room(&mut self, tenant: TenantId, device: DeviceId, bytes: Bytes) {
        let (first, most) = self.policy.swap.backoff;
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        resident.misses = resident.misses.saturating_add(1);
        resident.refused = true;
        let doubled = Nanos(first.0.saturating_mul(1 << (resident.misses - 1).min(16)));
        let now = self.timers.now();
        self.residency.note_moves(now, device);
        self.timers
            .set(Timer::Move(device, tenant), now + doubled.min(most));
        self.lacks_room(tenant, device, bytes);
        self.leave_suspended(tenant, device);
    }

    /// Tells that a process could not return. It will be tried again.
    fn lacks_room(&mut self, tenant: TenantId, device: DeviceId, bytes: Bytes) {
        self.notice(Notice::NoReturn {
            tenant,
            device,
            bytes,
        });
        self.decide(Decision::Resample { device });
    }

    pub(super) fn note_thrash(&mut self, device: DeviceId, thrash: Option<Thrash>) {
        match thrash {
            Some(Thrash::Worse(percent)) => self.notice(Notice::Thrashing { device, percent }),
            Some(Thrash::Better) => self.notice(Notice::Settled { device }),
            None => (),
        }
    }

    /// Whether what is away agrees with the places.
    pub(super) fn check_places(&self, device: DeviceId) -> Result<(), String> {
        let Some(books) = self.ledger.get(device) else {
            return Ok(());
        };
        let strange = books.accounts().find(|(tenant, account)| {
            let place = self.place(*tenant, device);
            let may = match place {
                Some(Place::Confirming | Place::Out) => true,
                Some(Place::Leaving | Place::Entering) => !account.loan.paged,
                _ => false,
            };
            !account.away.is_zero() && !may
        });
        if self.early_returns(device).count() > 1 {
            return Err("two tenants return into promised room".to_owned());
        }
        strange.map_or(Ok(()), |(tenant, account)| {
            let place = self.place(tenant, device);
            Err(format!(
                "{tenant:?} is {place:?} with {:?} away",
                account.away
            ))
        })
    }

    fn in_use(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let account = self.ledger.account(device, tenant);
        account.map_or(Bytes::ZERO, |account| account.in_use)
    }

    /// What moves of a tenant.
    fn load(&self, tenant: TenantId, device: DeviceId) -> Load {
        let account = self.ledger.account(device, tenant);
        account.map(Account::load).unwrap_or_default()
    }

    /// What counts as its residency: its memory in use on the card, of managed memory as far as it
    /// is booked there.
    fn on_card(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let account = self.ledger.account(device, tenant);
        account.map_or(Bytes::ZERO, |account| {
            (account.in_use - account.away).min(account.booked)
        })
    }
}
