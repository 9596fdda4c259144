//! The requests of clients.

use std::os::fd::OwnedFd;

use gpushare_core::{AskId, Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::page::MAX_SLOTS;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Ask, ErrorCode, Register, Registered, Reply, Request, WireError};

use super::asks::{amounts, charges};
use super::processes::Process;
use super::registrations::Taken;
use super::{ConnId, Effect, Node};
use crate::connection::Passed;
use crate::foreign::Foreign;
use crate::peer::Peer;

/// A process that has joined: its id, its reply, and its pages.
type Joined = (ProcessId, Registered, Vec<Passed>);

/// The sender of asks: a connection on a tenant's socket, and its process once registered.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The connection.
    pub connection: ConnId,
    /// The socket's tenant.
    pub tenant: TenantId,
    /// The process, once registered.
    pub process: Option<ProcessId>,
    /// Whether its gate can be closed.
    pub gated: bool,
    /// Whether it can seal itself and move its memory by orders.
    pub moves: bool,
}

impl Node {
    /// Registers the process at the other end of a connection. Returns its id, or `None` if it was
    /// refused.
    pub fn register(
        &mut self,
        now: Nanos,
        client: Client,
        (id, register): (u32, &Register),
        peer: Peer,
        presented: Option<OwnedFd>,
    ) -> Option<ProcessId> {
        let comes_back = presented.is_some().then_some(peer.pid);
        // The process may have locks on it, which make each close take long.
        let lane = self.door_lane(client.tenant);
        let presented = presented.map(|page| Foreign::new(page, &lane));
        match self.try_register(now, client, register, peer, presented) {
            Err(error) => {
                if let Some(pid) = comes_back.filter(|_| !error.can_retry) {
                    self.not_again(client.tenant, pid, &error);
                }
                self.fail(client.connection, id, error);
                None
            }
            Ok((process, registered, descriptors)) => {
                self.effect(Effect::Client {
                    to: client.connection,
                    id,
                    reply: Reply::Registered(registered),
                    descriptors,
                });
                Some(process)
            }
        }
    }

    fn try_register(
        &mut self,
        now: Nanos,
        client: Client,
        register: &Register,
        peer: Peer,
        presented: Option<Foreign>,
    ) -> Result<Joined, WireError> {
        if client.process.is_some() {
            let text = "this connection has registered a process already";
            return Err(WireError::new(ErrorCode::OutOfOrder, text));
        }
        self.may_join(client.tenant, &peer)?;
        if let Some(page) = &presented
            && let Some(known) = self.reconnected(now, client, register.slot, &peer, page)
        {
            return known;
        }
        if presented.is_none() && self.is_recovering() {
            // Until then it is not known which rows of which page are taken.
            let text = "processes of the previous daemon are being counted; try again in a moment";
            return Err(WireError::retry(ErrorCode::Full, text));
        }
        if presented.is_none() {
            self.awaits_page(client.tenant, peer.pid)?;
        }
        if self.lane(client.tenant).is_full() {
            // Each registration has its process looked at there.
            let text = "a process of the tenant keeps the daemon from looking at it; try again";
            return Err(WireError::retry(ErrorCode::Full, text));
        }
        // Before anything changes: a process that is to try again keeps what it has.
        let taken = self.take(client.tenant, &peer, presented.as_ref())?;
        let left = self.replace(now, &peer, presented.is_some());
        let joined = self.join(now, client, register, (peer, taken), presented);
        for tenant in left {
            self.end_if_unused(now, tenant);
        }
        joined
    }

    /// A process that may join, and that is not registered, becomes a member.
    fn join(
        &mut self,
        now: Nanos,
        client: Client,
        register: &Register,
        (peer, (descriptors, pidfd)): (Peer, Taken),
        presented: Option<Foreign>,
    ) -> Result<Joined, WireError> {
        let slot = match presented {
            Some(page) => Some(self.adopt_page(client.tenant, page, register.slot)?),
            None => None,
        };
        let process = ProcessId(self.fresh_id());
        let device_uuids = self.uuids(client.tenant);
        let Some(tenant) = self.tenants.get_mut(&client.tenant) else {
            return Err(WireError::new(ErrorCode::NotFound, "the tenant has ended"));
        };
        let adopted = slot.is_none();
        let Some(slot) = slot.or_else(|| tenant.free_slot()) else {
            let text = format!("all {} processes of the tenant are taken", MAX_SLOTS);
            return Err(WireError::retry(ErrorCode::Full, text));
        };
        tenant.seat(slot, process);
        tenant.occupy(slot, register.pid, peer.pid.unsigned_abs());
        let registered = Registered {
            tenant: tenant.name().to_owned(),
            slot: u16::try_from(slot).unwrap_or(u16::MAX),
            device_uuids,
        };
        let cgroup = peer.cgroup.clone();
        let pid = peer.pid;
        tenant.accepted(pid.unsigned_abs());
        self.has_come(now, pid);
        let place = (client.tenant, slot);
        let known = Process::new(place, peer, client.connection);
        self.processes.add(process, known);
        self.identify(client.tenant, process, pid);
        self.read_counters(process);
        self.effect(Effect::Watch { process, pidfd });
        self.happened(
            now,
            Event::ProcessStarted {
                process,
                tenant: client.tenant,
                adopted,
                gated: client.gated,
            },
        );
        if client.moves {
            self.happened(now, Event::Movable { process });
        }
        self.entered(client.tenant, &cgroup);
        self.settle_cgroup(client.tenant, &cgroup);
        if !adopted {
            self.present(now, process);
            self.seat_late(now, client.tenant);
        }
        if !adopted && client.moves {
            self.residency.host.comes(process);
        }
        Ok((process, registered, descriptors))
    }

