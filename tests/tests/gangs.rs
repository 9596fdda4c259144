//! A container on two GPUs whose kernels wait for each other, beside a tenant on each: its turns are on both at once. The figures are
//! printed: `cargo nextest run -p gpushare-tests -E 'binary(gangs)' --no-capture`.

use std::time::{Duration, Instant};

use gpushare_tests::{Container, Daemon, Gpu, Guest};

/// The longest a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
const US: u64 = 1_000;

fn number(guest: &mut Guest) -> u64 {
    let answer = guest.ask("count");
    let number = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("{answer}"))
}

fn working(container: &Container, client: &str, devices: &str, ns: u64) -> Guest {
    let mut guest = container.client(client, &[("CUDA_VISIBLE_DEVICES", devices)]);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("work {ns}")), "work 0");
    guest
}

/// Waits until the guest has done `more`; how long that took.
#[track_caller]
fn goes_on(guest: &mut Guest, more: u64) -> Duration {
    let (began, before) = (Instant::now(), number(guest));
    while number(guest) < before + more {
        assert!(began.elapsed() < PATIENCE, "it stands still at {before}");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

fn stops(mut guest: Guest) {
    assert_eq!(guest.ask("stop"), "stop 0");
    guest.finish().silently();
}

#[test]
fn a_collective_on_two_gpus_goes_on_beside_a_tenant_on_each() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.container(name, &[]));
    // Who is alone launches as far ahead as the driver lets it, and has to finish that first.
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    goes_on(&mut gang, 100);
    let mut took = Duration::ZERO;
    for _ in 0..5 {
        took += goes_on(&mut gang, 200);
        goes_on(&mut first, 20);
        goes_on(&mut second, 20);
    }
    let share = daemon.share("both");
    let rate = 1000.0 / took.as_secs_f64();
    println!(
        "{rate:.0} collectives of 200 us a second beside a tenant on each GPU, {} turns, {} overruns",
        share.turns, share.overruns
    );
    stops(first);
    stops(second);
    stops(gang);
}

#[test]
fn a_gang_that_is_killed_leaves_both_gpus_to_others() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.container(name, &[]));
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    goes_on(&mut gang, 100);
    gang.kill();
    goes_on(&mut first, 200);
    goes_on(&mut second, 200);
    stops(first);
    stops(second);
}
