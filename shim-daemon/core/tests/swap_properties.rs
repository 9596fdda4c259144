//! The invariants after every event where tenants swap: I1 over what is on the card, I3, I4, and
//! I9, that a tenant which waits for the rotation is in within its bound.
//!
//! The checks are the harness's: `node/react.rs` and `node/swap.rs`. A client that is ordered back
//! where the card has no room for it fails the test.

use crate::cases;
use crate::node::swap::{Obeys, policy};
use crate::node::{Node, Rng, secs};
use crate::properties::{Op, apply, managed_is_listed, op};
use gpushare_core::{Bytes, LeasePolicy, Nanos, Policy};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;

fn node(host_gib: u64, lag: Option<(u64, Nanos)>, seed: u64) -> Node {
    let lease = if seed.is_multiple_of(2) {
        LeasePolicy::default()
    } else {
        LeasePolicy::turns()
    };
    let mut node = Node::with(Policy {
        first_overhead: Bytes::mib(200),
        step: Bytes::mib(64),
        lease,
        ..policy(host_gib)
    });
    node.claims = Some(Rng(seed));
    node.device(16);
    node.device(12);
    managed_is_listed(&mut node, seed);
    node.lag = lag.map(|(seed, most)| (Rng(seed), most));
    node
}

/// Random histories in which all keep the rules, where replies take up to `lag` ms. Each return is
/// within its bound, and there are some.
fn hold(lag: u64) {
    let returns = Cell::new(0);
    proptest!(cases::config(4), |(ops in vec(op(), 1..150), seed: u64)| {
        let lag = (lag > 0).then(|| (seed, Nanos::millis(lag)));
        let mut node = node(256, lag, seed);
        ops.into_iter().for_each(|op| apply(&mut node, op));
        node.live(secs(120));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
        returns.set(returns.get() + node.returns.done);
    });
    assert!(returns.get() > 0, "no tenant returned in any case");
}

#[test]
fn the_invariants_hold_where_tenants_swap() {
    hold(0);
}

#[test]
fn they_hold_where_tenants_swap_and_replies_are_late() {
    hold(40);
}

proptest! {
    #![proptest_config(cases::config(4))]

    #[test]
    fn every_wait_ends_where_the_store_fails_and_is_small(
        ops in vec(op(), 1..100),
        host in 1..24u64,
        one_in in 1..6u64,
        seed: u64,
    ) {
        let mut node = node(host, None, seed);
        node.guarantees = false;
        node.store.fails = Some((Rng(seed), one_in));
        ops.into_iter().for_each(|op| apply(&mut node, op));
        node.live(secs(180));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
    }

    #[test]
    fn every_wait_ends_where_tenants_do_not_obey(
        ops in vec(op(), 1..100),
        foreign in vec(0..14u64, 4),
        host in 1..64u64,
        seed: u64,
    ) {
        let mut node = node(host, None, seed);
        node.guarantees = false;
        let part = ops.len().div_ceil(foreign.len());
        let mut rng = Rng(seed);
        for (ops, foreign) in ops.chunks(part).zip(foreign) {
            for op in ops {
                let run = matches!(op, Op::Run(_));
                apply(&mut node, op.clone());
                let obeys = [
                    Obeys::Honestly,
                    Obeys::Busy,
                    Obeys::Silently,
                    Obeys::Lying,
                    Obeys::Halting,
                    Obeys::Failing,
                    Obeys::Stopping,
                ];
                let obeys = *rng.pick(&obeys);
                if run && let Some(last) = node.guests.values_mut().last() {
                    last.moves.obeys = obeys;
                }
            }
            node.devices.values_mut().for_each(|device| device.foreign = Bytes::gib(foreign));
        }
        node.live(secs(180));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
    }
}
