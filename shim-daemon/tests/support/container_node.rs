//! A node without a server, and containers whose cgroups are recorded instead of real.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unreachable_pub, reason = "shared by the tests of containers")]

use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::driver::{Backend, Driver};
use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::wire::{
    Control, ControlReply, Cursor, EventRecord, Injection, Listing, PodRow, Register, Reply, Rows,
    TenantRow, WireError,
};
use gpushared::devices::{Device, Devices as _, LookError};
use gpushared::groups::Groups;
use gpushared::init::Init;
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings};
use gpushared::peer::{Peer, inspect};

pub const NOW: Nanos = Nanos::secs(100);
pub const ROOT: u32 = 0;
pub const ALICE: u32 = 1001;
/// The runtime that calls the hook.
pub const RUNTIME: &str =
    "9:memory:/system.slice/containerd.service\n0::/system.slice/containerd.service\n";

/// A container's cgroups on a machine with both versions.
pub fn group(id: &str) -> String {
    format!(
        "9:memory:/docker/{id}\n4:cpu,cpuacct:/docker/{id}\n0::/system.slice/docker-{id}.scope\n"
    )
}

/// A container's first process, which ends when this is dropped. A folder says its cgroups, as
/// `/proc` would.
pub struct First {
    child: Child,
    proc: tempfile::TempDir,
}

