//! A file that a command named takes no more bytes: that is its tenant's affair. The node's own
//! folder is everybody's.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use gpushare_protocol::units::GIB;
use gpushared::devices::Look;
use gpushared::spill::{Done, Failed, SpillFolder};
use tempfile::TempDir;

use super::narrow::{Host, PLENTY};
use super::*;

/// The recovery is over.
const LATER: Nanos = Nanos::secs(103);
/// What another tenant's process is told over.
const OTHER: ConnId = ConnId(50);

/// A tenant that goes to a command's file, and another one that will need room on the host, on a
/// node with a folder of its own.
pub(super) struct Shared {
    pub(super) scene: Scene,
    /// The other process of the first tenant.
    second: Client,
    other: Client,
    children: [Child; 2],
    _folder: TempDir,
}

impl Shared {
    fn new() -> Self {
        Self::of(Bytes(SIZE))
    }

    /// The same with this budget for the host.
    pub(super) fn of(host: Bytes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene::begun_of("swap", host, Bytes(8 * GIB));
        let spill = SpillFolder::open(&folder.path().join("spill")).unwrap();
        scene.node.spill_to(spill);
        let cat = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (child, sibling) = (cat(), cat());
        let second = client(ConnId(2), scene.tenant, None);
        scene.registers_as(second, sibling.id(), 1);
        scene.shows_its_memory();
        let second = scene.client;
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        let look = Look {
            used: Bytes::ZERO,
            free: Bytes(16 * GIB),
            processes: Some(vec![]),
            drawing: BTreeSet::new(),
            busy: None,
            health: None,
        };
        scene.node.looked(LATER, 0, LATER, Ok(look));
        let tenant = scene.registers_a_tenant("two");
        let other = client(OTHER, tenant, None);
        let other = Client {
            process: scene.joins(other, child.id()),
            ..other
        };
        Self {
            scene,
            other,
            second,
            children: [child, sibling],
            _folder: folder,
        }
    }

    fn command(&mut self, command: &Control) {
        self.scene.node.command_came(ConnId(1005), "/session", None);
        self.scene.node.command(NOW, ConnId(1005), 1, command);
        self.scene.work();
    }

    /// A command wants the first tenant on the host.
    pub(super) fn is_suspended(&mut self) {
        let tenant = "one".to_owned();
        self.command(&Control::Suspend { tenant });
    }

    fn is_resumed(&mut self) {
        let tenant = "one".to_owned();
        self.command(&Control::Resume { tenant });
    }

    /// The second process of the first tenant asks to have its range stored.
    fn second_asks(&mut self) {
        let (offset, bytes) = (AT, SIZE);
        let store = Request::HostStore { offset, bytes };
        self.scene.node.request(NOW, self.second, 7, &store);
        self.scene.work();
        assert_eq!(self.scene.jobs.len(), 2);
    }

    fn other_says(&mut self, id: u32, request: &Request) {
        self.scene.node.request(LATER, self.other, id, request);
        self.scene.work();
    }

    /// The other tenant's process wants a range on the host, which is full.
    pub(super) fn other_wants_room(&mut self) {
        self.other_says(8, &Request::Open { device_index: 0 });
        let some = Ask {
            device_index: 0,
            held: 0,
            bytes: 64 * MIB,
            patience_ms: None,
        };
        self.other_says(9, &Request::Ask(some));
        let granted = |reply: &&Reply| matches!(reply, Reply::Granted { .. });
        let told: Vec<_> = self.other_was_told().collect();
        assert_eq!(self.other_was_told().filter(granted).count(), 2, "{told:?}");
        let (device_index, bytes) = (0, SIZE);
        let range = Request::HostRange {
            device_index,
            bytes,
        };
        self.other_says(10, &range);
    }

    /// It drops the range that it was given last.
    pub(super) fn other_drops(&mut self) {
        let last = self.other_was_told().last();
        let Some(&Reply::HostRange { offset, bytes }) = last else {
            panic!("{last:?}")
        };
        self.other_says(11, &Request::HostDrop { offset, bytes });
    }

    fn other_was_told(&self) -> impl Iterator<Item = &Reply> {
        let own = self.scene.replies.iter().filter(|(to, _)| *to == OTHER);
        own.map(|(_, reply)| reply)
    }

    /// Whether it still waits for that range.
    fn other_waits(&self) -> bool {
        let last = self.other_was_told().last();
        matches!(last, Some(Reply::Granted { .. }))
    }

