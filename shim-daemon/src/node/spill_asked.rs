//! Which tenants are asked to have their memory stored, and what is told of it.

use std::sync::atomic::Ordering;

use gpushare_core::{Event, Held, Nanos, Order, Place, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Refusal, Stored};

use super::events::number;
use super::{ConnId, Node};

/// Most files that a process presents: one for each daemon that it has outlived with stored bytes,
/// and to spare. Each is an open file of the daemon's.
const MOST_FILES: usize = 64;
/// Most that all processes of a tenant present together.
const MOST_OF_TENANT: usize = 512;

/// How long a tenant that is asked may ask for nothing. A process asks for its next range a few
/// milliseconds after the one before.
const SILENCE: Nanos = Nanos::secs(5);
/// How often a command's tenant is asked in vain.
const TRIES: u32 = 3;
/// How long another one that was asked in vain is not asked again.
const REST: Nanos = Nanos::secs(10);

impl Node {
    /// Has as many tenants store their ranges as the waiting requests need, and those that the host
    /// had no room for, and no others.
    pub(super) fn ask_to_store(&mut self, now: Nanos) {
        self.give_up_silent(now);
        let paused = self
            .residency
            .storing
            .paused
            .is_some_and(|until| now < until);
        let wanted = self.residency.storing.shortage(now);
        let mut missing = match wanted.is_zero() || paused {
            true => Bytes::ZERO,
            false => wanted + self.kept_for_returns() - self.world.free_memory(),
        };
        if !paused {
            missing = missing.max(self.residency.storing.host_shortage(now));
        }
        let order = self.world.spill_order();
        for tenant in order {
            let storable = self.storable(tenant);
            let elsewhere = self.residency.storing.elsewhere.contains_key(&tenant);
            let room = elsewhere || self.may_store(Bytes(1));
            let silent = self.residency.storing.silent.get(&tenant);
            let rests = silent.is_some_and(|silent| now < silent.until);
            // What it stored would be wanted back at once.
            let wanted = elsewhere || !missing.is_zero() && !self.is_unmet(tenant);
            let chosen = !storable.is_zero() && room && wanted && !rests;
            if chosen {
                missing -= storable;
            }
            self.ask_one_to_store(now, tenant, chosen);
        }
        let out: Vec<TenantId> = self.residency.storing.asked.keys().copied().collect();
        let order = self.world.spill_order();
        for tenant in out {
            if !order.contains(&tenant) {
                self.ask_one_to_store(now, tenant, false);
            }
        }
        let silent = &mut self.residency.storing.silent;
        silent.retain(|tenant, _| order.contains(tenant));
    }

    /// Asks tenants by another word that ask for nothing: a process does not ask again for a range
    /// of which its driver did not let go, until the word changes. One that keeps its memory
    /// whatever the word is not waited for.
    fn give_up_silent(&mut self, now: Nanos) {
        let storing = &self.residency.storing;
        let asked = storing.asked.iter();
        let silent = asked.filter(|(_, since)| now >= **since + SILENCE);
        let silent = silent.filter(|(tenant, _)| !self.is_busy(**tenant));
        let silent: Vec<TenantId> = silent.map(|(tenant, _)| *tenant).collect();
        for tenant in silent {
            self.ask_one_to_store(now, tenant, false);
            let storing = &mut self.residency.storing;
            let by_command = storing.elsewhere.contains_key(&tenant);
            // Others' requests are refused at once while it rests.
            let until = match by_command {
                true => Nanos::ZERO,
                false => now + REST,
            };
            let times = storing.is_silent(tenant, until);
            if by_command && times >= TRIES {
                storing.elsewhere.remove(&tenant);
                let text = "its process does not ask to have it stored: it is stopped, or its \
                            driver keeps the memory pinned";
                self.not_suspended_to(tenant, text);
                self.event("spill-failed", Some(tenant), None, text.to_owned());
            }
        }
    }

    /// Whether the host lacked room for a tenant a moment ago.
    fn is_unmet(&self, tenant: TenantId) -> bool {
        let known = self.tenants.get(&tenant).into_iter();
        let mut members = known.flat_map(|known| known.members());
        members.any(|process| self.residency.storing.is_unmet(process))
    }

    /// Whether memory of a tenant is being copied.
    fn is_busy(&self, tenant: TenantId) -> bool {
        let known = self.tenants.get(&tenant).into_iter();
        let mut members = known.flat_map(|known| known.members());
        members.any(|process| self.residency.storing.busy.contains(&process))
    }

