//! Green contexts: their memory is their device's, and their work passes the gate like any other.
//! The library never makes one current. The software GPU reports on stderr where a second thread
//! tries to.

use gpushare_protocol::page::lease::Turn;
use gpushare_tests::moves::{drained, wanted};
use gpushare_tests::{Alone, Dealer, GIB, Gpu, Guest, MIB, until};

const MS: u64 = 1_000_000;
/// Long enough for a check while it runs.
const LONG: u64 = 100 * MS;

fn started(dealer: &Dealer) -> Guest {
    let mut guest = dealer.client("green");
    assert_eq!(guest.ask("init 0"), "init 0");
    for green in 0..2 {
        assert_eq!(guest.ask(&format!("make {green}")), "make 0");
    }
    guest
}

/// Checks that no work of the guest runs from now on.
#[track_caller]
fn nothing_runs(gpu: &Gpu, guest: &mut Guest) {
    let before = gpu.served();
    guest.does("sync");
    assert_eq!(gpu.served(), before, "work was under way");
}

#[test]
fn work_in_green_contexts_is_done_before_it_is_called_drained() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    let mut epoch = 0;
    for unseen in [true, false] {
        for work in ["launch 0 1", "own 0 1", "made 0 1", "own 1 3"] {
            epoch += 1;
            match unseen {
                true => dealer.deal(&Turn::default()),
                false => dealer.open(epoch),
            }
            guest.does(&format!("{work} {LONG}"));
            dealer.close(epoch);
            dealer.hears(&drained(epoch));
            for line in ["query 0", "queried 0", "queried 1"] {
                guest.does(line);
            }
            nothing_runs(&gpu, &mut guest);
        }
    }
    dealer.deal(&Turn::default());
    guest.finish().silently();
}

#[test]
fn launches_in_green_contexts_wait_for_the_turn() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    dealer.close(1);
    dealer.hears(&drained(1));
    let before = gpu.served();
    guest.does(&format!("post 0 {MS}"));
    dealer.hears(&wanted(1));
    assert_eq!(guest.ask("posted 0"), "posted 0");
    assert_eq!(gpu.served(), before);
    dealer.open(2);
    until("the launch goes", || guest.ask("posted 0") == "posted 1");
    assert!(gpu.served() >= before + MS);
    dealer.deal(&Turn::default());
    guest.finish().silently();
}

#[test]
fn work_of_a_destroyed_green_context_is_waited_for() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for (epoch, work) in [(1, "launch 0 1"), (2, "own 0 1"), (3, "made 0 1")] {
        dealer.open(epoch);
        guest.does(&format!("{work} {LONG}"));
        guest.does("drop 0");
        dealer.close(epoch);
        dealer.hears(&drained(epoch));
        nothing_runs(&gpu, &mut guest);
        dealer.deal(&Turn::default());
        guest.does("make 0");
    }
    guest.finish().silently();
}

#[test]
fn green_contexts_come_and_go_through_all_turns() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for epoch in 1..30 {
        dealer.open(epoch);
        guest.does(&format!("churn 3 {}", MS / 10));
        guest.does(&format!("own 1 2 {}", MS / 10));
        dealer.close(epoch);
        dealer.hears(&drained(epoch));
        nothing_runs(&gpu, &mut guest);
    }
    dealer.deal(&Turn::default());
    guest.does("churn 3 1000");
    guest.finish().silently();
}

#[test]
fn a_capture_in_a_green_context_survives_the_turns() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for epoch in 1..6 {
        guest.does("capture 1");
        dealer.open(epoch);
        guest.does(&format!("own 0 1 {}", MS / 10));
        guest.does(&format!("launch 1 2 {MS}"));
        dealer.close(epoch);
        dealer.hears(&drained(epoch));
        guest.does("captured 1");
    }
    dealer.deal(&Turn::default());
    guest.finish().silently();
}

#[test]
fn a_green_context_alone_works_and_ends_with_its_primary() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = dealer.client("green");
    guest.does("bare 0");
    for epoch in 1..8 {
        dealer.open(epoch);
        guest.does("make 0");
        guest.does(&format!("own 0 2 {MS}"));
        guest.does(&format!("alloc 0 {MIB}"));
        dealer.close(epoch);
        dealer.hears(&drained(epoch));
        dealer.open(epoch + 100);
        guest.does("last 0");
        assert_eq!(guest.ask("active"), "active 0");
    }
    dealer.deal(&Turn::default());
    guest.finish().silently();
}

#[test]
fn memory_of_a_green_context_is_charged_to_its_device_and_outlives_it() {
    let gpu = Gpu::new("count=2,mem=2GiB");
    let alone = Alone::on(&gpu);
    let mut guest = alone.client(&["--mem-limit", "1=64MiB"], "green");
    guest.does("init 1");
    guest.does("make 0");
    assert_eq!(guest.ask(&format!("alloc 0 {GIB}")), "alloc 2");
    guest.does(&format!("alloc 0 {}", 48 * MIB));
    assert_eq!(guest.ask(&format!("alloc 0 {}", 32 * MIB)), "alloc 2");
    let charged = || alone.page().charged(1);
    assert_eq!(charged(), 48 * MIB);
    guest.does("drop 0");
    assert_eq!(charged(), 48 * MIB, "it is the primary context's");
    guest.does("free");
    assert_eq!(charged(), 0);
    guest.finish().silently();
}

/// The free is behind all work of a stream that accepts no more.
#[test]
fn memory_freed_in_a_green_contexts_stream_returns_once_both_are_gone() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut guest = alone.client(&["--mem-limit", "64MiB"], "green");
    guest.does("init 0");
    for _ in 0..10 {
        guest.does("make 0");
        guest.does("pool");
        guest.does(&format!("ordered 0 {}", 8 * MIB));
        assert!(alone.page().charged(0) >= 8 * MIB);
        guest.does("drop 0");
        guest.does("unpool");
        guest.does("sync");
        assert_eq!(alone.page().charged(0), 0);
    }
    guest.finish().silently();
}

#[test]
fn memory_goes_with_the_primary_context_that_a_green_one_releases_last() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut guest = alone.client(&["--mem-limit", "64MiB"], "green");
    guest.does("init 0");
    guest.does("make 0");
    guest.does(&format!("alloc 0 {}", 48 * MIB));
    guest.does("release");
    assert_eq!(alone.page().charged(0), 48 * MIB);
    guest.does("last 0");
    assert_eq!(guest.ask("active"), "active 0");
    assert_eq!(alone.page().charged(0), 0);
    guest.finish().silently();
}

#[test]
fn a_cap_holds_for_work_in_green_contexts() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut guest = alone.client(&["--sm-limit", "1"], "green");
    guest.does("init 0");
    guest.does("make 0");
    // 200 ms at one percent are repaid after twenty seconds.
    guest.does(&format!("own 0 1 {}", 200 * MS));
    guest.does("sync");
    let before = gpu.served();
    guest.does(&format!("post 0 {}", 5 * MS));
    guest.does("sync");
    assert_eq!(guest.ask("posted 0"), "posted 0");
    assert!(gpu.served() < before + MS, "it does not run");
    guest.kill();
}
