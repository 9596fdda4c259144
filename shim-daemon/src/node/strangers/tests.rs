//! Which processes of tenants are left alone that never registered. The processes are real, and a
//! folder says their cgroups, as `/proc` would.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use gpushare_core::ProcessId;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{Control, ControlReply, Register};
use serde_json::{Value, json};

use super::*;
use crate::devices::{Capabilities, Device};
use crate::groups::Groups;
use crate::init::started;
use crate::node::{Client, Effect, Registration, Settings};
use crate::peer::Peer;

const NOW: Nanos = Nanos::secs(100);
const GPU: [u8; 16] = *b"a GPU of 16 GiB.";
/// The cgroup of a container.
const CONTAINER: &str = "/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The cgroup that the node's rules name.
const MPS: &str = "/system.slice/mps.service";

mod allowed;

/// Processes on a device of a daemon that has followed another one.
struct Scene {
    node: Node,
    proc: tempfile::TempDir,
    children: Vec<Child>,
}

impl Scene {
    fn new() -> Self {
        let settings = Settings {
            unmanaged: Unmanaged {
                end: true,
                // These tests may run as root.
                root: true,
                grace: Nanos::ZERO,
                spare: vec![MPS.to_owned()],
            },
            ..Settings::default()
        };
        let device = Device {
            uuid: GPU,
            minor: None,
            name: "a GPU".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        };
        let proc = tempfile::tempdir().unwrap();
        let mut node = Node::new(&settings, vec![device], 1, NOW, true);
        node.watch.proc = proc.path().to_owned();
        node.runs_in("/system.slice/gpushared.service");
        let children = Vec::new();
        Self {
            node,
            proc,
            children,
        }
    }

    /// A process in that cgroup.
    fn process(&mut self, cgroup: &str) -> u32 {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        let own = self.proc.path().join(pid.to_string());
        fs::create_dir(&own).unwrap();
        fs::copy(format!("/proc/{pid}/status"), own.join("status")).unwrap();
        fs::write(own.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        pid
    }

    /// A tenant of the previous daemon, with these facts in its registration.
    fn tenant(&mut self, facts: Value) {
        let mut registration = json!({
            "name": "one",
            "environment": [["GPUSHARE_MEM_LIMIT", "4GiB"]],
            "devices": [GPU],
        });
        for (name, fact) in facts.as_object().unwrap() {
            registration[name] = fact.clone();
        }
        let registration: Registration = serde_json::from_value(registration).unwrap();
        self.node.restore(NOW, &registration).unwrap();
        self.node.recovered(NOW + Nanos::secs(2));
    }

    /// The same of one that cannot be restored: its device is missing.
    fn unrestored(&mut self, mut facts: Value) {
        facts["name"] = json!("one");
        facts["environment"] = json!([["GPUSHARE_MEM_LIMIT", "4GiB"]]);
        facts["devices"] = json!([vec![7; 16]]);
        let registration: Registration = serde_json::from_value(facts).unwrap();
        self.node.restore(NOW, &registration).unwrap_err();
        self.node.recovered(NOW + Nanos::secs(2));
    }

    /// A tenant that is a container which came with this cgroup, and whose first process is `init`.
    fn container(&mut self, cgroup: &str, init: u32) {
        self.container_named("one", cgroup, init);
    }

    fn container_named(&mut self, name: &str, cgroup: &str, init: u32) {
        let init = json!({"pid": init, "start": started(init).unwrap()});
        self.tenant(json!({
            "name": name,
            "container": {"id": name, "init": init, "groups": {"": cgroup}},
        }));
    }

    /// What becomes of each process once the device has listed all of them for long enough.
    fn fates(&mut self, pids: &[u32]) -> Vec<&'static str> {
        let listed = pids.iter().map(|pid| (*pid, Bytes(GIB))).collect();
        for look in 0..2 {
            let now = NOW + Nanos::secs(10 + look);
            self.node
                .mind_strangers((now, now), 0, &listed, &BTreeSet::new());
        }
        let mut fates = vec![""; pids.len()];
        while let Some(effect) = self.node.poll_effect() {
            let Effect::Event { record, .. } = effect else {
                continue;
            };
            let kinds = ["unmanaged-spared", "unmanaged-ended"];
            let kind = kinds.into_iter().find(|kind| *kind == record.kind);
            let is_its = |pid: &u32| record.text.contains(&format!("process {pid}"));
            if let (Some(kind), Some(at)) = (kind, pids.iter().position(is_its)) {
                fates[at] = kind.strip_prefix("unmanaged-").unwrap();
            }
        }
        fates
    }
}

/// A process, as the event about it tells: its tenant, and whether it says how that came.
type Told = (Option<String>, bool);

