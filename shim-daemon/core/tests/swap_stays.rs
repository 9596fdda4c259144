//! Memory that cannot move is in the books once its process says so, before its tenant has moved.

use crate::node::late::RECOVERY;
use crate::node::swap::swapping;
use crate::node::{Node, gib, resolving, secs, spec};
use crate::swap::denials;
use gpushare_core::{Bytes, DeviceId, Event, Notice, Place, ProcessId, Resolver, TenantId};

/// A card of 16 GiB, a tenant of 12 that is out, and one of 8 that is in and has not moved.
struct Pair {
    node: Node,
    device: DeviceId,
    out: TenantId,
    tenant: TenantId,
    process: ProcessId,
}

impl Pair {
    fn new() -> Self {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        let run = |node: &mut Node, size| {
            let (tenant, process) = node.run(swapping(device, 16 << 10));
            node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
            node.want(process, device, gib(size));
            (tenant, process)
        };
        let (out, _) = run(&mut node, 12);
        let (tenant, process) = run(&mut node, 8);
        node.until("the second is in", 60, |node| {
            node.place(out, device) == Place::Out && node.charged(tenant, device) == gib(8)
        });
        Self {
            node,
            device,
            out,
            tenant,
            process,
        }
    }

    /// Of the memory of the one that is in so much cannot move, and it says so.
    fn stays(&mut self, bytes: Bytes) {
        let guest = self.node.guests.get_mut(&self.tenant).expect("it runs");
        guest.moves.residue = bytes;
        self.says(self.process, bytes);
    }

    fn says(&mut self, process: ProcessId, bytes: Bytes) {
        let device = self.device;
        self.node.tell(Event::Stays {
            process,
            device,
            bytes,
        });
    }

    /// Whether a tenant that does not move gets so many GiB at once.
    fn gives(&mut self, size: u64) -> bool {
        let fails = resolving(&[Resolver::Fail], spec(self.device, 0, size));
        let (tenant, process) = self.node.run(fails);
        let ask = self.node.want(process, self.device, gib(size));
        let granted = self.node.granted(ask);
        if !granted {
            self.node.finish(tenant);
        }
        granted
    }

    /// The one that is out calls, and is in within two rounds.
    fn returns(&mut self) {
        let (out, device) = (self.out, self.device);
        let end = self.node.now + self.node.two_rounds(device);
        self.node.calls(out, device);
        while self.node.place(out, device) != Place::In {
            assert!(self.node.now < end, "it waits beyond two rounds");
            self.node.live(secs(1));
        }
    }
}

#[test]
fn nothing_is_granted_that_memory_which_cannot_move_leaves_no_room_for() {
    let mut pair = Pair::new();
    pair.stays(gib(3));
    assert!(!pair.gives(3), "12 could not return");
    assert!(pair.gives(1));
    pair.returns();
}

#[test]
fn what_cannot_move_is_known_to_the_next_daemon() {
    for stays in [gib(3), Bytes::ZERO] {
        let (mut node, device) = Node::restarted(16 << 10, 64);
        let (out, all) = node.survives(device, &[(12 << 10, 12 << 10)]);
        let (tenant, more) = node.survives(device, &[(8 << 10, 0)]);
        node.guests.get_mut(&tenant).expect("it runs").moves.residue = stays;
        for process in [all[0], more[0]] {
            node.comes(process);
            node.speaks(process, false);
        }
        node.live(RECOVERY + secs(2));
        let places = [out, tenant].map(|tenant| node.place(tenant, device));
        assert_eq!(places, [Place::Out, Place::In]);
        let mut pair = Pair {
            node,
            device,
            out,
            tenant,
            process: more[0],
        };
        assert_eq!(pair.gives(3), stays.is_zero());
        pair.returns();
    }
}

#[test]
fn one_that_says_that_too_much_stays_only_stays_itself() {
    let mut pair = Pair::new();
    pair.says(pair.process, Bytes::MAX);
    pair.node.world.check().expect("the sums are right");
    let (_, process) = pair.node.run(spec(pair.device, 8, 8));
    let ask = pair.node.want(process, pair.device, gib(8));
    assert!(pair.node.granted(ask), "{:?}", denials(&pair.node));
    pair.says(pair.process, Bytes::ZERO);
    pair.node.finish(pair.node.processes[&process].tenant);
    pair.returns();
}

#[test]
fn what_can_move_takes_no_room_of_one_that_is_out() {
    let mut pair = Pair::new();
    pair.stays(Bytes::ZERO);
    assert!(pair.gives(3));
    pair.returns();
}

#[test]
fn memory_that_cannot_move_counts_no_longer_than_it_is_told() {
    let mut pair = Pair::new();
    pair.stays(gib(3));
    assert!(!pair.gives(3));
    pair.stays(Bytes::ZERO);
    assert!(pair.gives(3));
    pair.returns();
}

#[test]
fn nobody_is_moved_for_an_ask_that_has_no_room_beside_what_stays() {
    for (size, fits) in [(14, false), (13, true)] {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        let (tenant, process) = node.run(swapping(device, 16 << 10));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.residue) = (false, gib(3));
        node.want(process, device, gib(8));
        let bytes = gib(3);
        node.tell(Event::Stays {
            process,
            device,
            bytes,
        });
        let (_, other) = node.run(swapping(device, 16 << 10));
        let ask = node.want(other, device, gib(size));
        node.live(secs(30));
        let left = |one: &Notice| matches!(one, Notice::Leaving { .. });
        assert_eq!(node.notices.iter().any(left), fits, "{size}");
        assert_eq!(node.granted(ask), fits, "{:?}", denials(&node));
    }
}

#[test]
fn what_stays_is_still_known_when_memory_that_moves_is_freed() {
    for told in [gib(3), Bytes::ZERO] {
        let mut pair = Pair::new();
        pair.stays(told);
        let (process, device) = (pair.process, pair.device);
        pair.node.free(process, device, gib(3));
        assert_eq!(pair.gives(3), told.is_zero());
        pair.returns();
    }
}

#[test]
fn what_stays_ends_with_its_process() {
    for ends in [true, false] {
        let mut pair = Pair::new();
        let (tenant, device) = (pair.tenant, pair.device);
        let second = pair.node.start(tenant);
        pair.stays(gib(3));
        pair.says(second, gib(1));
        pair.node.free(pair.process, device, gib(1));
        pair.node.want(second, device, gib(1));
        if ends {
            pair.node
                .guests
                .get_mut(&tenant)
                .expect("it runs")
                .moves
                .residue = gib(1);
            pair.node.exit(pair.process);
        }
        assert_eq!(pair.gives(3), ends);
    }
}

#[test]
fn a_look_shows_what_stays_of_one_that_has_moved() {
    let mut pair = Pair::new();
    pair.stays(gib(3));
    let (tenant, device) = (pair.tenant, pair.device);
    let guest = pair.node.guests.get_mut(&tenant).expect("it runs");
    guest.moves.residue = gib(1);
    pair.node.tell(Event::Suspend { tenant });
    pair.node.until("it is out", 30, |node| {
        node.place(tenant, device) == Place::Out
    });
    pair.node.tell(Event::Resume { tenant });
    pair.node.live(secs(10));
    assert!(pair.gives(3));
    assert!(!pair.gives(1));
}
