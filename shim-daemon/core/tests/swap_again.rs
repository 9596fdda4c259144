//! A tenant that freed memory just before it left takes it again when it is back, and what it asks
//! for while it is out it takes then too: it waits for room for all of it, while that can come.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, gib, killable, mib, secs};
use gpushare_core::{AskKey, Denial, DeviceId, Event, Nanos, Place, Policy, ProcessId, TenantId};

/// A card of 1.5 GiB. The first tenant had 1 GiB, of which it freed a quarter so long before it
/// left. The second one has had all of the card since, and has half of it.
struct Left {
    node: Node,
    device: DeviceId,
    first: TenantId,
    second: TenantId,
    process: ProcessId,
}

impl Left {
    fn after(pause: Nanos) -> Self {
        let (mut node, device) = Node::swaps(1536, 64);
        let (first, process) = node.run(swapping(device, 1024));
        let (second, other) = node.run(swapping(device, 1536));
        node.want(process, device, mib(1024));
        node.pass(secs(2));
        node.free(process, device, mib(256));
        node.pass(pause);
        let moves = &mut node.guests.get_mut(&first).expect("it is").moves;
        (moves.works, moves.rate) = (false, 1 << 30);
        node.tell(Event::Suspend { tenant: first });
        node.live(secs(2));
        assert_eq!(node.place(first, device), Place::Out);
        let ask = node.want(other, device, mib(1536));
        node.live(secs(1));
        assert!(node.granted(ask));
        node.free(other, device, mib(768));
        node.live(secs(2));
        Self {
            node,
            device,
            first,
            second,
            process: other,
        }
    }

    /// The first calls. Whether it is in a second later.
    fn is_back_soon(&mut self) -> bool {
        self.node.calls(self.first, self.device);
        for _ in 0..4 {
            if let Some(second) = self.node.guests.get_mut(&self.second) {
                second.worked = true;
            }
            self.node.live(Nanos::millis(250));
        }
        self.node.place(self.first, self.device) == Place::In
    }
}

#[test]
fn one_that_freed_just_before_it_left_waits_for_room_for_all_of_it() {
    for (pause, fits) in [(Nanos::ZERO, false), (secs(2), true)] {
        let mut left = Left::after(pause);
        left.node
            .guests
            .get_mut(&left.second)
            .expect("it is")
            .worked = true;
        assert_eq!(left.is_back_soon(), fits);
        assert_eq!(left.node.place(left.second, left.device), Place::In);
        // Its turn comes as any other's.
        left.node.live(secs(10));
        assert_eq!(left.node.place(left.first, left.device), Place::In);
    }
}

#[test]
fn room_that_no_turn_can_give_is_not_waited_for() {
    let mut left = Left::after(Nanos::ZERO);
    left.node.exit(left.process);
    left.node.finish(left.second);
    let hardware = left.node.devices.get_mut(&left.device).expect("it exists");
    hardware.foreign = mib(700);
    left.node.sample(left.device);
    assert!(left.is_back_soon());
}

/// A card of 16 GiB, of which a tenant that never moves has 6. The first and the second one have 8
/// each: the first is out, calls, and asks for so much more.
fn asks_while_out(more: u64) -> (Left, AskKey) {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let (_, fixed) = node.run(killable(device, 0, 6));
    node.want(fixed, device, gib(6));
    let (first, asker) = node.run(swapping(device, 16 << 10));
    node.want(asker, device, gib(8));
    node.live(secs(2));
    let (second, process) = node.run(swapping(device, 8 << 10));
    let ask = node.want(process, device, gib(8));
    node.until("the second is in", 30, |node| node.granted(ask));
    assert_eq!(node.place(first, device), Place::Out);
    node.live(Nanos::millis(100));
    let ask = node.want(asker, device, gib(more));
    let left = Left {
        node,
        device,
        first,
        second,
        process,
    };
    (left, ask)
}

#[test]
fn an_ask_that_no_turn_can_serve_keeps_its_own_tenant_out_no_longer() {
    for ends in [true, false] {
        let (mut left, ask) = asks_while_out(4);
        if ends {
            left.node.finish(left.second);
        }
        let most = if ends { 1 } else { 20 };
        left.node.until("it is back", most, |node| {
            node.place(left.first, left.device) == Place::In
        });
        left.node.until("it is denied", 70, |node| !node.waits(ask));
        let denied = left.node.denied(ask);
        assert!(matches!(denied, Some(Denial::NoRoom { .. })), "{denied:?}");
    }
}

#[test]
fn an_ask_that_a_turn_can_serve_comes_in_with_its_tenant() {
    for ends in [true, false] {
        let (mut left, ask) = asks_while_out(2);
        if ends {
            left.node.finish(left.second);
        }
        left.node.until("it is back", 20, |node| {
            node.place(left.first, left.device) == Place::In
        });
        left.node.live(Nanos::millis(50));
        assert!(left.node.granted(ask));
    }
}

#[test]
fn asks_that_fit_one_by_one_and_not_together_keep_no_tenant_out() {
    // A context is a GiB. Beside the first one and its 8 GiB there are two more at most.
    for more in [1, 2] {
        let mut node = Node::with(Policy {
            first_overhead: gib(1),
            ..policy(64)
        });
        let device = node.device_of(gib(18));
        let (_, fixed) = node.run(killable(device, 0, 6));
        node.want(fixed, device, gib(6));
        let (first, asker) = node.run(swapping(device, 16 << 10));
        node.want(asker, device, gib(8));
        node.live(secs(2));
        node.guests.get_mut(&first).expect("it runs").moves.works = false;
        node.tell(Event::Suspend { tenant: first });
        node.live(secs(2));
        assert_eq!(node.place(first, device), Place::Out);
        // Each fits alone.
        let ask = node.want(asker, device, gib(more));
        let process = node.start(first);
        let context = node.open(process, device);
        node.calls(first, device);
        node.until("it is back", 2, |node| {
            node.place(first, device) == Place::In
        });
        node.live(secs(1));
        let both = node.granted(ask) && node.granted(context);
        assert_eq!(both, more == 1);
    }
}
