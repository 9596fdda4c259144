//! Unlisted memory while something else happens: a death, a move, strangers that come and go.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, gib, mib, secs};
use crate::unlisted::{holding, sees_more, unmanaged};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Oversubscribe, Place, Policy, ProcessId, TenantId,
    TenantSpec,
};

/// A device of 16 GiB that lists no managed memory, and a tenant under `uvm` that has a measured
/// context of 512 MiB and has charged 10 GiB.
fn paged() -> (Node, DeviceId, TenantId) {
    let mut node = Node::with(Policy {
        first_overhead: mib(512),
        ..policy(0)
    });
    let device = node.device(16);
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.lists_managed = false;
    let (tenant, process) = node.run(TenantSpec {
        oversubscribe: Oversubscribe::Uvm,
        ..swapping(device, 16 << 10)
    });
    node.sample(device);
    let ask = node.want(process, device, gib(10));
    assert!(node.granted(ask));
    let guest = node.guests.get_mut(&tenant).expect("it runs");
    guest.moves.works = false;
    (node, device, tenant)
}

fn limbo(node: &Node, device: DeviceId) -> Bytes {
    node.world.device(device).expect("it exists").limbo
}

/// From now on so much is listed for strangers.
fn strangers(node: &mut Node, device: DeviceId, bytes: Bytes) {
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.foreign = bytes;
}

#[test]
fn a_death_during_a_look_makes_no_memory_unmanaged() {
    for lingers in [true, false] {
        let (mut node, device, _, process) = holding(false, 8);
        node.sample(device);
        let hardware = node.devices.get_mut(&device).expect("it exists");
        hardware.linger = Some(if lingers { secs(60) } else { Nanos::ZERO });
        hardware.lists_dead = false;
        let look = node.look_at(device);
        // The look that follows the death at once is not told before this one.
        let gone = node.kill(process).expect("it lived");
        let now = node.now;
        node.world.handle(now, gone);
        node.world.handle(now, look);
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        assert_eq!(limbo(&node, device), gib(8) + mib(512));
        node.sample(device);
        let rest = if lingers {
            gib(8) + mib(512)
        } else {
            Bytes::ZERO
        };
        assert_eq!(limbo(&node, device), rest);
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        let overdrawn = |notice: &Notice| matches!(notice, Notice::Overdrawn { .. });
        assert!(!node.notices.iter().any(overdrawn));
    }
}

#[test]
fn a_tenant_that_leaves_is_given_its_room_once() {
    let none = Bytes::ZERO;
    // Before the move strangers leave room for all of it, or for 6 GiB.
    for (before, listed) in [(none, gib(3)), (none, none), (mib(9728), none)] {
        let (mut node, device, tenant) = paged();
        strangers(&mut node, device, before);
        node.live(secs(2));
        assert_eq!(unmanaged(&node, device), before);
        node.obeys(tenant, Obeys::Halting);
        node.tell(Event::Suspend { tenant });
        node.live(Nanos::millis(20));
        assert_eq!(node.place(tenant, device), Place::Leaving);
        strangers(&mut node, device, none);
        sees_more(&mut node, device, gib(3), listed);
        let account = node.world.account(tenant, device).expect("admitted");
        assert_eq!(account.excess, none, "{before} {listed}");
        assert_eq!(unmanaged(&node, device), gib(3), "{before} {listed}");
    }
}

#[test]
fn memory_that_is_listed_for_strangers_is_no_dead_process() {
    let (mut node, device, _, process) = holding(false, 6);
    node.sample(device);
    strangers(&mut node, device, gib(6));
    node.exit(process);
    node.live(Nanos::millis(100));
    assert_eq!(
        (limbo(&node, device), unmanaged(&node, device)),
        (Bytes::ZERO, gib(6))
    );
}

