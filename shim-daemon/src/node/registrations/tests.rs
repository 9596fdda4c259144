//! What the node keeps of a process that connects, and registers, over and over.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adopted;
mod left;
mod looks;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use gpushare_core::Oversubscribe;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{Control, Place, Register, Reply, Residency, Residue, Spot, Stored};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;
use crate::devices::{Capabilities, Device};
use crate::groups::Groups;
use crate::host_file::HostFile;
use crate::node::{ConnId, Effect, Seen, Settings};
use crate::pages::UsagePage;
use crate::peer::inspect;

const NOW: Nanos = Nanos::secs(100);

/// The command of the tenant `one`.
const OWNER: ConnId = ConnId(1);

fn create(node: &mut Node, from: ConnId, name: &str) -> TenantId {
    let create = Control::Create {
        name: Some(name.to_owned()),
        environment: vec![],
        devices: vec![],
    };
    node.command(NOW, from, 1, &create);
    node.find(name).unwrap().0
}

/// This process.
fn process() -> Peer {
    process_of(std::process::id())
}

fn process_of(pid: u32) -> Peer {
    Peer {
        pid: pid.cast_signed(),
        uid: 0,
        pidfd: inspect(pid).unwrap().pidfd,
        cgroup: "/session".to_owned(),
        groups: Groups::default(),
    }
}

/// A tenant that swaps, and one process: this one.
struct Scene {
    node: Node,
    tenant: TenantId,
    last: u64,
}

impl Scene {
    fn new() -> Self {
        let device = Device {
            uuid: *b"a GPU of 16 GiB.",
            minor: None,
            name: "a GPU".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        };
        let mut settings = Settings::default();
        settings.policy.swap.host = Bytes(GIB);
        settings.defaults = vec![("GPUSHARE_OVERSUBSCRIBE".to_owned(), "swap".to_owned())];
        let mut node = Node::new(&settings, vec![device], 1, NOW, false);
        let tenant = create(&mut node, OWNER, "one");
        let spec = node.world.spec(tenant).unwrap();
        assert_eq!(spec.oversubscribe, Oversubscribe::Swap);
        Self {
            node,
            tenant,
            last: 10,
        }
    }

    /// The process registers in a tenant whose command ends, and is all that keeps it.
    fn alone() -> (Self, Client) {
        let mut scene = Self::new();
        let client = scene.registers();
        scene.node.command_ended(NOW, OWNER);
        assert!(scene.has("one"));
        (scene, client)
    }

    /// The process was looked at.
    fn is_looked_at(&mut self, process: ProcessId) {
        let seen = Seen::of(std::process::id().cast_signed());
        assert!(seen.is_some_and(|seen| seen.program().is_some()));
        self.node.identified(NOW, process, seen);
    }

    fn has(&self, name: &str) -> bool {
        self.node.find(name).is_some()
    }

    /// The page that the tenant's processes have.
    fn page(&self) -> OwnedFd {
        let usage = self.node.tenants[&self.tenant].usage();
        usage.descriptor().try_clone_to_owned().unwrap()
    }

    /// The process connects and registers, as it may as often as it likes.
    fn registers(&mut self) -> Client {
        let client = self.tries(None);
        assert!(client.process.is_some());
        client
    }

    /// The process connects and tries to register with this page.
    fn tries(&mut self, page: Option<OwnedFd>) -> Client {
        self.tries_as(process(), page)
    }

    /// The same of a process that is known already.
    fn tries_as(&mut self, peer: Peer, page: Option<OwnedFd>) -> Client {
        self.last += 1;
        let pid = std::process::id();
        let client = Client {
            connection: ConnId(self.last),
            tenant: self.tenant,
            process: None,
            gated: true,
            moves: true,
        };
        let register = Register {
            pid,
            presents_page: page.is_some(),
            slot: page.is_some().then_some(0),
        };
        let process = self.node.register(NOW, client, (1, &register), peer, page);
        Client { process, ..client }
    }

