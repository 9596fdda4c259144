//! Two bursts that do not fit one device, and how the collision ends.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant, alloc, until_some};

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";

fn ready(tenant: &Tenant) -> Guest {
    tenant.client("quota", &[]).started()
}

/// Two tenants that may burst to 12 GiB each, and a guest in each. The first one holds 10 GiB.
fn crowded(daemon: &Daemon, second: &[(&str, &str)]) -> (Tenant, Tenant, Guest, Guest) {
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let first = daemon.tenant("a", &limits);
    let second = daemon.tenant("b", &[&limits, second].concat());
    let (mut a, b) = (ready(&first), ready(&second));
    assert_eq!(a.ask(&alloc(10 * GIB)), GRANTED);
    (first, second, a, b)
}

/// How long the tenant's ask waited until it was told as refused, by the daemon's own clock:
/// milliseconds.
fn waited(daemon: &Daemon, tenant: &str) -> u64 {
    until_some("the refusal is told", || {
        let past = daemon.commands().past();
        let at = |kind: &str| {
            let mut of = past.iter().filter(|event| event.kind == kind);
            let own = of.find(|event| event.tenant.as_deref() == Some(tenant));
            own.map(|event| event.at_ms)
        };
        at("refused")
            .zip(at("waiting"))
            .map(|(refused, asked)| refused - asked)
    })
}

#[test]
fn a_burst_that_does_not_fit_waits_and_is_served_when_the_other_frees() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let (_first, _second, mut a, mut b) = crowded(&daemon, &[]);
    b.send(&alloc(10 * GIB));
    daemon.until_one_waits("b");
    assert_eq!(a.ask("free 1"), "free 0");
    assert_eq!(b.line(), GRANTED);
    assert_eq!(daemon.row("b").charged, 10 * GIB);
    assert_eq!(a.ask(&alloc(GIB)), GRANTED, "its request is guaranteed");
}

#[test]
fn a_burst_that_waits_is_served_when_the_other_dies() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let (_first, _second, a, mut b) = crowded(&daemon, &[]);
    b.send(&alloc(10 * GIB));
    daemon.until_one_waits("b");
    a.kill();
    assert_eq!(b.line(), GRANTED);
}

#[test]
fn a_wait_ends_in_out_of_memory_at_its_timeout_and_the_program_goes_on() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let timeout = [("GPUSHARE_WAIT_TIMEOUT", "2s")];
    let (_first, _second, _a, mut b) = crowded(&daemon, &timeout);
    assert_eq!(b.ask(&alloc(10 * GIB)), REFUSED);
    // The daemon counts from when it has read the request of a call that began before.
    let waited = waited(&daemon, "b");
    assert!(waited >= 1_000, "{waited} ms");
    assert_eq!(b.ask(&alloc(GIB)), GRANTED);
    assert_eq!(b.ask("check"), "check 1");
}

#[test]
fn with_fail_a_collision_is_an_out_of_memory_at_once() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    // A wait would outlast the test.
    let fail = [
        ("GPUSHARE_ON_COLLISION", "fail"),
        ("GPUSHARE_WAIT_TIMEOUT", "1h"),
    ];
    let (_first, _second, mut a, mut b) = crowded(&daemon, &fail);
    assert_eq!(b.ask(&alloc(10 * GIB)), REFUSED);
    assert_eq!(a.ask("free 1"), "free 0");
    assert_eq!(
        b.ask(&alloc(10 * GIB)),
        GRANTED,
        "memory freed a moment ago is seen"
    );
}

#[test]
fn within_its_request_a_tenant_is_never_refused() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "16GiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    ];
    let burster = daemon.tenant("burster", &limits);
    let modest = daemon.tenant(
        "modest",
        &[
            ("GPUSHARE_MEM_LIMIT", "8GiB"),
            ("GPUSHARE_ON_COLLISION", "fail"),
        ],
    );
    let (mut a, mut b) = (ready(&burster), ready(&modest));
    let filled = a.ask(&format!("fill {}", 256 * MIB));
    assert!(filled.ends_with(" 2"), "{filled}");
    let borrowed = daemon.row("burster").charged;
    assert!(borrowed > GIB, "it may borrow unreserved memory");
    assert_eq!(
        b.ask(&format!("fill {}", 256 * MIB)),
        "fill 32 2",
        "all of its request"
    );
}

#[test]
fn two_tenants_that_wait_for_each_other_do_not_hang() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "1h"),
    ];
    let (first, second) = (daemon.tenant("a", &limits), daemon.tenant("b", &limits));
    let (mut a, mut b) = (ready(&first), ready(&second));
    assert_eq!(a.ask(&alloc(6 * GIB)), GRANTED);
    assert_eq!(b.ask(&alloc(6 * GIB)), GRANTED);
    a.send(&alloc(5 * GIB));
    daemon.until_one_waits("a");
    b.send(&alloc(5 * GIB));
    assert_eq!(b.line(), REFUSED, "the younger breaks the circle");
    assert_eq!(b.ask("free 1"), "free 0");
    assert_eq!(a.line(), GRANTED);
}

#[test]
fn a_driver_that_is_out_of_memory_inside_a_grant_is_asked_again() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let fails = ("SOFTGPU_FAIL", "cuMemAlloc_v2:3:CUDA_ERROR_OUT_OF_MEMORY");
    let mut guest = tenant.client("quota", &[fails]).started();
    for _ in 0..5 {
        assert_eq!(guest.ask(&alloc(GIB / 2)), GRANTED);
    }
    assert_eq!(guest.ask("check"), "check 5");
    let mut plain =
        gpushare_tests::guest::plain(&gpu, &gpushare_tests::clients::compile("quota", &[]));
    plain.env(fails.0, fails.1);
    let mut plain = Guest::start(plain).started();
    let answers = [(); 3].map(|()| plain.ask(&alloc(MIB)));
    assert_eq!(answers, [GRANTED, GRANTED, REFUSED], "without the library");
}