    pub(super) fn ends(mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}

impl Scene {
    fn registers_a_tenant(&mut self, name: &str) -> TenantId {
        let known = registration(name, "swap");
        let create = Control::Create {
            name: Some(known.name),
            environment: known.environment,
            devices: known.devices,
        };
        self.node.command_came(ConnId(1006), "/session", None);
        self.node.command(LATER, ConnId(1006), 1, &create);
        let effects: Vec<Effect> = std::iter::from_fn(|| self.node.poll_effect()).collect();
        let mut listens = effects.iter().filter_map(|effect| match effect {
            Effect::Listen { tenant, .. } => Some(*tenant),
            _ => None,
        });
        let tenant = listens.next();
        tenant.unwrap_or_else(|| panic!("{effects:?}"))
    }

    /// A new process joins a tenant.
    pub(super) fn joins(&mut self, new: Client, pid: u32) -> Option<ProcessId> {
        let peer = roots(pid);
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let process = self.node.register(NOW, new, (1, &register), peer, None);
        let page = self.page.take();
        self.work();
        self.page = page;
        assert!(process.is_some(), "{:?}", self.replies);
        process
    }

    /// The disk is full for the copy that is under way.
    fn copy_fails(&mut self) {
        let job = self.jobs.pop().unwrap();
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let outcome = Err(Failed::System(full));
        self.node.copied(NOW, Done { job, outcome });
        self.work();
    }
}

#[test]
fn a_commands_full_file_stops_no_other_tenants_storing() {
    let mut shared = Shared::new();
    shared.scene.is_suspended_to_a_file();
    shared.scene.is_looked_at(NOW);
    // Copies of two processes are under way: when the second fails, nothing but the job tells whose
    // its file was.
    shared.scene.asks();
    shared.second_asks();
    shared.scene.copy_fails();
    shared.scene.copy_fails();
    assert_eq!(shared.scene.said("spill-failed").len(), 1);
    shared.other_wants_room();
    assert!(shared.other_waits());
    assert_ne!(shared.scene.word(), 0, "the first is asked to make some");
    shared.ends();
}

/// The budget has room, and the machine does not.
#[test]
fn memory_goes_to_files_where_the_host_has_less_than_its_budget() {
    for narrow in [true, false] {
        let mut shared = Shared::of(Bytes(64 * SIZE));
        let host = Host::new(if narrow { 0 } else { PLENTY }, PLENTY);
        shared.scene.node.bounded(host.room());
        shared.is_suspended();
        shared.other_wants_room();
        assert_eq!(shared.scene.word(), 0, "the budget is not short");
        shared.scene.copy_ends();
        let refused = Reply::Refused(Refusal::NoMemory);
        assert_eq!(shared.other_was_told().last() == Some(&refused), narrow);
        assert_eq!(shared.scene.said("host-failed").len(), usize::from(narrow));
        assert_eq!(shared.scene.word() != 0, narrow, "the first makes room");
        if narrow {
            host.has(PLENTY, PLENTY);
            shared.other_says(
                11,
                &Request::HostRange {
                    device_index: 0,
                    bytes: SIZE,
                },
            );
            shared.scene.copy_ends();
            let told = shared.other_was_told().last();
            assert!(matches!(told, Some(Reply::HostRange { .. })), "{told:?}");
            assert_eq!(shared.scene.word(), 0, "there is some");
        }
        shared.ends();
    }
}

#[test]
fn a_failure_in_the_nodes_folder_pauses_the_storing_of_all() {
    let mut shared = Shared::new();
    shared.is_suspended();
    shared.other_wants_room();
    assert!(shared.other_waits());
    shared.scene.asks();
    shared.scene.copy_fails();
    assert_eq!(shared.scene.word(), 0);
    let told = shared.other_was_told().last();
    assert_eq!(told, Some(&Reply::Refused(Refusal::NoMemory)));
    shared.ends();
}

#[test]
fn a_full_file_ends_no_later_command_that_named_another() {
    for again in [true, false] {
        let mut shared = Shared::new();
        shared.scene.is_suspended_to_a_file();
        shared.scene.is_looked_at(NOW);
        shared.scene.asks();
        if again {
            shared.is_resumed();
            shared.scene.is_suspended_to_a_file();
            shared.scene.is_looked_at(NOW);
        }
        let before = shared.scene.told.len();
        shared.scene.copy_fails();
        let told = &shared.scene.told[before..];
        let failed = |reply: &ControlReply| matches!(reply, ControlReply::Error(_));
        assert_eq!(told.iter().any(failed), !again, "{told:?}");
        shared.ends();
    }
}
