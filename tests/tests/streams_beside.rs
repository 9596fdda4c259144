//! Streams of one program at an open gate that may bind: they run beside each other as without
//! gpushare, and launches of ever new shapes leave the device not idle for long.

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_tests::guest::plain;
use gpushare_tests::{Dealer, Gpu, Guest, assert_measured, clients, links};

const MS: u64 = 1_000_000;

/// How many kernels the client has done: without gpushare, or at a gate that is open beside another
/// tenant, which may be `contended`.
fn done(words: &[&str], contended: Option<bool>) -> f64 {
    let gpu = Gpu::new("");
    let program = clients::compile("beside", &[]);
    let dealer = contended.map(|contended| {
        let dealer = Dealer::start(&gpu);
        dealer.deal(&Turn {
            word: LeaseWord::new(1, LeaseState::Open),
            deadline: NO_DEADLINE,
            window: 5 * MS,
            idle_after: 20 * MS,
            contended,
            ..Turn::default()
        });
        dealer
    });
    let mut command = match &dealer {
        Some(dealer) => dealer.command(&program),
        None => plain(&gpu, &program),
    };
    command.env("LD_LIBRARY_PATH", links()).args(words);
    let said = Guest::start(command).finish().silently();
    eprintln!("{words:?}, {contended:?}: {said}");
    let numbers: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((numbers[0], numbers[2]), (words[0], "0"), "{said}");
    numbers[1].parse().expect("a number")
}

#[test]
fn streams_that_fit_beside_each_other_keep_their_speed() {
    let [bare, done] = [None, Some(false)].map(|how| done(&["wide", "8", "20000000", "2000"], how));
    // Two at a time would be a quarter.
    assert_measured!(done >= 0.5 * bare, "{done} of {bare} kernels");
}

#[test]
fn short_kernels_beside_a_long_one_of_another_stream_are_not_kept() {
    let words = ["short", "1500000000", "1500"];
    let [bare, done] = [None, Some(true)].map(|how| done(&words, how));
    // One each 20 ms would be 75.
    assert_measured!(done >= 0.2 * bare, "{done} of {bare} kernels");
}

#[test]
fn launches_of_ever_new_shapes_keep_the_device_busy() {
    let [one, new] = ["shape", "shapes"].map(|how| done(&[how, "50000", "1500"], Some(true)));
    assert_measured!(new >= 0.25 * one, "{new} of {one} kernels");
}
