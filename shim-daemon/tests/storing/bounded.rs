//! What a process has in files is bounded by what its tenant could ever have had in memory,
//! whatever the order in which it asks.

use gpushared::spill::Done;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::*;

/// Two ranges of this many bytes are where the tenant's bytes are.
const HALF: u64 = SIZE / 2;
/// The most that a tenant with the limit of [`registration`] could have been given: a quarter more,
/// and the step of its process.
const MOST: u64 = 1280 * MIB + 64 * MIB;

impl Scene {
    /// The copy that is under way ends well, without any byte being copied.
    fn copy_is_done(&mut self) {
        let job = self.jobs.pop().unwrap();
        self.node.copied(
            NOW,
            Done {
                job,
                outcome: Ok(1),
            },
        );
        self.work();
    }

    /// As [`Scene::is_stored`], of a tenant on a host with so much memory.
    fn stored_on(host: Bytes) -> (Self, Stored) {
        let mut scene = Self::begun_of("swap", host, Bytes::ZERO);
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene.is_suspended_to_a_file();
        scene.is_looked_at(NOW);
        let stored = scene.is_stored();
        scene.drops();
        (scene, stored)
    }

    /// It has the bytes brought back, and does not say that it wants them in the file no more. The
    /// place where they are.
    fn fetches_again(&mut self, stored: Stored) -> u64 {
        self.says(&Request::HostFetch(stored));
        self.copy_is_done();
        match *self.told() {
            Reply::HostRange { offset, .. } => offset,
            ref other => panic!("{other:?}"),
        }
    }

    /// A command of this user wants the tenant of that name in this file.
    fn is_wanted_in(&mut self, (user, name): (Option<u32>, &str), file: &File) -> String {
        let write = file.try_clone().unwrap();
        let read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let command = ConnId(1010);
        self.node.command_came(command, "/session", user);
        let lane = self.node.lanes().own();
        let files = [write, read].map(|file| Some(Foreign::new(file.into(), &lane)));
        let before = self.told.len();
        self.node.suspend_to(NOW, (command, 1), name, files);
        self.work();
        self.is_looked_at(NOW);
        format!("{:?}", &self.told[before..])
    }
}

#[test]
fn ranges_that_are_stored_by_turns_have_one_place_each() {
    let mut scene = Scene::new();
    // It says nothing of what it is told: each range is refused once, and its place is free.
    for is_stored in [true, false, true] {
        for offset in [0, HALF] {
            let bytes = HALF;
            scene.says(&Request::HostStore { offset, bytes });
            assert_eq!(scene.jobs.len(), usize::from(is_stored));
            if is_stored {
                scene.copy_ends();
            }
            let told = matches!(scene.told(), Reply::HostStored(_));
            assert_eq!(told, is_stored, "{:?}", scene.told());
        }
        let stored = if is_stored { SIZE } else { 0 };
        assert_eq!(scene.room(), (SIZE, stored));
    }
}

/// The place of the first may be the next one's.
#[test]
fn a_place_that_was_given_up_and_taken_by_another_range_is_kept() {
    let mut scene = Scene::new();
    let stores = |scene: &mut Scene, offset| {
        let bytes = HALF;
        scene.says(&Request::HostStore { offset, bytes });
        scene.copy_ends();
        match scene.told() {
            Reply::HostStored(stored) => *stored,
            other => panic!("{other:?}"),
        }
    };
    let first = stores(&mut scene, 0);
    scene.says(&Request::HostForget(first));
    let second = stores(&mut scene, HALF);
    let again = stores(&mut scene, 0);
    assert_ne!(second.at, again.at);
    assert_eq!(scene.room(), (SIZE, SIZE), "both are there");
}

#[test]
fn a_tenant_has_no_more_in_a_commands_file_than_it_could_have_had() {
    let (mut scene, stored) = Scene::stored_on(Bytes(SIZE));
    for count in 1..1000 {
        let offset = scene.fetches_again(stored);
        let bytes = SIZE;
        scene.says(&Request::HostStore { offset, bytes });
        if scene.jobs.is_empty() {
            let (_, in_files) = scene.room();
            assert_eq!(in_files, count * SIZE);
            assert!(in_files <= MOST && in_files + SIZE > MOST, "{in_files}");
            assert_eq!(*scene.told(), Reply::Refused(Refusal::NoMemory));
            assert_eq!(scene.word(), 0, "it is not asked any more");
            return;
        }
        scene.copy_is_done();
        scene.says(&Request::HostDrop { offset, bytes });
    }
    panic!("more than {MOST}");
}

#[test]
fn bytes_of_files_are_in_memory_once_and_one_range_more() {
    let (mut scene, stored) = Scene::stored_on(Bytes(64 * SIZE));
    // The longest range there is a sixteenth of the budget.
    let offsets: Vec<u64> = (0..5).map(|_| scene.fetches_again(stored)).collect();
    scene.says(&Request::HostFetch(stored));
    assert_eq!(scene.jobs.len(), 0, "it waits");
    let (offset, bytes) = (offsets[0], SIZE);
    scene.says(&Request::HostDrop { offset, bytes });
    assert_eq!(scene.jobs.len(), 1);
}

#[test]
fn a_users_command_names_no_file_in_the_hosts_memory() {
    let mut scene = Scene::begun("swap");
    let theirs = Registration {
        owner: Some(1000),
        ..registration("theirs", "swap")
    };
    scene.node.restore(NOW, &theirs).unwrap();
    scene.work();
    let memory = File::from(memfd_create(c"file", MFdFlags::MFD_CLOEXEC).unwrap());
    let disk = tempfile::tempfile().unwrap();
    for (user, name, file, is_refused) in [
        (Some(1000), "theirs", &memory, true),
        (Some(1000), "theirs", &disk, false),
        // Root decides about all of the machine's memory.
        (None, "one", &memory, false),
    ] {
        let told = scene.is_wanted_in((user, name), file);
        assert_eq!(told.contains("tmpfs"), is_refused, "{user:?}: {told}");
    }
}

/// The processes that are refused are not the cause, and there may be many.
#[test]
fn descriptors_that_cannot_be_passed_are_told_once_a_minute() {
    let mut scene = Scene::begun("swap");
    for (after, told) in [(0, 1), (59, 1), (60, 2)] {
        scene.node.cannot_pass(NOW + Nanos::secs(after));
        scene.work();
        let said = scene.said("not-registered");
        assert_eq!(said.len(), told, "{said:?}");
        assert!(said[0].contains("CAP_SYS_RESOURCE"), "{said:?}");
    }
}
