//! The tier below the host store: where host memory is short, ranges of tenants that are out are
//! stored in files, and fetched before they return.
//!
//! A process asks for each range to be stored, while its control page says so, and drops the range
//! once it is. So the bytes are in memory until they are on the disk, whichever party ends. A
//! fetched range is the process's like any other. Whose memory is stored first, the brain says.

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Refusal, Reply, Request, Stored};

use super::host_store::PIECE;
use super::storing::Wanted;
use super::{Client, ConnId, Effect, Node};
use crate::foreign::Foreign;
use crate::host_file::HostFile;
use crate::spill::{Job, Key, SpillFolder, Task};

/// How long a request waits for room on the host.
const PATIENCE: Nanos = Nanos::secs(10);
/// How long nothing is stored after the disk refused, and nothing of a tenant that has too much.
const PAUSE: Nanos = Nanos::secs(10);

impl Node {
    /// The folder for what the host has no room for.
    pub fn spill_to(&mut self, folder: SpillFolder) {
        self.residency.storing.folder = Some(folder);
    }

    /// Answers a request for host memory: at once, or once others' memory is stored.
    pub(super) fn give_host(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        bytes: u64,
    ) {
        if let Some(next) = self.residency.storing.allocating.get_mut(&process) {
            if let Some((client, id, _)) = next.replace((client, id, bytes)) {
                self.refuse_host(client.connection, id, Refusal::Cancelled);
            }
            return;
        }
        let mut all = Bytes(bytes).round_up(Bytes::mib(2));
        if !self.is_in(client.tenant) {
            // Its processes share what is reserved for the move: no more than each has to move.
            all = all.min(self.lacks(process));
        }
        // What the budget does not allow would not be free either if others' memory were stored.
        let all = self.world.may_give(client.tenant, all);
        if all.is_zero() || !client.moves {
            return self.refuse_host(client.connection, id, Refusal::NoMemory);
        }
        self.wants_host(now, (client.connection, process, id), all, None);
    }

    /// The host memory that a process lacks for all it is charged with.
    fn lacks(&self, process: ProcessId) -> Bytes {
        let charged = self
            .processes
            .get(process)
            .map(|known| self.charged_by(known));
        let all: Bytes = charged.iter().flatten().map(|(_, bytes)| *bytes).sum();
        all.round_up(Bytes::mib(2)) - self.residency.host.given(process)
    }

    /// Handles a process's message about its stored memory. False for any other request.
    pub(super) fn stored(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        request: &Request,
    ) -> bool {
        match *request {
            Request::HostStore { offset, bytes } => {
                self.store_range(now, (client, process, id), (offset, bytes));
            }
            Request::HostFetch(stored) => {
                let bytes = Bytes(stored.bytes);
                let is_range = bytes.0.is_multiple_of(4096) && !bytes.is_zero() && bytes <= PIECE;
                if !is_range {
                    self.refuse_host(client.connection, id, Refusal::DataLost);
                    return true;
                }
                let from = (client.connection, process, id);
                self.wants_host(now, from, bytes, Some(stored));
            }
            Request::HostForget(_) if self.is_outdated(client, process) => (),
            Request::HostForget(stored) => {
                let had_some = !self.stored_of(client.tenant).is_zero();
                self.forget_stored(process, stored);
                self.tell_held(client.tenant);
                if had_some {
                    self.note_fetched(client.tenant);
                }
            }
            Request::Has {
                from,
                until,
                ref spots,
            } => self.has_only(now, (client, process), from..until, spots),
            // They come with descriptors, by another way.
            Request::HostFile { .. } | Request::HostMemory => (),
            _ => return false,
        }
        true
    }

    /// A process presents the memory file that it has from a previous daemon.
    pub fn present_memory(&mut self, client: Client, file: Option<Foreign>) {
        let earlier = client.process.filter(|one| {
            self.processes.get(*one).is_some() && self.residency.host.is_earlier(*one)
        });
        let (Some(process), Some(file)) = (earlier, file) else {
            return;
        };
        match HostFile::adopt(file.onto(&self.lane(client.tenant))) {
            Ok(file) => {
                self.residency.host.adopt(process, file);
                self.tell_held(client.tenant);
            }
            Err(error) => tracing::warn!(?process, %error, "no memory file of ours is presented"),
        }
    }

