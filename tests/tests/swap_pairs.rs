//! A tenant returns while its victim still leaves, under the real daemon: both directions of the
//! link are used at a time, and no byte is lost whatever happens to either of the two meanwhile.

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until, until_some};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"4GiB\"\n";
/// A device with room for one and a third tenants. A move of one takes half a second and more.
const DEVICE: &str = "mem=108MiB,ctx=2MiB,link=144MiB/s";
/// Allocations of each tenant. Two of them are more than a part of a move may have, so each moves
/// by itself.
const SLOTS: usize = 4;
const SLOT: u64 = 18 * MIB;
const SIZE: u64 = SLOTS as u64 * SLOT;
const VALUES: [u64; 2] = [3, 4];
const SWAP: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "72MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];

/// Two tenants with values in their memory. The first is out, the second in.
struct Pair {
    gpu: Gpu,
    daemon: Daemon,
    all: [(Tenant, Guest); 2],
}

impl Pair {
    fn new(config: &str, fail: &str) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured(&gpu, config);
        let all = [("one", VALUES[0], ""), ("two", VALUES[1], fail)].map(|(name, value, fail)| {
            let tenant = daemon.tenant(name, &SWAP);
            let mut guest = tenant.client("movable", &[("SOFTGPU_FAIL", fail)]);
            guest.does("init");
            for slot in 0..SLOTS {
                guest.does(&format!("alloc {slot} {SLOT}"));
            }
            for slot in 0..SLOTS {
                guest.does(&format!("fill {slot} {value}"));
            }
            (tenant, guest)
        });
        let pair = Self { gpu, daemon, all };
        until("the first is out", || {
            pair.places() == [Place::Out, Place::In]
        });
        pair
    }

    fn places(&self) -> [Place; 2] {
        ["one", "two"].map(|name| self.daemon.residency(name).place)
    }

    /// The movable memory that each has on the device.
    fn held(&self) -> [u64; 2] {
        let truth = self.gpu.truth();
        [0, 1].map(|at| {
            let id = self.all[at].1.id();
            let mut own = truth.processes.iter();
            let own = own.find(|one| u32::try_from(one.pid) == Ok(id) && one.alive);
            own.map_or(0, |one| one.requested[softgpu::world::Kind::Vmm as usize])
        })
    }

    /// One of them begins to check its memory.
    fn calls(&mut self, at: usize) {
        let value = VALUES[at];
        self.all[at].1.send(&format!("check 0 {value}"));
    }

    /// It ends that check: every byte is there.
    fn has_its_bytes(&mut self, at: usize) {
        let (value, guest) = (VALUES[at], &mut self.all[at].1);
        assert_eq!(guest.line(), "check 0");
        for slot in 1..SLOTS {
            guest.answers(&format!("check {slot} {value}"), "0");
        }
    }

    /// The first calls, and the moves are followed until each has a part of its memory there.
    fn halfway(&mut self) {
        loop {
            self.calls(0);
            let is_seen = until_some("both move, or have moved", || {
                let [first, second] = self.held();
                let is_part = |held: u64| held > 0 && held < SIZE;
                let is_over = first == SIZE && second == 0;
                let is_halfway = is_part(first) && is_part(second);
                (is_halfway || is_over).then_some(is_halfway)
            });
            if is_seen {
                return;
            }
            // This process did not run meanwhile: once more from the beginning.
            self.begins_anew();
        }
    }

    /// The first has come back, and the second comes back in its place.
    fn begins_anew(&mut self) {
        self.has_its_bytes(0);
        self.calls(1);
        self.has_its_bytes(1);
        until("the first is out", || {
            self.places() == [Place::Out, Place::In]
        });
    }

    /// The second is stopped while a part of its memory is there: the return of the first is not
    /// complete.
    fn stopped_halfway(&mut self) {
        loop {
            self.halfway();
            self.stops(1);
            if self.held()[1] > 0 {
                return;
            }
            // This process did not run meanwhile: once more from the beginning.
            self.signal(1, Signal::SIGCONT);
            self.begins_anew();
        }
    }

    /// Stops one of them outside the driver.
    fn stops(&self, at: usize) {
        let id = i32::try_from(self.all[at].1.id()).expect("a process");
        self.gpu.stop(Pid::from_raw(id));
    }

    fn is_right(&mut self) {
        for at in [0, 1, 0] {
            self.calls(at);
            self.has_its_bytes(at);
        }
    }

    fn signal(&self, at: usize, signal: Signal) {
        let id = i32::try_from(self.all[at].1.id()).expect("a process");
        kill(Pid::from_raw(id), signal).expect("it lives");
    }
}

