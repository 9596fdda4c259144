//! Processes that keep their memory though they are asked to have it stored.

use super::*;

/// How long nothing may be heard of a process that is asked.
const SILENCE: Nanos = Nanos::secs(5);

impl Scene {
    /// So much time has passed since the beginning.
    fn is_later(&mut self, by: Nanos) {
        self.node.tick(NOW + by);
        self.work();
    }

    /// As a process of which the driver does not let go of the range.
    fn keeps_its_range(&mut self) {
        let stored = self.is_stored();
        self.says(&Request::HostForget(stored));
    }

    fn keeping(&self) -> usize {
        let says = |reply: &&ControlReply| matches!(reply, ControlReply::Error(error) if error.message.contains("driver keeps the memory pinned"));
        self.told.iter().filter(says).count()
    }
}

#[test]
fn a_process_that_keeps_a_range_is_asked_for_it_by_another_word() {
    let mut scene = Scene::new();
    let word = scene.word();
    scene.keeps_its_range();
    scene.is_later(SILENCE - Nanos(1));
    assert_eq!(scene.word(), word);
    scene.is_later(SILENCE);
    let again = scene.word();
    assert!(again != 0 && again != word, "{again} after {word}");
    let _ = scene.is_stored();
    scene.drops();
    assert_eq!(scene.told, [ControlReply::Done]);
}

#[test]
fn a_command_ends_whose_process_keeps_its_memory_for_good() {
    let mut scene = Scene::new();
    for times in 1..=3 {
        assert_eq!(scene.keeping(), 0);
        scene.keeps_its_range();
        scene.is_later(Nanos(times * SILENCE.0));
    }
    assert_eq!((scene.keeping(), scene.word()), (1, 0));
    scene.is_later(Nanos(4 * SILENCE.0));
    assert_eq!((scene.keeping(), scene.word()), (1, 0));
    assert_eq!(scene.room(), (SIZE, 0));
    assert_eq!(scene.said("spill-failed").len(), 1);
}

#[test]
fn a_later_command_is_given_as_much_time_as_the_first() {
    let mut scene = Scene::new();
    for times in 1..=3 {
        scene.keeps_its_range();
        scene.is_later(Nanos(times * SILENCE.0));
    }
    assert_eq!((scene.keeping(), scene.word()), (1, 0));
    scene.is_suspended_to_a_file();
    scene.is_looked_at(NOW);
    let word = scene.word();
    scene.is_later(Nanos(4 * SILENCE.0));
    assert_eq!(scene.keeping(), 1, "not at the first silence");
    assert!(scene.word() != 0 && scene.word() != word);
}

#[test]
fn a_process_whose_memory_is_being_stored_is_not_silent() {
    let mut scene = Scene::new();
    let word = scene.word();
    scene.asks();
    scene.is_later(Nanos(4 * SILENCE.0));
    assert_eq!((scene.word(), scene.keeping()), (word, 0));
}
