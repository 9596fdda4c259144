//! What a cap is paid for the work that runs behind its closed gate: when the process ends, and
//! beside another tenant. The node without sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use crate::container_node::roots;
use crate::driver::{Backend, Driver};
use crate::support::create;
use crate::support::gate::control;
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::page::control::ControlPage;
use gpushare_protocol::page::lease::LeaseState;
use gpushare_protocol::page::pending::PendingWord;
use gpushare_protocol::wire::*;
use gpushared::connection::Passed;
use gpushared::devices::Devices as _;
use gpushared::foreign::{Foreign, Lanes};
use gpushared::node::{Client, ConnId, Effect, Node, Settings};
use gpushared::pages::UsagePage;

/// How often the node is called, as on a device with a cap.
const TICK: Nanos = Nanos::millis(2);
/// The length of the kernel.
const KERNEL: Nanos = Nanos::millis(300);

/// In which order a server hears that a process has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hears {
    /// Of its connection first: the kernel closes files before it tells of an end.
    Connection,
    /// Of its pidfd first: both came before the server looked.
    Pidfd,
    /// Of neither: the process registers anew over another connection.
    Neither,
}

/// A tenant with a cap of one percent on one device.
struct Scene {
    node: Node,
    now: Nanos,
    tenant: Option<TenantId>,
    client: Option<Client>,
    usage: Option<UsagePage>,
    page: Option<&'static ControlPage>,
    commands: u64,
}

impl Scene {
    fn new(sharing: &str) -> Self {
        let text = format!("[compute]\nsharing = \"{sharing}\"");
        let settings = gpushared::config::read(&text, Settings::default()).unwrap();
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let now = Nanos::secs(100);
        let mut scene = Self {
            node: Node::new(&settings, devices, 1, now, false),
            now,
            tenant: None,
            client: None,
            usage: None,
            page: None,
            commands: 0,
        };
        scene.creates("short", &[("GPUSHARE_SM_LIMIT", "1")]);
        scene
    }

    /// A tenant, whose processes come from now on.
    fn creates(&mut self, name: &str, environment: &[(&str, &str)]) {
        self.commands += 1;
        let command = ConnId(1000 + self.commands);
        self.node.command_came(command, "/session", None);
        let create = create(name, environment);
        self.node.command(self.now, command, 1, &create);
        self.works();
    }

    /// A process comes over this connection, and has a context.
    fn comes(&mut self, connection: u64) {
        self.comes_as(connection, std::process::id());
    }

    fn comes_as(&mut self, connection: u64, pid: u32) {
        let now = self.now;
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let client = client(ConnId(connection), self.tenant.unwrap());
        let process = self
            .node
            .register(now, client, (1, &register), roots(pid), None);
        assert!(process.is_some());
        let client = Client { process, ..client };
        self.client = Some(client);
        for request in [
            Request::Open { device_index: 0 },
            Request::ContextMade { device_index: 0 },
        ] {
            self.node.request(now, client, 7, &request);
        }
        self.works();
        self.wants();
    }

    /// A launch waits, if the gate is closed.
    fn wants(&mut self) {
        let turn = self.page.unwrap().devices[0].turn();
        if turn.word.state() == LeaseState::Closed {
            let (device_index, epoch) = (0, turn.word.epoch());
            let wanted = Request::Wanted {
                device_index,
                epoch,
            };
            self.node
                .request(self.now, self.client.unwrap(), 0, &wanted);
            self.works();
        }
    }

