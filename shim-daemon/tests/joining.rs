//! Which processes may join a tenant. A user's tenant accepts that user's processes. A tenant of
//! the machine accepts root's, and all processes in the tenant's own cgroup. The cgroups are those
//! of real machines: sessions, services, and tenants.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::driver::{Backend, Driver, FIRST};
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{Control, ErrorCode, Register, Reply};
use gpushared::devices::Devices as _;
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings};
use gpushared::peer::{Peer, inspect};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const ROOT: u32 = 0;
const SESSION: &str = "/user.slice/user-1001.slice/session-3.scope";
const ROOTS_SESSION: &str = "/user.slice/user-0.slice/session-1.scope";
const A: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const B: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// The cgroup paths that runtimes make from a container's id: Docker with either driver,
/// containerd, CRI-O, Podman, and the path as a daemon in a pod sees it.
const TREES: [&str; 7] = [
    "/docker/ID",
    "/system.slice/docker-ID.scope",
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-ID.scope",
    "/kubepods/burstable/pod1/ID",
    "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope",
    "/machine.slice/libpod-ID.scope",
    "/../../kubepods-besteffort-pod1.slice/cri-containerd-ID.scope",
];

struct Machine {
    node: Node,
    last: u64,
    made: Vec<(TenantId, Registration)>,
}

impl Machine {
    fn new() -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let node = Node::new(&Settings::default(), devices, 1, Nanos::secs(100), false);
        let (last, made) = (0, Vec::new());
        Self { node, last, made }
    }

    fn connection(&mut self) -> ConnId {
        self.last += 1;
        ConnId(self.last)
    }

    /// A tenant that a command of this user in this cgroup registers; `None` is unrestricted.
    fn tenant(&mut self, user: Option<u32>, cgroup: &str) -> TenantId {
        let from = self.connection();
        self.node.command_came(from, cgroup, user);
        let create = Control::Create {
            name: Some(format!("c{}", self.last)),
            environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "1GiB".to_owned())],
            devices: vec![FIRST],
        };
        self.node.command(Nanos::secs(100), from, 1, &create);
        self.drain();
        self.made.last().unwrap().0
    }

    /// Takes the effects without carrying them out; keeps the registrations to store. Returns the
    /// text of a refusal, if there is one.
    fn drain(&mut self) -> Option<String> {
        let mut forbidden = None;
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Listen {
                    tenant,
                    registration,
                } => {
                    self.made.retain(|(known, _)| *known != tenant);
                    self.made.push((tenant, *registration));
                }
                Effect::Client {
                    reply: Reply::Error(error),
                    ..
                } => {
                    assert_eq!(error.code, ErrorCode::Forbidden, "{error:?}");
                    forbidden = Some(error.message);
                }
                _ => {}
            }
        }
        forbidden
    }

    fn try_join(&mut self, tenant: TenantId, uid: u32, cgroup: &str) -> Result<(), String> {
        let pid = std::process::id();
        let client = Client {
            connection: self.connection(),
            tenant,
            process: None,
            gated: false,
            moves: false,
        };
        let peer = Peer {
            pid: pid.cast_signed(),
            uid,
            pidfd: inspect(pid).unwrap().pidfd,
            cgroup: cgroup.to_owned(),
            groups: gpushared::groups::Groups::default(),
        };
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let now = Nanos::secs(100);
        let joined = self.node.register(now, client, (1, &register), peer, None);
        let forbidden = self.drain();
        assert_eq!(joined.is_none(), forbidden.is_some());
        // Tests that use the same pid must not overlap: each process ends before the next
        // registers.
        if let Some(process) = joined {
            self.node.process_ended(now, process);
            self.drain();
        }
        forbidden.map_or(Ok(()), Err)
    }

    fn joins(&mut self, tenant: TenantId, uid: u32, cgroup: &str) -> bool {
        self.try_join(tenant, uid, cgroup).is_ok()
    }
}

/// The next step of a refusal that is of no container.
const REMEDY: &str = "su USER -c 'gpushare run";

#[test]
fn a_user_of_the_machine_does_not_join_roots_tenant() {
    let mut machine = Machine::new();
    let roots = machine.tenant(None, ROOTS_SESSION);
    for cgroup in [
        SESSION,
        // A program that root started and that changed its user: other users may be in that
        // session.
        ROOTS_SESSION,
        "/",
        "",
        "/system.slice/cron.service",
        "/system.slice/gpushared.service",
        "/kubepods.slice/kubepods-pod1.slice",
    ] {
        let refused = machine.try_join(roots, ALICE, cgroup).unwrap_err();
        assert!(
            refused.contains("user 1001") && refused.contains(cgroup),
            "{refused}"
        );
        assert!(refused.contains(REMEDY), "{refused}");
        assert!(machine.joins(roots, ROOT, cgroup), "root is from {cgroup}");
    }
}