    /// A registered process reconnects after its connection broke. It keeps its registration.
    fn reconnected(
        &mut self,
        now: Nanos,
        client: Client,
        slot: Option<u16>,
        peer: &Peer,
        page: &Foreign,
    ) -> Option<Result<Joined, WireError>> {
        let device_uuids = self.uuids(client.tenant);
        let tenant = self.tenants.get(&client.tenant)?;
        let slot = slot?;
        let process = tenant.seated(usize::from(slot))?;
        let known = self.processes.get_mut(process)?;
        // The pid cannot have been given to another process while this one's pidfd is not dead.
        let same = known.peer().pid == peer.pid && known.is_dead() == Some(false);
        if !same || !tenant.usage().is(page.file()) {
            return None;
        }
        let comes = known.reconnected(client.connection);
        self.away.came(process);
        if comes {
            self.comes_late(now, process, client);
        }
        self.happened(
            now,
            Event::Away {
                process,
                away: false,
            },
        );
        let tenant = self.tenants.get(&client.tenant)?;
        let registered = Registered {
            tenant: tenant.name().to_owned(),
            slot,
            device_uuids,
        };
        let descriptors = tenant.descriptors(None);
        // The process repeats its open asks on the new connection.
        self.cancel_all(now, process, None);
        Some(descriptors.map(|descriptors| (process, registered, descriptors)))
    }

    /// Any request but the first.
    pub fn request(&mut self, now: Nanos, client: Client, id: u32, request: &Request) {
        if let Some(process) = client.process {
            if self.processes.get(process).is_none() {
                return self.answer_to_former(client, id, request);
            }
            if self.reported(now, client.tenant, process, request)
                || self.told_of_contexts(now, (client, process), request)
                || self.moved(now, (client, process, id), request)
            {
                return;
            }
        }
        self.answer_to(now, client, id, request);
        self.show_status(client.tenant);
    }

    fn answer_to(&mut self, now: Nanos, client: Client, id: u32, request: &Request) {
        let Some(process) = client.process else {
            let error = WireError::new(ErrorCode::OutOfOrder, "register first");
            return self.fail(client.connection, id, error);
        };
        if self.asks_for_context(now, (client, process, id), request) {
            return;
        }
        match request {
            Request::Ask(wanted) => {
                let wanted = &self.as_it_is(now, client.tenant, wanted);
                self.read_lenders(now, client.tenant, wanted);
                let device_index = (wanted.device_index, charges(wanted, false));
                self.ask(now, (client, process, id), device_index, |device, ask| {
                    let (held, bytes, patience) = amounts(wanted);
                    Event::Ask {
                        process,
                        device,
                        ask,
                        held,
                        bytes,
                        patience,
                    }
                })
            }
            Request::DriverRefused(wanted) => {
                let device_index = (wanted.device_index, charges(wanted, true));
                self.ask(now, (client, process, id), device_index, |device, ask| {
                    let (held, bytes, patience) = amounts(wanted);
                    Event::DriverRefused {
                        process,
                        device,
                        ask,
                        held,
                        bytes,
                        patience,
                    }
                });
            }
            Request::Cancel { ask } => {
                let ask = AskId(u64::from(*ask));
                self.cancel_ask(now, client.tenant, (process, ask));
                self.reply(client.connection, id, Reply::Done);
            }
            Request::Freed { device_index } => {
                self.read_usage(now, client.tenant, usize::from(*device_index));
                self.reply(client.connection, id, Reply::Done);
            }
            Request::Adopted { instance } => {
                if *instance == self.instance {
                    self.happened(now, Event::Adopted { process });
                }
                self.reply(client.connection, id, Reply::Done);
            }
            Request::Register(_) => {
                let error = WireError::new(ErrorCode::OutOfOrder, "registered already");
                self.fail(client.connection, id, error);
            }
            _ => {
                let error = WireError::new(
                    ErrorCode::UnknownRequest,
                    "this daemon does not know that request",
                );
                self.fail(client.connection, id, error);
            }
        }
    }

