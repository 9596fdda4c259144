//! Processes that died while there was no daemon: their rows are their tenant's to write.

use crate::node::{bare, gib, spec};
use gpushare_core::{
    Bytes, Decision, DeviceId, Event, Nanos, Oversubscribe, Policy, ProcessId, Running, TenantId,
    TenantSpec, World,
};

const DEVICE: DeviceId = DeviceId(1);
const TENANT: TenantId = TenantId(1);

/// A daemon that follows another, with a device of 16 GiB and a tenant of the previous one. Above
/// its limit that had held so much.
fn restarted(terms: TenantSpec, above: Bytes) -> World {
    let mut world = World::recovering(Policy::default(), Nanos::secs(2));
    bare::add_device(&mut world, DEVICE, gib(16));
    let running = Some(Running {
        above: vec![(DEVICE, above)],
        ..Running::default()
    });
    let (tenant, spec) = (TENANT, terms);
    tell(
        &mut world,
        Event::Register {
            tenant,
            spec,
            running,
        },
    );
    world
}

fn tell(world: &mut World, event: Event) {
    world.handle(Nanos::ZERO, event);
    world.check().expect("the accounts are right");
}

/// Rows of dead processes say that they hold so much, each.
fn rows_say(world: &mut World, charged: &[Bytes]) {
    for (process, charged) in (100..).map(ProcessId).zip(charged) {
        let event = Event::Unseen {
            process,
            tenant: TENANT,
            device: DEVICE,
            charged: *charged,
        };
        tell(world, event);
    }
}

/// The bytes that count as held by the tenant's dead, and the most that its living processes may
/// hold.
fn limbo(world: &World) -> (Bytes, Bytes) {
    let account = world.account(TENANT, DEVICE).expect("it runs");
    (account.limbo, account.ceiling)
}

/// Whether a tenant with this request is admitted once all have come.
fn admits(world: &mut World, request: u64) -> bool {
    let tenant = TenantId(2);
    let spec = spec(DEVICE, request, request);
    world.handle(
        Nanos::secs(3),
        Event::Register {
            tenant,
            spec,
            running: None,
        },
    );
    let mut decisions = std::iter::from_fn(|| world.poll_decision());
    decisions.any(|one| matches!(one, Decision::Admit { tenant: of, .. } if of == tenant))
}

#[test]
fn rows_of_the_dead_count_until_a_look_shows_otherwise() {
    let mut world = restarted(spec(DEVICE, 0, 4), Bytes::ZERO);
    rows_say(&mut world, &[gib(1), gib(2)]);
    assert_eq!(limbo(&world), (gib(3), gib(1)));
}

#[test]
fn rows_of_the_dead_hold_no_more_than_their_tenants_limit() {
    let mut world = restarted(spec(DEVICE, 0, 4), Bytes::ZERO);
    rows_say(&mut world, &[gib(1 << 11); 512]);
    assert_eq!(limbo(&world), (gib(4), gib(0)));
    assert!(admits(&mut world, 11));
}

/// Its charges would count as the other tenant's.
#[test]
fn a_row_that_names_a_dead_process_of_another_tenant_says_nothing() {
    let mut world = restarted(spec(DEVICE, 0, 4), Bytes::ZERO);
    let tenant = TenantId(2);
    let (terms, running) = (spec(DEVICE, 0, 4), Some(Running::default()));
    tell(
        &mut world,
        Event::Register {
            tenant,
            spec: terms,
            running,
        },
    );
    rows_say(&mut world, &[gib(1)]);
    for process in [ProcessId(100), ProcessId(101)] {
        let (device, charged) = (DEVICE, gib(4));
        tell(
            &mut world,
            Event::Unseen {
                process,
                tenant,
                device,
                charged,
            },
        );
    }
    assert_eq!(limbo(&world), (gib(1), gib(3)));
    let other = world.account(tenant, DEVICE).expect("it runs");
    assert_eq!(other.limbo, gib(4), "of its own one");
}

#[test]
fn the_dead_of_a_lowered_tenant_held_what_was_written_down() {
    let mut world = restarted(spec(DEVICE, 0, 4), gib(10));
    rows_say(&mut world, &[gib(8), gib(8)]);
    assert_eq!(limbo(&world), (gib(10), gib(0)));
}

#[test]
fn rows_of_managed_memory_hold_no_more_than_the_device_has() {
    let managed = TenantSpec {
        oversubscribe: Oversubscribe::Uvm,
        ..spec(DEVICE, 0, 64)
    };
    let mut world = restarted(managed, Bytes::ZERO);
    rows_say(&mut world, &[gib(12), gib(12)]);
    assert_eq!(limbo(&world).0, gib(16));
}