    /// All that a process can say of its memory.
    fn says(&mut self, client: Client) {
        let stored = Stored {
            file: 7,
            at: 0,
            bytes: 1 << 21,
            sum: 0,
        };
        for request in [
            Request::Residency(Residency {
                device_index: 0,
                epoch: 0,
                place: Place::In,
                movable: GIB,
                away: 0,
                host: 0,
                residue: Residue::default(),
            }),
            Request::Unshared { device_index: 0 },
            Request::HostRange {
                device_index: 0,
                bytes: 1 << 21,
            },
            Request::HostFetch(stored),
            Request::HostForget(stored),
            Request::Has {
                from: Spot::FIRST,
                until: Spot::FIRST,
                spots: vec![],
            },
        ] {
            self.node.request(NOW, client, 7, &request);
        }
        let lane = self.node.lanes().own();
        let file = HostFile::create(&lane).unwrap();
        let shown = Foreign::new(file.file().try_clone().unwrap().into(), &lane);
        self.node.present_memory(client, Some(shown));
        while self.node.poll_effect().is_some() {}
    }

    /// The processes of which the node has any memory, or any report about it.
    fn kept(&self) -> BTreeSet<ProcessId> {
        let all = format!("{:?}", self.node.residency);
        let numbers = all.split("ProcessId(").skip(1);
        let numbers = numbers.filter_map(|rest| rest.split(')').next()?.parse().ok());
        numbers.map(ProcessId).collect()
    }

    /// Those of which it has the last report about their memory.
    fn reported(&self) -> usize {
        self.node.residency.claims.len()
    }
}

#[test]
fn what_is_said_over_a_former_connection_is_not_kept() {
    let mut scene = Scene::new();
    let mut former = scene.registers();
    for _ in 0..20 {
        let new = scene.registers();
        scene.says(former);
        former = new;
    }
    assert_eq!(scene.reported(), 0);
    let living: Option<BTreeSet<_>> = former.process.map(|one| [one].into());
    let kept = scene.kept();
    assert!(
        living.is_some_and(|living| kept.is_subset(&living)),
        "{kept:?}"
    );
}

#[test]
fn what_is_said_over_the_new_connection_is_kept_until_the_end() {
    let mut scene = Scene::new();
    let _former = scene.registers();
    let new = scene.registers();
    scene.says(new);
    assert_eq!(scene.reported(), 1);
    let row = scene.node.residency_row(scene.tenant, 0).unwrap();
    assert_eq!(row.movable, GIB);
    scene.node.process_ended(NOW, new.process.unwrap());
    assert_eq!((scene.reported(), scene.kept().len()), (0, 0));
}

#[test]
fn a_former_connections_questions_are_answered_and_its_reports_not() {
    let mut scene = Scene::new();
    let former = scene.registers();
    let _new = scene.registers();
    while scene.node.poll_effect().is_some() {}
    let bytes = 1 << 21;
    let more = Request::OpenMore {
        device_index: 0,
        patience_ms: None,
    };
    for (request, answers) in [
        (Request::Open { device_index: 0 }, 1),
        (more, 1),
        (Request::OpenAgain { device_index: 0 }, 1),
        (Request::Freed { device_index: 0 }, 1),
        (Request::HostStore { offset: 0, bytes }, 1),
        (Request::WantIn { device_index: 0 }, 0),
        (Request::ContextMade { device_index: 0 }, 0),
        (Request::NoContext { device_index: 0 }, 0),
    ] {
        scene.node.request(NOW, former, 9, &request);
        let effects = std::iter::from_fn(|| scene.node.poll_effect());
        let replies = effects.filter(|one| matches!(one, Effect::Client { id: 9, .. }));
        assert_eq!(replies.count(), answers, "{request:?}");
    }
}

#[test]
fn a_process_that_shows_its_page_over_and_over_has_one_connection() {
    let mut scene = Scene::new();
    let mut former = vec![scene.registers()];
    let process = former[0].process;
    for _ in 0..3 {
        let page = scene.page();
        let new = scene.tries(Some(page));
        assert_eq!(new.process, process, "it keeps its registration");
        assert!(!scene.node.is_former(new));
        assert!(former.iter().all(|one| scene.node.is_former(*one)));
        former.push(new);
    }
}

#[test]
fn a_page_that_another_process_shows_does_not_take_a_registration() {
    let mut scene = Scene::new();
    let own = scene.registers();
    let mut other = Command::new("cat");
    let mut other = other.stdin(Stdio::piped()).spawn().unwrap();
    let page = scene.page();
    let refused = scene.tries_as(process_of(other.id()), Some(page));
    assert_eq!(refused.process, None);
    assert!(
        !scene.node.is_former(own),
        "its connection is the process's"
    );
    other.kill().unwrap();
    other.wait().unwrap();
}