    fn wants_host(
        &mut self,
        now: Nanos,
        (connection, process, id): (ConnId, ProcessId, u32),
        all: Bytes,
        stored: Option<Stored>,
    ) {
        let bytes = match stored {
            Some(_) => all,
            None => all.min(self.residency.host.piece()),
        };
        let wanted = Wanted {
            process,
            connection,
            id,
            since: now,
            bytes,
            all,
            stored,
        };
        let storing = &mut self.residency.storing;
        // A process that asks again has given up its former request.
        let same = |one: &Wanted| {
            one.process == wanted.process && one.stored.is_some() == wanted.stored.is_some()
        };
        let former = storing.waiting.iter().position(same);
        let former = former.and_then(|at| storing.waiting.remove(at));
        storing.waiting.push_back(wanted);
        if let Some(former) = former {
            self.refuse_host(former.connection, former.id, Refusal::Cancelled);
        }
        self.tend_host(now);
    }

    /// Gives what is free to the requests that wait, and has memory stored for the others.
    pub(super) fn tend_host(&mut self, now: Nanos) {
        self.tend_files();
        self.tend_elsewhere(now);
        self.serve_waiting(now);
        self.ask_to_store(now);
        self.wake_gates();
        let asked = !self.residency.storing.asked.is_empty();
        let busy = !self.residency.storing.busy.is_empty();
        if asked || busy {
            return;
        }
        // Nothing that could be stored: the next resolver is to decide at once.
        let waiting = std::mem::take(&mut self.residency.storing.waiting);
        for wanted in waiting {
            match wanted.stored {
                Some(_) => self.residency.storing.waiting.push_back(wanted),
                None => self.refuse_host(wanted.connection, wanted.id, Refusal::NoMemory),
            }
        }
    }

    fn serve_waiting(&mut self, now: Nanos) {
        let waiting = std::mem::take(&mut self.residency.storing.waiting);
        for mut wanted in waiting {
            match self.is_free_for(&mut wanted) {
                Some(true) => {
                    self.residency.storing.served(&wanted, now);
                    self.allocate_for(wanted);
                }
                Some(false) if now < wanted.since + PATIENCE || self.is_inspected(&wanted) => {
                    self.residency.storing.waiting.push_back(wanted);
                }
                _ => self.refuse_host(wanted.connection, wanted.id, Refusal::NoMemory),
            }
        }
    }

    /// Whether a request can be met now. It is made smaller to what the budget still allows;
    /// `None`: that is nothing.
    fn is_free_for(&self, wanted: &mut Wanted) -> Option<bool> {
        let free = self.world.free_memory();
        let tenant = self.processes.get(wanted.process)?.tenant();
        if wanted.stored.is_none() {
            wanted.bytes = self.world.may_give(tenant, wanted.bytes);
            // The last part is for tenants that come back: they need one range at a time.
            let is_free = wanted.bytes + self.kept_for_returns() <= free;
            return (!wanted.bytes.is_zero()).then_some(is_free);
        }
        // The range is for the moment of a copy, and one is kept for that: what of the memory is
        // reserved for others and not given is no matter, and may be all that is left.
        let may_be_fetched = self.may_fetch((tenant, wanted.process), wanted.bytes);
        Some(!self.is_inspected(wanted) && may_be_fetched && wanted.bytes <= free)
    }

    /// Whether so much more of what a process has in files may be in its memory beside them: each
    /// byte once, and one range more, which it has not dropped yet.
    fn may_fetch(&self, (tenant, process): (TenantId, ProcessId), bytes: Bytes) -> bool {
        let known = self.tenants.get(&tenant).into_iter();
        let members = known.flat_map(|known| known.members());
        let host = &self.residency.host;
        let fetched: Bytes = members.map(|member| host.fetched(member)).sum();
        let is_first = host.fetched(process).is_zero();
        is_first || fetched + bytes <= self.stored_of(tenant) + host.piece()
    }

    pub(super) fn kept_for_returns(&self) -> Bytes {
        let storing = &self.residency.storing;
        match storing.folder.is_some() || storing.has_files() {
            true => self.residency.host.piece(),
            false => Bytes::ZERO,
        }
    }