    pub(super) fn ask_one_to_store(&mut self, now: Nanos, tenant: TenantId, chosen: bool) {
        let storing = &mut self.residency.storing;
        let is_asked = storing.asked.contains_key(&tenant);
        if is_asked == chosen {
            return;
        }
        let number = chosen.then(|| storing.number());
        self.set_spill_word(tenant, number);
        let asked = &mut self.residency.storing.asked;
        match chosen {
            true => drop(asked.insert(tenant, now)),
            false => drop(asked.remove(&tenant)),
        }
        if !chosen {
            self.note_stored(tenant);
        }
    }

    /// Whether a process may have one more file of a previous daemon's.
    pub(super) fn may_present(&self, tenant: TenantId, process: ProcessId) -> bool {
        let storing = &self.residency.storing;
        let known = self.tenants.get(&tenant).into_iter();
        let members = known.flat_map(|known| known.members());
        let all: usize = members.map(|member| storing.files(member)).sum();
        let (looked_at, looked_at_of_all) = self.inspecting.files(tenant, process);
        self.residency.host.is_earlier(process)
            && storing.files(process) + looked_at < MOST_FILES
            && all + looked_at_of_all < MOST_OF_TENANT
    }

    /// Tells the brain what a tenant has on the host and in files, after any change of it.
    pub(super) fn tell_held(&mut self, tenant: TenantId) {
        let moves = &self.residency;
        let known = self.tenants.get(&tenant);
        let members = known.into_iter().flat_map(|known| known.members());
        let members = members.chain(moves.left.of(tenant));
        let mut presented = Bytes::ZERO;
        let mut held = members.fold(Held::default(), |sum, process| {
            let (stored, before) = moves.storing.of_nodes(process);
            presented += before;
            Held {
                memory: sum.memory + moves.host.given(process),
                files: sum.files + stored,
                both: sum.both + moves.host.copies(process),
            }
        });
        // A process can present any file: it takes no more of the node's room than the tenant could
        // ever have had.
        held.files += presented.min(self.world.could_have(tenant));
        self.happened(self.world.now(), Event::Held { tenant, held });
    }

    /// The same for a process's tenant.
    pub(super) fn tell_held_of(&mut self, process: ProcessId) {
        if let Some(tenant) = self.processes.get(process).map(|known| known.tenant()) {
            self.tell_held(tenant);
        }
    }

    /// A tenant that returns while others lack host memory for a move gives its own back once its
    /// memory is on the device, before it opens: to unpin memory waits for nothing then. Nothing of
    /// it is stored from the return's order on: the word that asked for that is over, and would
    /// else be taken back later, and the other one with it.
    pub(super) fn ask_to_give_back(&mut self, tenant: TenantId, order: Order) {
        let gives = match order {
            Order::Return => {
                self.ask_one_to_store(self.world.now(), tenant, false);
                self.world.is_tight_for_others(tenant)
            }
            // While it is out, the word says that its memory is to be stored.
            Order::Leave | Order::Out => return,
            // It gives back once it is back on all of its devices.
            Order::In if self.is_entering(tenant) => return,
            Order::In | Order::Seal | Order::Lost => false,
        };
        if !self.residency.storing.asked.contains_key(&tenant) {
            let number = gives.then(|| self.residency.storing.number());
            self.set_spill_word(tenant, number);
        }
    }

    fn set_spill_word(&mut self, tenant: TenantId, number: Option<u64>) {
        let word = number.map_or(0, |number| {
            u32::try_from(number % u64::from(u32::MAX)).unwrap_or(0) + 1
        });
        if let Some(known) = self.tenants.get(&tenant) {
            let spill = &known.control().view().header.spill;
            if spill.swap(word, Ordering::AcqRel) != word {
                self.wake_soon(tenant);
            }
        }
    }

    /// Bytes that a tenant's processes could have stored.
    pub(super) fn storable(&self, tenant: TenantId) -> Bytes {
        let known = self.tenants.get(&tenant);
        let members = known.into_iter().flat_map(|known| known.members());
        members
            .map(|process| self.residency.host.storable(process))
            .sum()
    }

    /// Says what was stored of a tenant since it was asked.
    fn note_stored(&mut self, tenant: TenantId) {
        let Some(bytes) = self.residency.storing.done.remove(&tenant) else {
            return;
        };
        let folder = self.residency.storing.folder.as_ref();
        let place = match (self.residency.storing.elsewhere.get(&tenant), folder) {
            (None, Some(folder)) => folder.path().display().to_string(),
            _ => "the folder that the command named".to_owned(),
        };
        let text = format!("{} of its memory are in {place}", bytes.human());
        let facts = [number("bytes", bytes.0)];
        self.event_with("spilled", (Some(tenant), None), text, &facts);
    }

