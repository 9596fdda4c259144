//! Yielding of a real program, under turns that the test publishes. While another tenant may be at
//! work, the program submits a slice and completes it before it submits more. The software GPU's
//! turns show it. No launch waits for ever.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, Turn};
use gpushare_tests::slices::{
    Books, KERNEL, MS, SLICE, SLIGHTLY, US, rests, shared, started, works,
};
use gpushare_tests::{Dealer, Gpu, assert_measured, until};

#[test]
fn a_deep_queue_that_yields_leaves_the_device_empty_after_each_slice() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    // Without other tenants the library measures its kernels.
    books.until_longer_than(10 * MS);
    dealer.deal(&shared(1, true, SLICE));
    books.until_shorter_than(SLICE + SLIGHTLY, 20);
    let stretches = books.stretches(200);
    let long = stretches
        .iter()
        .filter(|ns| **ns > SLICE + SLIGHTLY)
        .count();
    assert_measured!(long == 0, "{long} of {stretches:?}");
    let two = stretches.iter().filter(|ns| **ns >= 2 * KERNEL).count();
    assert!(two > 0, "a slice holds two of them: {stretches:?}");
    books.gaps.sort_unstable();
    let median = books.gaps[books.gaps.len() / 2];
    eprintln!(
        "the device was empty for {} us between slices, the median",
        median / US
    );
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_program_that_is_never_alone_learns_what_its_kernels_take() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    until("two go at a time", || books.ended().contains(&(2 * KERNEL)));
    let stretches = books.stretches(200);
    let long = stretches
        .iter()
        .filter(|ns| **ns > SLICE + SLIGHTLY)
        .count();
    assert_measured!(long == 0, "{long} of {stretches:?}");
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_slice_is_ignored_while_no_other_tenant_works() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    books.until_longer_than(4 * MS);
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_slice_that_comes_and_goes_in_the_same_epoch_is_obeyed_unannounced() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, 0));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    let device = &dealer.page().devices[0];
    for _ in 0..3 {
        books.until_longer_than(2 * MS);
        device.slice.store(SLICE, Ordering::Relaxed);
        books.until_shorter_than(SLICE + SLIGHTLY, 20);
        device.contended.store(0, Ordering::Relaxed);
        books.until_longer_than(2 * MS);
        device.contended.store(1, Ordering::Relaxed);
        books.until_shorter_than(SLICE + SLIGHTLY, 20);
        device.slice.store(0, Ordering::Relaxed);
    }
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn many_threads_and_streams_yield_together_and_make_progress() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    assert_eq!(guest.ask(&format!("storm 6 {}", 50 * US)), "storm 0");
    // Six threads with two streams each, and the legacy one.
    let stretches = books.stretches(400);
    let all: u64 = stretches.iter().sum();
    let mean = all / stretches.len() as u64;
    // Without yielding there is no end of one.
    println!("{mean} ns at a time, the mean");
    assert_measured!(mean <= SLICE, "{mean} ns at a time");
    guest.goes_on(100);
    assert_eq!(guest.ask("calm"), "calm 0");
    guest.finish().silently();
}

#[test]
fn one_operation_longer_than_a_slice_goes_alone() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, 3 * MS);
    books.until_shorter_than(3 * MS + SLIGHTLY, 10);
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn work_that_does_not_end_keeps_no_launch_waiting_for_ever() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let launched = guest.ask(&format!("launch 1 {}", 600_000 * MS));
    assert_eq!(launched, "launch 0");
    assert_eq!(guest.ask(&format!("launch 1 {KERNEL}")), "launch 0");
    guest.kill();
}

#[test]
fn yielding_does_not_affect_captures() {
    for mode in [0, 1, 2] {
        let gpu = Gpu::new("");
        let dealer = Dealer::start(&gpu);
        dealer.deal(&shared(1, true, SLICE));
        let mut guest = started(&dealer);
        works(&mut guest, KERNEL);
        assert_eq!(guest.ask(&format!("capture 10 {mode}")), "capture 10 0");
        guest.goes_on(20);
        rests(&mut guest);
        guest.finish().silently();
    }
}

#[test]
fn a_program_ends_while_it_yields_as_without_yielding() {
    for how in [0, 1] {
        // Its thread may launch during the driver's teardown, which the program does not prevent.
        let gpu = Gpu::new("exit=refuse");
        let dealer = Dealer::start(&gpu);
        dealer.deal(&shared(1, true, SLICE));
        let mut guest = started(&dealer);
        works(&mut guest, 5 * MS);
        guest.goes_on(5);
        guest.send(&format!("leave {how}"));
        let ended = guest.finish();
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        assert_eq!(ended.stderr, "", "{ended:?}");
    }
}

#[test]
fn a_gate_that_closes_while_a_launch_yields_is_closed_and_opens_again() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    works(&mut guest, KERNEL);
    for epoch in 1..20 {
        guest.goes_on(5);
        dealer.close(epoch);
        dealer.hears(&gpushare_protocol::wire::Request::Drained {
            device_index: 0,
            epoch,
        });
        let before = gpu.served();
        assert_eq!(guest.ask("query 1"), "query 0", "all of it is done");
        assert_eq!(gpu.served(), before);
        dealer.deal(&shared(epoch + 1, true, SLICE));
    }
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_free_gate_never_yields_whatever_the_page_contains() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let free = Turn {
        word: LeaseWord::new(1, LeaseState::Free),
        ..shared(1, true, SLICE)
    };
    dealer.deal(&free);
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    books.until_longer_than(4 * MS);
    rests(&mut guest);
    guest.finish().silently();
}