#[test]
fn what_strangers_free_hides_no_memory_of_the_dead() {
    let (mut node, device, _, process) = holding(false, 6);
    strangers(&mut node, device, gib(6));
    node.live(secs(1));
    let hardware = node.devices.get_mut(&device).expect("it exists");
    (hardware.linger, hardware.lists_dead) = (Some(secs(2)), false);
    strangers(&mut node, device, Bytes::ZERO);
    node.exit(process);
    node.live(Nanos::millis(100));
    assert_eq!(
        (limbo(&node, device), unmanaged(&node, device)),
        (gib(6) + mib(512), Bytes::ZERO)
    );
}

#[test]
fn managed_memory_that_is_reported_gone_counts_for_nothing_at_once() {
    // It left and is kept, or strangers took it meanwhile, or nothing left: the driver would give
    // it to others in any case.
    for (foreign, obeys) in [
        (Bytes::ZERO, Obeys::Honestly),
        (gib(3), Obeys::Honestly),
        (Bytes::ZERO, Obeys::Lying),
    ] {
        let (mut node, device, tenant) = paged();
        node.live(secs(2));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        moves.rate = 1 << 50;
        strangers(&mut node, device, foreign);
        node.obeys(tenant, obeys);
        node.tell(Event::Suspend { tenant });
        node.live(Nanos::millis(50));
        assert_eq!(node.place(tenant, device), Place::Out, "{foreign:?}");
        node.live(secs(1));
        assert_eq!(unmanaged(&node, device), foreign);
        let account = node.world.account(tenant, device).expect("admitted");
        assert_eq!((account.away, account.excess), (gib(10), Bytes::ZERO));
    }
}

/// A look during which the tenant's process is granted so much, of which its program has taken
/// nothing yet. The device has 6 GiB more in use than it lists.
fn look_during_a_grant(node: &mut Node, device: DeviceId, process: ProcessId, bytes: Bytes) {
    let Event::Sampled { device, mut sample } = node.look_at(device) else {
        unreachable!()
    };
    sample.used += gib(6);
    let ask = node.want(process, device, bytes);
    assert!(node.granted(ask));
    node.tell(Event::Sampled { device, sample });
}

#[test]
fn a_grant_made_during_a_look_explains_no_strangers_memory() {
    for before in [0, 2] {
        let (mut node, device, tenant, process) = holding(false, before);
        let none = Bytes::ZERO;
        sees_more(&mut node, device, gib(6), none);
        look_during_a_grant(&mut node, device, process, gib(4));
        assert_eq!(unmanaged(&node, device), gib(6), "{before}");
        let account = node.world.account(tenant, device).expect("admitted");
        assert_eq!(account.excess, none);
        // What the program takes of it is its tenant's at the next look.
        let proc = node.processes.get_mut(&process).expect("it runs");
        proc.managed.insert(device, gib(before + 4));
        sees_more(&mut node, device, gib(6), none);
        assert_eq!(unmanaged(&node, device), gib(6), "{before}");
    }
}

#[test]
fn what_is_freed_during_a_look_explains_no_strangers_memory() {
    let (mut node, device, _, process) = holding(false, 8);
    sees_more(&mut node, device, gib(6), Bytes::ZERO);
    let Event::Sampled { device, mut sample } = node.look_at(device) else {
        unreachable!()
    };
    // The total was read after the free, and the page was not.
    sample.used -= gib(4);
    sample.used += gib(6);
    sample
        .charged
        .values_mut()
        .for_each(|bytes| *bytes = gib(4));
    node.tell(Event::Sampled { device, sample });
    assert_eq!(unmanaged(&node, device), gib(6));
    // A look that began after the frees and before they were read says the same.
    let proc = node.processes.get_mut(&process).expect("it runs");
    proc.charged.insert(device, gib(4));
    proc.managed.insert(device, gib(4));
    sees_more(&mut node, device, gib(6), Bytes::ZERO);
    assert_eq!(unmanaged(&node, device), gib(6));
}
