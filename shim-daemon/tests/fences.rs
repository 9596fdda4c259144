//! The driver's own limits around tenants' cgroups: when they are set, how high, and when they
//! are taken away. The driver is a double (`support/driver.rs`), the processes' cgroups are made
//! up; the books, the brain and the looks are real.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::{Backend, Driver, FIRST, SECOND};
use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::{Control, ControlReply, Listing, Register, Reply, Request, Rows};
use gpushared::devices::{Devices, carry_out};
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings};
use gpushared::peer::{Peer, inspect};

/// A path as Docker makes it, of tenant `n`.
fn docker(n: u8) -> String {
    format!("/system.slice/docker-{}.scope", n.to_string().repeat(64))
}

/// The folder of such a cgroup.
fn folder(n: u8) -> String {
    format!("/cg{}", docker(n))
}

/// A node on the double, its effects carried out as the server does.
struct Bench {
    node: Node,
    driver: Driver,
    now: Nanos,
    next: u64,
    names: BTreeMap<String, TenantId>,
    remembered: BTreeMap<String, Registration>,
    replies: Vec<ControlReply>,
    client_replies: Vec<Reply>,
}

impl Bench {
    fn new(driver: Driver) -> Self {
        Self::after(driver, &[])
    }

    /// A daemon that follows another and finds these stored registrations.
    fn after(mut driver: Driver, remembered: &[Registration]) -> Self {
        let settings = Settings {
            fences: Some("/cg".into()),
            ..Settings::default()
        };
        let now = Nanos::secs(100);
        let devices = driver.list().unwrap();
        let mut bench = Self {
            node: Node::new(&settings, devices, 1, now, !remembered.is_empty()),
            driver,
            now,
            next: 0,
            names: BTreeMap::new(),
            remembered: BTreeMap::new(),
            replies: vec![],
            client_replies: vec![],
        };
        for registration in remembered {
            let id = bench.node.restore(now, registration).unwrap();
            bench.names.insert(registration.name.clone(), id);
        }
        bench.work();
        bench
    }

    fn work(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Fence { key, path, order } => {
                    let outcome = carry_out(&mut self.driver, key.device, &path, order);
                    self.node.fenced(&key, outcome);
                }
                Effect::Look { device } => {
                    let look = self.driver.look(device);
                    self.node.looked(self.now, device, self.now, look);
                }
                Effect::Listen {
                    tenant,
                    registration,
                } => {
                    self.names.insert(registration.name.clone(), tenant);
                    self.remembered
                        .insert(registration.name.clone(), *registration);
                }
                Effect::Unlisten { name, .. } => drop(self.remembered.remove(&name)),
                Effect::Command { reply, .. } => self.replies.push(reply),
                Effect::Event { record, .. } => {
                    self.replies
                        .push(ControlReply::Event(Arc::unwrap_or_clone(record)));
                }
                Effect::Client { reply, .. } => self.client_replies.push(reply),
                Effect::Copy(job) => self.node.copied(self.now, job.carry_out()),
                Effect::Inspect(look) => self.node.inspected(self.now, look.carry_out()),
                Effect::Identify { .. }
                | Effect::LookAtRows { .. }
                | Effect::Forget { .. }
                | Effect::SetAside { .. }
                | Effect::Watch { .. }
                | Effect::Unwatch { .. }
                | Effect::WatchContainer { .. }
                | Effect::KeepAllowed(_) => {}
            }
        }
    }

    fn connection(&mut self) -> ConnId {
        self.next += 1;
        ConnId(self.next)
    }

    fn command(&mut self, from: ConnId, request: &Control) {
        self.node.command(self.now, from, 1, request);
        self.work();
    }

    /// Registers a tenant from a command in this cgroup; returns the command's connection.
    fn create(&mut self, name: &str, limit: &str, cgroup: &str) -> ConnId {
        let from = self.connection();
        self.node.command_came(from, cgroup, None);
        let create = Control::Create {
            name: Some(name.to_owned()),
            environment: vec![("GPUSHARE_MEM_LIMIT_0".to_owned(), limit.to_owned())],
            devices: vec![FIRST, SECOND],
        };
        self.command(from, &create);
        from
    }

    /// A process in this cgroup joins; the pid is this test's own, one process at a time.
    fn join(&mut self, name: &str, cgroup: &str) -> (Client, ProcessId) {
        let tenant = self.names[name];
        let client = Client {
            connection: self.connection(),
            tenant,
            process: None,
            gated: false,
            moves: false,
        };
        let pid = std::process::id();
        let peer = Peer {
            pid: pid.cast_signed(),
            uid: 0,
            pidfd: inspect(pid).unwrap().pidfd,
            cgroup: cgroup.to_owned(),
            groups: gpushared::groups::Groups::default(),
        };
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let process = self
            .node
            .register(self.now, client, (1, &register), peer, None)
            .unwrap();
        self.work();
        let client = Client {
            process: Some(process),
            ..client
        };
        (client, process)
    }

    fn open(&mut self, client: Client) {
        let open = Request::Open { device_index: 0 };
        self.node.request(self.now, client, 2, &open);
        self.work();
        assert!(matches!(
            self.client_replies.pop(),
            Some(Reply::Granted { .. })
        ));
        let made = Request::ContextMade { device_index: 0 };
        self.node.request(self.now, client, 3, &made);
        self.work();
    }

    fn tick(&mut self) {
        self.now = self.now + Nanos::secs(1);
        self.node.tick(self.now);
        self.work();
    }

    fn shows(&mut self, bytes: u64) {
        let pid = std::process::id();
        self.driver.0.lock().unwrap().processes = vec![(pid, Bytes(bytes))];
        self.tick();
    }

    fn hard(&self, n: u8) -> Option<Bytes> {
        self.driver.hard(&folder(n))
    }

    /// Events of this kind, from the first on.
    fn events(&mut self, kind: &str) -> Vec<String> {
        self.replies.clear();
        let from = self.connection();
        self.command(from, &Control::Follow { past: 1024 });
        self.node.command_ended(self.now, from);
        let all = self.replies.drain(..);
        all.filter_map(|reply| match reply {
            ControlReply::Event(row) if row.kind == kind => Some(row.text),
            _ => None,
        })
        .collect()
    }
}