    /// Called when the last bytes of a tenant may have left its files, of which there were some:
    /// says so if there are none any more, and how much of them was read back. The others were
    /// freed.
    pub(super) fn note_fetched(&mut self, tenant: TenantId) {
        if !self.stored_of(tenant).is_zero() {
            return;
        }
        let known = self.tenants.get(&tenant);
        let members: Vec<ProcessId> = known.into_iter().flat_map(|one| one.members()).collect();
        let storing = &mut self.residency.storing;
        let fetched: Bytes = members
            .into_iter()
            .map(|process| storing.take_fetched(process))
            .sum();
        let mut text = "nothing of its memory is in files any more".to_owned();
        if !fetched.is_zero() {
            let bytes = fetched.human();
            text.push_str(&format!(": {bytes} were read back, with right checksums"));
        }
        let facts = [number("bytes", fetched.0)];
        self.event_with("fetched", (Some(tenant), None), text, &facts);
    }

    /// Bytes of a tenant in files.
    pub(super) fn stored_of(&self, tenant: TenantId) -> Bytes {
        let known = self.tenants.get(&tenant);
        let members = known.into_iter().flat_map(|known| known.members());
        members
            .map(|process| self.residency.storing.of(process))
            .sum()
    }

    /// Whether a suspended tenant's memory still goes to its file: some is on the host.
    pub(super) fn is_on_its_way(&self, tenant: TenantId) -> bool {
        let elsewhere = &self.residency.storing.elsewhere;
        let known = self.tenants.get(&tenant).into_iter();
        let mut members = known.flat_map(|known| known.members());
        let on_host = members.any(|process| !self.residency.host.given(process).is_zero());
        elsewhere.contains_key(&tenant) && on_host
    }

    /// Tells the brain of tenants all of whose memory is in their files. Forgets those that were
    /// woken.
    pub(super) fn tend_elsewhere(&mut self, now: Nanos) {
        let world = &self.world;
        let elsewhere = &mut self.residency.storing.elsewhere;
        elsewhere.retain(|tenant, _| world.is_suspended(*tenant));
        self.give_up_unstorable();
        let all = self.residency.storing.elsewhere.iter();
        let new = all.filter(|(tenant, one)| {
            !one.told && !self.is_on_its_way(**tenant) && self.world.has_left(**tenant)
        });
        for tenant in new.map(|(tenant, _)| *tenant).collect::<Vec<_>>() {
            if let Some(one) = self.residency.storing.elsewhere.get_mut(&tenant) {
                one.told = true;
            }
            self.happened(now, Event::Elsewhere { tenant });
        }
        self.tell_found_elsewhere(now);
        self.answer_moves();
    }

    /// Whether a tenant is on its way back to one of its devices.
    fn is_entering(&self, tenant: TenantId) -> bool {
        let known = self.tenants.get(&tenant);
        let mut devices = known.into_iter().flat_map(|known| known.device_ids());
        devices.any(|device| self.world.place(tenant, *device) == Some(Place::Entering))
    }

    pub(super) fn is_in(&self, tenant: TenantId) -> bool {
        let known = self.tenants.get(&tenant);
        let mut devices = known.into_iter().flat_map(|known| known.device_ids());
        devices.all(|device| {
            let place = self.world.place(tenant, *device);
            place.is_none_or(|place| place == Place::In)
        })
    }

    /// The command's file does not take a tenant's memory: it stays on the host.
    pub(super) fn not_suspended_to(&mut self, tenant: TenantId, why: &str) {
        let text = format!("it is suspended, and its memory stays on the host: {why}");
        self.fail_moves(tenant, &text);
    }

    /// Stored bytes are not to be had any more: the process gets errors from then on, never other
    /// bytes.
    pub(super) fn data_is_lost(
        &mut self,
        (process, connection, id): (ProcessId, ConnId, u32),
        stored: Stored,
        why: &str,
    ) {
        let known = self.processes.get(process);
        let tenant = known.map(|known| (known.tenant(), known.peer().pid));
        let text = format!(
            "{} of process {} that were stored in a file are lost: {why}; its calls fail from now on",
            Bytes(stored.bytes).human(),
            tenant.map_or(0, |(_, pid)| pid)
        );
        tracing::error!("{text}");
        self.event("memory-lost", tenant.map(|(tenant, _)| tenant), None, text);
        self.refuse_host(connection, id, Refusal::DataLost);
    }
}