impl Scene {
    /// What is told of each process once the device has listed all of them.
    fn told(&mut self, pids: &[u32]) -> Vec<Told> {
        self.told_of(pids, GIB)
    }

    /// The same, where each holds so much.
    fn told_of(&mut self, pids: &[u32], bytes: u64) -> Vec<Told> {
        let listed = pids.iter().map(|pid| (*pid, Bytes(bytes))).collect();
        let now = NOW + Nanos::secs(10);
        let none = BTreeSet::new();
        self.node.mind_strangers((now, now), 0, &listed, &none);
        let mut records = Vec::new();
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::Event { record, .. } = effect {
                records.push(record);
            }
        }
        let of = |pid: &u32| {
            let is_its = format!("process {pid} ");
            let mut all = records.iter();
            let record = all.find(|one| one.kind == "unmanaged" && one.text.contains(&is_its));
            let record = record.unwrap();
            (record.tenant.clone(), record.text.contains("LD_PRELOAD"))
        };
        pids.iter().map(of).collect()
    }

    /// Says in `/proc` what it is called.
    fn is_called(&self, pid: u32, name: &str) {
        let own = self.proc.path().join(pid.to_string());
        fs::write(own.join("comm"), format!("{name}\n")).unwrap();
    }

    /// A process of a tenant registers.
    fn registers(&mut self, pid: u32, cgroup: &str) -> ProcessId {
        let tenant = *self.node.tenants.keys().next().unwrap();
        let client = Client {
            connection: ConnId(70),
            tenant,
            process: None,
            gated: false,
            moves: false,
        };
        let peer = Peer {
            pid: i32::try_from(pid).unwrap(),
            uid: 0,
            pidfd: peer::inspect(pid).unwrap().pidfd,
            cgroup: cgroup.to_owned(),
            groups: Groups::parse(&format!("0::{cgroup}")),
        };
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let request = (1, &register);
        let process = self.node.register(NOW, client, request, peer, None);
        process.unwrap()
    }

    /// Says in `/proc` that it has a name that the kernel cut within a letter.
    fn is_no_text(&self, pid: u32) {
        let status = self.proc.path().join(pid.to_string()).join("status");
        let text = fs::read(&status).unwrap();
        let rest = text.iter().position(|byte| *byte == b'\n').unwrap();
        let text = [&b"Name:\ta\xd0"[..], &text[rest..]].concat();
        fs::write(&status, text).unwrap();
    }

    /// Says in `/proc` that the one is the parent of the other.
    fn is_parent(&self, parent: u32, of: u32) {
        let status = self.proc.path().join(of.to_string()).join("status");
        let text = fs::read_to_string(&status).unwrap();
        let own = format!("PPid:\t{}\n", std::process::id());
        assert!(text.contains(&own), "{text}");
        fs::write(&status, text.replace(&own, &format!("PPid:\t{parent}\n"))).unwrap();
    }
}

#[test]
fn a_process_in_a_containers_cgroup_is_told_of_under_its_tenant() {
    let mut scene = Scene::new();
    let init = scene.process(CONTAINER);
    let below = scene.process(&format!("{CONTAINER}/work"));
    let beside = scene.process("/docker/b");
    scene.container(CONTAINER, init);
    let (one, none) = ((Some("one".to_owned()), true), (None, false));
    assert_eq!(scene.told(&[below, beside]), [one, none]);
}

#[test]
fn a_tenant_that_has_no_events_left_has_this_one_told() {
    let mut scene = Scene::new();
    let init = scene.process(CONTAINER);
    let below = scene.process(&format!("{CONTAINER}/work"));
    scene.container(CONTAINER, init);
    let one = *scene.node.tenants.keys().next().unwrap();
    for _ in 0..5_000 {
        let text = String::new();
        scene.node.event("waiting", Some(one), None, text);
    }
    assert_eq!(scene.told(&[below]), [(Some("one".to_owned()), true)]);
}

#[test]
fn a_process_in_a_container_of_a_container_is_the_inner_ones() {
    for names in [["outer", "inner"], ["inner", "outer"]] {
        let mut scene = Scene::new();
        let inner = format!("{CONTAINER}/b");
        let [init, in_outer] = [(); 2].map(|()| scene.process(CONTAINER));
        let [init_b, in_inner] = [(); 2].map(|()| scene.process(&inner));
        // The order in which they were registered says nothing.
        for name in names {
            match name {
                "outer" => scene.container_named(name, CONTAINER, init),
                _ => scene.container_named(name, &inner, init_b),
            }
        }
        let of = |name: &str| (Some(name.to_owned()), true);
        let told = scene.told(&[in_outer, in_inner]);
        assert_eq!(told, [of("outer"), of("inner")], "{names:?}");
    }
}

