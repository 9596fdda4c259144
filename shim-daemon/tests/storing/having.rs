//! What was given up, or given, while a connection broke.

use super::*;

impl Scene {
    /// The connection breaks, and the process comes over another one.
    fn comes_again(&mut self, connection: ConnId) {
        self.node.disconnected(NOW, self.client);
        self.registers(connection);
    }

    /// It says that it has these and nothing else.
    fn has(&mut self, spots: &[Spot]) {
        self.says(&Request::Has {
            from: Spot::FIRST,
            until: Spot::END,
            spots: spots.to_vec(),
        });
    }

    /// It says that it says such things, and nothing about any place.
    pub(super) fn says_what_it_has(&mut self) {
        self.says(&Request::Has {
            from: Spot::FIRST,
            until: Spot::FIRST,
            spots: vec![],
        });
    }

    /// The host memory that counts once a second is over and nothing is under way.
    fn is_counted(&mut self) -> u64 {
        let part = Part::Shared(self.tenant);
        let lane = self.node.lanes().lane(Owner { user: 0, part });
        while !lane.is_idle() {
            std::thread::yield_now();
        }
        self.node.tick(NOW);
        self.work();
        self.room().0
    }

    /// It asks to have the range at this place stored.
    fn stores(&mut self, offset: u64) {
        let bytes = SIZE;
        self.says(&Request::HostStore { offset, bytes });
    }

    /// The process is given a range anew: its place.
    fn is_given(&mut self) -> u64 {
        let stored = self.is_stored();
        self.drops();
        self.says(&Request::HostFetch(stored));
        self.copy_ends();
        let Reply::HostRange { offset, .. } = *self.told() else {
            panic!("{:?}", self.told())
        };
        self.says(&Request::HostForget(stored));
        assert_eq!(self.room(), (SIZE, 0));
        offset
    }
}

#[test]
fn what_a_process_gave_up_while_its_connection_broke_is_free() {
    let mut scene = Scene::new();
    let offset = scene.is_given();
    scene.comes_again(ConnId(2));
    scene.has(&[Spot::memory(offset)]);
    assert_eq!(scene.room(), (SIZE, 0), "it has the range still");
    scene.comes_again(ConnId(3));
    scene.has(&[]);
    assert_eq!(scene.room(), (0, 0));
    assert_eq!(scene.allocated(), 0);
}

#[test]
fn stored_bytes_that_a_process_does_not_have_are_forgotten() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    scene.comes_again(ConnId(2));
    scene.has(&[stored.spot()]);
    assert_eq!(scene.room(), (0, SIZE));
    scene.comes_again(ConnId(3));
    scene.has(&[]);
    assert_eq!(scene.room(), (0, 0));
    assert_eq!(scene.said("fetched").len(), 1);
}

#[test]
fn what_a_message_is_not_about_stays_as_it_is() {
    let mut scene = Scene::new();
    let offset = scene.is_given();
    scene.comes_again(ConnId(2));
    for (from, until) in [
        (Spot::FIRST, Spot::memory(offset)),
        (Spot::memory(offset + 1), Spot::END),
    ] {
        let spots = vec![];
        scene.says(&Request::Has { from, until, spots });
    }
    assert_eq!(scene.room(), (SIZE, 0));
}

/// Where the bytes of an earlier daemon's file are that `shows_file` presents.
const SHOWN: Spot = Spot { file: 77, at: 0 };

/// Its process has closed it, and the word of that was lost with the connection.
#[test]
fn a_shown_file_of_which_its_process_has_no_place_is_given_up() {
    let mut scene = Scene::out();
    scene.shows_file(&tempfile::tempfile().unwrap(), 0o600);
    scene.comes_again(ConnId(2));
    scene.has(&[SHOWN]);
    assert_eq!(scene.room().1, SIZE, "it has its bytes still");
    assert_eq!(scene.said("fetched"), [""; 0]);
    scene.comes_again(ConnId(3));
    scene.has(&[]);
    assert_eq!(scene.room().1, 0);
    assert_eq!(scene.said("fetched").len(), 1);
}

