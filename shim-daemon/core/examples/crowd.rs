//! The time of one event while a hostile tenant has as many waiting asks as allowed: 512 processes
//! with 16 each.
//!
//! `cargo run --release -p gpushare-core --example crowd`
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark reads the clock and prints"
)]

#[path = "../tests/node/bare.rs"]
mod bare;

use gpushare_core::{
    AskId, Bytes, DeviceId, Event, Nanos, Policy, ProcessId, Quota, Resolver, TenantId, TenantSpec,
    World,
};
use std::time::Instant;

const DEVICE: DeviceId = DeviceId(0);
const HOSTILE: TenantId = TenantId(1_000_000);
const PROCESSES: u64 = 512;
const ASKS: u64 = 16;

fn register(world: &mut World, tenant: TenantId) {
    let quota = Quota {
        request: Bytes::mib(16),
        limit: Bytes::gib(80),
    };
    let spec = TenantSpec {
        on_collision: vec![Resolver::Priority, Resolver::Wait],
        wait_timeout: Nanos::secs(300),
        ..bare::spec(DEVICE, quota)
    };
    bare::register(world, tenant, spec);
}

fn ask(world: &mut World, now: Nanos, process: u64, ask: u64, bytes: Bytes) {
    world.handle(
        now,
        Event::Ask {
            process: ProcessId(process),
            device: DEVICE,
            ask: AskId(ask),
            held: Bytes::ZERO,
            bytes,
            patience: None,
        },
    );
}

fn timed(name: &str, world: &mut World, event: impl FnOnce(&mut World)) {
    let start = Instant::now();
    event(world);
    let taken = start.elapsed();
    let decisions = std::iter::from_fn(|| world.poll_decision()).count();
    println!("  {name:<40} {taken:>12.1?}, {decisions} decisions");
}

fn measure(tenants: u64) {
    let mut world = World::new(Policy {
        first_overhead: Bytes::mib(10),
        most_waiting: usize::try_from(ASKS).unwrap_or(usize::MAX),
        ..Policy::default()
    });
    bare::add_device(&mut world, DEVICE, Bytes::gib(80));
    for id in 0..tenants {
        register(&mut world, TenantId(id));
        bare::join(&mut world, TenantId(id), ProcessId(id));
        ask(&mut world, Nanos::ZERO, id, 1, Bytes::mib(16));
    }
    register(&mut world, HOSTILE);
    for process in 0..PROCESSES {
        bare::join(&mut world, HOSTILE, ProcessId(10_000 + process));
    }
    while world.poll_decision().is_some() {}
    let start = Instant::now();
    for process in 0..PROCESSES {
        for number in 0..ASKS {
            // 80 GiB never fit: the others hold something.
            ask(
                &mut world,
                Nanos::millis(1),
                10_000 + process,
                number,
                Bytes::gib(80),
            );
        }
    }
    let waiting = world.waiting_on(DEVICE);
    println!(
        "{tenants} tenants, {waiting} asks wait; making them took {:.1?}",
        start.elapsed()
    );
    while world.poll_decision().is_some() {}
    let now = Nanos::millis(100);
    timed("another asks within its request", &mut world, |world| {
        ask(world, now, 1, 2, Bytes::mib(8))
    });
    timed("another has freed", &mut world, |world| {
        world.handle(
            now,
            Event::Usage {
                tenant: TenantId(0),
                device: DEVICE,
                in_use: Bytes::mib(1),
            },
        );
    });
    timed("the hostile one cancels one", &mut world, |world| {
        world.handle(
            now,
            Event::Cancel {
                process: ProcessId(10_000),
                ask: AskId(3),
            },
        );
    });
    let later = world.next_timeout().unwrap_or(now).max(Nanos::secs(3));
    timed("the look for cycles", &mut world, |world| {
        world.advance(later)
    });
}

fn main() {
    measure(10);
    measure(1000);
}