#[test]
fn a_return_begins_while_the_victim_still_leaves() {
    let mut pair = Pair::new(NODE, "");
    pair.halfway();
    pair.has_its_bytes(0);
    pair.is_right();
    assert!(pair.daemon.events("did-not-leave").is_empty());
}

#[test]
fn where_that_is_switched_off_the_victim_is_out_first() {
    let mut pair = Pair::new(&format!("{NODE}duplex = false\n"), "");
    pair.calls(0);
    until("the first has a part of its memory", || {
        let [first, second] = pair.held();
        assert!(first == 0 || second == 0, "{first} {second}");
        first > 0
    });
    pair.has_its_bytes(0);
    pair.is_right();
}

#[test]
fn a_victim_whose_copies_fail_halfway_costs_neither_a_byte() {
    // Of four allocations the third one cannot be copied.
    let mut pair = Pair::new(NODE, "cuMemcpyDtoHAsync_v2:3:CUDA_ERROR_UNKNOWN");
    pair.calls(0);
    until("the victim did not leave", || {
        !pair.daemon.events("did-not-leave").is_empty()
    });
    pair.calls(1);
    pair.has_its_bytes(1);
    pair.has_its_bytes(0);
    pair.is_right();
}

#[test]
fn a_victim_that_is_stopped_halfway_gets_its_room_back() {
    let mut pair = Pair::new(NODE, "");
    pair.stopped_halfway();
    until("the return has given up all it had", || pair.held()[0] == 0);
    assert!(!pair.daemon.events("did-not-leave").is_empty());
    pair.signal(1, Signal::SIGCONT);
    pair.calls(1);
    pair.has_its_bytes(1);
    pair.has_its_bytes(0);
    pair.is_right();
}

#[test]
fn one_that_is_killed_halfway_costs_the_other_no_byte() {
    for at in [0, 1] {
        let mut pair = Pair::new(NODE, "");
        pair.halfway();
        pair.signal(at, Signal::SIGKILL);
        let other = 1 - at;
        if other == 0 {
            pair.has_its_bytes(0);
        }
        pair.calls(other);
        pair.has_its_bytes(other);
        until("it has all of its memory", || pair.held()[other] == SIZE);
    }
}

#[test]
fn a_daemon_that_ends_halfway_costs_neither_a_byte() {
    for restarts in [true, false] {
        let mut pair = Pair::new(NODE, "");
        pair.halfway();
        if restarts {
            pair.daemon.restart();
        } else {
            pair.daemon.kill();
            // Without it neither moves out: one of the two gets all of its memory, then it ends.
            pair.calls(1);
            until("one of them is in", || pair.held().contains(&SIZE));
            let at = usize::from(pair.held()[1] == SIZE);
            pair.has_its_bytes(at);
            for slot in 0..SLOTS {
                pair.all[at].1.does(&format!("free {slot}"));
            }
            pair.has_its_bytes(1 - at);
            continue;
        }
        pair.has_its_bytes(0);
        pair.is_right();
    }
}

/// Who has not come when the next daemon's recovery ends was taken for one that runs, and its
/// return found no room and was never tried again.
#[test]
fn one_that_comes_late_to_the_next_daemon_comes_in() {
    let mut pair = Pair::new(&format!("recovery = \"100ms\"\n{NODE}"), "");
    pair.stops(0);
    pair.daemon.restart();
    until("the next daemon knows all that came in time", || {
        pair.places()[1] == Place::In
    });
    pair.signal(0, Signal::SIGCONT);
    pair.is_right();
}
