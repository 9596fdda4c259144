//! Processes connect, are adopted after a restart, and die.

use super::{Opened, Process, World};
use crate::ids::{ContainerId, DeviceId, ProcessId};
use crate::lease::Input;
use crate::limbo::Limbo;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn process_started(
        &mut self,
        process: ProcessId,
        container: ContainerId,
        adopted: bool,
        gated: bool,
    ) {
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        if self.processes.contains_key(&process) {
            return;
        }
        known.processes.insert(process);
        let started = Process {
            container,
            adopted,
            gated,
            opened: BTreeMap::new(),
            waiting: BTreeSet::new(),
        };
        self.processes.insert(process, started);
    }

    /// A process of the previous daemon says what it holds. The old grant stays outstanding; whatever is claimed, no
    /// more than the registered limit is believed, and the next sample and reclaim set right what was a lie.
    pub(super) fn presented(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        charged: Bytes,
        credit: Bytes,
        grant: Bytes,
    ) {
        let (cost, now) = (self.context_cost(device), self.now);
        let Some(known) = self
            .processes
            .get_mut(&process)
            .filter(|known| !known.adopted)
        else {
            return;
        };
        let container = known.container;
        let Some(books) = self.devices.get_mut(&device) else {
            return;
        };
        if books.account(container).is_none() {
            return;
        }
        let fresh = !known.opened.contains_key(&device);
        let opened = known
            .opened
            .entry(device)
            .or_insert_with(|| Opened::reserved(cost, now));
        if opened.presented.replace(credit).is_some() {
            return;
        }
        let overhead = if fresh { opened.overhead } else { Bytes::ZERO };
        let credits = self.presented_credit(container, device);
        let Some(books) = self.devices.get_mut(&device) else {
            return;
        };
        let raised = books.change(container, |account| {
            let before = account.grant;
            account.overhead += overhead;
            account.grant = before.max(grant.max(credits).min(account.limit));
            account.in_use = (account.in_use + charged).min(account.grant);
            if account.grant > before {
                account.lowering = None;
            }
        });
        if raised.is_some() {
            self.show_grant(container, device);
        }
        self.facts_changed(device);
    }

    /// The credit all its processes presented so far.
    fn presented_credit(&self, container: ContainerId, device: DeviceId) -> Bytes {
        let processes = self
            .containers
            .get(&container)
            .map(|known| &known.processes);
        let opened = processes
            .into_iter()
            .flatten()
            .filter_map(|process| self.processes.get(process)?.opened.get(&device)?.presented);
        opened.sum()
    }

    pub(super) fn adopted(&mut self, process: ProcessId) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        known.adopted = true;
        let container = known.container;
        for device in known.opened.keys().copied().collect::<Vec<_>>() {
            self.joins_device(process, device);
        }
        for device in self.devices_of(container) {
            self.trim(container, device);
            self.freed(device);
        }
    }

    /// A process's connection ended, or came again.
    pub(super) fn away(&mut self, process: ProcessId, away: bool) {
        let opened = self.processes.get(&process).map(|known| &known.opened);
        let devices: Vec<_> = opened
            .into_iter()
            .flatten()
            .map(|(device, _)| *device)
            .collect();
        for device in devices {
            self.tell_device(device, Input::Away { process, away });
        }
    }

    /// A process became another program. Its charges there are believed as those of one with siblings are: what it hides stays in the
    /// container's grant.
    pub(super) fn vacated(&mut self, process: ProcessId, device: DeviceId, charged: Bytes) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        let container = known.container;
        let opened = known.opened.remove(&device);
        self.tell_device(device, Input::Left { process });
        let ended = self
            .containers
            .get(&container)
            .is_some_and(|known| known.ending.is_some());
        self.reap(
            process,
            (container, ended),
            device,
            opened,
            (charged, false),
        );
        self.lower_wants(container, device);
        self.freed(device);
    }

    /// Whether all its processes obey this daemon's control page: only then a lowered grant is a lowered grant.
    pub(super) fn all_adopted(&self, container: ContainerId) -> bool {
        let processes = self
            .containers
            .get(&container)
            .map(|known| &known.processes);
        let mut processes = processes.into_iter().flatten();
        processes.all(|process| {
            self.processes
                .get(process)
                .is_none_or(|known| known.adopted)
        })
    }

    /// A process is dead: what it held is limbo until a sample no longer shows it. With siblings alive its charges are
    /// believed, because a lie frees nothing for others: what it hides stays in the container's grant, and the next
    /// sample books it as limbo too. Without siblings the whole grant is limbo, whatever the page said.
    pub(super) fn process_gone(&mut self, process: ProcessId, charged: &[(DeviceId, Bytes)]) {
        let Some(dead) = self.processes.remove(&process) else {
            return;
        };
        for ask in dead.waiting {
            self.forget(ask);
        }
        for device in dead.opened.keys() {
            self.tell_device(*device, Input::Left { process });
        }
        let Some(known) = self.containers.get_mut(&dead.container) else {
            return;
        };
        known.processes.remove(&process);
        let (last, ended) = (known.processes.is_empty(), known.ending.is_some());
        for device in self.devices_of(dead.container) {
            let opened = dead.opened.get(&device).copied();
            let told = charged.iter().find(|(on, _)| *on == device);
            let told = told.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
            self.reap(
                process,
                (dead.container, ended),
                device,
                opened,
                (told, last),
            );
        }
        if last {
            self.step_down(dead.container);
        }
        for device in self.devices_of(dead.container) {
            self.follow_parts_of(dead.container, device);
            self.lower_wants(dead.container, device);
            self.freed(device);
        }
    }

    /// Books what one dead process held on one device as limbo: what its page `told`, or all its container held if it was the `last`.
    fn reap(
        &mut self,
        process: ProcessId,
        (container, ended): (ContainerId, bool),
        device: DeviceId,
        opened: Option<Opened>,
        (told, last): (Bytes, bool),
    ) {
        let since = self.now;
        let Some(books) = self.devices.get_mut(&device) else {
            return;
        };
        let overhead = opened.map_or(Bytes::ZERO, |opened| opened.overhead);
        let reaped = books.change(container, |account| {
            let held = if last {
                account.grant
            } else {
                told.min(account.grant)
            };
            let excess = if last {
                std::mem::take(&mut account.excess)
            } else {
                Bytes::ZERO
            };
            account.grant -= held;
            account.overhead -= overhead;
            account.in_use = (account.in_use - held).min(account.grant);
            account.late = account.late.min(account.in_use);
            account.lowering = account
                .lowering
                .filter(|lowering| lowering.to < account.grant);
            (held + overhead + excess, held)
        });
        let Some((bytes, held)) = reaped else { return };
        if !bytes.is_zero() {
            books.reap(
                process,
                Limbo {
                    container: Some(container),
                    bytes,
                    charged: held,
                    told: told.min(held),
                    overhead,
                    since,
                    ended,
                },
            );
        }
        // Before the dead slot is cleared: what it held must not become its siblings' credit.
        self.show_grant(container, device);
        if !bytes.is_zero() {
            self.look_soon(device);
        }
    }
}
