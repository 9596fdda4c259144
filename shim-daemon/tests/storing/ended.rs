//! What is left of a process's host memory after its end.

use super::*;
use crate::support;
use gpushared::node::Seen;

impl Scene {
    fn process_ends(&mut self) {
        let process = self.client.process.unwrap();
        self.node.process_ended(NOW, process);
        self.work();
    }

    /// The process runs what the process of this pid does.
    fn runs(&mut self, pid: u32) {
        let process = self.client.process.unwrap();
        let seen = Seen::of(pid.cast_signed());
        assert!(seen.is_some());
        self.node.identified(NOW, process, seen);
        self.work();
    }
}

#[test]
fn memory_of_a_process_that_ended_is_free_though_its_child_lives() {
    let mut scene = Scene::out();
    assert_eq!(scene.allocated(), SIZE);
    scene.process_ends();
    assert_eq!(scene.allocated(), 0);
}

#[test]
fn memory_of_a_process_whose_connection_ended_stays() {
    let mut scene = Scene::out();
    scene.node.disconnected(NOW, scene.client);
    assert_eq!(scene.allocated(), SIZE);
    scene.registers(ConnId(2));
    assert_eq!(scene.allocated(), SIZE);
}

#[test]
fn memory_of_a_process_that_became_another_program_is_free() {
    let own = std::process::id();
    let mut child = support::cat();
    let mut scene = Scene::out();
    scene.runs(own);
    scene.node.disconnected(NOW, scene.client);
    scene.runs(own);
    assert_eq!((scene.allocated(), scene.room().0), (SIZE, SIZE));
    scene.runs(child.id());
    assert_eq!((scene.allocated(), scene.room().0), (0, 0));
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// What the loop hears at once it may do in another order than it came.
#[test]
fn memory_that_is_given_to_a_process_after_its_end_is_free_again() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.wants_a_range();
    assert_eq!(scene.jobs.len(), 1);
    scene.process_ends();
    scene.copy_ends();
    assert_eq!(scene.allocated(), 0);
}
