//! A seal while a thread of the library's is stopped: the gate's, which follows the leases, or the
//! mover's, which sets seals and takes them away. Nothing that can touch device memory reaches the
//! driver meanwhile, and all of it does once the thread goes on.

use std::collections::BTreeSet;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::runnable::{has_membarrier, not_runnable_here};
use gpushare_tests::threads::StoppedThread;
use nix::libc::SYS_membarrier;

use super::{Scene, is_operation, touching};

const GATE: &str = "gpushare-gate";
const MOVER: &str = "gpushare-mover";

/// Stops a thread of the scene's process; `None`, which is noted, where that is not allowed.
fn stop(scene: &Scene, name: &str, test: &str) -> Option<StoppedThread> {
    let stopped = StoppedThread::stop(scene.guest.id(), name);
    if stopped.is_none() {
        not_runnable_here(test, "a process may not trace its children");
    }
    stopped
}

#[test]
fn nothing_reaches_the_driver_while_the_gates_thread_is_stopped() {
    let test = "nothing_reaches_the_driver_while_the_gates_thread_is_stopped";
    let names = touching();
    for before_the_seal in [true, false] {
        let mut scene = Scene::new();
        if !before_the_seal {
            scene.sealed(1, Order::Seal);
        }
        let Some(stopped) = stop(&scene, GATE, test) else {
            return;
        };
        if before_the_seal {
            scene.sealed(1, Order::Seal);
        }
        // Its gates are to close too.
        scene.dealer.close(1);
        let there = scene.holds(&names);
        drop(stopped);
        scene.dealer.open(2);
        scene.dealer.order(2, Order::In);
        scene.goes_on(&names, there);
        scene.guest.finish().silently();
    }
}

#[test]
fn nothing_begins_while_the_mover_is_stopped_in_the_middle_of_sealing() {
    let test = "nothing_begins_while_the_mover_is_stopped_in_the_middle_of_sealing";
    if !has_membarrier(test) {
        return;
    }
    let mut scene = Scene::new();
    let Some(stopped) = stop(&scene, MOVER, test) else {
        return;
    };
    scene.dealer.order(1, Order::Seal);
    // The word says it, and the threads have not passed the barrier.
    stopped.goes_to(SYS_membarrier);
    let (operations, others): (BTreeSet<&str>, BTreeSet<&str>) =
        touching().into_iter().partition(|name| is_operation(name));
    let held = scene.holds(&others);
    // It is not sealed before the thread has looked.
    assert_eq!(scene.dealer.said(), []);
    drop(stopped);
    scene.dealer.hears(&Request::Sealed {
        device_index: 0,
        epoch: 1,
    });
    let all = held + scene.calls(&operations);
    scene.dealer.order(2, Order::In);
    scene.goes_on(&touching(), all);
    scene.guest.finish().silently();
}

#[test]
fn a_seal_stays_while_the_mover_is_stopped_and_may_not_open() {
    let test = "a_seal_stays_while_the_mover_is_stopped_and_may_not_open";
    let names = touching();
    let mut scene = Scene::new();
    scene.sealed(1, Order::Seal);
    let Some(stopped) = stop(&scene, MOVER, test) else {
        return;
    };
    scene.dealer.order(2, Order::In);
    let there = scene.holds(&names);
    drop(stopped);
    scene.goes_on(&names, there);
    scene.guest.finish().silently();
}