#[test]
fn a_process_below_a_tenants_command_is_told_of_under_that_tenant() {
    let mut scene = Scene::new();
    scene.node.recovered(NOW + Nanos::secs(2));
    let session = "/user.slice/user-1000.slice/session-1.scope";
    let [run, shell, below, beside, of_other] = [(); 5].map(|()| scene.process(session));
    scene.is_parent(run, shell);
    scene.is_parent(shell, below);
    scene.is_no_text(shell);
    let (keeps, looks) = (ConnId(7), ConnId(8));
    let made = |name: &str| Control::Create {
        name: Some(name.to_owned()),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "1GiB".to_owned())],
        devices: vec![GPU],
    };
    for (connection, pid) in [(keeps, run), (looks, of_other)] {
        scene.node.command_came(connection, session, None);
        scene
            .node
            .command_is(connection, i32::try_from(pid).unwrap());
    }
    scene
        .node
        .command(NOW + Nanos::secs(3), keeps, 1, &made("web"));
    let (web, none) = ((Some("web".to_owned()), true), (None, false));
    let child = scene.process(session);
    scene.is_parent(of_other, child);
    // In the same session, and below a command that keeps no tenant.
    assert_eq!(
        scene.told(&[below, beside, child]),
        [web, none.clone(), none.clone()]
    );
    scene.node.command_ended(NOW + Nanos::secs(4), keeps);
    let later = scene.process(session);
    scene.is_parent(run, later);
    assert_eq!(scene.told(&[later]), [none]);
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_containers_processes_are_spared_before_one_is_registered() {
    let mut scene = Scene::new();
    let init = scene.process(CONTAINER);
    let below = scene.process(&format!("{CONTAINER}/work"));
    let beside = scene.process("/docker/b");
    let like = scene.process(&format!("{CONTAINER}b"));
    scene.container(CONTAINER, init);
    let fates = scene.fates(&[init, below, beside, like]);
    assert_eq!(fates, ["spared", "spared", "ended", "ended"]);
}

#[test]
fn without_its_tenant_a_containers_processes_are_ended() {
    let mut scene = Scene::new();
    let init = scene.process(CONTAINER);
    scene.node.recovered(NOW + Nanos::secs(2));
    assert_eq!(scene.fates(&[init]), ["ended"]);
}

#[test]
fn programs_of_one_not_restored_are_spared_until_it_is_forgotten() {
    let mut scene = Scene::new();
    let init = scene.process(CONTAINER);
    let below = scene.process(&format!("{CONTAINER}/work"));
    let beside = scene.process("/docker/b");
    let identity = json!({"pid": init, "start": started(init).unwrap()});
    scene.unrestored(json!({
        "container": {"id": "one", "init": identity, "groups": {"": CONTAINER}},
    }));
    let fates = scene.fates(&[init, below, beside]);
    assert_eq!(fates, ["spared", "spared", "ended"]);
    assert!(scene.node.forget_unrestored("one"));
    let later = scene.process(&format!("{CONTAINER}/work"));
    assert_eq!(scene.fates(&[later]), ["ended"]);
}

#[test]
fn a_tenant_not_restored_spares_its_own_and_its_processes_cgroups() {
    const SESSION: &str = "/user.slice/user-1000.slice/session-1.scope";
    let mut scene = Scene::new();
    let member = scene.process(SESSION);
    let worker = scene.process(SESSION);
    let own = scene.process(&format!("{CONTAINER}/work"));
    let beside = scene.process("/user.slice/user-1000.slice");
    scene.unrestored(json!({
        "cgroup": CONTAINER,
        "members": [{"pid": member, "start": started(member).unwrap()}],
    }));
    let fates = scene.fates(&[worker, own, beside]);
    assert_eq!(fates, ["spared", "spared", "ended"]);
}

#[test]
fn a_process_is_not_spared_for_a_name_that_is_no_text() {
    let mut scene = Scene::new();
    let named = scene.process("/user.slice/user-1000.slice/session-1.scope");
    scene.is_no_text(named);
    scene.node.recovered(NOW + Nanos::secs(2));
    assert_eq!(scene.fates(&[named]), ["ended"]);
}

/// A process of an MPS server's name, of which the kernel keeps 15 bytes. A registered process of
/// the tenant says that it is a client of MPS. Nothing that a program says of itself counts here.
fn of_a_name(scene: &mut Scene, cgroup: &str) -> u32 {
    let init = scene.process(CONTAINER);
    scene.container(CONTAINER, init);
    let client = scene.registers(init, CONTAINER);
    scene.node.is_mps_client(client);
    let named = scene.process(cgroup);
    scene.is_called(named, "nvidia-cuda-mps");
    named
}

