//! Files that a process presents, and the look that each of them needs first.

use super::*;

/// When a look takes too long that began at `NOW`.
pub(super) const LATE: Nanos = Nanos::secs(110);

impl Scene {
    /// The process presents a file that it says it has from a previous daemon.
    pub(super) fn presents(&mut self, number: u64) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let file = Foreign::new(file.into(), &self.node.lanes().own());
        self.node.present_file(NOW, self.client, number, Some(file));
        self.work();
    }

    /// Its host memory is free, and it wants bytes of a file.
    pub(super) fn fetches(&mut self, file: u64) {
        let stored = Stored {
            file,
            at: 0,
            bytes: SIZE,
            sum: 0,
        };
        self.says(&Request::HostFetch(stored));
    }

    pub(super) fn waits_until(&mut self, now: Nanos) {
        self.node.advance(now);
        self.work();
    }

    /// The only answer to a command is an error that says this.
    pub(super) fn is_refused(&self, why: &str) {
        match &self.told[..] {
            [ControlReply::Error(error)] => assert!(error.message.contains(why), "{error:?}"),
            told => panic!("{told:?}"),
        }
    }

    fn file_errors(&self) -> usize {
        let says = |reply: &&ControlReply| matches!(reply, ControlReply::Error(error) if error.message.contains("did not answer"));
        self.told.iter().filter(says).count()
    }
}

#[test]
fn a_command_whose_file_does_not_answer_is_told_so_in_time() {
    let mut scene = Scene::out();
    scene.is_suspended_to_a_file();
    scene.waits_until(LATE - Nanos(1));
    assert_eq!(scene.file_errors(), 0);
    assert!(scene.node.next_timeout().is_some_and(|at| at <= LATE));
    scene.waits_until(LATE);
    assert_eq!(scene.file_errors(), 1);
    scene.is_looked_at(LATE);
    scene.waits_until(LATE + LATE);
    assert_eq!(scene.file_errors(), 1, "and no more");
    assert_eq!(scene.word(), 0, "it is not suspended");
}

#[test]
fn a_tenant_that_is_out_is_in_its_file_when_the_command_ends() {
    let mut scene = Scene::new();
    assert_eq!(scene.told, [], "it is on the host");
    let _ = scene.is_stored();
    scene.drops();
    assert_eq!(scene.told, [ControlReply::Done]);
}

#[test]
fn managed_memory_is_not_suspended_to_a_file() {
    let mut scene = Scene::out_of("uvm");
    scene.is_suspended_to_a_file();
    scene.is_looked_at(NOW);
    scene.is_refused("GPUSHARE_OVERSUBSCRIBE=uvm");
}

#[test]
fn a_look_for_a_command_that_has_left_moves_nothing() {
    let mut scene = Scene::out();
    scene.is_suspended_to_a_file();
    scene.node.command_ended(NOW, ConnId(1000));
    scene.is_looked_at(NOW);
    assert_eq!(scene.word(), 0);
}

#[test]
fn a_fetch_waits_for_the_look_at_its_file() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.presents(77);
    scene.fetches(77);
    assert_eq!(scene.jobs.len(), 0);
    scene.is_looked_at(NOW);
    assert_eq!(scene.jobs.len(), 1);
}