    fn allocate_for(&mut self, wanted: Wanted) {
        let Wanted {
            process,
            connection,
            id,
            bytes,
            ..
        } = wanted;
        let file = wanted.stored.map(|stored| {
            let file = self.residency.storing.file(process, stored.file);
            (stored, file)
        });
        if let Some((stored, None)) = file {
            if !self.residency.host.is_earlier(process) {
                // All files of a process of this daemon's are known until it wants none of them:
                // nothing was there that could be lost.
                let file = stored.file;
                tracing::debug!(?process, file, "bytes are wanted of a file that never was");
                return self.refuse_host(connection, id, Refusal::DataLost);
            }
            let text = format!("file {:x} is not there any more", stored.file);
            return self.data_is_lost((process, connection, id), stored, &text);
        }
        let Some(tenant) = self.processes.get(process).map(|known| known.tenant()) else {
            return;
        };
        let lane = self.lane(tenant);
        let (offset, host) = match self.residency.host.place(process, bytes, &lane) {
            Ok(placed) => placed,
            Err(error) => {
                self.host_failed(process, &error.to_string());
                return self.refuse_host(connection, id, Refusal::NoMemory);
            }
        };
        let is_nodes = wanted
            .stored
            .filter(|stored| self.residency.storing.is_nodes(process, stored.file));
        if let Some(stored) = is_nodes {
            self.residency.host.is_copied(process, offset, stored);
        }
        if file.is_some() {
            self.residency.host.is_fetched(process, offset);
        }
        self.tell_held_of(process);
        let empty = Stored {
            file: 0,
            at: 0,
            bytes: bytes.0,
            sum: 0,
        };
        let (task, stored) = match file {
            Some((stored, Some(file))) => {
                self.residency.storing.busy.insert(process);
                (Task::Fetch(file), stored)
            }
            _ => {
                self.residency.storing.allocating.insert(process, None);
                let spare = self.kept_for_returns().0;
                (Task::Allocate { spare }, empty)
            }
        };
        let job = Job {
            key: Key {
                process,
                connection,
                id,
            },
            task,
            stored,
            host,
            offset,
            room: self.residency.room(),
        };
        self.begin(job);
    }

    fn begin(&mut self, job: Job) {
        self.residency.storing.begins(&job);
        self.effect(Effect::Copy(Box::new(job)));
    }

    /// These bytes lie in a file no more.
    pub(super) fn forget_stored(&mut self, process: ProcessId, stored: Stored) {
        self.inspecting.forgets(process, stored);
        self.residency.storing.forget(process, stored);
        self.residency.host.is_forgotten(process, stored);
    }

    /// Whether the node's folder takes so much more.
    pub(super) fn may_store(&self, bytes: Bytes) -> bool {
        self.residency.storing.folder.is_some() && self.world.may_store(bytes)
    }

    /// The system gives no host memory: said once until it does again.
    pub(super) fn host_failed(&mut self, process: ProcessId, error: &str) {
        let tenant = self.processes.get(process).map(|known| known.tenant());
        if self.residency.failing.insert(process) {
            let text = format!("the host gives it no memory to move to: {error}");
            self.event("host-failed", tenant, None, text);
        }
    }

    /// Gives a range to its process.
    pub(super) fn hand_out(
        &mut self,
        (to, id): (ConnId, u32),
        host: &HostFile,
        (offset, bytes): (u64, u64),
    ) {
        self.effect(Effect::Client {
            to,
            id,
            reply: Reply::HostRange { offset, bytes },
            descriptors: vec![host.passed()],
        });
    }

    pub(super) fn refuse_host(&mut self, to: ConnId, id: u32, why: Refusal) {
        self.reply(to, id, Reply::Refused(why));
    }

