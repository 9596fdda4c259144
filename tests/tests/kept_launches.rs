//! Work under way that waits for a launch which the gate keeps: the launch goes after a moment.

use gpushare_tests::{Alone, Gpu, Guest, clients};

#[test]
fn a_capped_program_whose_work_waits_for_its_next_launch_goes_on() {
    // 64 pairs of 2 ms: with a launch kept for 10 s the test would not end in its time.
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut command = alone.command(&["--sm-limit", "40"], &clients::compile("pairs", &[]));
    command.args(["64", "2000000"]);
    let ended = Guest::start(command).finish();
    assert_eq!(ended.silently(), "pairs 64 0\n");
}
