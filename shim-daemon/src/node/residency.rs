//! Tenants whose memory may leave the devices: orders into their control pages, and their
//! processes' reports to the brain.
//!
//! Reports come from tenants. One is accepted only from a registered process, about a device of its
//! tenant; the brain believes reports on the current order only, and no byte to be free before a
//! look at the device shows it.

use gpushare_core::{
    AskKey, DeviceId, Event, Nanos, Order, Oversubscribe, Place, ProcessId, Shown, TenantId, Told,
};
use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::residency::{Movability, Order as Shall, OrderWord, Orders};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{self, ErrorCode, Obstacle, Request, ResidencyRow, WireError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::commands::limits_under;
use super::events::number;
use super::{Client, Node, Settings};
use crate::host_room::HostRoom;

/// The state of tenants' moves, and the last reports of processes about their memory.
#[derive(Debug)]
pub(super) struct Moves {
    /// The first epoch of this daemon's orders. It is the daemon's start on the monotonic clock, in
    /// milliseconds: no process of the previous daemon has seen an order of this number.
    first: u32,
    pub(super) host: super::host_store::HostStore,
    room: Arc<HostRoom>,
    /// Why it has no budget, if it has none.
    no_host: String,
    pub(super) storing: super::storing::Storing,
    /// What former registrations of living processes have.
    pub(super) left: super::left_behind::LeftBehind,
    /// Processes for which the system gave no memory when they last asked.
    pub(super) failing: BTreeSet<ProcessId>,
    /// Each process's last report about its memory on a device.
    pub(super) claims: BTreeMap<(ProcessId, u8), wire::Residency>,
    /// Processes that have said that they were refused to share memory.
    unshared: BTreeSet<ProcessId>,
    /// Commands that wait until a tenant is out or back.
    pub(super) commands: super::suspending::Commands,
}

impl Moves {
    #[expect(clippy::cast_possible_truncation, reason = "epochs wrap around")]
    pub(super) fn new(settings: &Settings, instance: u64, now: Nanos) -> Self {
        let swap = settings.policy.swap;
        Self {
            first: (now.0 / 1_000_000) as u32,
            host: super::host_store::HostStore::new(swap.host),
            room: Arc::default(),
            no_host: settings.no_host.clone(),
            storing: super::storing::Storing::new(swap.spill, instance),
            left: super::left_behind::LeftBehind::default(),
            failing: BTreeSet::new(),
            claims: BTreeMap::new(),
            unshared: BTreeSet::new(),
            commands: super::suspending::Commands::default(),
        }
    }

    /// What bounds the host memory of this daemon.
    pub(super) fn room(&self) -> Arc<HostRoom> {
        Arc::clone(&self.room)
    }
}

/// Why nothing swaps yet under a daemon whose file has a budget by now.
const NOT_YET: &str = "[swap] needs a restart of the daemon, which started without its host memory";

/// The variable that says how memory may leave the devices.
const OVERSUBSCRIBE: &str = "GPUSHARE_OVERSUBSCRIBE";

/// Writes into a tenant's variables how its memory may leave the devices, whatever the node's
/// defaults say later.
pub(super) fn choose(environment: &mut Vec<(String, String)>, how: Oversubscribe) {
    let value = match how {
        Oversubscribe::Off => "off",
        Oversubscribe::Swap => "swap",
        Oversubscribe::Uvm => "uvm",
    };
    environment.retain(|(name, _)| name != OVERSUBSCRIBE);
    environment.push((OVERSUBSCRIBE.to_owned(), value.to_owned()));
}

/// Whether that is written there.
pub(super) fn is_chosen(environment: &[(String, String)]) -> bool {
    environment.iter().any(|(name, _)| name == OVERSUBSCRIBE)
}

impl Node {
    /// The daemon's host memory is bounded so, and not as the kernel says. For tests.
    pub fn bounded(&mut self, room: HostRoom) {
        self.residency.room = Arc::new(room);
    }

    /// Why the host memory that the settings plan can never be had, if it cannot.
    #[must_use]
    pub fn never_has_host(&self) -> Vec<String> {
        match self.residency.host.budget() {
            Bytes::ZERO => vec![],
            planned => self.residency.room.never_has(planned.0),
        }
    }

    /// Says which of the daemons this is that have had these tenants: what it gives their processes
    /// lies at places in their memory files that no other daemon has given.
    pub fn starts(&mut self, number: u64) {
        self.residency.host.starts(number);
    }

    /// Refuses a tenant whose memory shall move on a node that has no host memory for it.
    pub(super) fn may_move(&self, limits: &Limits) -> Result<(), WireError> {
        if !self.residency.host.budget().is_zero() {
            return Ok(());
        }
        match limits.policy().refuse_moves(&self.residency.no_host) {
            None => Ok(()),
            Some(error) => Err(WireError::new(ErrorCode::BadLimits, error.to_string())),
        }
    }

    /// Takes from settings that are read while this daemon runs why nothing swaps, if nothing does.
    /// The budget is that of the start.
    pub(super) fn found_host(&mut self, settings: &Settings) {
        self.residency.no_host = match settings.policy.swap.host.is_zero() {
            true => settings.no_host.clone(),
            false => NOT_YET.to_owned(),
        };
    }

    /// Refuses settings under which memory would move into a budget that is theirs and not this
    /// daemon's, which it has from its start: each new tenant would be refused.
    pub(super) fn may_take(&self, settings: &Settings) -> Result<(), String> {
        if !self.residency.host.budget().is_zero() || settings.policy.swap.host.is_zero() {
            return Ok(());
        }
        let classes = settings.containers.classes.iter();
        let classes = classes.map(|class| {
            let place = format!("[classes.{}]", class.name);
            (place, class.environment.as_slice())
        });
        let mut all = std::iter::once(("[defaults]".to_owned(), &[][..])).chain(classes);
        all.try_for_each(|(place, environment)| {
            // What is no limits for another reason is refused where it is asked for.
            let limits =
                limits_under(environment, &settings.defaults, [&settings.maxima, &[]]).ok();
            let refused = limits.and_then(|limits| limits.policy().refuse_moves(NOT_YET));
            refused.map_or(Ok(()), |error| Err(format!("{place}: {error}")))
        })
    }

    /// Stores an order where the tenant's processes see it. They are woken by [`Node::wake_gates`].
    pub(super) fn set_order(
        &mut self,
        tenant: TenantId,
        device: DeviceId,
        (epoch, order): (u32, Order),
        drain: Nanos,
    ) {
        self.ask_to_give_back(tenant, order);
        let order = match order {
            Order::In => Shall::In,
            Order::Seal => Shall::Seal,
            Order::Leave => Shall::Leave,
            Order::Return => Shall::Return,
            Order::Out => Shall::Out,
            Order::Lost => Shall::Lost,
        };
        let word = OrderWord::new(self.residency.first.wrapping_add(epoch), order);
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let device_index = known.device_index(device);
        let page =
            device_index.and_then(|device_index| known.control().view().devices.get(device_index));
        if let Some(page) = page {
            let is_managed = known.control().view().movability() == Movability::Managed;
            if is_managed && matches!(order, Shall::In | Shall::Return) {
                let account = self.world.account(tenant, device);
                // 0 would say nothing, and the process would bring all.
                page.book(account.map_or(0, |account| account.booked.0.max(1)));
            }
            page.command(Orders {
                word,
                drain_ms: u32::try_from(drain.0 / 1_000_000).unwrap_or(u32::MAX),
                ..Orders::default()
            });
            self.wake_soon(tenant);
        }
    }

    /// Stores how much of a tenant's return stays on the host for now.
    pub(super) fn withhold(&mut self, tenant: TenantId, device: DeviceId, bytes: Bytes) {
        let known = self.tenants.get(&tenant);
        let page = known.and_then(|known| {
            let device_index = known.device_index(device)?;
            known.control().view().devices.get(device_index)
        });
        if let Some(page) = page {
            page.withhold(bytes.0);
            self.wake_soon(tenant);
        }
    }

    /// The turn of an ask is certain: its process, which has a deadline of its own, reads that it
    /// may wait until then.
    pub(super) fn extended(&mut self, ask: AskKey, until: Nanos) {
        let process = self.processes.get(ask.0);
        let tenant = process.and_then(|process| self.tenants.get(&process.tenant()));
        if let Some(known) = tenant {
            let header = &known.control().view().header;
            header.extended.fetch_max(until.0, Ordering::Release);
        }
    }

    /// Handles a process's message about its memory. False for any other request.
    pub(super) fn moved(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        request: &Request,
    ) -> bool {
        self.residency.commands.hears(client.tenant, request);
        let (device_index, epoch, told) = match *request {
            Request::Residency(state) => {
                self.shown(now, client.tenant, process, state);
                return true;
            }
            Request::WantIn { device_index } => {
                if let Some(device) = self.device_in(client.tenant, device_index) {
                    self.happened(now, Event::WantsIn { process, device });
                    // It wakes one that a command moved out.
                    self.write_down_standing(client.tenant);
                }
                return true;
            }
            Request::Unshared { device_index } => {
                self.unshared((client.tenant, process), device_index);
                return true;
            }
            Request::HostRange { bytes, .. } => {
                self.give_host(now, (client, process, id), bytes);
                return true;
            }
            Request::HostDrop { .. } if self.is_outdated(client, process) => return true,
            Request::HostDrop { offset, bytes } => {
                self.residency.host.drop_range(process, offset, bytes);
                let storing = &mut self.residency.storing;
                if storing.offers.take(process, offset).is_some() {
                    storing.silent.remove(&client.tenant);
                    storing.is_heard(client.tenant, now);
                }
                self.tell_held(client.tenant);
                self.tend_host(now);
                return true;
            }
            Request::Sealed {
                device_index,
                epoch,
            } => {
                // The memory that it has charged until now leaves.
                self.read_usage(now, client.tenant, usize::from(device_index));
                (device_index, epoch, Told::Sealed)
            }
            Request::SealBusy {
                device_index,
                epoch,
                retry_ms,
                why,
            } => {
                let late = matches!(why, Obstacle::Work | Obstacle::Call);
                let retry = retry_ms;
                (device_index, epoch, Told::Busy { retry, late })
            }
            Request::Moved {
                device_index,
                epoch,
                away,
            } => {
                let away = Bytes(away);
                (device_index, epoch, Told::Moved { away })
            }
            Request::Away {
                device_index,
                epoch,
                away,
                residue,
            } => {
                let (away, residue) = (Bytes(away), Bytes(residue));
                (device_index, epoch, Told::Away { away, residue })
            }
            Request::Back {
                device_index,
                epoch,
            } => (device_index, epoch, Told::Back),
            Request::NoRoom {
                device_index,
                epoch,
                bytes,
            } => {
                let bytes = Bytes(bytes);
                (device_index, epoch, Told::NoRoom { bytes })
            }
            _ => return self.stored(now, (client, process, id), request),
        };
        if let Some(device) = self.device_in(client.tenant, device_index) {
            let epoch = epoch.wrapping_sub(self.residency.first);
            self.happened(
                now,
                Event::Moved {
                    process,
                    device,
                    epoch,
                    told,
                },
            );
        }
        true
    }

    /// A process says its whole state on a device.
    fn shown(&mut self, now: Nanos, tenant: TenantId, process: ProcessId, state: wire::Residency) {
        let Some(device) = self.device_in(tenant, state.device_index) else {
            return;
        };
        let shown = match state.place {
            wire::Place::Sealed => Shown::Sealed,
            wire::Place::Out | wire::Place::Leaving | wire::Place::Entering => Shown::Out {
                away: Bytes(state.away),
                // One whose order was taken back half way says that it is out, too.
                rests: state.place == wire::Place::Out && state.away >= state.movable,
            },
            _ => Shown::In,
        };
        self.residency
            .claims
            .insert((process, state.device_index), state);
        let most = self.could_be_given(tenant, process);
        let host = &mut self.residency.host;
        host.found(process, Bytes(state.host), most);
        self.tell_held(tenant);
        let bytes = Bytes(state.residue.total());
        self.happened(
            now,
            Event::Shown {
                process,
                device,
                shown,
            },
        );
        self.happened(
            now,
            Event::Stays {
                process,
                device,
                bytes,
            },
        );
    }

    /// A process was refused to share memory that can move. An event says so, one for a process.
    fn unshared(&mut self, (tenant, process): (TenantId, ProcessId), device_index: u8) {
        let known = self.processes.get(process);
        let pid = known.map(|known| known.peer().pid.unsigned_abs());
        let place = self.device_in(tenant, device_index).zip(pid);
        let Some((device, pid)) = place else {
            return;
        };
        if !self.residency.unshared.insert(process) {
            return;
        }
        let text = format!(
            "process {pid} wanted to share memory with other processes or devices and was told \
             NOT_SUPPORTED: what can move is not shared; it would be with --oversubscribe off"
        );
        let facts = [number("pid", u64::from(pid))];
        self.event_with("unshared", (Some(tenant), Some(device)), text, &facts);
    }

    /// The most host memory that a process can have from daemons, as far as is plausible.
    pub(super) fn could_be_given(&self, tenant: TenantId, process: ProcessId) -> Bytes {
        self.world.could_have(tenant) - self.given_to_others(tenant, process)
    }

    /// Host memory of a tenant's other processes.
    fn given_to_others(&self, tenant: TenantId, process: ProcessId) -> Bytes {
        let known = self.tenants.get(&tenant);
        let members = known.into_iter().flat_map(|known| known.members());
        let members = members.chain(self.residency.left.of(tenant));
        let others = members.filter(|member| *member != process);
        others.map(|member| self.residency.host.given(member)).sum()
    }

    fn device_in(&self, tenant: TenantId, device_index: u8) -> Option<DeviceId> {
        let known = self.tenants.get(&tenant)?;
        known.device_ids().get(usize::from(device_index)).copied()
    }

    /// A process of a tenant has ended, or is another program: it has nothing on the host any more,
    /// and in no file.
    pub(super) fn forget_moves(&mut self, process: ProcessId, tenant: TenantId) {
        self.residency.host.ended(process);
        self.residency.storing.ended(process);
        self.forget_reports(process);
        self.tell_held(tenant);
    }

    /// A process of a tenant has ended, or its registration has.
    pub(super) fn forget_reports(&mut self, process: ProcessId) {
        self.inspecting.ended(process);
        self.residency.failing.remove(&process);
        self.residency.unshared.remove(&process);
        // Not all of them: processes end often, and others' are many.
        let own = self
            .residency
            .claims
            .range((process, 0)..=(process, u8::MAX));
        for claim in own.map(|(claim, _)| *claim).collect::<Vec<_>>() {
            self.residency.claims.remove(&claim);
        }
    }

    /// The bytes of a tenant's charges that are off the device of an index: what orders moved out,
    /// and of managed memory also what has no room there beside that. The driver keeps it on the
    /// host.
    pub(super) fn off_device(&self, id: TenantId, device_index: usize) -> Bytes {
        let known = self.tenants.get(&id);
        let device = known.and_then(|known| known.device_ids().get(device_index));
        let account = device.and_then(|device| self.world.account(id, *device));
        let Some((known, account)) = known.zip(account) else {
            return Bytes::ZERO;
        };
        let charged = known.charged(device_index);
        let away = account.away.min(charged);
        let spec = self.world.spec(id);
        match spec.is_some_and(|spec| spec.oversubscribe == Oversubscribe::Uvm) {
            true => charged - (charged - away).min(account.booked),
            false => away,
        }
    }

    /// Where a tenant's memory of a device is, for commands. `None`: it does not move.
    pub(super) fn residency_row(&self, id: TenantId, device_index: usize) -> Option<ResidencyRow> {
        let known = self.tenants.get(&id)?;
        let device = *known.device_ids().get(device_index)?;
        let view = self.world.residence(id, device)?;
        let described = super::tenant::index(device).and_then(|at| self.devices.get(at))?;
        let own = known.members().filter_map(|process| {
            let device_index = u8::try_from(device_index).ok()?;
            self.residency.claims.get(&(process, device_index))
        });
        let (mut movable, mut residue) = (0_u64, wire::Residue::default());
        for claim in own {
            movable = movable.saturating_add(claim.movable);
            residue = sum(residue, claim.residue);
        }
        Some(ResidencyRow {
            name: known.name().to_owned(),
            device: described.uuid,
            place: match view.place {
                Place::In => wire::Place::In,
                Place::Sealing => wire::Place::Sealed,
                Place::Leaving | Place::Confirming => wire::Place::Leaving,
                Place::Out => wire::Place::Out,
                Place::Entering => wire::Place::Entering,
            },
            for_ms: view.since.0 / 1_000_000,
            suspended: view.suspended,
            movable,
            away: self.off_device(id, device_index).max(view.away).0,
            host: view.host.0,
            residue,
            left: view.left,
            moved: known.measures().get(device_index).map_or(0, |measures| {
                let (out, back) = measures.swaps().bytes();
                (out + back).0
            }),
        })
    }
}

fn sum(one: wire::Residue, other: wire::Residue) -> wire::Residue {
    wire::Residue {
        small: one.small.saturating_add(other.small),
        arrays: one.arrays.saturating_add(other.arrays),
        pools: one.pools.saturating_add(other.pools),
        handles: one.handles.saturating_add(other.handles),
        shared: one.shared.saturating_add(other.shared),
        managed: one.managed.saturating_add(other.managed),
    }
}
