//! Launches beside other tenants take no lock. Whatever happens to their threads, streams and
//! contexts meanwhile, each is accounted for. A closed gate is drained only when the last of them
//! is complete, and the completed work reported agrees with the software GPU's accounts.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_protocol::wire::Request;
use gpushare_tests::{Dealer, Gpu, Guest, assert_measured};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A turn of a device on which another tenant works too.
fn shared(epoch: u64, state: LeaseState) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, state),
        deadline: NO_DEADLINE,
        window: 8 * MS,
        idle_after: 20 * MS,
        contended: true,
        ..Turn::default()
    }
}

/// A program whose kernels of 20 us in stream 1 have been measured.
fn known(dealer: &Dealer) -> Guest {
    dealer.deal(&shared(1, LeaseState::Open));
    let mut guest = dealer.client("turns").started();
    for _ in 0..20 {
        launches(&mut guest, 20);
        assert_eq!(guest.ask("sync 1"), "sync 0");
    }
    guest
}

fn launches(guest: &mut Guest, count: u32) {
    let launched = guest.ask(&format!("launch {count} {}", 20 * US));
    assert_eq!(launched, "launch 0");
}

/// Closes the gate, checks that all work is complete when the library reports that, then opens it
/// again.
#[track_caller]
fn is_drained(gpu: &Gpu, dealer: &Dealer, guest: &mut Guest, epoch: u64) {
    dealer.deal(&shared(epoch, LeaseState::Closed));
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch,
    });
    let served = gpu.served();
    assert_eq!(guest.ask("query 1"), "query 0", "all of it is done");
    assert_eq!(gpu.served(), served);
    dealer.deal(&shared(epoch + 1, LeaseState::Open));
}

#[test]
fn a_gate_that_closes_in_the_midst_of_known_launches_waits_for_all() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = known(&dealer);
    for epoch in 1..40 {
        let many = u32::try_from(epoch).unwrap();
        launches(&mut guest, 3 + (7 * many) % 120);
        is_drained(&gpu, &dealer, &mut guest, epoch);
    }
    guest.finish().silently();
}

#[test]
fn work_of_ended_threads_streams_and_contexts_is_not_forgotten() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = known(&dealer);
    let mut epoch = 1;
    for _ in 0..3 {
        for command in [
            "threads 6",
            "contexts 4",
            "fork",
            "capture 3",
            "cancel",
            "reset",
        ] {
            launches(&mut guest, 30);
            let word = command.split(' ').next().expect("a word");
            let mode = if word == "capture" { 0 } else { 20 * US };
            let answer = guest.ask(&format!("{command} {mode}"));
            match word {
                // The driver does not work in a forked child.
                "fork" => assert!(answer.starts_with("fork "), "{answer}"),
                "capture" => assert_eq!(answer, "capture 3 0"),
                _ => assert_eq!(answer, format!("{word} 0")),
            }
            launches(&mut guest, 30);
            is_drained(&gpu, &dealer, &mut guest, epoch);
            epoch += 1;
        }
    }
    guest.finish().silently();
}

#[test]
fn launches_without_the_lock_are_counted_like_softgpu_counts_them() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = known(&dealer);
    let service = || {
        let line = dealer.usage().line(0, 0).expect("the first slot");
        line.service.load(Ordering::Relaxed)
    };
    let before = (service(), gpu.served());
    for _ in 0..100 {
        launches(&mut guest, 90);
        assert_eq!(guest.ask("sync 1"), "sync 0");
    }
    let (said, served) = (service() - before.0, gpu.served() - before.1);
    assert!(served >= 9_000 * 20 * US, "{served}");
    let apart = said.abs_diff(served);
    // The library measures in real time how long a kernel takes.
    assert_measured!(
        apart <= served / 20,
        "{said} ns are said, {served} were served"
    );
    guest.finish().silently();
}

/// A program of which one thread launches on two devices. Its kernels of 20 us on both have been
/// measured.
fn known_on_both(dealer: &Dealer) -> Guest {
    (0..2).for_each(|device| deals(dealer, device, 1, LeaseState::Open));
    let mut guest = dealer.client("devices").started();
    for device in [0, 1, 0, 1] {
        for _ in 0..20 {
            on(&mut guest, device, 20);
            assert_eq!(guest.ask(&format!("sync {device}")), "sync 0");
        }
    }
    guest
}

fn on(guest: &mut Guest, device: usize, count: u32) {
    let launched = guest.ask(&format!("launch {device} {count} {}", 20 * US));
    assert_eq!(launched, "launch 0");
}

fn deals(dealer: &Dealer, device: usize, epoch: u64, state: LeaseState) {
    dealer.page().devices[device].publish(&shared(epoch, state));
    dealer.announce();
}

#[test]
fn a_closed_gate_holds_a_thread_that_launched_on_another_device() {
    let gpu = Gpu::new("count=2");
    let dealer = Dealer::on(&gpu, 2);
    let mut guest = known_on_both(&dealer);
    for (epoch, device) in (1..).zip([0, 1, 0, 1]) {
        deals(&dealer, device, epoch, LeaseState::Closed);
        let device_index = u8::try_from(device).expect("small");
        dealer.hears(&Request::Drained {
            device_index,
            epoch,
        });
        // The other device has work in flight, and allows more of it.
        guest.send(&format!("turns {device} 100 {}", 20 * US));
        dealer.hears(&Request::Wanted {
            device_index,
            epoch,
        });
        deals(&dealer, device, epoch + 1, LeaseState::Open);
        assert_eq!(guest.line(), "turns 0");
        is_idle(&mut guest);
    }
    guest.finish().silently();
}

fn is_idle(guest: &mut Guest) {
    for device in 0..2 {
        assert_eq!(guest.ask(&format!("sync {device}")), "sync 0");
    }
}

#[test]
fn launches_of_one_thread_on_two_devices_are_each_devices_own() {
    let gpu = Gpu::new("count=2");
    let dealer = Dealer::on(&gpu, 2);
    let mut guest = known_on_both(&dealer);
    let service = |device| {
        let line = dealer.usage().line(0, device).expect("the first slot");
        line.service.load(Ordering::Relaxed)
    };
    let before = [service(0), service(1), gpu.served()];
    for _ in 0..100 {
        let turns = format!("turns 0 40 {}", 20 * US);
        assert_eq!(guest.ask(&turns), "turns 0");
        is_idle(&mut guest);
    }
    // A hundred kernels of 20 us, and four thousand.
    let said = [service(0) - before[0], service(1) - before[1]];
    let served = gpu.served() - before[2];
    let (few, many) = (served / 41, served / 41 * 40);
    // On a loaded machine ends are seen late, and kernels taken for longer. A stall between two
    // looks may also credit one batch with the time of another.
    for (said, all) in said.into_iter().zip([few, many]) {
        assert_measured!(said >= all / 10 * 9, "{said} of {all}, {served} in all");
    }
    guest.finish().silently();
}