#[test]
fn a_cgroup_that_a_user_made_is_not_roots_tenant() {
    let mut machine = Machine::new();
    let roots = machine.tenant(None, ROOTS_SESSION);
    for cgroup in [
        "/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-ID.scope",
        "/user.slice/user-1001.slice/user@1001.service/ID",
        "/../../user.slice/user-1001.slice/user@1001.service/docker-ID.scope",
        "/user/alice/0/ID",
        "/docker/ID-and-more",
        "/docker/ABCDEF",
    ] {
        let cgroup = cgroup.replace("ID", A);
        let refused = machine.try_join(roots, ALICE, &cgroup).unwrap_err();
        let is_containers = cgroup.contains("user");
        assert_eq!(refused.contains(REMEDY), !is_containers, "{refused}");
    }
}

#[test]
fn a_user_in_the_tenants_own_cgroup_joins_it() {
    for tree in TREES {
        let mut machine = Machine::new();
        let roots = machine.tenant(None, ROOTS_SESSION);
        let own = tree.replace("ID", A);
        assert!(machine.joins(roots, ALICE, &own), "{own}");
        assert!(machine.joins(roots, 65_534, &format!("{own}/init.scope")));
        assert!(!machine.joins(roots, ALICE, SESSION), "{own}");
    }
}

#[test]
fn one_tenants_programs_do_not_join_another() {
    for tree in TREES {
        let mut machine = Machine::new();
        let (a, b) = (tree.replace("ID", A), tree.replace("ID", B));
        let first = machine.tenant(None, ROOTS_SESSION);
        let second = machine.tenant(None, ROOTS_SESSION);
        assert!(
            machine.joins(first, ROOT, &a),
            "its first process is root's"
        );
        assert!(!machine.joins(first, ALICE, &b), "{b}");
        assert!(!machine.joins(second, ALICE, &a), "{a}");
        assert!(machine.joins(second, ALICE, &b), "{b}");
        assert!(machine.joins(first, ALICE, &a), "{a}");
    }
}

#[test]
fn the_cgroup_of_the_command_is_not_the_tenants() {
    for tree in TREES {
        let mut machine = Machine::new();
        let own = tree.replace("ID", A);
        let roots = machine.tenant(None, &own);
        assert!(!machine.joins(roots, ALICE, &own), "{own}");
        assert!(machine.joins(roots, ROOT, &own), "{own}");
    }
}

#[test]
fn the_daemons_own_cgroup_is_no_tenants() {
    for tree in TREES {
        let mut machine = Machine::new();
        let (home, other) = (tree.replace("ID", A), tree.replace("ID", B));
        machine.node.runs_in(&home);
        let roots = machine.tenant(None, ROOTS_SESSION);
        let refused = machine.try_join(roots, ALICE, &home).unwrap_err();
        assert!(refused.contains("is the daemon's"), "{refused}");
        assert!(machine.joins(roots, ROOT, &home), "{home}");
        assert!(machine.joins(roots, ALICE, &other), "{other}");
    }
}

#[test]
fn the_next_daemon_knows_which_cgroup_is_the_tenants() {
    let mut machine = Machine::new();
    let (a, b) = (TREES[0].replace("ID", A), TREES[0].replace("ID", B));
    let roots = machine.tenant(None, ROOTS_SESSION);
    assert!(machine.joins(roots, ALICE, &a));
    let (_, registration) = machine.made.pop().unwrap();
    let text = serde_json::to_string(&registration).unwrap();
    let registration = serde_json::from_str(&text).unwrap();
    let mut next = Machine::new();
    let restored = next.node.restore(Nanos::secs(100), &registration).unwrap();
    next.drain();
    assert!(!next.joins(restored, ALICE, &b));
    assert!(next.joins(restored, ALICE, &a));
}

#[test]
fn a_users_tenant_takes_that_users_processes_wherever_they_are() {
    let mut machine = Machine::new();
    let theirs = machine.tenant(Some(ALICE), SESSION);
    let docker = TREES[0].replace("ID", A);
    for cgroup in [SESSION, &docker, "/"] {
        assert!(machine.joins(theirs, ALICE, cgroup), "{cgroup}");
        assert!(machine.joins(theirs, ROOT, cgroup), "{cgroup}");
        assert!(!machine.joins(theirs, BOB, cgroup), "{cgroup}");
    }
}
