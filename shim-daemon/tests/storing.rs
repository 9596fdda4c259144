//! What a process is asked to have stored, while its connection breaks: the node without sockets,
//! and copies to the disk that end when the test says so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounded;
mod counted;
mod crossed;
mod ended;
mod found;
mod full;
mod having;
mod narrow;
mod presented;
mod returning;
mod silent;
mod told;
mod unstored;

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use crate::container_node::roots;
use crate::driver::{Backend, Driver, FIRST};
use crate::support::gate::control;
use gpushare_core::lanes::{Owner, Part};
use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::page::control::ControlPage;
use gpushare_protocol::page::residency::Orders;
use gpushare_protocol::units::{Bytes, MIB};
use gpushare_protocol::wire::*;
use gpushared::connection::Passed;
use gpushared::devices::Devices as _;
use gpushared::foreign::Foreign;
use gpushared::host_file::HostFile;
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings, Standing, Totals};
use gpushared::pages::UsagePage;
use gpushared::spill::{Inspection, Job};

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
    /// How its memory moves.
    /// Its memory file, as a child that it forked may have it.
    memory: Option<Arc<HostFile>>,
    page: Option<&'static ControlPage>,
    /// The content of the page before the last event.
    said: Said,
    replies: Vec<(ConnId, Reply)>,
    jobs: Vec<Job>,
    looks: Vec<Inspection>,
    /// What commands were told.
    told: Vec<ControlReply>,
}

/// The words of a control page about memory, and how often its readers were woken.
#[derive(Default)]
struct Said {
    words: (u32, Orders),
    changes: u32,
}

