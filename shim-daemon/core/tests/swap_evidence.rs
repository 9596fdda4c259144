//! Who is idle is decided by pages that are read at the decision, and not by what they said a
//! second before. Each behaviour with its opposite.

use crate::node::swap::swapping;
use crate::node::{Node, gib, killable, ranked, resolving, secs, spec};
use crate::uvm::managed;
use gpushare_core::{
    AskKey, DeviceId, Event, Nanos, Notice, Place, ProcessId, Resolver, TenantId, TenantSpec,
};
use std::collections::BTreeSet;

const MIB: fn(u64) -> gpushare_core::Bytes = gpushare_core::Bytes::mib;

/// Two tenants of a GiB on a card of one and a half. The first has its memory, and has done nothing
/// since it had it for as long as an idle tenant does nothing; its stay is not over.
struct Calm {
    node: Node,
    device: DeviceId,
    first: TenantId,
    second: ProcessId,
}

impl Calm {
    fn new() -> Self {
        Self::beside(|device| swapping(device, 1024))
    }

    /// The second tenant is of this kind.
    fn beside(second: impl Fn(DeviceId) -> TenantSpec) -> Self {
        let (mut node, device) = Node::swaps(1536, 64);
        let (first, process) = node.run(swapping(device, 1024));
        let (_, second) = node.run(second(device));
        let ask = node.want(process, device, MIB(1024));
        assert!(node.granted(ask));
        node.live(Nanos::millis(1500));
        Self {
            node,
            device,
            first,
            second,
        }
    }

    /// The page of the first shows work that the daemon has not read.
    fn first_works(&mut self) {
        self.node.guests.get_mut(&self.first).expect("it is").worked = true;
    }

    fn second_asks(&mut self) -> AskKey {
        self.node.want(self.second, self.device, MIB(1024))
    }

    fn place(&self) -> Place {
        self.node.place(self.first, self.device)
    }

    /// The tenants whose pages are read for an ask of the second one for so many MiB beside others.
    fn judged(&self, held: u64, bytes: u64) -> BTreeSet<TenantId> {
        let ask = Event::Ask {
            process: self.second,
            device: self.device,
            ask: gpushare_core::AskId(99),
            held: MIB(held),
            bytes: MIB(bytes),
            patience: None,
        };
        self.node.world.judged_by(self.node.now, &ask)
    }
}

#[test]
fn one_that_works_again_keeps_its_turn_at_the_next_ask() {
    let mut calm = Calm::new();
    calm.first_works();
    calm.second_asks();
    assert_eq!(calm.place(), Place::In);
    // Its stay of 2.2 s ends as any other.
    calm.node.live(secs(1));
    assert_ne!(calm.place(), Place::In);
}

#[test]
fn one_that_does_nothing_leaves_at_the_next_ask() {
    let mut calm = Calm::new();
    calm.second_asks();
    assert_ne!(calm.place(), Place::In);
}

#[test]
fn one_that_works_before_it_counts_as_idle_keeps_its_turn() {
    for works in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        let (first, process) = node.run(swapping(device, 1024));
        let (_, second) = node.run(swapping(device, 1024));
        node.want(process, device, MIB(1024));
        node.pass(Nanos::millis(500));
        node.want(second, device, MIB(1024));
        node.pass(Nanos::millis(490));
        node.guests.get_mut(&first).expect("it is").worked = works;
        node.pass(Nanos::millis(20));
        assert_eq!(node.place(first, device) == Place::In, works);
    }
}

#[test]
fn a_return_is_judged_by_what_is_read_when_it_is_wanted() {
    for works in [true, false] {
        let mut calm = Calm::new();
        let moves = &mut calm.node.guests.get_mut(&calm.first).expect("it is").moves;
        (moves.works, moves.rate) = (false, 4 << 30);
        let ask = calm.second_asks();
        calm.node.live(secs(2));
        assert!(calm.node.granted(ask) && calm.place() == Place::Out);
        let (node, device) = (&mut calm.node, calm.device);
        let second = node.processes[&calm.second].tenant;
        node.guests.get_mut(&second).expect("it is").worked = works;
        node.calls(calm.first, device);
        assert_eq!(node.place(second, device) == Place::In, works);
    }
}

/// What a program with managed memory may charge is not what the card has free.
#[test]
fn one_that_works_again_keeps_its_turn_beside_managed_memory() {
    for works in [true, false] {
        let mut calm = Calm::beside(|device| managed(device, 4096));
        if works {
            calm.first_works();
        }
        calm.second_asks();
        assert_eq!(calm.place() == Place::In, works);
    }
}

#[test]
fn only_an_ask_that_may_make_others_leave_has_pages_read() {
    for uvm in [false, true] {
        let calm = Calm::beside(|device| match uvm {
            true => managed(device, 1024),
            false => swapping(device, 1024),
        });
        assert!(calm.judged(0, 512).is_empty(), "it fits");
        assert!(calm.judged(0, 513).contains(&calm.first));
    }
}

#[test]
fn an_ask_for_more_than_the_card_holds_has_no_pages_read() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (_, second) = node.run(managed(device, 8192));
    let ask = node.want(second, device, MIB(1536));
    assert!(node.granted(ask));
    let (first, _) = node.run(swapping(device, 1024));
    let calm = Calm {
        node,
        device,
        first,
        second,
    };
    assert!(
        calm.judged(1536, 1024).is_empty(),
        "all that can be is booked"
    );
}

#[test]
fn one_that_works_again_is_not_ended_as_idle() {
    for works in [true, false] {
        let (mut node, device) = Node::with_device(16);
        let (first, process) = node.run(killable(device, 0, 16));
        let by_priority = resolving(&[Resolver::Priority], spec(device, 0, 16));
        let (_, second) = node.run(by_priority);
        node.want(process, device, gib(12));
        node.pass(secs(6));
        assert!(node.notices.contains(&Notice::Idle { tenant: first }));
        node.guests.get_mut(&first).expect("it is").worked = works;
        node.want(second, device, gib(8));
        assert_eq!(node.guests.contains_key(&first), works);
    }
}

#[test]
fn a_lower_one_that_works_is_ended_all_the_same() {
    let (mut node, device) = Node::with_device(16);
    let (first, process) = node.run(ranked(100, killable(device, 0, 16)));
    let by_priority = resolving(&[Resolver::Priority], spec(device, 0, 16));
    let (_, second) = node.run(by_priority);
    node.want(process, device, gib(12));
    node.guests.get_mut(&first).expect("it is").worked = true;
    node.want(second, device, gib(8));
    assert!(!node.guests.contains_key(&first));
}

#[test]
fn an_idle_end_is_decided_by_what_is_read_when_it_is_due() {
    for works in [true, false] {
        let (mut node, device) = Node::with_device(16);
        let (tenant, _) = node.run(TenantSpec {
            idle_end: Some(secs(300)),
            ..spec(device, 1, 2)
        });
        node.pass(secs(299));
        node.guests.get_mut(&tenant).expect("it is").worked = works;
        node.pass(secs(2));
        assert_eq!(node.guests.contains_key(&tenant), works);
    }
}
