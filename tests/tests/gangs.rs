//! A tenant on two GPUs whose kernels wait for each other, beside a tenant on each: its turns
//! are on both at once. The figures are printed: `cargo nextest run -p gpushare-tests -E
//! 'test(/^gangs::/)' --no-capture`.

use std::time::{Duration, Instant};

use gpushare_tests::{Daemon, Gpu, Guest, Tenant};

const US: u64 = 1_000;

fn working(tenant: &Tenant, client: &str, devices: &str, ns: u64) -> Guest {
    let mut guest = tenant
        .client(client, &[("CUDA_VISIBLE_DEVICES", devices)])
        .started();
    assert_eq!(guest.ask(&format!("work {ns}")), "work 0");
    guest
}

#[test]
fn a_collective_on_two_gpus_goes_on_beside_a_tenant_on_each() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::in_turns(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.tenant(name, &[]));
    // A tenant alone launches as far ahead as the driver allows, and must finish that first.
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    gang.goes_on(100);
    let mut took = Duration::ZERO;
    for _ in 0..5 {
        let began = Instant::now();
        gang.goes_on(200);
        took += began.elapsed();
        first.goes_on(20);
        second.goes_on(20);
    }
    let share = daemon.share("both");
    let rate = 1000.0 / took.as_secs_f64();
    println!(
        "{rate:.0} collectives of 200 us a second beside a tenant on each GPU, {} turns, {} overruns",
        share.turns, share.overruns
    );
    first.stops();
    second.stops();
    gang.stops();
}

#[test]
fn a_gang_that_is_killed_leaves_both_gpus_to_others() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::in_turns(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.tenant(name, &[]));
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    gang.goes_on(100);
    gang.kill();
    first.goes_on(200);
    second.goes_on(200);
    first.stops();
    second.stops();
}
