//! Requests take the room that a tenant needs to come back: others need not wait for that.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, gib, ranked, secs, spec};
use crate::swap::denials;
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Place, Policy, ProcessId, TenantId, TenantSpec,
};

/// A card of 16 GiB with a tenant that swaps and has 12 of them, or wants them back, and one of
/// these terms that has 8 and works.
struct Card {
    node: Node,
    device: DeviceId,
    out: TenantId,
    works: TenantId,
}

impl Card {
    fn new(of: impl Fn(DeviceId) -> TenantSpec) -> Self {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        let (out, process) = node.run(swapping(device, 12 << 10));
        node.guests.get_mut(&out).expect("it runs").moves.works = false;
        node.want(process, device, gib(12));
        let (works, process) = node.run(of(device));
        node.want(process, device, gib(8));
        let mut card = Self {
            node,
            device,
            out,
            works,
        };
        card.until("the first is out", |card| {
            card.is(card.out, Place::Out) && card.node.charged(card.works, device) == gib(8)
        });
        card
    }

    fn is(&self, tenant: TenantId, place: Place) -> bool {
        self.node.place(tenant, self.device) == place
    }

    /// Time passes in which the one at work works.
    fn pass(&mut self, time: Nanos) {
        let end = self.node.now + time;
        while self.node.now < end {
            if self.node.guests.contains_key(&self.works) {
                let tenant = self.works;
                self.node.tell(Event::Worked { tenant });
            }
            self.node.live(Nanos::millis(250));
        }
    }

    fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if is(self) {
                return;
            }
            self.pass(Nanos::millis(250));
        }
        panic!("{what}");
    }

    /// The first calls, and waits for as long as two rounds take.
    fn waits_two_rounds(&mut self) {
        self.node.calls(self.out, self.device);
        let time = self.node.two_rounds(self.device);
        self.pass(time);
        assert!(self.is(self.out, Place::Out));
    }

    /// One that swaps asks for so many GiB. Whether it has them a second later.
    fn gives(&mut self, size: u64) -> bool {
        let (_, process) = self.node.run(swapping(self.device, size << 10));
        let ask = self.node.want(process, self.device, gib(size));
        self.pass(secs(1));
        self.node.granted(ask)
    }
}

#[test]
fn free_memory_is_not_kept_for_one_that_no_turn_brings_back() {
    let mut card = Card::new(|device| spec(device, 8, 8));
    card.waits_two_rounds();
    assert!(card.gives(5), "8 are free: {:?}", denials(&card.node));
}

#[test]
fn one_that_no_turn_brought_back_returns_once_the_request_ends() {
    let mut card = Card::new(|device| spec(device, 8, 8));
    card.waits_two_rounds();
    assert!(card.gives(5));
    card.node.finish(card.works);
    let end = card.node.now + card.node.two_rounds(card.device);
    card.until("it is in", |card| card.is(card.out, Place::In));
    assert!(card.node.now <= end, "within two rounds");
}

#[test]
fn one_that_no_turn_brought_back_returns_once_memory_is_freed() {
    let mut card = Card::new(|device| spec(device, 8, 8));
    card.waits_two_rounds();
    let process = card.node.processes_of(card.works)[0];
    card.node.free(process, card.device, gib(8));
    card.until("it is in", |card| card.is(card.out, Place::In));
}

#[test]
fn with_swap_as_much_is_lent_as_fits_beside_all_requests() {
    for (request, granted) in [(8, false), (6, true)] {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        node.run(spec(device, request, 8));
        let (_, process) = node.run(swapping(device, 10 << 10));
        let ask = node.want(process, device, gib(10));
        assert_eq!(node.granted(ask), granted);
    }
}

