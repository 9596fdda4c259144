//! A process whose memory of one device is away: what it calls on another device waits too. The
//! driver knows memory of the first there by its address, and peers by theirs.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::until;

use super::{Scene, calls_but_by, comes_back_first, touching};

const SPEC: &str = "mem=256MiB,driver=13050,ctx=8MiB,count=2";

#[test]
fn calls_on_another_device_wait_while_memory_of_one_is_away() {
    let names = touching();
    let mut scene = Scene::on(SPEC, 2);
    scene.guest.does("alloc 67108864");
    scene.guest.does("second");
    until("host memory is given", || scene.dealer.store().given() > 0);
    scene.forgets();
    let there = scene.calls(&names);
    until("all have returned", || scene.pending() == 0);
    let own = scene.mover();
    let reached = calls_but_by(scene.trace.path(), &own, &names);
    assert_eq!(reached.len(), names.len(), "open, each reaches the driver");
    assert_eq!(there, names.len() as u64);

    scene.dealer.order(1, Order::Leave);
    scene
        .dealer
        .hears_some(|said| matches!(said, Request::Away { .. }).then_some(()));
    assert_eq!(scene.holds(&names), there);
    scene.dealer.order(2, Order::Return);
    until("it is back and open", || scene.pending() == 0);
    comes_back_first(scene.trace.path(), &own, &names, there);
    scene.guest.answers("check", "0");
    scene.guest.finish().silently();
}