impl First {
    pub fn start(table: &str) -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join(child.id().to_string())).unwrap();
        let first = Self { child, proc };
        first.moves(table);
        first
    }

    pub fn moves(&self, table: &str) {
        let own = self.proc.path().join(self.child.id().to_string());
        fs::write(own.join("cgroup"), table).unwrap();
    }

    /// The same as one that connects, of this user.
    pub fn peer(&self, uid: u32, table: &str) -> Peer {
        peer_of(self.child.id(), uid, table)
    }

    pub fn init(&self) -> Init {
        Init::recorded(pidfd(self.child.id()), self.child.id(), self.proc.path()).unwrap()
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn pidfd(pid: u32) -> OwnedFd {
    inspect(pid).unwrap().pidfd
}

pub struct Machine {
    pub node: Node,
    last: u64,
    pub made: Vec<(TenantId, Registration)>,
    pub gone: Vec<TenantId>,
    /// The events that were told, oldest first.
    pub told: Vec<Arc<EventRecord>>,
}

impl Machine {
    pub fn new() -> Self {
        Self::with(&Settings::default(), false)
    }

    pub fn with(settings: &Settings, recovering: bool) -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        Self::of(settings, devices, recovering)
    }

    pub fn of(settings: &Settings, devices: Vec<Device>, recovering: bool) -> Self {
        Self {
            node: Node::new(settings, devices, 1, NOW, recovering),
            last: 0,
            made: Vec::new(),
            gone: Vec::new(),
            told: Vec::new(),
        }
    }

    pub fn configured(text: &str) -> Self {
        Self::with(
            &gpushared::config::read(text, Settings::default()).unwrap(),
            false,
        )
    }

    pub fn connection(&mut self) -> ConnId {
        self.last += 1;
        ConnId(self.last)
    }

    /// Takes the effects without carrying them out. Returns the last answers.
    pub fn drain(&mut self) -> (Option<ControlReply>, Option<Reply>) {
        let (mut told, mut answered) = (None, None);
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Listen {
                    tenant,
                    registration,
                } => {
                    self.made.retain(|(known, _)| *known != tenant);
                    self.made.push((tenant, *registration));
                }
                Effect::Unlisten { tenant, .. } => self.gone.push(tenant),
                Effect::Command { reply, .. } => told = Some(reply),
                Effect::Event { record, .. } => self.told.push(record),
                Effect::Client { reply, .. } => answered = Some(reply),
                _ => {}
            }
        }
        (told, answered)
    }

    /// A device falls off the bus.
    pub fn loses(&mut self, device: usize) {
        // As often, and for as long, as it takes to be believed.
        for before in [2, 1, 0] {
            let now = NOW - Nanos::secs(before);
            self.node.tick(NOW);
            let lost = Err(LookError::Lost);
            self.node.looked(now, device, now, lost);
        }
        self.drain();
    }

    /// A hook of this user injects.
    pub fn inject_as(
        &mut self,
        user: Option<u32>,
        injection: &Injection,
        first: &First,
    ) -> Result<TenantId, WireError> {
        let from = self.connection();
        self.node
            .command_came(from, "/system.slice/containerd.service", user);
        let asker = Groups::parse(RUNTIME);
        self.node
            .inject(NOW, (from, 1), injection, first.init(), &asker);
        let (told, _) = self.drain();
        // The hook leaves at once.
        self.node.command_ended(NOW, from);
        self.drain();
        match told.unwrap() {
            ControlReply::Created { name, .. } => {
                let found = self.made.iter().find(|(_, known)| known.name == name);
                Ok(found.unwrap().0)
            }
            ControlReply::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub fn inject(&mut self, injection: &Injection, first: &First) -> Result<TenantId, WireError> {
        self.inject_as(None, injection, first)
    }

    pub fn joins(&mut self, tenant: TenantId, uid: u32, table: &str) -> Result<(), WireError> {
        let (joined, answered) = self.registers(tenant, peer(uid, table));
        if let Some(process) = joined {
            self.node.process_ended(NOW, process);
            self.drain();
        }
        match answered {
            Reply::Registered(_) => Ok(()),
            Reply::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// A process joins and stays.
    pub fn stays(&mut self, tenant: TenantId, table: &str) -> ProcessId {
        self.stays_as(tenant, peer(ROOT, table))
    }

    /// The same of this one.
    pub fn stays_as(&mut self, tenant: TenantId, peer: Peer) -> ProcessId {
        self.registers(tenant, peer).0.unwrap()
    }

    fn registers(&mut self, tenant: TenantId, peer: Peer) -> (Option<ProcessId>, Reply) {
        let client = Client {
            connection: self.connection(),
            tenant,
            process: None,
            gated: false,
            moves: false,
        };
        let register = Register {
            pid: 1,
            presents_page: false,
            slot: None,
        };
        let joined = self.node.register(NOW, client, (1, &register), peer, None);
        let (_, answered) = self.drain();
        (joined, answered.unwrap())
    }

    /// The pods that commands are told.
    pub fn pods(&mut self) -> Vec<PodRow> {
        let from = self.connection();
        let list = Control::Page {
            of: Listing::Pods,
            from: Cursor::default(),
        };
        self.node.command(NOW, from, 1, &list);
        match self.drain().0.unwrap() {
            ControlReply::Page {
                rows: Rows::Pods(rows),
                ..
            } => rows,
            other => panic!("{other:?}"),
        }
    }

    /// A row for each tenant and device of its.
    pub fn tenants(&mut self) -> Vec<TenantRow> {
        let from = self.connection();
        self.node.command(NOW, from, 1, &Listing::Tenants.first());
        match self.drain().0.unwrap() {
            ControlReply::Page {
                rows: Rows::Tenants(rows),
                ..
            } => rows,
            other => panic!("{other:?}"),
        }
    }

    pub fn names(&mut self) -> Vec<String> {
        let rows = self.tenants().into_iter();
        rows.map(|row| row.name).collect()
    }
}

pub fn peer(uid: u32, table: &str) -> Peer {
    peer_of(std::process::id(), uid, table)
}

/// A process of root's, in no container.
pub fn roots(pid: u32) -> Peer {
    peer_of(pid, ROOT, "")
}

fn peer_of(pid: u32, uid: u32, table: &str) -> Peer {
    Peer {
        pid: pid.cast_signed(),
        uid,
        pidfd: pidfd(pid),
        cgroup: "/".to_owned(),
        groups: Groups::parse(table),
    }
}

/// A container that asks for so much of the first device.
pub fn asks(id: &str, limit: &str) -> Injection {
    Injection {
        id: id.to_owned(),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), limit.to_owned())],
        devices: vec!["0".to_owned()],
        ..Injection::default()
    }
}
