//! A process's registrations by several of its threads: one that only looks at the tenant, and one
//! that starts CUDA.

use gpushare_tests::{Dealer, Gpu, until};

#[test]
fn a_look_that_is_slow_takes_no_place_from_the_process() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.rivals().arm();
    let mut guest = dealer.client("turns");
    guest.does("peek");
    dealer.rivals().until_the_first_greets();
    guest.does("init");
    guest.does("launch 3 1000");
    until("NVML answers", || guest.ask("peeked") == "peeked 1");
    guest.finish().silently();
}

#[test]
fn a_look_registers_before_the_start_and_not_after_it() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = dealer.client("turns");
    for (step, registrations) in [("pid", 1), ("init", 2), ("copies", 2)] {
        guest.ask(step);
        guest.does("peek");
        until("NVML answers", || guest.ask("peeked") == "peeked 1");
        assert_eq!(dealer.rivals().registrations(), registrations);
    }
    guest.finish().silently();
}