const SESSION: &str = "/user.slice/user-1000.slice/session-3.scope";

#[test]
fn a_fence_stands_from_the_first_process_to_the_tenants_end() {
    let mut bench = Bench::new(Driver::of(Backend::Misc));
    let command = bench.create("a", "4GiB", SESSION);
    assert_eq!(bench.driver.calls(), 0);
    let (_, process) = bench.join("a", &docker(1));
    // 4 GiB, 512 MiB for a context of unknown cost, 1 GiB of slack.
    assert_eq!(bench.hard(1), Some(Bytes(5 * GIB + 512 * MIB)));
    assert_eq!(bench.events("fence").len(), 1);
    bench.node.process_ended(bench.now, process);
    bench.work();
    assert!(bench.hard(1).is_some(), "the tenant is still there");
    bench.node.command_ended(bench.now, command);
    bench.work();
    assert_eq!(bench.hard(1), None);
}

#[test]
fn a_fence_rises_and_falls_with_what_the_driver_takes() {
    let mut bench = Bench::new(Driver::of(Backend::Dmem));
    bench.create("a", "4GiB", SESSION);
    let (client, process) = bench.join("a", &docker(1));
    bench.open(client);
    bench.shows(1536 * MIB);
    bench.tick();
    // 4 GiB, 1.5 GiB measured, as much for another, 1 GiB of slack.
    assert_eq!(bench.hard(1), Some(Bytes(8 * GIB)));
    let calls = bench.driver.calls();
    bench.shows(1400 * MIB);
    bench.tick();
    assert_eq!(bench.driver.calls(), calls, "a small change moves nothing");
    bench.node.process_ended(bench.now, process);
    bench.driver.0.lock().unwrap().processes.clear();
    bench.tick();
    bench.tick();
    let fallen = bench.hard(1).unwrap();
    assert!(fallen < Bytes(7 * GIB), "{fallen}");
}

#[test]
fn what_a_program_holds_past_the_library_is_no_reason_for_a_higher_fence() {
    let mut bench = Bench::new(Driver::of(Backend::Dmem));
    bench.create("a", "4GiB", SESSION);
    let (client, _) = bench.join("a", &docker(1));
    bench.open(client);
    bench.shows(3 * GIB);
    bench.tick();
    let fence = bench.hard(1).unwrap();
    bench.shows(5 * GIB);
    bench.tick();
    assert_eq!(bench.hard(1), Some(fence));
    // And never below the memory held.
    bench.shows(20 * GIB);
    bench.tick();
    assert!(bench.hard(1).unwrap() >= Bytes(20 * GIB));
}

#[test]
fn set_moves_the_fence_and_a_limit_near_the_device_removes_it() {
    let mut bench = Bench::new(Driver::of(Backend::Misc));
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(1));
    let before = bench.hard(1).unwrap();
    let set = |bench: &mut Bench, limit: &str| {
        let from = bench.connection();
        let request = Control::Set {
            tenant: "a".to_owned(),
            changes: vec![("GPUSHARE_MEM_LIMIT_0".to_owned(), limit.to_owned())],
        };
        bench.command(from, &request);
    };
    set(&mut bench, "8GiB");
    assert_eq!(bench.hard(1), Some(before + Bytes(4 * GIB)));
    set(&mut bench, "4GiB");
    assert_eq!(bench.hard(1), Some(before));
    // Limit, context and slack together are more than the device has.
    set(&mut bench, "63GiB");
    assert_eq!(bench.hard(1), None);
    set(&mut bench, "4GiB");
    assert_eq!(bench.hard(1), Some(before));
}

