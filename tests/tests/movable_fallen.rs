//! A GPU falls off the bus: its driver calls fail, with an error that names no failed context. The
//! memory of the same process on another GPU comes and goes as before.

use std::fs;
use std::path::PathBuf;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use tempfile::TempDir;

const SPEC: &str = "mem=1GiB,ctx=8MiB,count=2,driver=13050";
const BYTES: u64 = 4 << 20;

/// A program with contexts on two devices, the second of which may access the first one's memory.
struct Two {
    scene: Scene,
    /// While it exists the second device is off the bus.
    file: PathBuf,
    _folder: TempDir,
}

impl Two {
    fn new(how: Movability) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("fallen");
        let rule = format!("1:CUDA_ERROR_UNKNOWN:{}", file.display());
        let mut scene = Scene::on_two_with(how, SPEC, &[("SOFTGPU_FALLEN", &rule)]);
        scene.does(&["second", "reach"]);
        Self {
            scene,
            file,
            _folder: folder,
        }
    }

    /// The same with memory on the first device, made by these lines.
    fn with(lines: &[&str]) -> Self {
        let mut two = Self::new(Movability::Swap);
        two.scene.does(lines);
        two.scene.provided(BYTES);
        two
    }

    fn falls(&self) {
        fs::write(&self.file, "").expect("writable");
    }

    /// The daemon has seen it.
    fn is_lost(&mut self) {
        self.scene.epoch += 1;
        let epoch = self.scene.epoch;
        self.scene.dealer.order_on(1, epoch, Order::Lost);
    }

    #[track_caller]
    fn leaves(&mut self) {
        let outcome = self.scene.ordered(Order::Leave);
        assert!(
            matches!(outcome, Outcome::Away(bytes) if bytes > 0),
            "{outcome:?}"
        );
    }

    /// A command waits for the memory of the first device.
    fn waits(&mut self, line: &str) {
        self.scene.guest.send(line);
        self.scene
            .dealer
            .hears(&Request::WantIn { device_index: 0 });
    }
}

/// A context's memory, a pool's, and memory that the program makes: each with rights of both
/// devices.
const KINDS: [&[&str]; 3] = [
    &["alloc 0 4194304", "fill 0 3"],
    &["async 0 4194304 1", "sync 1", "grant 0 3", "fill 0 3"],
    &["alloc 0 4194304", "fill 0 3", "twofold 4194304 1"],
];

#[test]
fn memory_of_the_other_device_returns_where_its_peer_is_lost() {
    for lines in KINDS {
        let mut two = Two::with(lines);
        two.leaves();
        two.waits("check 0 3");
        two.falls();
        two.is_lost();
        two.scene.returns();
        assert_eq!(two.scene.guest.line(), "check 0", "{lines:?}");
        // And goes again, and memory is to be had.
        two.leaves();
        two.waits("check 0 3");
        two.scene.returns();
        assert_eq!(two.scene.guest.line(), "check 0", "{lines:?}");
        two.scene
            .does(&["alloc 5 4194304", "async 6 4194304 1", "alloc 7 4096"]);
        two.scene.guest.finish().silently();
    }
}

#[test]
fn memory_returns_with_the_rights_of_a_peer_that_is_not_lost() {
    for lines in KINDS {
        let mut two = Two::with(lines);
        two.leaves();
        two.waits("check 0 3");
        two.falls();
        // It may come to its senses: its rights are not left out.
        let outcome = two.scene.ordered(Order::Return);
        assert!(
            matches!(outcome, Outcome::NoRoom(_)),
            "{lines:?}: {outcome:?}"
        );
        fs::remove_file(&two.file).expect("it is there");
        two.scene.returns();
        assert_eq!(two.scene.guest.line(), "check 0", "{lines:?}");
        two.scene.guest.answers("across 0 7", "0");
        two.scene.guest.answers("values 0 7", "0");
        two.scene.guest.finish().silently();
    }
}

/// Work on the second device is under way when it falls: a mark was put behind it, or a stream with
/// it is destroyed, or neither.
const WORK: [&[&str]; 3] = [
    &["status"],
    &["there 1 4194304", "queue 1 5"],
    &["there 1 4194304", "queue 1 5", "ended"],
];

#[test]
fn memory_leaves_beside_a_device_that_is_lost() {
    for (lines, work) in KINDS
        .iter()
        .flat_map(|lines| WORK.map(|work| (lines, work)))
    {
        let mut two = Two::with(lines);
        two.scene.does(work);
        two.falls();
        two.is_lost();
        two.leaves();
        two.waits("check 0 3");
        two.scene.returns();
        assert_eq!(two.scene.guest.line(), "check 0", "{lines:?} {work:?}");
        two.scene.guest.finish().silently();
    }
}

#[test]
fn memory_stays_beside_a_device_that_is_not_lost_but_does_not_answer() {
    for work in WORK {
        let mut two = Two::with(KINDS[0]);
        two.scene.does(work);
        two.scene.dealer.drains_within(200);
        two.falls();
        // Work there may use the memory.
        assert_eq!(two.scene.ordered(Order::Leave), Outcome::Busy, "{work:?}");
        two.scene.guest.answers("check 0 3", "0");
        two.is_lost();
        two.leaves();
        two.scene.guest.finish().silently();
    }
}

#[test]
fn managed_memory_leaves_beside_a_device_that_is_lost() {
    let mut two = Two::new(Movability::Managed);
    two.scene.does(&["alloc 0 4194304", "fill 0 3"]);
    two.falls();
    two.is_lost();
    two.leaves();
    two.waits("check 0 3");
    two.scene.returns();
    assert_eq!(two.scene.guest.line(), "check 0");
    two.scene.guest.finish().silently();
}