    fn works(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Listen { tenant, .. } => self.tenant = Some(tenant),
                Effect::Client {
                    reply: Reply::Registered(registered),
                    descriptors,
                    ..
                } => {
                    assert_eq!(registered.slot, 0);
                    let copy = |one: Passed| one.as_fd().try_clone_to_owned().unwrap();
                    let mut descriptors = descriptors.into_iter().map(copy);
                    self.page = descriptors.next().map(control);
                    let usage = descriptors.next().unwrap();
                    let usage = Foreign::new(usage, &Lanes::default().own());
                    self.usage = Some(UsagePage::adopt(usage).unwrap());
                }
                _ => {}
            }
        }
    }

    fn advances(&mut self) {
        self.now = self.now + TICK;
        self.node.advance(self.now);
        self.works();
    }

    fn is_closed(&self) -> bool {
        self.page.unwrap().devices[0].turn().word.state() == LeaseState::Closed
    }

    /// The process's row says so.
    fn says(&self, service: Nanos, since: Option<Nanos>) {
        let usage = self.usage.as_ref().unwrap();
        let line = usage.view().line(0, 0).unwrap();
        line.service.store(service.0, Ordering::Relaxed);
        line.busy.store(service.0, Ordering::Relaxed);
        let pending = PendingWord::new(since.map(|since| since.0), true);
        line.pending.store(pending.bits(), Ordering::Release);
    }

    /// The process runs a kernel that outlasts what its cap allows, and ends with it.
    fn runs_a_kernel(&mut self, hears: Hears) {
        self.comes(1);
        assert!(!self.is_closed());
        let began = self.now;
        self.says(Nanos::ZERO, Some(began));
        while self.now < began + KERNEL {
            self.advances();
        }
        assert!(self.is_closed());
        self.says(KERNEL, None);
        self.ends(hears);
    }

    /// The process ends: no time for a look between the two that tell of it.
    fn ends(&mut self, hears: Hears) {
        let client = self.client.unwrap();
        let process = client.process.unwrap();
        self.now = self.now + Nanos::micros(100);
        if hears == Hears::Pidfd {
            self.node.process_ended(self.now, process);
        }
        self.now = self.now + Nanos::micros(100);
        if hears == Hears::Neither {
            return;
        }
        self.node.disconnected(self.now, client);
        self.now = self.now + Nanos::micros(100);
        if hears == Hears::Connection {
            self.node.process_ended(self.now, process);
        }
        self.works();
    }
}

fn client(connection: ConnId, tenant: TenantId) -> Client {
    Client {
        connection,
        tenant,
        process: None,
        gated: true,
        moves: false,
    }
}

/// 300 ms at one percent are repaid after half a minute.
#[test]
fn the_kernel_that_a_program_ends_with_is_billed_to_its_tenant() {
    for sharing in ["together", "turns"] {
        for hears in [Hears::Connection, Hears::Pidfd, Hears::Neither] {
            let mut scene = Scene::new(sharing);
            scene.runs_a_kernel(hears);
            scene.comes(2);
            for _ in 0..1000 {
                assert!(scene.is_closed(), "{sharing}, {hears:?} first");
                scene.advances();
            }
        }
    }
}

#[test]
fn a_program_that_did_nothing_leaves_the_next_one_open() {
    for sharing in ["together", "turns"] {
        let mut scene = Scene::new(sharing);
        scene.comes(1);
        scene.says(Nanos::ZERO, None);
        scene.ends(Hears::Connection);
        scene.comes(2);
        // A turn that ends early leaves less than the next one needs.
        let mut opens = (0..250).map(|_| {
            scene.advances();
            !scene.is_closed()
        });
        assert!(opens.any(|opens| opens), "{sharing}");
    }
}

/// A gate that is closed looks again and again while something is under way.
#[test]
fn no_gate_is_woken_because_another_tenants_work_may_run_now() {
    let mut scene = Scene::new("together");
    scene.comes(1);
    scene.says(Nanos::ZERO, Some(scene.now));
    let (first, usage) = (scene.page.unwrap(), scene.usage.take());
    let child = Command::new("cat").stdin(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    scene.creates("other", &[]);
    scene.comes_as(2, child.id());
    let shows = || {
        let turn = first.devices[0].turn();
        let changes = first.header.changes.load(Ordering::Acquire);
        (turn.contended, turn.word, changes)
    };
    while shows().1.state() != LeaseState::Closed {
        scene.advances();
    }
    let (contended, word, changes) = shows();
    assert!(!contended);
    for works in [true, false] {
        scene.says(Nanos::ZERO, works.then_some(scene.now));
        for _ in 0..8 {
            scene.advances();
        }
        assert_eq!(shows(), (works, word, changes));
    }
    drop((child.stdin.take(), usage));
    child.wait().unwrap();
}
