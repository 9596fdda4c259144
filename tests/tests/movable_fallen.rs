//! A GPU falls off the bus: its driver calls fail, with an error that names no failed context. The
//! memory of the same process on another GPU comes and goes as before.

use std::fs;
use std::path::PathBuf;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::until;
use tempfile::TempDir;

const SPEC: &str = "mem=1GiB,ctx=8MiB,count=2,driver=13050";
const BYTES: u64 = 4 << 20;
/// Two of these are more than a part may have.
const PART: u64 = 18 << 20;
const PARTS: usize = 4;

/// A program with contexts on two devices, the second of which may access the first one's memory.
struct Two {
    scene: Scene,
    /// While it exists the second device is off the bus.
    file: PathBuf,
    /// While it exists waits for a stream take long.
    hold: PathBuf,
    /// The driver calls of the program.
    trace: PathBuf,
    _folder: TempDir,
}

impl Two {
    fn new(how: Movability) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, hold, trace] = ["fallen", "hold", "trace"].map(|name| folder.path().join(name));
        let mut scene = Scene::on_two_with(
            how,
            SPEC,
            &[
                (
                    "SOFTGPU_FALLEN",
                    &format!("1:CUDA_ERROR_UNKNOWN:{}", file.display()),
                ),
                (
                    "SOFTGPU_HOLD",
                    &format!("cuStreamSynchronize:{}", hold.display()),
                ),
                ("SOFTGPU_TRACE", &trace.display().to_string()),
            ],
        );
        scene.does(&["second", "reach"]);
        Self {
            scene,
            file,
            hold,
            trace,
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
    fn is_lost(&self) {
        // Nothing else is ordered there but by the tests of a return to it.
        self.scene.dealer.order_on(1, 9, Order::Lost);
    }

    /// How often the program or the mover's thread has made this call, with or without success.
    fn made(&self, function: &str, success: bool) -> usize {
        let trace = fs::read_to_string(&self.trace).expect("readable");
        let calls = trace.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(2);
            (words.next() == Some(function)).then(|| words.next() == Some("0"))
        });
        calls.filter(|succeeded| *succeeded == success).count()
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
        two.scene.dealer.drains_within(60_000);
        two.is_lost();
        two.leaves();
        two.scene.guest.finish().silently();
    }
}

/// Its marks are put, and those of the lost device are never passed.
#[test]
fn memory_leaves_beside_a_device_that_is_lost_during_the_drain() {
    for work in &WORK[1..] {
        let mut two = Two::with(KINDS[0]);
        two.scene.does(work);
        let before = two.made("cuCtxRecordEvent", true);
        two.scene.epoch += 1;
        two.scene.dealer.order(two.scene.epoch, Order::Leave);
        until("both contexts have a mark", || {
            two.made("cuCtxRecordEvent", true) >= before + 2
        });
        two.falls();
        two.is_lost();
        assert_eq!(two.scene.outcome(), Outcome::Away(BYTES), "{work:?}");
        two.waits("check 0 3");
        two.scene.returns();
        assert_eq!(two.scene.guest.line(), "check 0", "{work:?}");
        two.scene.guest.finish().silently();
    }
}

/// Memory of both devices, the second of which falls while its own comes back.
fn falls_during_a_return() -> Two {
    let mut two = Two::new(Movability::Swap);
    // No part lies in two ranges of host memory: each is one copy.
    two.scene.dealer.store().shortens(2 * PART);
    two.scene.does(&["alloc 5 4194304"]);
    for slot in 0..PARTS {
        two.scene.does(&[&format!("there {slot} {PART}")]);
    }
    two.scene.provided(BYTES + PART * PARTS as u64);
    two.scene.dealer.order_on(1, 1, Order::Leave);
    two.scene.dealer.hears_some(|said| match said {
        Request::Away { .. } => Some(()),
        _ => None,
    });
    fs::write(&two.hold, "").expect("writable");
    two.scene.dealer.order_on(1, 2, Order::Return);
    until("copies are under way", || {
        fs::read_to_string(&two.hold).is_ok_and(|waits| !waits.is_empty())
    });
    two.falls();
    fs::remove_file(&two.hold).expect("it is there");
    two.scene.dealer.hears_some(|said| match said {
        Request::NoRoom { .. } => Some(()),
        _ => None,
    });
    two
}

#[test]
fn a_return_to_a_device_that_is_lost_leaves_nothing_mapped() {
    let mut two = falls_during_a_return();
    two.is_lost();
    // It waits until the process is open.
    two.scene.does(&["fill 5 3"]);
    // While the device does not answer, a free waits for its work.
    fs::remove_file(&two.file).expect("it is there");
    two.scene.does(&["free 5"]);
    for slot in 0..PARTS {
        two.scene.does(&[&format!("free {slot}")]);
    }
    // What the driver does not take back is tried again and again.
    until("all addresses are free", || {
        two.made("cuMemAddressFree", true) == PARTS + 1
    });
    assert_eq!(two.made("cuMemAddressFree", false), 0);
    assert_eq!(two.made("cuMemUnmap", true), two.made("cuMemMap", true));
    assert_eq!(
        two.made("cuMemRelease", true),
        two.made("cuMemCreate", true)
    );
    two.scene.guest.finish().silently();
}

#[test]
fn a_return_goes_on_where_the_device_is_not_lost() {
    let two = falls_during_a_return();
    fs::remove_file(&two.file).expect("it is there");
    let unmapped = two.made("cuMemUnmap", true);
    two.scene.dealer.order_on(1, 3, Order::Return);
    two.scene.dealer.hears_some(|said| match said {
        Request::Back { .. } => Some(()),
        _ => None,
    });
    // What it had mapped is mapped still.
    assert_eq!(two.made("cuMemUnmap", true), unmapped);
    two.scene.guest.finish().silently();
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
