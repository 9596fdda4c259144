//! As [`movable_faults`](super::movable_faults) where the memory that is away is stored in a file
//! too, and fetched for the return: each driver call that the process makes for that fails, or the
//! process is killed there.

use std::fs;

use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::process::is_dead;
use gpushare_tests::sweep::{Steps, Sweep, chosen, failing, said, steps_in};
use gpushare_tests::{MIB, until};

/// The longest range of host memory that the daemon gives.
const RANGE: u64 = 24 * MIB;

/// Allocations that leave in two parts and lie in two ranges of host memory, one of them in both.
const SWEEP: Sweep = Sweep {
    how: Movability::Swap,
    spec: "mem=256MiB,ctx=8MiB",
    lines: &[
        "alloc 0 20000000",
        "alloc 1 16000000",
        "alloc 2 1000",
        "fill 0 1",
        "fill 1 2",
        "fill 2 3",
    ],
    frees: &["free 0", "free 1", "free 2"],
    host: 2 * RANGE,
    surely: &[
        "cuMemHostRegister_v2",
        "cuMemHostUnregister",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
    ],
    all: 230 * MIB,
};

/// The program, and what it gave back of the host memory that it was given.
struct Stored {
    scene: Scene,
    dropped: u64,
    /// Bytes in the file that it does not need there.
    forgotten: u64,
    number: u32,
}

impl Stored {
    fn new(scene: Scene) -> Self {
        scene.dealer.store().answers_at_once();
        scene.dealer.store().shortens(RANGE);
        Self {
            scene,
            dropped: 0,
            forgotten: 0,
            number: 0,
        }
    }

    fn with(environment: &[(&str, &str)]) -> Self {
        let mut stored = Self::new(Scene::moving(SWEEP.how, SWEEP.spec, environment));
        // Two ranges, always: each allocation is seen before the next one.
        for (line, host) in [(0, RANGE), (1, SWEEP.host)] {
            stored.scene.does(&SWEEP.lines[line..=line]);
            stored.scene.provided(host);
        }
        stored.scene.does(&SWEEP.lines[2..]);
        stored
    }

    fn is_dead(&self) -> bool {
        is_dead(self.scene.guest.id())
    }

    /// The answers that the process has given since.
    fn hears(&mut self) -> Option<Outcome> {
        let mut outcome = None;
        for said in self.scene.dealer.said() {
            match said {
                Request::HostDrop { bytes, .. } => self.dropped += bytes,
                // The file is closed.
                Request::HostForget(stored) if stored.is_all() => {}
                Request::HostForget(stored) => self.forgotten += stored.bytes,
                Request::Away { away, .. } => outcome = Some(Outcome::Away(away)),
                Request::Back { .. } => outcome = Some(Outcome::Back),
                Request::NoRoom { bytes, .. } => outcome = Some(Outcome::NoRoom(bytes)),
                Request::SealBusy { .. } => outcome = Some(Outcome::Busy),
                _ => {}
            }
        }
        outcome
    }

    /// Orders, and waits until that is carried out, or not, or the process is dead.
    fn ordered(&mut self, order: Order) -> Option<Outcome> {
        self.scene.epoch += 1;
        self.scene.dealer.order(self.scene.epoch, order);
        let mut outcome = None;
        until("the order is answered", || {
            outcome = self.hears();
            outcome.is_some() || self.is_dead()
        });
        outcome
    }

    /// Once out, everything is stored in the file, and comes back from there. A range of which the
    /// driver does not let go stays in memory, and what the file has of it is forgotten.
    fn goes_and_comes(&mut self) -> Option<Outcome> {
        if let Some(Outcome::Away(_)) = self.ordered(Order::Leave) {
            self.number += 1;
            self.scene.dealer.spills(self.number);
            let forgotten = self.forgotten;
            until("all is in the file", || {
                let _ = self.hears();
                let given = self.scene.dealer.store().given();
                self.dropped + self.forgotten - forgotten == given || self.is_dead()
            });
            self.scene.dealer.spills(0);
        }
        self.ordered(Order::Return)
    }
}

fn steps() -> Steps {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let mut stored = Stored::with(&[("SOFTGPU_TRACE", path)]);
    assert_eq!(stored.goes_and_comes(), Some(Outcome::Back));
    let mut scene = stored.scene;
    let mover = scene.mover();
    SWEEP.has_every_byte(&mut scene);
    scene.guest.finish().silently();
    let text = fs::read_to_string(trace.path()).expect("readable");
    steps_in(&text, &mover, SWEEP.surely)
}

#[test]
fn whatever_call_fails_of_a_move_to_a_file_the_data_is_there() {
    let steps = steps();
    let cases = failing(&steps, 1);
    for failure in &cases {
        let fail = &failure.fail;
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let path = trace.path().to_str().expect("a name");
        let mut stored = Stored::with(&[("SOFTGPU_FAIL", fail), ("SOFTGPU_TRACE", path)]);
        let _ = stored.goes_and_comes();
        let _ = stored.ordered(Order::Leave);
        let mut last = stored.ordered(Order::Return);
        if last != Some(Outcome::Back) {
            last = stored.ordered(Order::Return);
        }
        assert_eq!(last, Some(Outcome::Back), "{fail}");
        let mut scene = stored.scene;
        SWEEP.has_every_byte(&mut scene);
        SWEEP.leaves_nothing(scene, fail);
        failure.happened(&trace);
    }
    said("failures", cases.len(), &steps);
}

#[test]
fn a_process_killed_in_a_move_to_a_file_leaves_nothing() {
    let steps = steps();
    let cases = chosen(&steps, 1);
    for (function, nth) in &cases {
        let fail = format!("{function}:{nth}:SIGKILL");
        let begun = Scene::beginning(SWEEP.how, SWEEP.spec, &[("SOFTGPU_FAIL", &fail)]);
        let mut stored = Stored::new(begun);
        SWEEP.begins(&mut stored.scene);
        while !stored.is_dead() {
            let _ = stored.goes_and_comes();
        }
        let mut next = stored.scene.bare();
        let Scene { guest, .. } = stored.scene;
        guest.kill();
        next.does(&format!("alloc 0 {}", SWEEP.all));
        next.finish().silently();
    }
    said("kills", cases.len(), &steps);
}
