//! Memory that is on the host and cannot be stored in a file: a command that wants it there says
//! so.

use std::process::{Child, Command, Stdio};

use super::*;

impl Scene {
    /// As [`Scene::out`], of a process that has shown no memory file.
    fn unshown() -> Self {
        let mut scene = Self::begun("swap");
        let new = client(ConnId(1), scene.tenant, None);
        scene.registers_as(new, std::process::id(), 0);
        scene.says_it_is_out();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene
    }

    /// Another process of the tenant comes, which is out too, and shows no memory file.
    fn another_comes(&mut self, child: &Child) {
        let first = self.client;
        let new = client(ConnId(2), self.tenant, None);
        self.registers_as(new, child.id(), 1);
        self.says_it_is_out();
        self.client = first;
    }

    fn is_asked_to_suspend(&mut self) {
        self.is_suspended_to_a_file();
        self.is_looked_at(NOW);
    }

    /// The name of the tenant's process in messages.
    fn own_process() -> String {
        format!("process {}", std::process::id())
    }
}

/// A process that does nothing until it is dropped by [`ends`].
fn idle() -> Child {
    let child = Command::new("cat").stdin(Stdio::piped()).spawn();
    child.unwrap()
}

fn ends(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn memory_whose_file_was_not_shown_is_not_suspended_to_a_file() {
    let mut scene = Scene::unshown();
    scene.is_asked_to_suspend();
    scene.is_refused("has not shown");
    scene.is_refused(&Scene::own_process());
    assert_eq!(scene.said("suspended"), [""; 0], "nothing has changed");
}

#[test]
fn memory_that_cannot_be_stored_is_suspended_to_the_host() {
    let mut scene = Scene::unshown();
    scene.node.command_came(ConnId(1000), "/session", None);
    let suspend = Control::Suspend {
        tenant: "one".to_owned(),
    };
    scene.node.command(NOW, ConnId(1000), 1, &suspend);
    scene.work();
    assert_eq!(scene.told, [ControlReply::Done]);
}

#[test]
fn a_command_says_what_stays_on_the_host_of_a_process_that_came_late() {
    let mut scene = Scene::new();
    let child = idle();
    scene.another_comes(&child);
    let _ = scene.is_stored();
    scene.drops();
    scene.is_refused("4 MiB");
    scene.is_refused(&format!("process {}", child.id()));
    assert_eq!(scene.said("spill-failed").len(), 1);
    ends(child);
}
