//! What a process is asked to have stored, while its connection breaks: the node without sockets,
//! and copies to the disk that end when the test says so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use crate::driver::{Backend, Driver, FIRST};
use crate::support::gate::control;
use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::page::control::ControlPage;
use gpushare_protocol::units::{Bytes, MIB};
use gpushare_protocol::wire::*;
use gpushared::devices::Devices as _;
use gpushared::groups::Groups;
use gpushared::host_file::HostFile;
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings};
use gpushared::pages::UsagePage;
use gpushared::peer::{Peer, inspect};
use gpushared::spill::Job;

const NOW: Nanos = Nanos::secs(100);
/// The bytes of the tenant, in one range.
const SIZE: u64 = 4 * MIB;
/// Where the range is in the memory file.
const AT: u64 = 0;

/// A tenant of the previous daemon that is out, and goes to a file of a command.
struct Scene {
    node: Node,
    tenant: TenantId,
    usage: UsagePage,
    client: Client,
    page: Option<&'static ControlPage>,
    replies: Vec<(ConnId, Reply)>,
    jobs: Vec<Job>,
}

impl Scene {
    fn new() -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let mut settings = Settings::default();
        settings.policy.swap.host = Bytes(SIZE);
        let mut node = Node::new(&settings, devices, 1, NOW, true);
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let registration = Registration {
            name: "one".to_owned(),
            environment: [
                ("GPUSHARE_MEM_LIMIT", "1GiB"),
                ("GPUSHARE_OVERSUBSCRIBE", "swap"),
            ]
            .map(pair)
            .to_vec(),
            devices: vec![FIRST],
            commands: vec![],
            cgroup: None,
            owner: None,
            fences: vec![],
            maxima: vec![],
            began: None,
            dead: vec![],
            container: None,
        };
        let tenant = node.restore(NOW, &registration).unwrap();
        let usage = UsagePage::create().unwrap();
        usage.view().found(1, 0);
        let client = client(ConnId(1), tenant, None);
        let mut scene = Self {
            node,
            tenant,
            usage,
            client,
            page: None,
            replies: vec![],
            jobs: vec![],
        };
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene.is_suspended_to_a_file();
        scene
    }

    /// The process comes over a connection, the first time or again.
    fn registers(&mut self, connection: ConnId) {
        let pid = std::process::id();
        let peer = Peer {
            pid: pid.cast_signed(),
            uid: 0,
            pidfd: inspect(pid).unwrap().pidfd,
            cgroup: "/session".to_owned(),
            groups: Groups::default(),
        };
        let register = Register {
            pid,
            presents_page: true,
            slot: Some(0),
        };
        let usage = self.usage.descriptor().try_clone_to_owned().unwrap();
        let new = client(connection, self.tenant, None);
        let process = self
            .node
            .register(NOW, new, (1, &register), peer, Some(usage));
        self.client = client(connection, self.tenant, process);
        self.work();
        assert!(process.is_some(), "{:?}", self.replies);
    }

    /// All of its memory is out, in one range of a memory file that it presents.
    fn shows_its_memory(&mut self) {
        let file = HostFile::create().unwrap();
        file.allocate(AT, SIZE).unwrap();
        self.node
            .present_memory(self.client, Some(file.descriptor().unwrap()));
        self.says(&Request::Residency(Residency {
            device_index: 0,
            epoch: 0,
            place: Place::Out,
            movable: SIZE,
            away: SIZE,
            host: SIZE,
            residue: Residue::default(),
        }));
        self.says(&Request::Adopted { instance: 1 });
    }

    fn is_suspended_to_a_file(&mut self) {
        let file = tempfile::tempfile().unwrap();
        let read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let command = ConnId(1000);
        self.node.command_came(command, "/session", None);
        let files = [file, read].map(|file| Some(OwnedFd::from(file)));
        self.node.suspend_to(NOW, (command, 1), "one", files);
        self.work();
    }

    fn says(&mut self, request: &Request) {
        self.node.request(NOW, self.client, 7, request);
        self.work();
    }

    /// The process asks to have its range stored.
    fn asks(&mut self) {
        let (offset, bytes) = (AT, SIZE);
        self.says(&Request::HostStore { offset, bytes });
    }

    fn work(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Client {
                    to,
                    reply,
                    descriptors,
                    ..
                } => {
                    if matches!(reply, Reply::Registered(_)) {
                        self.page = descriptors.into_iter().next().map(control);
                    }
                    self.replies.push((to, reply));
                }
                Effect::Copy(job) => self.jobs.push(*job),
                _ => {}
            }
        }
    }

    /// The copy that is under way ends.
    fn copy_ends(&mut self) {
        let job = self.jobs.pop().unwrap();
        self.node.copied(NOW, job.carry_out());
        self.work();
    }

    /// The word of the control page that asks the process.
    fn word(&self) -> u32 {
        self.page.unwrap().header.spill.load(Ordering::Acquire)
    }

    /// The host memory that is given, and the bytes in files.
    fn room(&mut self) -> (u64, u64) {
        let page = Control::Page {
            of: Listing::Swaps,
            from: Cursor::default(),
        };
        self.node.command(NOW, ConnId(1001), 1, &page);
        loop {
            if let Some(Effect::Command { reply, .. }) = self.node.poll_effect() {
                let ControlReply::Page {
                    rows: Rows::Swaps(rows),
                    ..
                } = reply
                else {
                    panic!("{reply:?}")
                };
                let [SwapRow::Room(room), SwapRow::Tenant(tenant)] = &rows[..] else {
                    panic!("{rows:?}")
                };
                return (room.host_used, tenant.in_files);
            }
        }
    }

    /// The range is in the file; the process has it in memory too.
    fn is_stored(&mut self) -> Stored {
        self.asks();
        self.copy_ends();
        match self.told() {
            Reply::HostStored(stored) => *stored,
            other => panic!("{other:?}"),
        }
    }

    fn drops(&mut self) {
        let (offset, bytes) = (AT, SIZE);
        self.says(&Request::HostDrop { offset, bytes });
    }

    /// The last reply to the process.
    fn told(&self) -> &Reply {
        let (to, reply) = self.replies.last().unwrap();
        assert_eq!(*to, self.client.connection);
        reply
    }
}

