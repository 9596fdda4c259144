//! A process's word about stored bytes that crosses the daemon's about the next.

use std::os::unix::fs::FileExt as _;

use super::full::Shared;
use super::*;

impl Shared {
    /// The first tenant is out, and is to make room on the host for the other one.
    fn makes_room() -> Self {
        let mut shared = Self::of(Bytes(2 * SIZE));
        shared.is_suspended();
        shared.other_wants_room();
        assert_ne!(shared.scene.word(), 0);
        // A hole in the file would read as zeros.
        let memory = shared.scene.memory.as_ref().unwrap().file();
        memory.write_all_at(&[7; 4096], AT).unwrap();
        shared
    }

    fn forgets(&mut self, stored: Stored) {
        self.scene.says(&Request::HostForget(stored));
        // Its lane has made the hole. Copies end on the test's thread.
        let _ = self.scene.allocated();
    }

    /// The process drops the range, and has its bytes brought back where the other one was.
    fn is_brought(&mut self, stored: Stored) {
        self.scene.drops();
        self.scene.copy_ends();
        self.other_drops();
        self.scene.says(&Request::HostFetch(stored));
        self.scene.copy_ends();
        let reply = self.scene.told();
        assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    }
}

/// The process has asked again before it heard that the range is stored.
#[test]
fn late_word_about_stored_bytes_leaves_the_next_at_their_place() {
    let mut shared = Shared::makes_room();
    let word = shared.scene.word();
    let first = shared.scene.is_stored();
    shared.scene.asks();
    assert_eq!(*shared.scene.told(), Reply::Refused(Refusal::Cancelled));
    assert_eq!(shared.scene.jobs.len(), 0, "the place is not written yet");
    let again = shared.scene.word();
    assert!(again != 0 && again != word, "{again} after {word}");
    shared.forgets(first);
    let second = shared.scene.is_stored();
    assert_eq!(second.at, first.at);
    shared.is_brought(second);
    shared.ends();
}

#[test]
fn range_is_stored_again_at_once_after_its_bytes_were_forgotten() {
    let mut shared = Shared::makes_room();
    let word = shared.scene.word();
    let first = shared.scene.is_stored();
    shared.forgets(first);
    let second = shared.scene.is_stored();
    assert_eq!((second.at, shared.scene.word()), (first.at, word));
    shared.is_brought(second);
    shared.ends();
}
