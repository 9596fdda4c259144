//! A world without a node around it, at its first instant: for tests that check its decisions one
//! by one, and for `examples/`, which time them.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "everybody uses their own part of it"
)]

use gpushare_core::{
    AskId, Bytes, CostClass, DeviceId, DeviceSpec, Event, Nanos, Oversubscribe, Preemptible,
    ProcessId, Quota, Resolver, TenantId, TenantSpec, World,
};

/// One device; waits, and may not be ended.
pub fn spec(device: DeviceId, quota: Quota) -> TenantSpec {
    TenantSpec {
        quotas: vec![(device, quota)],
        implied: Vec::new(),
        compute: Vec::new(),
        priority: 500,
        on_collision: vec![Resolver::Wait],
        wait_timeout: Nanos::secs(30),
        idle_after: Nanos::secs(5),
        preemptible: Preemptible::Never,
        oversubscribe: Oversubscribe::Off,
        idle_end: None,
        run_limit: None,
        gang: None,
    }
}

/// A device of which nothing is kept back.
pub fn add_device(world: &mut World, device: DeviceId, capacity: Bytes) {
    let spec = DeviceSpec {
        capacity,
        reserve: Bytes::ZERO,
        class: CostClass(0),
    };
    world.handle(Nanos::ZERO, Event::DeviceAdded { device, spec });
}

pub fn register(world: &mut World, tenant: TenantId, spec: TenantSpec) {
    let running = None;
    let event = Event::Register {
        tenant,
        spec,
        running,
    };
    world.handle(Nanos::ZERO, event);
}

/// A process that knows of turns joins its tenant.
pub fn join(world: &mut World, tenant: TenantId, process: ProcessId) {
    let event = Event::ProcessStarted {
        process,
        tenant,
        adopted: true,
        gated: true,
    };
    world.handle(Nanos::ZERO, event);
}

/// A process makes its context.
pub fn open(world: &mut World, process: ProcessId, device: DeviceId) {
    let event = Event::Open {
        process,
        device,
        ask: AskId(0),
    };
    world.handle(Nanos::ZERO, event);
}
