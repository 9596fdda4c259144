//! Random moves, and daemons that come and go, under threads that allocate, copy, launch, capture,
//! check and free all the time: no byte is lost and nothing faults. A daemon that the test plays
//! orders the moves.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

/// As `rounds` of them, or as the environment says.
fn count(rounds: u32) -> u32 {
    let said = std::env::var("GPUTEST_MOVES").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(rounds)
}

fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    }
}

/// Where the process is, as far as its daemon knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    In,
    Out,
}

/// Random orders: most lead to a move, some are taken back on their way, at any step of it. After
/// each return the program's threads go on, and check what they find.
fn moves(mut scene: Scene, rounds: u32, storm: &str) -> String {
    scene.does(&[storm]);
    let mut next = random(1);
    let (mut left, mut returned, mut turned, mut busy) = (0, 0, 0, 0);
    let mut parts = 0;
    let mut at = Is::In;
    while left + returned < rounds {
        let order = match at {
            Is::In => Order::Leave,
            Is::Out => Order::Return,
        };
        // Each call of the threads begins with a check of all that its thread has, so a move that
        // loses a byte is found by the next one. Calls that come during a move wait for the return.
        let line = match (at, next() % 4) {
            (Is::In, 0) => Some("went 3"),
            (Is::Out, 0) => Some("go 1"),
            _ => None,
        };
        if let Some(line) = line {
            let state = scene.guest.ask(line);
            assert!(state.ends_with(" 0 0"), "{state}");
        }
        let in_parts = at == Is::Out && next().is_multiple_of(4);
        if in_parts {
            scene.dealer.withholds((1 + next() % 8) * MIB);
        }
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, order);
        if in_parts {
            std::thread::sleep(std::time::Duration::from_micros(next() % 1_000));
            let less = if next().is_multiple_of(2) { 0 } else { MIB };
            scene.dealer.withholds(less);
            parts += 1;
        }
        scene.dealer.withholds(0);
        if next().is_multiple_of(16) {
            // Taken back while it is carried out: neither answer may be lost or wrong.
            std::thread::sleep(std::time::Duration::from_micros(next() % 2_000));
            turned += 1;
            assert_eq!(scene.ordered(Order::Return), Outcome::Back);
            at = Is::In;
        } else {
            at = match (order, scene.outcome()) {
                (Order::Leave, Outcome::Away(_)) => {
                    left += 1;
                    Is::Out
                }
                (Order::Leave, Outcome::Busy | Outcome::NoRoom(_)) => {
                    busy += 1;
                    Is::In
                }
                (Order::Return, Outcome::Back) => {
                    returned += 1;
                    Is::In
                }
                (order, outcome) => panic!("{outcome:?} to {order:?}"),
            };
        }
        // Managed pages that were freed before come back late.
        if at == Is::Out && left % 16 == 0 && !scene.is_managed() {
            until("its memory is off the device", || scene.on_device() == 0);
        }
    }
    if at == Is::Out {
        scene.returns();
    }
    let state = scene.guest.ask("state");
    assert_eq!(scene.guest.ask("calm"), "calm 0 0");
    until("empty slabs are given back", || {
        // The driver's own pool is read again where the host waits.
        scene.guest.does("sync 0");
        scene.charged() == 0
    });
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
    format!(
        "{left} times left, {returned} returned, {parts} in parts, {turned} turned round, {busy} \
         not carried out; the threads: {state}"
    )
}

/// Its memory is copied, and the daemon has given host memory.
fn copied() -> Scene {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 1048576", "fill 0 1"]);
    scene.provided(2 * MIB);
    scene.does(&["free 0"]);
    scene
}

#[test]
fn no_byte_is_lost_by_two_thousand_random_moves_under_threads() {
    println!("{}", moves(copied(), count(2_000), "storm 2 1"));
}

#[test]
fn nor_by_moves_of_larger_allocations_under_more_threads() {
    println!("{}", moves(copied(), 60, "storm 4 0"));
}

#[test]
fn an_address_that_is_freed_is_another_threads_at_once() {
    for mut scene in [Scene::managed("mem=1GiB"), copied()] {
        scene.does(&["churn 4 500"]);
        until("all is given back", || scene.charged() == 0);
        assert_eq!(scene.on_device(), 0);
        scene.guest.finish().silently();
    }
}

#[test]
fn nor_by_random_moves_of_managed_memory() {
    println!(
        "{}",
        moves(Scene::managed("mem=1GiB"), count(300), "storm 2 1")
    );
}

#[test]
fn nor_by_those_of_larger_managed_allocations() {
    println!(
        "{}",
        moves(Scene::managed("mem=1GiB"), count(300) / 30, "storm 3 0")
    );
}

/// A daemon that goes at any step of a move, and comes back at any.
#[test]
fn no_byte_is_lost_when_the_daemon_goes_in_the_middle_of_moves() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["storm 2"]);
    scene.provided(64 * MIB);
    let mut seed = 7_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 40
    };
    for _ in 0..12 {
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, Order::Leave);
        std::thread::sleep(std::time::Duration::from_micros(next() % 30_000));
        if next() % 2 == 0 {
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, Order::Return);
            std::thread::sleep(std::time::Duration::from_micros(next() % 10_000));
        }
        scene.dealer.leave();
        std::thread::sleep(std::time::Duration::from_micros(next() % 60_000));
        scene.dealer.come_back();
        scene
            .dealer
            .hears_some(|said| matches!(said, Request::Residency(_)).then_some(()));
        // The next daemon's orders are numbered anew.
        scene.epoch = 0;
        until("all is back", || {
            scene.ordered(Order::Return) == Outcome::Back
        });
        let before = scene.guest.number("state");
        until("the threads go on", || scene.guest.number("state") > before);
        let state = scene.guest.ask("state");
        assert!(state.ends_with(" 0 0"), "{state}");
    }
    assert_eq!(scene.guest.ask("calm"), "calm 0 0");
    scene.guest.finish().silently();
}
