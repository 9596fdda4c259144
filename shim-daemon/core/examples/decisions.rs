//! How many asks a second the core decides, on one thread, with the clock of this program: the core
//! has none.
//!
//! `cargo run --release -p gpushare-core --example decisions`
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark reads the clock and prints"
)]

#[path = "../tests/node/bare.rs"]
mod bare;

use gpushare_core::{
    AskId, Bytes, Decision, DeviceId, Event, Lease, LeaseKind, LeasePolicy, Nanos, Policy,
    ProcessId, Quota, TenantId, World,
};
use std::time::Instant;

const TENANTS: u64 = 1000;
const DEVICES: u64 = 16;
const ROUNDS: u64 = 300;

fn node(limit: Bytes, tenants: u64, lease: LeasePolicy) -> World {
    let mut world = World::new(Policy {
        first_overhead: Bytes::mib(100),
        lease,
        ..Policy::default()
    });
    for device in (0..DEVICES).map(DeviceId) {
        bare::add_device(&mut world, device, Bytes::gib(79));
    }
    for id in 0..tenants {
        let (tenant, process, device) = (TenantId(id), ProcessId(id), DeviceId(id % DEVICES));
        let quota = Quota {
            request: Bytes::mib(512),
            limit,
        };
        bare::register(&mut world, tenant, bare::spec(device, quota));
        bare::join(&mut world, tenant, process);
        bare::open(&mut world, process, device);
    }
    drain(&mut world);
    world
}

fn drain(world: &mut World) -> u64 {
    let mut answers = 0;
    while let Some(decision) = world.poll_decision() {
        answers += u64::from(matches!(decision, Decision::Answer { .. }));
    }
    answers
}

/// Every tenant grows step by step to its limit and then shows all of it unused.
fn measure(name: &str, limit: Bytes, bytes: Bytes) {
    let mut world = node(limit, TENANTS, LeasePolicy::default());
    let (mut events, mut answers, mut slowest) = (0_u64, 0_u64, 0);
    let start = Instant::now();
    for round in 1..=ROUNDS {
        let now = Nanos::millis(round);
        for id in 0..TENANTS {
            let (tenant, process, device) = (TenantId(id), ProcessId(id), DeviceId(id % DEVICES));
            let held = world
                .account(tenant, device)
                .map_or(Bytes::ZERO, |account| account.in_use);
            let event = match held + bytes > limit {
                true => Event::Usage {
                    tenant,
                    device,
                    in_use: Bytes::ZERO,
                },
                false => Event::Ask {
                    process,
                    device,
                    ask: AskId(1),
                    held,
                    bytes,
                    patience: None,
                },
            };
            let one = Instant::now();
            world.handle(now, event);
            answers += drain(&mut world);
            slowest = slowest.max(one.elapsed().as_nanos());
            events += 1;
        }
    }
    let nanos = start.elapsed().as_nanos().max(1);
    let rate = u128::from(events) * 1_000_000_000 / nanos;
    println!("{name}: {events} events, {answers} answers, {rate} events/s, slowest {slowest} ns");
}

/// All tenants want their device all the time: every gate that is closed wants, and every other
/// says that it has drained. Where turns are dealt, each turn is handed on, and each event decides
/// over all tenants of its device.
fn measure_leases(name: &str, tenants: u64, lease: LeasePolicy) {
    let mut world = node(Bytes::gib(1), tenants, lease);
    let (mut events, mut slowest, mut now) = (0_u64, 0, Nanos::ZERO);
    let report = |world: &World, id: u64| {
        let (tenant, device) = (TenantId(id), DeviceId(id % DEVICES));
        let lease = world.lease(tenant, device).unwrap_or(Lease::FREE);
        (ProcessId(id), device, lease)
    };
    let (start, before) = (Instant::now(), on_cpu());
    let mut tell = |world: &mut World, now: Nanos, event: Event| {
        let one = Instant::now();
        world.handle(now, event);
        drain(world);
        slowest = slowest.max(one.elapsed().as_nanos());
        events += 1;
    };
    for _ in 0..ROUNDS {
        for id in 0..tenants {
            let (process, device, lease) = report(&world, id);
            let epoch = lease.epoch;
            let event = match lease.kind {
                LeaseKind::Closed { .. } => Event::Reported {
                    process,
                    device,
                    epoch,
                    report: gpushare_core::Report::Wanted,
                },
                _ => Event::Reported {
                    process,
                    device,
                    epoch,
                    report: gpushare_core::Report::Drained,
                },
            };
            now = now + Nanos::micros(20);
            tell(&mut world, now, event);
        }
    }
    let nanos = start.elapsed().as_nanos().max(1);
    let rate = u128::from(events) * 1_000_000_000 / nanos;
    let alone = u128::from(events) * 1_000_000_000 / (on_cpu() - before).max(1);
    println!(
        "{name}: {events} events, {rate} events/s, {alone} a second of processor time, \
         slowest {slowest} ns"
    );
}

/// The processor time that this thread has had, in nanoseconds. On a loaded machine a rate by the
/// clock says little.
fn on_cpu() -> u128 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|time| time.parse().ok()).unwrap_or(0)
}

fn main() {
    measure("plenty, 8 MiB an ask   ", Bytes::mib(1000), Bytes::mib(8));
    measure("plenty, 100 MiB an ask ", Bytes::mib(1000), Bytes::mib(100));
    measure(
        "scarce, most of them wait",
        Bytes::mib(4000),
        Bytes::mib(100),
    );
    let (shared, turns) = (LeasePolicy::default(), LeasePolicy::turns());
    measure_leases("shared, 62 tenants each  ", 62 * DEVICES, shared);
    measure_leases("turns, 62 tenants each   ", 62 * DEVICES, turns);
    measure_leases("turns, 62 tenants in all ", 62, turns);
}