    /// A process wants a range of its own stored.
    fn store_range(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        (offset, bytes): (u64, u64),
    ) {
        let to = client.connection;
        let host = self.residency.host.range(process, offset, bytes);
        let storing = &mut self.residency.storing;
        storing.is_heard(client.tenant, now);
        let is_asked = storing.asked.contains_key(&client.tenant);
        let (Some(host), true, false) = (host, is_asked, storing.busy.contains(&process)) else {
            return self.refuse_host(to, id, Refusal::Cancelled);
        };
        // It asked before it heard that this is stored, and forgets those bytes once it hears it.
        // That comes before it asks by another word. Until then their place is not written again.
        if let Some(stored) = storing.offers.take(process, offset) {
            self.forget_stored(process, stored);
            self.tell_held(client.tenant);
            self.refuse_host(to, id, Refusal::Cancelled);
            self.ask_one_to_store(now, client.tenant, false);
            return self.tend_host(now);
        }
        let elsewhere = self.residency.storing.elsewhere.get(&client.tenant);
        let elsewhere = elsewhere.map(|one| one.number);
        let is_elsewhere = elsewhere.is_some();
        let most = self.world.could_have(client.tenant);
        if self.stored_of(client.tenant) + Bytes(bytes) > most {
            return self.has_too_much(now, (client.tenant, to, id), elsewhere, most);
        }
        if !is_elsewhere && !self.may_store(Bytes(bytes)) {
            let limit = self.residency.storing.limit();
            let text = format!(
                "the budget of {} in the spill folder is used up: memory stays on the host",
                limit.human()
            );
            return self.does_not_store(now, (client.tenant, to, id), None, text);
        }
        let lane = self.lane(client.tenant);
        let storing = &mut self.residency.storing;
        match storing.place(client.tenant, process, Bytes(bytes), &lane) {
            Ok(slot) => {
                storing.busy.insert(process);
                let stored = Stored {
                    file: slot.number,
                    at: slot.at,
                    bytes,
                    sum: 0,
                };
                if !is_elsewhere {
                    self.residency.host.is_copied(process, offset, stored);
                }
                self.tell_held(client.tenant);
                let job = Job {
                    key: Key {
                        process,
                        connection: to,
                        id,
                    },
                    task: Task::Store {
                        file: slot.file,
                        is_nodes: !is_elsewhere,
                    },
                    stored,
                    host,
                    offset,
                    room: self.residency.room(),
                };
                self.begin(job);
            }
            Err(error) => {
                let text = format!("no file can be made for memory: {error}");
                self.does_not_store(now, (client.tenant, to, id), elsewhere, text);
            }
        }
    }

    /// A tenant would have more in files than it could ever have had in memory. In the node's
    /// folder that is no other tenant's affair: this one is left alone for a while.
    fn has_too_much(
        &mut self,
        now: Nanos,
        (tenant, to, id): (TenantId, ConnId, u32),
        elsewhere: Option<u64>,
        most: Bytes,
    ) {
        let text = format!(
            "more than {} of it would be in files, the most that its limits allow",
            most.human()
        );
        if elsewhere.is_some() {
            return self.does_not_store(now, (tenant, to, id), elsewhere, text);
        }
        self.refuse_host(to, id, Refusal::Cancelled);
        self.event("spill-failed", Some(tenant), None, text);
        self.ask_one_to_store(now, tenant, false);
        self.residency.storing.is_silent(tenant, now + PAUSE);
        self.tend_host(now);
    }

    /// A range is not stored. In the node's folder nothing is then stored for a while, and requests
    /// for host memory are refused meanwhile. The file of a command (`elsewhere`: its number) is
    /// its tenant's affair alone, also where the command has been given up since.
    pub(super) fn does_not_store(
        &mut self,
        now: Nanos,
        (tenant, to, id): (TenantId, ConnId, u32),
        elsewhere: Option<u64>,
        text: String,
    ) {
        self.refuse_host(to, id, Refusal::NoMemory);
        let storing = &mut self.residency.storing;
        let unasked: Vec<TenantId> = match elsewhere {
            Some(number) if storing.stops_elsewhere(tenant, number) => {
                self.not_suspended_to(tenant, &text);
                vec![tenant]
            }
            // Said before, or of a command that was given up.
            Some(_) => return self.tend_host(now),
            None => {
                storing.paused = Some(now + PAUSE);
                storing.asked.keys().copied().collect()
            }
        };
        self.event("spill-failed", Some(tenant), None, text);
        for tenant in unasked {
            self.ask_one_to_store(now, tenant, false);
        }
        self.tend_host(now);
    }
}