/// How many descriptors of this process lead to the same file as this one.
fn copies(of: &UsagePage) -> usize {
    let wanted = of.descriptor().as_raw_fd();
    let place = |fd: &str| std::fs::metadata(format!("/proc/self/fd/{fd}")).ok();
    let place = |fd: &str| place(fd).map(|at| (at.dev(), at.ino()));
    let wanted = place(&wanted.to_string());
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let same = open.filter(|fd| place(&fd.file_name().to_string_lossy()) == wanted);
    same.count()
}

#[test]
fn a_page_that_a_process_shows_is_closed_on_its_lane_and_none_is_copied() {
    let mut scene = Scene::new();
    scene.registers();
    let stands = scene.node.door_lane(scene.tenant).stands();
    let open = |scene: &Scene| copies(scene.node.tenants[&scene.tenant].usage());
    while scene.node.poll_effect().is_some() {}
    assert_eq!(open(&scene), 1);
    for shown in 1..=3 {
        let page = scene.page();
        assert!(scene.tries(Some(page)).process.is_some());
        while scene.node.poll_effect().is_some() {}
        assert_eq!(open(&scene), 1 + shown, "what it shows, and nothing else");
    }
    drop(stands);
    while open(&scene) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn of_a_process_that_connects_over_and_over_one_absence_is_kept() {
    let mut scene = Scene::new();
    let mut last = None;
    for _ in 0..100 {
        let client = scene.registers();
        scene.is_looked_at(client.process.unwrap());
        scene.node.disconnected(NOW, client);
        last = client.process;
    }
    assert_eq!(scene.node.away.known(), (1, 1));
    // It is known still that this one is away, and what it ran.
    assert!(scene.node.away.program(last.unwrap()).is_some());
    scene.node.process_ended(NOW, last.unwrap());
    assert_eq!(scene.node.away.known(), (0, 0));
}

#[test]
fn a_process_that_registers_anew_keeps_the_tenant_that_it_alone_keeps() {
    let (mut scene, former) = Scene::alone();
    scene.node.disconnected(NOW, former);
    let new = scene.registers();
    assert!(scene.has("one"));
    scene.node.process_ended(NOW, new.process.unwrap());
    assert!(!scene.has("one"), "its last process has ended");
}

#[test]
fn a_process_that_changes_tenants_ends_the_one_that_it_alone_kept() {
    let (mut scene, _former) = Scene::alone();
    scene.tenant = create(&mut scene.node, ConnId(2), "two");
    scene.registers();
    assert!(!scene.has("one") && scene.has("two"));
}

#[test]
fn a_process_that_registers_anew_in_vain_ends_the_tenant_it_alone_kept() {
    let (mut scene, _former) = Scene::alone();
    let page = scene.node.lanes().own();
    let page = HostFile::create(&page).unwrap().file().try_clone().unwrap();
    assert_eq!(scene.tries(Some(page.into())).process, None);
    assert!(!scene.has("one"));
}

#[test]
fn a_process_that_is_told_to_try_again_keeps_the_tenant_it_alone_keeps() {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own);
    child.args(["--ignored", "--exact"]);
    child.arg("node::registrations::tests::a_process_that_lacks_descriptors_for_its_registration");
    let child = child.env(CHILD, "").output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Set for a child.
const CHILD: &str = "GPUTEST_REGISTRATIONS_CHILD";

#[test]
#[ignore = "the process another test starts: its limit holds for a whole process"]
fn a_process_that_lacks_descriptors_for_its_registration() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (mut scene, _former) = Scene::alone();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // It takes one: the tenant's pages are sent without copies.
    for left in 0..1 {
        while scene.node.poll_effect().is_some() {}
        let peer = process();
        // The kernel gives the lowest free numbers.
        let next = [(); 3].map(|()| File::open("/dev/null").unwrap());
        let next = next.map(|file| file.as_raw_fd());
        let most = u64::try_from(next[left]).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most, hard).unwrap();
        let client = scene.tries_as(peer, None);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(client.process, None, "{left}");
        let effects = std::iter::from_fn(|| scene.node.poll_effect());
        let answers = effects.filter_map(|one| match one {
            Effect::Client { reply, .. } => Some(reply),
            _ => None,
        });
        let answers: Vec<Reply> = answers.collect();
        let is_asked_again = matches!(&answers[..], [Reply::Error(error)] if error.can_retry);
        assert!(is_asked_again, "{left}: {answers:?}");
        assert!(scene.has("one"), "{left}");
    }
    scene.registers();
}