#[test]
fn sessions_shared_tenants_and_our_own_are_never_fenced() {
    let mut bench = Bench::new(Driver::of(Backend::Misc));
    bench.create("session", "4GiB", SESSION);
    bench.join("session", SESSION);
    bench.create("inside", "4GiB", &docker(1));
    bench.join("inside", &docker(1));
    assert_eq!(bench.driver.calls(), 0);
    // Two tenants of ours in one of the runtime's: the first was fenced until the second came.
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(2));
    assert!(bench.hard(2).is_some());
    let second = bench.create("b", "4GiB", SESSION);
    let (_, process) = bench.join("b", &format!("{}/below", docker(2)));
    assert_eq!(bench.hard(2), None);
    bench.tick();
    assert_eq!(bench.hard(2), None);
    // Alone again.
    bench.node.process_ended(bench.now, process);
    bench.node.command_ended(bench.now, second);
    bench.tick();
    assert!(bench.hard(2).is_some());
}

#[test]
fn a_command_that_joins_from_inside_takes_the_fence_away() {
    let mut bench = Bench::new(Driver::of(Backend::Misc));
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(1));
    assert!(bench.hard(1).is_some());
    bench.create("a", "4GiB", &docker(1));
    assert_eq!(bench.hard(1), None);
    assert_eq!(bench.remembered["a"].commands, [docker(1)]);
}

#[test]
fn the_limit_of_somebody_else_is_told_of_once_and_left_alone() {
    let driver = Driver::of(Backend::Misc);
    driver.holds(&folder(1), 0, Some(2 * GIB));
    let mut bench = Bench::new(driver);
    let command = bench.create("a", "4GiB", SESSION);
    let (_, process) = bench.join("a", &docker(1));
    bench.tick();
    assert_eq!(bench.events("fence-foreign").len(), 1);
    assert_eq!(bench.remembered["a"].fences, []);
    bench.node.process_ended(bench.now, process);
    bench.node.command_ended(bench.now, command);
    bench.work();
    assert_eq!(bench.hard(1), Some(Bytes(2 * GIB)));
    assert_eq!(bench.driver.calls(), 0);
}

#[test]
fn the_next_daemon_knows_the_fences_for_its_own() {
    let driver = Driver::of(Backend::Dmem);
    let mut bench = Bench::new(driver.clone());
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(1));
    let stood = bench.hard(1);
    let remembered = bench.remembered["a"].clone();
    drop(bench);
    // It came back without its fence, as after a reload of the driver's module.
    driver.holds(&folder(1), 0, None);
    let mut next = Bench::after(driver.clone(), std::slice::from_ref(&remembered));
    next.tick();
    assert_eq!(next.hard(1), stood);
    drop(next);
    // It has a fence, and no command claims the tenant: the remaining fence is removed.
    let mut last = Bench::after(driver, &[remembered]);
    last.node.recovered(last.now);
    last.node.forget_unclaimed(last.now);
    last.work();
    assert_eq!(last.hard(1), None);
}

#[test]
fn without_the_right_to_it_is_said_once_and_everything_goes_on() {
    let driver = Driver::of(Backend::Dmem);
    driver.0.lock().unwrap().forbidden = true;
    let mut bench = Bench::new(driver);
    for (n, name) in [(1, "a"), (2, "b")] {
        bench.create(name, "4GiB", SESSION);
        bench.join(name, &docker(n));
        bench.tick();
    }
    assert_eq!(bench.driver.calls(), 1);
    assert_eq!(bench.events("fence-off").len(), 1);
}

#[test]
fn a_device_whose_driver_has_no_limits_is_not_said_to_have_them() {
    let mut bench = Bench::new(Driver::of(Backend::Off));
    let capabilities = |bench: &mut Bench| {
        bench.replies.clear();
        let from = bench.connection();
        bench.command(from, &Listing::Devices.first());
        match bench.replies.pop() {
            Some(ControlReply::Page {
                rows: Rows::Devices(rows),
                ..
            }) => rows[0].capabilities.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert!(capabilities(&mut bench).contains(&"driver-limits".to_owned()));
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(1));
    bench.tick();
    assert!(!capabilities(&mut bench).contains(&"driver-limits".to_owned()));
    assert_eq!(bench.events("fence-off").len(), 1);
    assert_eq!(bench.driver.calls(), 1);
}

#[test]
fn a_cgroup_that_cannot_be_limited_is_told_of_once() {
    let driver = Driver::of(Backend::Misc);
    driver.0.lock().unwrap().gone.push(folder(1).into());
    let mut bench = Bench::new(driver);
    bench.create("a", "4GiB", SESSION);
    bench.join("a", &docker(1));
    bench.tick();
    bench.tick();
    assert_eq!(bench.events("fence-failed").len(), 1);
}