#[test]
fn a_tenants_process_of_an_mps_servers_name_is_told_of_as_the_tenants() {
    let mut scene = Scene::new();
    let named = of_a_name(&mut scene, CONTAINER);
    let told = [(Some("one".to_owned()), true)];
    assert_eq!(scene.told(&[named]), told);
    assert_eq!(scene.node.unmanaged_on(0), 1);
    assert_eq!(scene.told_of(&[named], 2 * GIB), told);
}

#[test]
fn a_process_of_no_tenant_is_ended_also_by_an_mps_servers_name() {
    let mut scene = Scene::new();
    let named = of_a_name(&mut scene, "/user.slice/session-1.scope");
    assert_eq!(scene.fates(&[named]), ["ended"]);
    assert_eq!(scene.node.unmanaged_on(0), 1);
}

/// As an MPS server that waits for its first client, under a daemon that has just begun.
#[test]
fn a_named_cgroup_spares_and_leaves_out_all_that_is_below_it() {
    let mut scene = Scene::new();
    scene.node.recovered(NOW + Nanos::secs(2));
    let [own, below] = [MPS.to_owned(), format!("{MPS}/server")].map(|group| scene.process(&group));
    let like = scene.process(&format!("{MPS}b"));
    assert_eq!(
        scene.fates(&[own, below, like]),
        ["spared", "spared", "ended"]
    );
    assert_eq!(scene.node.unmanaged_on(0), 1);
}

#[test]
fn a_tenants_process_in_a_named_cgroup_is_told_of_as_the_tenants() {
    let mut scene = Scene::new();
    let container = format!("{MPS}/a");
    let init = scene.process(&container);
    scene.container(&container, init);
    assert_eq!(scene.told(&[init]), [(Some("one".to_owned()), true)]);
    assert_eq!(scene.node.unmanaged_on(0), 1);
}

#[test]
fn a_machines_tenant_spares_all_of_the_cgroup_that_is_its_own() {
    let mut scene = Scene::new();
    let own = scene.process(&format!("{CONTAINER}/work"));
    let beside = scene.process("/docker");
    scene.tenant(json!({ "cgroup": CONTAINER }));
    assert_eq!(scene.fates(&[own, beside]), ["spared", "ended"]);
}

/// The daemon that wrote these down was elsewhere.
#[test]
fn a_cgroup_that_has_the_daemon_in_it_spares_nothing() {
    for cgroup in ["/", "/system.slice", "/system.slice/gpushared.service"] {
        for is_container in [true, false] {
            let mut scene = Scene::new();
            let other = scene.process("/system.slice/other.service");
            let beside = scene.process(cgroup);
            match is_container {
                true => scene.container(cgroup, beside),
                false => scene.tenant(json!({ "cgroup": cgroup })),
            }
            let fates = scene.fates(&[other, beside]);
            assert_eq!(fates, ["ended", "ended"], "{cgroup} {is_container}");
        }
    }
}

/// The driver's samples of a registered process, of two that are MPS clients, of one that has
/// ended, of one without the library, and of one that the device does not list.
#[test]
fn the_time_of_those_without_a_gate_is_told_apart() {
    let mut scene = Scene::new();
    let pids = [(); 6].map(|()| scene.process(CONTAINER));
    scene.container(CONTAINER, pids[0]);
    let [own, client, ended, other] = [0, 1, 2, 3].map(|at| scene.registers(pids[at], CONTAINER));
    scene.node.is_mps_client(client);
    scene.node.is_mps_client(other);
    scene.node.process_ended(NOW, ended);
    let [time, long] = [250, 400].map(Nanos::millis);
    let whose = |scene: &Scene, listed: &[u32]| {
        let by_pid = scene.node.processes.by_pid();
        let ran = pids.map(|pid| (pid, if pid == pids[3] { long } else { time }));
        let listed = listed.iter().copied().collect();
        scene.node.whose(DeviceId(0), (&by_pid, &listed), &ran)
    };
    // The clients of a server have its context at the same time.
    let all = [(Some(own), time), (None, time), (None, long)];
    assert_eq!(whose(&scene, &pids[..5]), all);
    let registered = [(Some(own), time), (None, long)];
    assert_eq!(whose(&scene, &[]), registered, "it lists none of them");
    // One that is billed for work does not stand aside, whatever it says.
    let tenant = scene.node.tenants.values().next().unwrap();
    let slot = scene.node.processes.get(client).unwrap().slot();
    let line = tenant.usage().view().line(slot, 0).unwrap();
    line.service.store(1, Ordering::Relaxed);
    assert_eq!(whose(&scene, &pids[..5])[1], (Some(client), time));
}
