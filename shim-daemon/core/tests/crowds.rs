//! A tenant with many waiting asks delays other tenants by a bounded amount.

use crate::node::{Node, gib, spec};
use gpushare_core::{Denial, Policy};

#[test]
fn once_many_asks_of_a_tenant_wait_each_process_may_have_one_more() {
    let mut node = Node::with(Policy {
        most_waiting: 4,
        most_waiting_together: 6,
        ..Policy::default()
    });
    let device = node.device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    node.want(holder, device, gib(12));
    let (crowd, first) = node.run(spec(device, 0, 16));
    let second = node.start(crowd);
    let third = node.start(crowd);
    for process in [first, second] {
        node.open(process, device);
    }
    let waits = |node: &mut Node, process| {
        let ask = node.want(process, device, gib(8));
        match node.denied(ask) {
            None => true,
            Some(Denial::TooMany) => false,
            other => panic!("{other:?}"),
        }
    };
    let counts =
        [first, second].map(|process| (0..5).filter(|_| waits(&mut node, process)).count());
    assert_eq!(counts, [4, 2], "four of one process, six together");
    assert!(
        waits(&mut node, third),
        "one ask of each process is always accepted"
    );
    assert!(!waits(&mut node, third));
    let (_, other) = node.run(spec(device, 0, 16));
    assert!(
        waits(&mut node, other),
        "other tenants' asks are not counted with them"
    );
}
