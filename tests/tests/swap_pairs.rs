//! A tenant returns while its victim still leaves, under the real daemon: both directions of the
//! link are used at a time, and no byte is lost whatever happens to either of the two meanwhile.

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"4GiB\"\n";
/// A device with room for one and a third tenants. A move of one takes half a second and more.
const DEVICE: &str = "mem=354MiB,ctx=2MiB,link=512MiB/s";
const SIZE: u64 = 256 * MIB;
const SWAP: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "256MiB"),
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
        let all = [("one", 3, ""), ("two", 4, fail)].map(|(name, value, fail)| {
            let tenant = daemon.tenant(name, &SWAP);
            let mut guest = tenant.client("swapped", &[("SOFTGPU_FAIL", fail)]);
            assert_eq!(guest.ask("init"), "init 0");
            assert_eq!(guest.ask(&format!("alloc {SIZE}")), "alloc 0");
            assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
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

    /// The first calls, and the moves are followed until each has a part of its memory there.
    fn halfway(&mut self) {
        self.all[0].1.send("check 3");
        until("both move", || {
            let [first, second] = self.held();
            first > 0 && first < SIZE && second > 0 && second < SIZE
        });
    }

    fn is_right(&mut self) {
        for at in [0, 1, 0] {
            let value = [3, 4][at];
            assert_eq!(self.all[at].1.ask(&format!("check {value}")), "check 0");
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
    assert_eq!(pair.all[0].1.line(), "check 0");
    pair.is_right();
    assert!(pair.daemon.events("did-not-leave").is_empty());
}

#[test]
fn where_that_is_switched_off_the_victim_is_out_first() {
    let mut pair = Pair::new(&format!("{NODE}duplex = false\n"), "");
    pair.all[0].1.send("check 3");
    until("the first has a part of its memory", || {
        let [first, second] = pair.held();
        assert!(first == 0 || second == 0, "{first} {second}");
        first > 0
    });
    assert_eq!(pair.all[0].1.line(), "check 0");
    pair.is_right();
}

#[test]
fn a_victim_whose_copies_fail_halfway_costs_neither_a_byte() {
    // Of four chunks the third one cannot be copied.
    let mut pair = Pair::new(NODE, "cuMemcpyDtoHAsync_v2:3:CUDA_ERROR_UNKNOWN");
    pair.all[0].1.send("check 3");
    until("the victim did not leave", || {
        !pair.daemon.events("did-not-leave").is_empty()
    });
    assert_eq!(pair.all[1].1.ask("check 4"), "check 0");
    assert_eq!(pair.all[0].1.line(), "check 0");
    pair.is_right();
}

#[test]
fn a_victim_that_is_stopped_halfway_gets_its_room_back() {
    let mut pair = Pair::new(NODE, "");
    pair.halfway();
    pair.signal(1, Signal::SIGSTOP);
    until("the return has given up all it had", || pair.held()[0] == 0);
    assert!(!pair.daemon.events("did-not-leave").is_empty());
    pair.signal(1, Signal::SIGCONT);
    assert_eq!(pair.all[1].1.ask("check 4"), "check 0");
    assert_eq!(pair.all[0].1.line(), "check 0");
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
            assert_eq!(pair.all[0].1.line(), "check 0");
        }
        let value = [3, 4][other];
        assert_eq!(pair.all[other].1.ask(&format!("check {value}")), "check 0");
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
            pair.all[1].1.send("check 4");
            until("one of them is in", || pair.held().contains(&SIZE));
            let at = usize::from(pair.held()[1] == SIZE);
            assert_eq!(pair.all[at].1.line(), "check 0");
            assert_eq!(pair.all[at].1.ask("free"), "free 0");
            assert_eq!(pair.all[1 - at].1.line(), "check 0");
            continue;
        }
        assert_eq!(pair.all[0].1.line(), "check 0");
        pair.is_right();
    }
}

/// Who has not come when the next daemon's recovery ends was taken for one that runs, and its
/// return found no room and was never tried again.
#[test]
fn one_that_comes_late_to_the_next_daemon_comes_in() {
    let mut pair = Pair::new(&format!("recovery = \"100ms\"\n{NODE}"), "");
    pair.signal(0, Signal::SIGSTOP);
    pair.daemon.restart();
    until("the next daemon knows all that came in time", || {
        pair.places()[1] == Place::In
    });
    pair.signal(0, Signal::SIGCONT);
    pair.is_right();
}