    /// A question that is answered by a decision, now or later.
    pub(super) fn ask(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        (device_index, (wanted, driver)): (u8, (Bytes, bool)),
        event: impl FnOnce(gpushare_core::DeviceId, AskId) -> Event,
    ) {
        let tenant = self.tenants.get(&client.tenant);
        let device =
            tenant.and_then(|known| known.device_ids().get(usize::from(device_index)).copied());
        let Some(device) = device else {
            let text = format!("the tenant has no device in device_index {device_index}");
            return self.fail(
                client.connection,
                id,
                WireError::new(ErrorCode::NotFound, text),
            );
        };
        let ask = AskId(u64::from(id));
        if !self.asks.add((process, ask), client.connection, id) {
            let error = WireError::new(ErrorCode::OutOfOrder, "a request of that number is open");
            return self.fail(client.connection, id, error);
        }
        if let Some(known) = self.tenants.get_mut(&client.tenant) {
            let tally = known.tally_mut();
            tally.asks((process, ask), usize::from(device_index), wanted, driver);
        }
        self.happened(now, event(device, ask));
    }

    /// Reports a tenant's usage, according to its page, to the brain: a process freed memory.
    pub(super) fn read_usage(&mut self, now: Nanos, tenant: TenantId, device_index: usize) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let Some(device) = known.device_ids().get(device_index).copied() else {
            return;
        };
        let in_use = known.charged(device_index);
        self.happened(
            now,
            Event::Usage {
                tenant,
                device,
                in_use,
            },
        );
    }

    /// Before an ask that may not fit: reads the memory that other tenants on the device have freed
    /// since their pages were last read.
    fn read_lenders(&mut self, now: Nanos, asker: TenantId, wanted: &Ask) {
        let device = self.tenants.get(&asker).and_then(|known| {
            known
                .device_ids()
                .get(usize::from(wanted.device_index))
                .copied()
        });
        let Some(device) = device else { return };
        let (held, bytes) = (Bytes(wanted.held), Bytes(wanted.bytes));
        if self.world.fits(asker, device, (held, bytes)) {
            return;
        }
        self.read_all(now, device);
    }

    /// Reads the charges of tenants on a device where they differ from the brain's.
    pub(super) fn read_all(&mut self, now: Nanos, device: gpushare_core::DeviceId) {
        let device_index = |(tenant, known): (&TenantId, &super::Tenant)| {
            let device_index = known.device_index(device)?;
            let told = self.world.account(*tenant, device)?.in_use;
            (known.charged(device_index) != told).then_some((*tenant, device_index))
        };
        let lenders: Vec<_> = self.tenants.iter().filter_map(device_index).collect();
        for (tenant, device_index) in lenders {
            self.read_usage(now, tenant, device_index);
        }
    }

    /// A client's connection ended. Its process may live on; only its pidfd tells.
    pub fn disconnected(&mut self, now: Nanos, client: Client) {
        let Some(process) = client.process else {
            return;
        };
        self.residency.storing.gives_up(client.connection);
        if let Some(known) = self.processes.get_mut(process)
            && known.disconnected(client.connection)
        {
            // The connection of a process that ends is closed before its pidfd tells of its end,
            // and the work of one that is away is not billed.
            self.sample_last(now, process);
            let away = true;
            self.happened(now, Event::Away { process, away });
            self.cancel_all(now, process, Some(client.connection));
            self.went_away(now, process);
            return;
        }
        self.cancel_all(now, process, Some(client.connection));
    }

    /// Cancels a process's open asks, or those that came over one connection.
    pub(super) fn cancel_all(&mut self, now: Nanos, process: ProcessId, over: Option<ConnId>) {
        let tenant = self.processes.get(process).map(|known| known.tenant());
        for key in self.asks.of(process, over) {
            self.asks.take(key);
            if let Some(known) = tenant.and_then(|tenant| self.tenants.get_mut(&tenant)) {
                known.tally_mut().given_up(key, now);
            }
            self.happened(
                now,
                Event::Cancel {
                    process,
                    ask: key.1,
                },
            );
        }
    }

    fn uuids(&self, tenant: TenantId) -> Vec<[u8; 16]> {
        let device_ids = self.tenants.get(&tenant).map(|known| known.device_ids());
        let devices = device_ids
            .into_iter()
            .flatten()
            .filter_map(|device| super::tenant::index(*device).and_then(|at| self.devices.get(at)));
        devices.map(|device| device.uuid).collect()
    }

    pub(super) fn reply(&mut self, to: ConnId, id: u32, reply: Reply) {
        self.effect(Effect::Client {
            to,
            id,
            reply,
            descriptors: Vec::new(),
        });
    }

    fn fail(&mut self, to: ConnId, id: u32, error: WireError) {
        self.reply(to, id, Reply::Error(error));
    }
}
