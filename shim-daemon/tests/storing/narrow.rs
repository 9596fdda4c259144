//! Host memory that the budget allows and the host does not have: on the machine, or in a memory
//! cgroup of the daemon's. The kernel would end a process for it.

use gpushared::groups::Mounts;
use gpushared::host_room::HostRoom;
use std::fs;
use std::path::Path;

use super::*;

/// The longest range of so small a budget.
const RANGE: u64 = 2 * MIB;
/// What stays free of a host this small, and what of any host for bytes that come back.
const KEPT: u64 = 64 * MIB;
const KEPT_OF_RETURNS: u64 = 32 * MIB;

/// A host with so much memory left, of 1 GiB, and a cgroup of the daemon's with so much left.
pub(super) struct Host(tempfile::TempDir);

impl Host {
    pub(super) fn new(machine: u64, group: u64) -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("self/cgroup", "0::/slice/daemon\n");
        host.write("slice/daemon/memory.max", "max\n");
        host.write("slice/daemon/memory.current", "0\n");
        host.write("slice/memory.max", &format!("{}\n", 1024 * MIB));
        host.has(machine, group);
        host
    }

    pub(super) fn has(&self, machine: u64, group: u64) {
        self.has_of(1024 * MIB, machine);
        self.write("slice/memory.current", &format!("{}\n", 1024 * MIB - group));
    }

    fn has_of(&self, all: u64, machine: u64) {
        let [all, left] = [all, machine].map(|bytes| bytes >> 10);
        let rows = format!("MemTotal: {all} kB\nMemAvailable: {left} kB\n");
        self.write("meminfo", &rows);
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn room(&self) -> HostRoom {
        let point = self.path().display();
        let table = format!("30 20 0:1 / {point} rw - cgroup2 cgroup2 rw\n");
        HostRoom::told(self.path(), Mounts::parse(&table))
    }

    /// A tenant there, the first of whose memory is in a file only.
    fn scene(&self) -> (Scene, Stored) {
        let mut scene = Scene::new();
        let (offset, bytes) = (AT, RANGE);
        scene.says(&Request::HostStore { offset, bytes });
        scene.copy_ends();
        let Reply::HostStored(stored) = *scene.told() else {
            panic!("{:?}", scene.told())
        };
        scene.drops();
        scene.node.bounded(self.room());
        (scene, stored)
    }
}

impl Scene {
    fn was_given(&self) -> bool {
        match self.told() {
            Reply::HostRange { .. } => true,
            Reply::Refused(Refusal::NoMemory) => false,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) const PLENTY: u64 = 512 * MIB;
/// As much as a range needs that has another one's room beside it, and that without.
const FOR_TWO: u64 = KEPT + 2 * RANGE;
const FOR_ONE: u64 = KEPT + RANGE;

#[test]
fn a_range_that_the_host_has_no_room_for_is_refused_and_told() {
    for (machine, group, words) in [
        (FOR_TWO, FOR_TWO, None),
        (FOR_TWO - 1024, PLENTY, Some("the machine has")),
        (PLENTY, FOR_TWO - 1024, Some("memory cgroup /slice has")),
    ] {
        let host = Host::new(machine, group);
        let (mut scene, _) = host.scene();
        scene.wants_a_range();
        scene.copy_ends();
        assert_eq!(scene.was_given(), words.is_none());
        let given = if words.is_none() { RANGE } else { 0 };
        assert_eq!((scene.room().0, scene.allocated()), (given, given));
        let told = scene.said("host-failed");
        assert_eq!(told.len(), words.into_iter().count(), "{told:?}");
        assert!(
            words.is_none_or(|words| told[0].contains(words)),
            "{told:?}"
        );
    }
}

#[test]
fn a_refused_range_was_given_once_the_host_has_room() {
    let host = Host::new(0, PLENTY);
    let (mut scene, _) = host.scene();
    for _ in 0..2 {
        scene.wants_a_range();
        scene.copy_ends();
        assert!(!scene.was_given());
    }
    assert_eq!(scene.said("host-failed").len(), 1, "once until it is given");
    host.has(PLENTY, PLENTY);
    scene.wants_a_range();
    scene.copy_ends();
    assert!(scene.was_given());
}

#[test]
fn bytes_that_come_back_have_the_room_that_is_kept_for_them() {
    let least = KEPT_OF_RETURNS + RANGE;
    // Of the large one a gibibyte is kept, which others may have begun to take.
    for (all, left, comes) in [
        (1024 * MIB, FOR_ONE, true),
        (1024 * MIB, least, true),
        (1024 * MIB, least - 1024, false),
        (64 * 1024 * MIB, 1023 * MIB, true),
        (64 * 1024 * MIB, least - 1024, false),
    ] {
        let host = Host::new(left, PLENTY);
        host.has_of(all, left);
        let (mut scene, stored) = host.scene();
        scene.wants_a_range();
        scene.copy_ends();
        assert!(!scene.was_given());
        scene.says(&Request::HostFetch(stored));
        scene.copy_ends();
        assert_eq!(scene.was_given(), comes);
        assert_eq!(scene.said("memory-lost"), [""; 0], "the file has it still");
        host.has(PLENTY, PLENTY);
        if !comes {
            scene.says(&Request::HostFetch(stored));
            scene.copy_ends();
            assert!(scene.was_given());
        }
    }
}

#[test]
fn a_budget_above_what_the_host_has_is_known_at_the_start() {
    let host = Host::new(PLENTY, PLENTY);
    let told = |budget: u64| {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let mut settings = Settings::default();
        settings.policy.swap.host = Bytes(budget);
        let mut node = Node::new(&settings, devices, 1, NOW, false);
        node.bounded(host.room());
        node.never_has_host()
    };
    assert_eq!(told(1024 * MIB - KEPT), [""; 0]);
    assert_eq!(told(0), [""; 0], "nothing swaps");
    let both = told(1024 * MIB);
    assert!(both[0].contains("the machine has 1 GiB"), "{both:?}");
    assert!(
        both[1].contains("memory cgroup /slice has 1 GiB"),
        "{both:?}"
    );
}