#[test]
fn a_request_waits_long_for_memory_of_strangers_and_returns_after_them() {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let mut terms = swapping(device, 8 << 10);
    terms.quotas[0].1.request = gib(8);
    let (tenant, process) = node.run(terms);
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.want(process, device, gib(8));
    node.tell(Event::Suspend { tenant });
    node.until("it is out", 60, |node| {
        node.place(tenant, device) == Place::Out
    });
    node.devices.get_mut(&device).expect("it exists").foreign = gib(10);
    node.live(secs(1));
    node.calls(tenant, device);
    let long = node.two_rounds(device);
    node.live(long + long);
    assert_eq!(node.place(tenant, device), Place::Out);
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.trusts(device);
    node.until("it is in", 2, |node| {
        node.place(tenant, device) == Place::In
    });
}

#[test]
fn a_small_one_returns_beside_one_that_no_turn_brings_back() {
    let mut card = Card::new(|device| spec(device, 8, 8));
    let device = card.device;
    let (small, process) = card.node.run(swapping(device, 4 << 10));
    card.node
        .guests
        .get_mut(&small)
        .expect("it runs")
        .moves
        .works = false;
    card.node.want(process, device, gib(4));
    card.node.tell(Event::Suspend { tenant: small });
    card.until("it is out", |card| card.is(small, Place::Out));
    card.waits_two_rounds();
    card.node.calls(small, device);
    card.pass(secs(2));
    assert!(card.is(small, Place::In));
}

#[test]
fn free_memory_is_kept_from_a_lower_one_where_a_turn_comes() {
    let mut card = Card::new(|device| swapping(device, 8 << 10));
    card.node.calls(card.out, card.device);
    let lower = ranked(100, swapping(card.device, 1 << 10));
    let (_, process) = card.node.run(lower);
    let ask = card.node.want(process, card.device, gib(1));
    assert!(card.node.waits(ask));
    card.until("it is in", |card| card.is(card.out, Place::In));
}

/// A node whose contexts take a quarter of a GiB, with a card of 16.
fn costly() -> (Node, DeviceId) {
    let mut node = Node::with(Policy {
        first_overhead: Bytes::mib(256),
        ..policy(64)
    });
    let device = node.device(16);
    (node, device)
}

fn has_context(node: &Node, process: ProcessId, device: DeviceId) -> bool {
    node.processes[&process].contexts.contains_key(&device)
}

/// One that swaps and holds so many MiB.
fn holder(node: &mut Node, device: DeviceId, mib: u64) -> TenantId {
    let (tenant, process) = node.run(swapping(device, mib));
    let ask = node.want(process, device, Bytes::mib(mib));
    assert!(node.granted(ask), "{:?}", denials(node));
    tenant
}

/// Contexts of new tenants without a request, until one is refused.
fn newcomers(node: &mut Node, device: DeviceId) -> usize {
    let mut many = 0;
    loop {
        let (_, process) = node.run(swapping(device, 1 << 10));
        node.live(secs(40));
        if !has_context(node, process, device) {
            return many;
        }
        many += 1;
    }
}

#[test]
fn a_context_opens_where_requests_take_the_room_to_return() {
    let (mut node, device) = costly();
    holder(&mut node, device, 10 << 10);
    let (guaranteed, _) = node.run(spec(device, 8, 8));
    let (_, newcomer) = node.run(swapping(device, 1 << 10));
    let second = node.start(guaranteed);
    node.live(secs(1));
    for process in [newcomer, second] {
        assert!(has_context(&node, process, device), "{:?}", denials(&node));
    }
}

#[test]
fn contexts_leave_the_room_to_return_once_requests_end() {
    let (mut node, device) = costly();
    let first = holder(&mut node, device, 10 << 10);
    let (guaranteed, process) = node.run(spec(device, 8, 8));
    node.want(process, device, gib(8));
    node.until("the first is out", 60, |node| {
        node.place(first, device) == Place::Out
    });
    // 24 contexts beside 10 GiB.
    assert_eq!(newcomers(&mut node, device), 22);
    node.finish(guaranteed);
    node.calls(first, device);
    node.until("the first returns", 60, |node| {
        node.place(first, device) == Place::In
    });
}

#[test]
fn a_context_does_not_take_the_last_room_to_return() {
    let (mut node, device) = costly();
    holder(&mut node, device, (15 << 10) + 256);
    assert_eq!(newcomers(&mut node, device), 2);
}