fn client(connection: ConnId, tenant: TenantId, process: Option<ProcessId>) -> Client {
    Client {
        connection,
        tenant,
        process,
        gated: true,
        tells: false,
        moves: true,
        by_parts: true,
        stores: true,
        managed: false,
    }
}

#[test]
fn a_process_is_asked_once_and_its_range_is_stored() {
    let mut scene = Scene::new();
    let word = scene.word();
    assert_ne!(word, 0);
    scene.asks();
    assert_eq!((scene.jobs.len(), scene.word()), (1, word));
    scene.copy_ends();
    assert!(matches!(scene.told(), Reply::HostStored(_)));
    assert_eq!(scene.room(), (SIZE, SIZE));
    assert_eq!(scene.word(), word, "it goes on with its other ranges");
}

/// A process takes a refusal for the answer to the word by which it was asked, and waits for
/// another one.
#[test]
fn a_process_that_connects_again_during_a_copy_is_asked_again() {
    let mut scene = Scene::new();
    let word = scene.word();
    scene.asks();
    scene.node.disconnected(NOW, scene.client);
    scene.registers(ConnId(2));
    scene.asks();
    assert_eq!(*scene.told(), Reply::Refused(Refusal::Cancelled));
    scene.copy_ends();
    let again = scene.word();
    assert!(again != 0 && again != word, "{again} after {word}");
    assert_eq!(
        scene.room(),
        (SIZE, 0),
        "what it never heard of is forgotten"
    );
    let _ = scene.is_stored();
    assert_eq!(scene.room(), (SIZE, SIZE));
}

#[test]
fn what_is_fetched_is_given_to_the_process_that_asked() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    assert_eq!(scene.room(), (0, SIZE));
    scene.says(&Request::HostFetch(stored));
    scene.copy_ends();
    assert!(matches!(scene.told(), Reply::HostRange { .. }));
    assert_eq!(scene.room(), (SIZE, SIZE));
}

#[test]
fn what_was_fetched_for_a_connection_that_broke_is_given_to_nobody() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    scene.says(&Request::HostFetch(stored));
    scene.node.disconnected(NOW, scene.client);
    scene.registers(ConnId(2));
    scene.copy_ends();
    assert_eq!(scene.room(), (0, SIZE));
    scene.says(&Request::HostFetch(stored));
    scene.copy_ends();
    assert!(matches!(scene.told(), Reply::HostRange { .. }));
    assert_eq!(scene.room(), (SIZE, SIZE));
}

#[test]
fn a_request_that_waits_for_room_ends_with_its_connection() {
    for breaks in [true, false] {
        let mut scene = Scene::new();
        let stored = scene.is_stored();
        scene.says(&Request::HostFetch(stored));
        assert_eq!(scene.jobs.len(), 0, "the host is full");
        if breaks {
            scene.node.disconnected(NOW, scene.client);
            scene.registers(ConnId(2));
        }
        scene.drops();
        assert_eq!(scene.jobs.len(), usize::from(!breaks));
        let given = if breaks { 0 } else { SIZE };
        assert_eq!(scene.room(), (given, SIZE));
    }
}
