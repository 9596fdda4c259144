//! Host memory that is reserved for one tenant while another one's bytes come back from a file of a
//! command.

use std::process::{Child, Command, Stdio};

use super::*;

impl Scene {
    /// A tenant whose bytes are in a file of a command. Another one is out beside it, and as much
    /// is reserved for that one as the host has. `given`: it has that too.
    fn new_with_another(child: &Child, given: bool) -> (Self, Stored) {
        let mut scene = Self::begun("swap");
        let host = if given { SIZE } else { 0 };
        scene.another_is(child.id(), Place::Out, (SIZE, host));
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene.is_suspended_to_a_file();
        scene.is_looked_at(NOW);
        let stored = scene.is_stored();
        scene.drops();
        (scene, stored)
    }
}

/// The last range of the host's memory is kept for bytes that come back, and is nobody's in the
/// budget where others' reservations are rounded up.
#[test]
fn bytes_come_back_into_memory_that_is_reserved_and_not_given() {
    for given in [false, true] {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (mut scene, stored) = Scene::new_with_another(&child, given);
        scene.says(&Request::HostFetch(stored));
        assert_eq!(scene.jobs.len(), usize::from(!given));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