impl Said {
    fn of(page: &ControlPage) -> Self {
        let spill = page.header.spill.load(Ordering::Acquire);
        Self {
            words: (spill, page.devices[0].order()),
            changes: page.header.changes.load(Ordering::Acquire),
        }
    }
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self::out();
        scene.is_suspended_to_a_file();
        scene.is_looked_at(NOW);
        scene
    }

    /// Before a command has come.
    fn out() -> Self {
        Self::out_of("swap")
    }

    /// The same of a tenant whose memory moves so.
    fn out_of(how: &'static str) -> Self {
        let mut scene = Self::begun(how);
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene
    }

    /// A tenant whose memory moves so, before its process has come.
    fn begun(how: &'static str) -> Self {
        Self::begun_with(how, Bytes::ZERO)
    }

    /// The same of a node that may store so much in its folder.
    fn begun_with(how: &'static str, spill: Bytes) -> Self {
        Self::begun_of(how, Bytes(SIZE), spill)
    }

    /// The same with this budget for the host.
    fn begun_of(how: &'static str, host: Bytes, spill: Bytes) -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let mut settings = Settings::default();
        settings.policy.swap.host = host;
        settings.policy.swap.spill = spill;
        let mut node = Node::new(&settings, devices, 1, NOW, true);
        let tenant = node.restore(NOW, &registration("one", how)).unwrap();
        let usage = UsagePage::create().unwrap();
        usage.view().found(1, 0);
        let client = client(ConnId(1), tenant, None);
        Self {
            node,
            tenant,
            usage,
            client,
            memory: None,
            page: None,
            said: Said::default(),
            replies: vec![],
            jobs: vec![],
            looks: vec![],
            told: vec![],
        }
    }

    /// The process comes over a connection, the first time or again.
    fn registers(&mut self, connection: ConnId) {
        let new = client(connection, self.tenant, None);
        self.registers_as(new, std::process::id(), 0);
    }

    /// A process comes with what this client's library can do.
    fn registers_as(&mut self, new: Client, pid: u32, slot: u16) {
        let register = Register {
            pid,
            presents_page: true,
            slot: Some(slot),
        };
        let usage = self.usage.descriptor().try_clone_to_owned().unwrap();
        let process = self
            .node
            .register(NOW, new, (1, &register), roots(pid), Some(usage));
        self.client = Client { process, ..new };
        self.work();
        assert!(process.is_some(), "{:?}", self.replies);
    }

    /// All of its memory is out, in one range of a memory file that it presents.
    fn shows_its_memory(&mut self) {
        let lane = self.node.lanes().own();
        let file = HostFile::create(&lane).unwrap();
        file.allocate(AT, SIZE).unwrap();
        let shown = Foreign::new(file.file().try_clone().unwrap().into(), &lane);
        self.memory = Some(Arc::new(file));
        self.node.present_memory(self.client, Some(shown));
        self.says_it_is_out();
    }

    /// The process says that it has as much on the host, from the previous daemon.
    fn says_it_is_out(&mut self) {
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

    /// What is allocated of its memory file once all that was wanted of it is done.
    fn allocated(&self) -> u64 {
        let part = Part::Shared(self.tenant);
        let (says, heard) = channel();
        let lane = self.node.lanes().lane(Owner { user: 0, part });
        lane.run(move || says.send(()).unwrap());
        heard.recv().unwrap();
        self.memory.as_ref().unwrap().allocated().unwrap()
    }

    /// Another tenant, which is told of.
    fn adds_a_tenant(&mut self, name: &str) {
        self.node.restore(NOW, &registration(name, "swap")).unwrap();
        self.work();
    }

    fn is_suspended_to_a_file(&mut self) {
        let file = tempfile::tempfile().unwrap();
        let read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let command = ConnId(1000);
        self.node.command_came(command, "/session", None);
        let lane = self.node.lanes().own();
        let files = [file, read].map(|file| Some(Foreign::new(file.into(), &lane)));
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
                    let is_copy = |one: &Passed| matches!(one, Passed::Own(_));
                    // The loop would close it, and go through all locks of the file.
                    assert!(!descriptors.iter().any(is_copy), "{reply:?}");
                    if matches!(reply, Reply::Registered(_)) {
                        let first = descriptors.into_iter().next();
                        let first = first.map(|one| one.as_fd().try_clone_to_owned().unwrap());
                        self.page = first.map(control);
                    }
                    self.replies.push((to, reply));
                }
                Effect::Copy(job) => self.jobs.push(*job),
                Effect::Inspect(look) => self.looks.push(*look),
                Effect::Command { reply, .. } => self.told.push(reply),
                _ => {}
            }
        }
        let said = self.page.map(Said::of).unwrap_or_default();
        let before = std::mem::replace(&mut self.said, said);
        let was_told = before.changes != self.said.changes;
        let words = self.said.words;
        assert!(before.words == words || was_told, "{words:?} woke nobody");
    }

    /// The copy that is under way ends.
    fn copy_ends(&mut self) {
        let job = self.jobs.pop().unwrap();
        self.node.copied(NOW, job.carry_out());
        self.work();
    }

    /// The look at a file ends.
    fn is_looked_at(&mut self, now: Nanos) {
        let look = self.looks.pop().unwrap();
        self.node.inspected(now, look.carry_out());
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

    /// Events that a command is told that comes now: of what kind, of which tenant, and what they
    /// say.
    fn events(&mut self) -> Vec<(String, Option<String>, String)> {
        self.node
            .command(NOW, ConnId(1002), 1, &Control::Follow { past: 1024 });
        let mut all = vec![];
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::Event { record, is_new, .. } = effect {
                assert!(!is_new);
                let record = (*record).clone();
                all.push((record.kind, record.tenant, record.text));
            }
        }
        all
    }

    /// What events of this kind say.
    fn said(&mut self, kind: &str) -> Vec<String> {
        let all = self.events().into_iter().filter(|(of, ..)| of == kind);
        all.map(|(_, _, text)| text).collect()
    }

    fn drops(&mut self) {
        let (offset, bytes) = (AT, SIZE);
        self.says(&Request::HostDrop { offset, bytes });
    }

    /// The process, which is charged for so much, asks for a range.
    fn wants_a_range(&mut self) {
        self.is_charged();
        self.says(&Request::HostRange {
            device_index: 0,
            bytes: SIZE,
        });
    }

    fn is_charged(&self) {
        let units = u32::try_from(SIZE / 512).unwrap();
        let line = self.usage.view().line(0, 0).unwrap();
        line.word.charge_anyway(units);
    }

    /// The last reply to the process.
    fn told(&self) -> &Reply {
        let (to, reply) = self.replies.last().unwrap();
        assert_eq!(*to, self.client.connection);
        reply
    }
}

/// A tenant whose memory can move.
fn registration(name: &str, how: &str) -> Registration {
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Registration {
        name: name.to_owned(),
        environment: [
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
            ("GPUSHARE_OVERSUBSCRIBE", how),
        ]
        .map(pair)
        .to_vec(),
        devices: vec![FIRST],
        commands: vec![],
        cgroup: None,
        owner: None,
        fences: vec![],
        maxima: vec![],
        node_maxima: vec![],
        defaults: None,
        began: None,
        dead: vec![],
        members: vec![],
        so_far: Totals::default(),
        standing: Standing::default(),
        container: None,
    }
}

fn client(connection: ConnId, tenant: TenantId, process: Option<ProcessId>) -> Client {
    Client {
        connection,
        tenant,
        process,
        gated: true,
        moves: true,
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

/// Its answer depends on that of the first: a process that was refused before it had what it was
/// given would say that the host has too little.
#[test]
fn a_request_for_host_memory_is_answered_after_the_one_before_it() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    let before = scene.replies.len();
    scene.wants_a_range();
    scene.wants_a_range();
    assert_eq!((scene.jobs.len(), scene.replies.len()), (1, before));
    scene.copy_ends();
    let first = &scene.replies[before].1;
    assert!(matches!(first, Reply::HostRange { .. }), "{first:?}");
}
