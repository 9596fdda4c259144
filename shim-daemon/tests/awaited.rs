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
        Self::owned(None, later, program)
    }

    /// The same of a tenant of this user's.
    fn owned(owner: Option<u32>, later: u64, program: Option<[u64; 6]>) -> Self {
        let child = support::cat();
        let identity = Init::of(pidfd(child.id())).unwrap().identity;
        let start = identity.start + later;
        let registration = serde_json::json!({
            "name": "one",
            "environment": [["GPUSHARE_MEM_LIMIT", "1GiB"]],
            "devices": [],
            "owner": owner,
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
        self.end(true);
    }

    fn end(&mut self, kill: bool) {
        let tenant = "one".to_owned();
        let end = Control::End { tenant, kill };
        self.machine.node.command(NOW, ConnId(9), 1, &end);
    }

    /// The signal that the process had got when its input ended.
    fn signal(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().signal()
    }

    fn was_killed(self) -> bool {
        self.signal() == Some(libc::SIGKILL)
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
fn a_later_request_to_end_takes_back_no_kill() {
    for (kills, signal) in [
        (&[true, false][..], libc::SIGKILL),
        (&[false, true], libc::SIGKILL),
        (&[false], libc::SIGTERM),
    ] {
        let mut scene = Scene::unseen(0, None);
        for kill in kills {
            scene.end(*kill);
        }
        scene.serve();
        assert_eq!(scene.signal(), Some(signal), "{kills:?}");
    }
}

/// As after `sudo` in the same process.
#[test]
fn an_end_reaches_no_awaited_process_of_another_user() {
    let own = nix::unistd::geteuid().as_raw();
    for (owner, is_ended) in [(own, true), (own + 1000, false)] {
        for is_seen in [false, true] {
            let mut scene = Scene::owned(Some(owner), 0, None);
            if is_seen {
                scene.serve();
            }
            scene.kill();
            scene.serve();
            assert_eq!(scene.was_killed(), is_ended, "{owner} {is_seen}");
        }
    }
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
