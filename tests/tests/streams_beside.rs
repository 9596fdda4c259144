//! Streams of a program that a cap binds run beside each other as without one; and its launches of
//! new shapes leave the device no longer idle than those of one.

use gpushare_tests::{Alone, Gpu, Guest, assert_measured, clients};

/// How many kernels the client has done, alone on the device under a cap of 90 %.
fn done(words: &[&str]) -> f64 {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut command = alone.command(&["--sm-limit", "90"], &clients::compile("beside", &[]));
    command.args(words);
    let said = Guest::start(command).finish().silently();
    let numbers: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((numbers[0], numbers[2]), (words[0], "0"), "{said}");
    println!("{words:?}: {said}");
    numbers[1].parse().expect("a number")
}

#[test]
fn streams_that_fit_beside_each_other_keep_their_speed_under_a_cap() {
    let done = done(&["wide", "8", "20000000", "3000"]);
    let bare = 8.0 * 3000.0 / 20.0;
    assert_measured!(done >= 0.9 * 0.75 * bare, "{done} of {bare} kernels");
}

#[test]
fn short_kernels_beside_a_long_one_of_another_stream_are_not_kept() {
    let done = done(&["short", "1500000000", "1500"]);
    // One each 20 ms would be 75.
    assert_measured!(done >= 1500.0, "{done} kernels of 100 us in 1.5 s");
}

#[test]
fn launches_of_ever_new_shapes_keep_the_device_busy() {
    let [one, new] = ["shape", "shapes"].map(|how| done(&[how, "50000", "1500"]));
    assert_measured!(new >= 0.6 * one, "{new} of {one} kernels");
}
