//! Tenants that are kept for processes of the previous daemon which have not come back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use crate::container_node::{Machine, NOW, pidfd};
use crate::support;
use gpushare_core::ProcessId;
use gpushare_protocol::wire::Control;
use gpushared::init::Init;
use gpushared::node::{ConnId, Effect, Seen, Settings};

/// A process that was a member of a tenant, and the node that follows the one which knew it.
struct Scene {
    machine: Machine,
    child: Child,
    watched: Vec<ProcessId>,
    told: Vec<String>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Scene {
    /// It was written down with this start, beside its own, and program.
    fn of(later: u64, program: Option<[u64; 6]>) -> Self {
        let mut scene = Self::unseen(later, program);
        scene.serve();
        scene
    }

    /// The same, and it was not looked at yet.
    fn unseen(later: u64, program: Option<[u64; 6]>) -> Self {
        let child = support::cat();
        let identity = Init::of(pidfd(child.id())).unwrap().identity;
        let start = identity.start + later;
        let registration = serde_json::json!({
            "name": "one",
            "environment": [["GPUSHARE_MEM_LIMIT", "1GiB"]],
            "devices": [],
            "members": [{ "pid": identity.pid, "start": start, "program": program }],
        });
        let registration = serde_json::from_value(registration).unwrap();
        let mut machine = Machine::with(&Settings::default(), true);
        machine.node.restore(NOW, &registration).unwrap();
        let (watched, told) = (Vec::new(), Vec::new());
        Self {
            machine,
            child,
            watched,
            told,
        }
    }

    /// Ends the tenant, by a signal that no process outlives.
    fn kill(&mut self) {
        let end = Control::End {
            tenant: "one".to_owned(),
            kill: true,
        };
        self.machine.node.command(NOW, ConnId(9), 1, &end);
    }

    /// Whether the process was signalled before its input ends.
    fn was_killed(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().signal() == Some(9)
    }

    /// Does as the server does. Whether the tenant is there still.
    fn serve(&mut self) -> bool {
        let mut lives = true;
        let node = &mut self.machine.node;
        while let Some(effect) = node.poll_effect() {
            match effect {
                Effect::Identify { process, pid, .. } => {
                    node.identified(NOW, process, Seen::of(pid));
                }
                Effect::Watch { process, .. } => self.watched.push(process),
                Effect::Unwatch { process } => self.watched.retain(|one| *one != process),
                Effect::Event { record, .. } => self.told.push(record.kind.clone()),
                Effect::Unlisten { .. } => lives = false,
                _ => {}
            }
        }
        lives
    }

    fn claimed(&mut self) -> bool {
        self.machine.node.recovered(NOW);
        self.machine.node.forget_unclaimed(NOW);
        self.serve()
    }

    fn ends(&mut self) -> bool {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for process in std::mem::take(&mut self.watched) {
            self.machine.node.process_ended(NOW, process);
        }
        self.serve()
    }
}

#[test]
fn a_tenant_is_kept_as_long_as_a_process_of_it_may_come_back() {
    let mut scene = Scene::of(0, None);
    assert!(scene.claimed(), "it lives");
    assert!(scene.told.iter().any(|kind| kind == "awaited"));
    scene.machine.node.tick(NOW);
    assert!(scene.serve(), "it is what it was");
    assert!(!scene.ends());
}

#[test]
fn a_tenant_whose_process_ends_early_is_kept_until_it_could_be_claimed() {
    let mut scene = Scene::of(0, None);
    assert!(scene.ends(), "its command may come");
    assert!(!scene.claimed());
    assert!(!scene.told.iter().any(|kind| kind == "awaited"));
}

#[test]
fn nothing_waits_for_another_process_that_has_the_pid() {
    let mut scene = Scene::of(1, None);
    assert_eq!(scene.watched, []);
    assert!(!scene.claimed());
}

#[test]
fn nothing_waits_for_a_process_that_became_another_program() {
    let mut scene = Scene::of(0, Some([4096, 1, 2, 3, 4, 5]));
    assert_eq!(scene.watched, []);
    assert!(!scene.claimed());
}

#[test]
fn an_end_reaches_a_process_that_is_what_was_written_down() {
    let mut scene = Scene::of(0, None);
    scene.kill();
    assert!(scene.was_killed());
    let mut scene = Scene::unseen(0, None);
    scene.kill();
    scene.serve();
    assert!(scene.was_killed(), "once it was looked at");
}

#[test]
fn an_end_does_not_reach_another_process_that_has_the_pid() {
    let mut scene = Scene::unseen(1, None);
    scene.kill();
    scene.serve();
    assert!(!scene.was_killed());
    let mut scene = Scene::unseen(0, None);
    scene.kill();
    assert!(!scene.was_killed(), "it may be another");
}
