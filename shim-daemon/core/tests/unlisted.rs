//! Drivers that list processes without their managed memory, and drivers that list it.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, gib, mib, secs, spec};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Oversubscribe, Place, Policy, ProcessId, TenantId,
    TenantSpec,
};

/// A device of 16 GiB with a tenant that has a measured context of 512 MiB and has charged so many
/// GiB, all of them managed memory of its own.
pub(crate) fn holding(listed: bool, charged: u64) -> (Node, DeviceId, TenantId, ProcessId) {
    let mut node = Node::with(Policy {
        first_overhead: mib(512),
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(16);
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .lists_managed = listed;
    let (tenant, process) = node.run(spec(device, 0, 16));
    node.sample(device);
    let ask = node.want(process, device, gib(charged));
    assert!(node.granted(ask));
    let proc = node.processes.get_mut(&process).expect("it runs");
    proc.managed.insert(device, gib(charged));
    (node, device, tenant, process)
}

pub(crate) fn unmanaged(node: &Node, device: DeviceId) -> Bytes {
    node.world.device(device).expect("it exists").unmanaged
}

/// A look that shows more in use than there is, of which it lists so much for strangers.
pub(crate) fn sees_more(node: &mut Node, device: DeviceId, more: Bytes, listed: Bytes) {
    let Event::Sampled { device, mut sample } = node.look_at(device) else {
        unreachable!()
    };
    (sample.used, sample.strangers) = (sample.used + more, sample.strangers + listed);
    node.tell(Event::Sampled { device, sample });
}

#[test]
fn managed_memory_that_is_listed_nowhere_is_its_tenants() {
    for listed in [true, false] {
        let (mut node, device, tenant, _) = holding(listed, 8);
        node.sample(device);
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        let account = node.world.account(tenant, device).unwrap();
        assert_eq!((account.overhead, account.excess), (mib(512), Bytes::ZERO));
        assert_eq!(node.world.context_cost(device), mib(512));
        // A neighbour is admitted to all that is left, and gets it.
        let (_, neighbour) = node.run(spec(device, 7, 7));
        let ask = node.want(neighbour, device, gib(7));
        assert!(node.granted(ask));
    }
}

#[test]
fn memory_beyond_all_charges_is_unmanaged() {
    for listed in [true, false] {
        let (mut node, device, ..) = holding(listed, 8);
        sees_more(&mut node, device, gib(3), Bytes::ZERO);
        assert_eq!(unmanaged(&node, device), gib(3));
        node.sample(device);
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
    }
}

#[test]
fn memory_that_is_listed_for_strangers_is_no_tenants() {
    for on_host in [Bytes::ZERO, gib(5)] {
        let (mut node, device, _, process) = holding(false, 8);
        // Of its pages so many are on the host: it is charged for them too.
        let proc = node.processes.get_mut(&process).expect("it runs");
        proc.set_away(device, on_host);
        proc.managed.insert(device, gib(8) - on_host);
        sees_more(&mut node, device, gib(5), gib(5));
        assert_eq!(unmanaged(&node, device), gib(5));
    }
}

#[test]
fn managed_memory_of_the_dead_is_limbo_until_it_is_gone() {
    let (mut node, device, _, process) = holding(false, 8);
    node.sample(device);
    node.devices.get_mut(&device).expect("it exists").linger = Some(secs(2));
    node.exit(process);
    let Event::Sampled { device, mut sample } = node.look_at(device) else {
        unreachable!()
    };
    for seen in sample.processes.iter_mut().flatten() {
        assert_eq!(seen.used, gib(8) + mib(512));
        seen.used = mib(512);
    }
    node.tell(Event::Sampled { device, sample });
    let view = node.world.device(device).unwrap();
    assert_eq!(
        (view.limbo, view.unmanaged),
        (gib(8) + mib(512), Bytes::ZERO)
    );
    node.live(secs(3));
    let view = node.world.device(device).unwrap();
    assert_eq!((view.limbo, view.unmanaged), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn the_last_look_says_whose_is_what_appears_or_stays_unlisted() {
    for on_card in [true, false] {
        let (mut node, device, _, process) = holding(false, 8);
        let (_, neighbour) = node.run(spec(device, 0, 4));
        let ask = node.want(neighbour, device, gib(4));
        assert!(node.granted(ask));
        node.live(secs(2));
        if !on_card {
            let proc = node.processes.get_mut(&process).expect("it runs");
            proc.set_away(device, gib(8));
            proc.managed.insert(device, Bytes::ZERO);
            node.live(secs(2));
        }
        // Of a process that dies no list has anything more, and its memory stays only where the
        // tenant's pages have left.
        let hardware = node.devices.get_mut(&device).expect("it exists");
        hardware.linger = Some(if on_card { Nanos::ZERO } else { secs(2) });
        hardware.lists_dead = false;
        node.exit(neighbour);
        node.live(Nanos::millis(100));
        let limbo = node.world.device(device).unwrap().limbo;
        assert_eq!(limbo.is_zero(), on_card, "{limbo:?}");
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
    }
}

#[test]
fn managed_memory_counts_as_little_away_as_it_is_listed() {
    for listed in [true, false] {
        let (mut node, device) = Node::swaps(2048, 64);
        node.devices
            .get_mut(&device)
            .expect("it exists")
            .lists_managed = listed;
        let (tenant, process) = node.run(swapping(device, 1024));
        node.want(process, device, mib(1024));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.residue) = (false, mib(256));
        let proc = node.processes.get_mut(&process).expect("it runs");
        proc.managed.insert(device, mib(256));
        node.sample(device);
        node.tell(Event::Suspend { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::Out);
        let account = node.world.account(tenant, device).unwrap();
        assert_eq!(account.away, mib(768), "listed: {listed}");
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        node.tell(Event::Resume { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::In);
        let account = node.world.account(tenant, device).unwrap();
        assert_eq!((account.away, account.excess), (Bytes::ZERO, Bytes::ZERO));
    }
}

#[test]
fn tenants_under_uvm_take_turns_whatever_is_listed_or_kept() {
    for (listed, keeps) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut node = Node::with(policy(0));
        let device = node.device_of(mib(1024));
        let hardware = node.devices.get_mut(&device).expect("it exists");
        (hardware.lists_managed, hardware.keeps) = (listed, keeps);
        let tenants = [(); 2].map(|()| {
            let (tenant, process) = node.run(TenantSpec {
                oversubscribe: Oversubscribe::Uvm,
                ..swapping(device, 2048)
            });
            node.want(process, device, mib(2048));
            tenant
        });
        for _ in 0..60 {
            for tenant in tenants {
                node.tell(Event::Worked { tenant });
            }
            node.live(secs(1));
            assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        }
        for tenant in tenants {
            let left = |notice: &Notice| matches!(notice, Notice::Left { tenant: of, .. } if *of == tenant);
            assert!(node.notices.iter().any(left), "listed: {listed}");
        }
        let wrong =
            |notice: &Notice| matches!(notice, Notice::Overdrawn { .. } | Notice::LeftLess { .. });
        assert!(!node.notices.iter().any(wrong), "listed: {listed}");
    }
}

#[test]
fn what_is_kept_of_managed_memory_is_there_for_a_neighbour_at_once() {
    for (processes, listed) in [(true, true), (true, false), (false, false)] {
        let mut node = Node::with(policy(0));
        let device = node.device_of(mib(1024));
        let hardware = node.devices.get_mut(&device).expect("it exists");
        (hardware.lists_processes, hardware.lists_managed) = (processes, listed);
        let (tenant, process) = node.run(TenantSpec {
            oversubscribe: Oversubscribe::Uvm,
            ..swapping(device, 1024)
        });
        node.want(process, device, mib(1000));
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        node.sample(device);
        node.tell(Event::Suspend { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::Out);
        assert_eq!(node.physical(device), mib(1000), "all is kept");
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        let (_, neighbour) = node.run(spec(device, 0, 1));
        let ask = node.want(neighbour, device, mib(900));
        assert!(
            node.granted(ask),
            "processes: {processes}, managed: {listed}"
        );
        node.live(secs(1));
        assert_eq!(unmanaged(&node, device), Bytes::ZERO);
        // It is the neighbour's, and what that frees is kept by nobody.
        assert!(
            !node
                .notices
                .iter()
                .any(|notice| matches!(notice, Notice::Excess { .. }))
        );
    }
}

/// The pages that the driver keeps are listed or not: either way the tenant's unused grant is
/// another's.
#[test]
fn what_a_tenant_freed_before_it_left_is_there_for_a_neighbour() {
    for (listed, keeps) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut node, device) = Node::swaps(2048, 64);
        let hardware = node.devices.get_mut(&device).expect("it exists");
        (hardware.lists_managed, hardware.keeps) = (listed, keeps);
        let (tenant, process) = node.run(TenantSpec {
            oversubscribe: Oversubscribe::Uvm,
            ..swapping(device, 4096)
        });
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        node.want(process, device, mib(1792));
        node.live(secs(1));
        node.free(process, device, mib(640));
        node.tell(Event::Suspend { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::Out);
        let (_, neighbour) = node.run(swapping(device, 1536));
        let ask = node.want(neighbour, device, mib(1536));
        node.live(Nanos::millis(500));
        assert!(node.granted(ask), "listed: {listed}, keeps: {keeps}");
        let account = node.world.account(tenant, device).expect("admitted");
        assert_eq!((account.in_use, account.away), (mib(1152), mib(1152)));
    }
}