#[test]
fn a_message_about_a_part_of_a_shown_file_gives_nothing_of_it_up() {
    let mut scene = Scene::out();
    scene.shows_file(&tempfile::tempfile().unwrap(), 0o600);
    let behind = Spot { at: 1, ..SHOWN };
    for (from, until) in [(Spot::FIRST, behind), (behind, Spot::END)] {
        let spots = vec![];
        scene.says(&Request::Has { from, until, spots });
    }
    assert_eq!(scene.room().1, SIZE);
}

#[test]
fn a_file_that_is_looked_at_is_kept_where_its_process_has_a_place_in_it() {
    for (has, kept) in [(vec![SHOWN], true), (vec![], false)] {
        let mut scene = Scene::new();
        let _ = scene.is_stored();
        scene.drops();
        scene.presents(SHOWN.file);
        scene.has(&has);
        scene.is_looked_at(NOW);
        scene.fetches(SHOWN.file);
        assert_eq!(scene.jobs.len(), usize::from(kept));
    }
}

/// What is under way for the former connection is given up at its end, once.
#[test]
fn a_place_at_which_a_job_works_is_not_given_twice() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    scene.says(&Request::HostFetch(stored));
    scene.comes_again(ConnId(2));
    scene.has(&[stored.spot()]);
    assert_eq!(scene.room(), (SIZE, SIZE));
    scene.copy_ends();
    assert_eq!(scene.room(), (0, SIZE));
}

/// The loop may hear the end of the former connection after the beginning of the next.
#[test]
fn what_a_former_connection_gives_up_late_changes_nothing() {
    let mut scene = Scene::new();
    let offset = scene.is_given();
    let former = scene.client;
    scene.comes_again(ConnId(2));
    let bytes = SIZE;
    let drops = Request::HostDrop { offset, bytes };
    scene.has(&[Spot::memory(offset)]);
    scene.node.request(NOW, former, 8, &drops);
    assert_eq!(scene.room(), (SIZE, 0));
    scene.says(&drops);
    assert_eq!(scene.room(), (0, 0));
}

/// The place of a range that was dropped unheard may be given again, and stored again.
#[test]
fn bytes_that_were_stored_of_an_earlier_range_at_a_place_are_still_there() {
    let mut scene = Scene::new();
    let offset = scene.is_given();
    scene.stores(offset);
    scene.copy_ends();
    let Reply::HostStored(stored) = *scene.told() else {
        panic!("{:?}", scene.told())
    };
    scene.comes_again(ConnId(2));
    scene.has(&[stored.spot()]);
    assert_eq!(scene.room(), (0, SIZE));
    scene.says(&Request::HostFetch(stored));
    scene.copy_ends();
    let reply = scene.told();
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    scene.stores(offset);
    scene.copy_ends();
    assert_eq!(scene.room(), (SIZE, 2 * SIZE), "those and the range's");
}

#[test]
fn a_range_that_is_given_up_while_it_is_stored_is_free() {
    let mut scene = Scene::new();
    let offset = scene.is_given();
    scene.stores(offset);
    scene.comes_again(ConnId(2));
    scene.has(&[]);
    scene.copy_ends();
    assert_eq!(scene.room(), (0, 0));
}

#[test]
fn more_places_than_a_library_says_at_once_are_not_read() {
    for (count, kept) in [(1024, 0), (1025, SIZE)] {
        let mut scene = Scene::new();
        let _ = scene.is_given();
        scene.comes_again(ConnId(2));
        // None of them is the range.
        let spots: Vec<Spot> = (1..=count).map(|at| Spot::memory(at << 40)).collect();
        scene.has(&spots);
        assert_eq!(scene.room(), (kept, 0), "{count}");
    }
}

/// A range was allocated for an answer that the former daemon did not send before its end.
#[test]
fn memory_that_a_process_was_given_unheard_counts_until_it_is_free() {
    let mut scene = Scene::begun_of("swap", Bytes(8 * SIZE), Bytes::ZERO);
    scene.registers(ConnId(1));
    scene.shows_its_memory();
    let unheard = 64 * MIB;
    let memory = scene.memory.clone().unwrap();
    memory.allocate(unheard, SIZE).unwrap();
    assert_eq!(scene.is_counted(), 2 * SIZE);
    scene.has(&[Spot::memory(AT)]);
    assert_eq!(scene.allocated(), SIZE);
    assert_eq!(scene.is_counted(), SIZE);
}
