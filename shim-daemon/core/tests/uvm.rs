//! Tenants with managed memory: what the card cannot hold beside others is booked on the host, and
//! nothing of it needs the host budget.

use crate::node::late::RECOVERY;
use crate::node::swap::{policy, swapping};
use crate::node::{Node, Rng, killable, mib, secs, spec};
use crate::swap::denials;
use gpushare_core::{
    Bytes, DeviceId, Event, Notice, Oversubscribe, Place, ProcessId, Quota, Resolver, SpecError,
    TenantId, TenantSpec,
};

pub(crate) fn managed(device: DeviceId, limit_mib: u64) -> TenantSpec {
    TenantSpec {
        oversubscribe: Oversubscribe::Uvm,
        ..swapping(device, limit_mib)
    }
}

/// A node of one device of so many MiB, without host memory to swap.
pub(crate) fn card(mib: u64) -> (Node, DeviceId) {
    let mut node = Node::with(policy(0));
    let device = node.device_of(Bytes::mib(mib));
    (node, device)
}

fn taken(node: &Node, device: DeviceId) -> Bytes {
    node.world.device(device).expect("it exists").taken
}

pub(crate) fn work(node: &mut Node, tenants: &[TenantId], seconds: u64) {
    for _ in 0..seconds {
        for tenant in tenants {
            node.tell(Event::Worked { tenant: *tenant });
        }
        node.live(secs(1));
    }
}

#[test]
fn a_lone_tenant_is_granted_more_than_the_card() {
    let (mut node, device) = card(1024);
    let (tenant, process) = node.run(managed(device, 4096));
    for _ in 0..4 {
        let ask = node.want(process, device, mib(1024));
        assert!(node.granted(ask));
    }
    let account = node.world.account(tenant, device).expect("it is admitted");
    assert_eq!(
        (account.grant, taken(&node, device)),
        (mib(4096), mib(1024))
    );
    // Its limit is the end of it.
    let more = node.want(process, device, mib(1));
    node.live(secs(60));
    assert!(!node.granted(more));
    node.live(secs(5));
    assert_eq!(node.place(tenant, device), Place::In);
}

#[test]
fn a_limit_above_the_card_is_of_managed_memory_alone() {
    let (mut node, device) = Node::swaps(1024, 64);
    let (_, process) = node.run(swapping(device, 4096));
    let ask = node.want(process, device, mib(2048));
    node.live(secs(60));
    assert!(!node.granted(ask));
    let (mut node, device) = card(1024);
    let refused = node.register(swapping(device, 512));
    assert_eq!(node.guests[&refused].refused, Some(SpecError::NoHost));
}

#[test]
fn free_memory_is_what_the_limit_leaves() {
    let (mut node, device) = card(1024);
    let (tenant, process) = node.run(managed(device, 4096));
    node.want(process, device, mib(3000));
    node.live(secs(1));
    assert_eq!(node.world.grantable(tenant, device), mib(1096));
}

#[test]
fn two_above_the_card_take_turns_on_it() {
    let (mut node, device) = card(1024);
    let tenants: Vec<TenantId> = (0..2)
        .map(|_| {
            let (tenant, process) = node.run(managed(device, 2048));
            node.want(process, device, mib(2048));
            tenant
        })
        .collect();
    work(&mut node, &tenants, 200);
    assert_eq!(denials(&node), []);
    for tenant in &tenants {
        let account = node.world.account(*tenant, device).expect("admitted");
        assert_eq!(account.grant, mib(2048), "{tenant:?}");
        let useful = node.guests[tenant].moves.useful(node.now);
        assert!(useful > secs(50), "{tenant:?} worked {useful:?}");
    }
    assert!(taken(&node, device) <= mib(1024));
}

#[test]
fn what_does_not_move_keeps_its_room_beside_managed_memory() {
    let (mut node, device) = card(2048);
    let (_, plain) = node.run(spec(device, 1, 1));
    let held = node.want(plain, device, mib(512));
    let (tenant, process) = node.run(managed(device, 8192));
    let ask = node.want(process, device, mib(8000));
    assert!(node.granted(held) && node.granted(ask));
    assert_eq!(taken(&node, device), mib(512 + 1024));
    // Its request is there for it at once, whatever is managed.
    let rest = node.want(plain, device, mib(512));
    node.live(secs(10));
    assert!(node.granted(rest));
    work(&mut node, &[tenant], 20);
    assert_eq!(
        node.place(tenant, device),
        Place::In,
        "it is not in the way"
    );
}

#[test]
fn managed_memory_makes_way_for_a_tenant_that_swaps_and_comes_back() {
    let mut node = Node::with(policy(4));
    let device = node.device_of(mib(1024));
    let (large, process) = node.run(managed(device, 4096));
    node.want(process, device, mib(3000));
    let (other, second) = node.run(swapping(device, 1024));
    let ask = node.want(second, device, mib(1000));
    work(&mut node, &[large, other], 200);
    assert!(node.granted(ask));
    let left = |tenant| {
        let all = node.notices.iter();
        all.filter(|one| matches!(one, Notice::Left { tenant: of, .. } if *of == tenant))
            .count()
    };
    assert!(left(large) > 0 && left(other) > 0);
    let host = node.world.residence(large, device).expect("it moves").host;
    assert_eq!(host, Bytes::ZERO, "its host memory is its own");
}

#[test]
fn the_dead_of_a_tenant_above_the_card_hold_no_more_than_the_card() {
    let (mut node, device) = card(1024);
    let (_, process) = node.run(managed(device, 4096));
    node.want(process, device, mib(3000));
    node.live(secs(1));
    let gone = node.kill(process).expect("it lives");
    node.tell(gone);
    assert!(taken(&node, device) <= mib(1024));
    node.live(secs(10));
    assert_eq!(taken(&node, device), Bytes::ZERO);
}

/// Of the managed memory that a killed process leaves, more may be on the card than was booked:
/// what a neighbour was promised and does not use. The driver evicts it for the neighbour.
#[test]
fn what_a_killed_process_leaves_beyond_its_booking_keeps_nobody_waiting() {
    for (looked_at, listed) in [(false, true), (true, true), (false, false), (true, false)] {
        let (mut node, device) = card(2048);
        node.devices
            .get_mut(&device)
            .expect("it exists")
            .lists_managed = listed;
        let (_, plain) = node.run(spec(device, 1, 1));
        let (_, process) = node.run(managed(device, 8192));
        let ask = node.want(process, device, mib(8000));
        assert!(node.granted(ask));
        assert_eq!(node.holds(process, device), mib(2048));
        node.devices.get_mut(&device).expect("it exists").linger = None;
        node.lag = (!looked_at).then_some((Rng(1), secs(1)));
        node.exit(process);
        assert_eq!(node.physical(device), mib(2048), "it lingers");
        let ask = node.want(plain, device, mib(1024));
        assert!(node.granted(ask));
        assert_eq!(node.physical(device), mib(2048), "a part has left");
        // The ask waits for the booked pages until a look shows them gone.
        assert_eq!(taken(&node, device), mib(2048));
        node.devices.get_mut(&device).expect("it exists").linger = Some(secs(0));
        node.live(secs(3));
        assert_eq!(taken(&node, device), mib(1024));
    }
}

#[test]
fn the_card_is_booked_again_when_a_neighbour_has_gone() {
    let (mut node, device) = card(2048);
    let (tenant, plain) = node.run(spec(device, 1, 1));
    node.want(plain, device, mib(1024));
    let (_, process) = node.run(managed(device, 8192));
    node.want(process, device, mib(8000));
    assert_eq!(taken(&node, device), mib(2048));
    node.finish(tenant);
    node.live(secs(10));
    assert_eq!(taken(&node, device), mib(2048));
}

#[test]
fn it_is_moved_only_where_it_allows_it() {
    let (mut node, device) = card(1024);
    let keeps = TenantSpec {
        preemptible: gpushare_core::Preemptible::Never,
        ..managed(device, 2048)
    };
    let (tenant, process) = node.run(keeps);
    node.want(process, device, mib(2048));
    let quota = Quota {
        request: Bytes::ZERO,
        limit: mib(512),
    };
    let other = TenantSpec {
        quotas: vec![(device, quota)],
        on_collision: vec![Resolver::Swap, Resolver::Fail],
        ..managed(device, 512)
    };
    let (_, second) = node.run(other);
    let ask = node.want(second, device, mib(512));
    work(&mut node, &[tenant], 60);
    assert_eq!(node.place(tenant, device), Place::In);
    // Managed memory is granted whatever the card has: it is on the host then.
    assert!(node.granted(ask));
}

pub(crate) fn leaves(node: &Node, of: TenantId) -> usize {
    let all = node.notices.iter();
    all.filter(|one| matches!(one, Notice::Leaving { tenant, .. } if *tenant == of))
        .count()
}

/// A tenant of 2816 MiB on a card of 2048, of which 256 cannot move, as its first move has shown;
/// and a killable one that had it moved.
fn with_a_residue() -> (Node, DeviceId, TenantId, (TenantId, ProcessId)) {
    let (mut node, device) = card(2048);
    let (large, process) = node.run(managed(device, 2816));
    node.guests.get_mut(&large).expect("it runs").moves.residue = mib(256);
    let ask = node.want(process, device, mib(2816));
    assert!(node.granted(ask));
    let (other, second) = node.run(TenantSpec {
        on_collision: vec![Resolver::Swap, Resolver::Wait],
        ..killable(device, 0, 2)
    });
    let ask = node.want(second, device, mib(1024));
    work(&mut node, &[large], 10);
    assert!(node.granted(ask));
    node.free(second, device, mib(1024));
    work(&mut node, &[large], 10);
    assert_eq!(node.place(large, device), Place::In);
    assert_eq!(leaves(&node, large), 1);
    (node, device, large, (other, second))
}

#[test]
fn what_does_not_leave_is_not_counted_upon() {
    let (mut node, device, large, (_, second)) = with_a_residue();
    let ask = node.want(second, device, mib(2048 - 128));
    work(&mut node, &[large], 60);
    assert!(!node.granted(ask));
    assert_eq!(leaves(&node, large), 1, "it would not be enough");
}

#[test]
fn what_leaves_beside_a_residue_serves_an_ask_of_its_size() {
    let (mut node, device, large, (_, second)) = with_a_residue();
    let ask = node.want(second, device, mib(2048 - 256));
    work(&mut node, &[large], 10);
    assert!(node.granted(ask));
    assert_eq!(leaves(&node, large), 2);
}

pub(crate) fn booked(node: &Node, tenant: TenantId, device: DeviceId) -> Bytes {
    node.world.account(tenant, device).expect("admitted").booked
}

fn is_overdrawn(node: &Node) -> bool {
    let mut all = node.notices.iter();
    all.any(|one| matches!(one, Notice::Overdrawn { .. }))
}

#[test]
fn a_stranger_on_the_card_leaves_managed_memory_a_smaller_part() {
    let (mut node, device) = card(2048);
    let (tenant, process) = node.run(managed(device, 8192));
    node.want(process, device, mib(8000));
    node.live(secs(1));
    node.devices.get_mut(&device).expect("it exists").foreign = mib(256);
    node.live(secs(1));
    assert_eq!(booked(&node, tenant, device), mib(2048 - 256));
    assert!(!is_overdrawn(&node));
    // It has the whole card again when the stranger is gone.
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.live(secs(1));
    assert_eq!(booked(&node, tenant, device), mib(2048));
}

/// Pages beyond what is booked are on the card, and no list of processes says whose they are.
#[test]
fn pages_beyond_the_booking_are_no_strangers() {
    let (mut node, device) = card(2048);
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.lists_processes = false;
    let (tenant, process) = node.run(managed(device, 8192));
    node.want(process, device, mib(8000));
    let (_, plain) = node.run(spec(device, 1, 1));
    let ask = node.want(plain, device, mib(512));
    work(&mut node, &[tenant], 10);
    assert!(node.granted(ask));
    assert_eq!(booked(&node, tenant, device), mib(1024));
    let rest = node.want(plain, device, mib(512));
    assert!(node.granted(rest));
    assert_eq!(node.place(tenant, device), Place::In);
    assert!(!is_overdrawn(&node));
}

/// Nor are they what a process left that died: they came once that was gone.
#[test]
fn pages_beyond_the_booking_are_no_dead_process_for_long() {
    let (mut node, device) = card(2048);
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.lists_processes = false;
    let (tenant, process) = node.run(managed(device, 8192));
    node.want(process, device, mib(8000));
    let (plain, first) = node.run(spec(device, 1, 1));
    let all = node.want(first, device, mib(1024));
    work(&mut node, &[tenant], 10);
    assert!(node.granted(all));
    let second = node.start(plain);
    node.open(second, device);
    node.exit(first);
    work(&mut node, &[tenant], 10);
    assert_eq!(node.physical(device), mib(2048), "they fill the card");
    let ask = node.want(second, device, mib(512));
    node.live(secs(10));
    assert!(node.granted(ask));
    assert_eq!(node.place(tenant, device), Place::In);
}

#[test]
fn a_stranger_on_the_card_overdraws_memory_that_is_not_managed() {
    let (mut node, device) = Node::swaps(2048, 64);
    let (tenant, process) = node.run(swapping(device, 2048));
    node.want(process, device, mib(2048));
    node.live(secs(1));
    node.devices.get_mut(&device).expect("it exists").foreign = mib(256);
    node.live(secs(1));
    assert_eq!(booked(&node, tenant, device), mib(2048));
    assert!(is_overdrawn(&node));
}

/// The new daemon learns from a neighbour what it has only after it has booked the managed memory.
#[test]
fn after_a_restart_managed_memory_is_booked_beside_all_that_stays() {
    let (mut node, device) = Node::restarted(2048, 4);
    // Pages count where they could be, and not where the driver has them.
    (node.guarantees, node.card_is_checked) = (false, false);
    let (large, own) = node.survives_as(managed(device, 2560), device, &[(2560, 0)]);
    let (_, plain) = node.survives_as(spec(device, 0, 1), device, &[(512, 0)]);
    for process in own.into_iter().chain(plain) {
        node.comes(process);
        node.speaks(process, false);
    }
    assert_eq!(booked(&node, large, device), mib(2048 - 512));
    node.live(secs(10));
    assert_eq!(booked(&node, large, device), mib(2048 - 512));
    assert_eq!(node.place(large, device), Place::In);
    assert!(!is_overdrawn(&node));
}

#[test]
fn after_a_restart_managed_memory_that_is_out_takes_nothing_of_the_host() {
    for managed_too in [true, false] {
        let (mut node, device) = Node::restarted(2048, 2);
        let out = match managed_too {
            true => managed(device, 1800),
            false => swapping(device, 1800),
        };
        let (out, processes) = node.survives_as(out, device, &[(1800, 1800)]);
        node.comes(processes[0]);
        node.speaks(processes[0], false);
        node.live(RECOVERY + secs(2));
        assert_eq!(node.place(out, device), Place::Out);
        let all = if managed_too { mib(0) } else { mib(1800) };
        assert_eq!(node.world.host().counted, all);
        let (other, process) = node.run(swapping(device, 1500));
        node.guests.get_mut(&other).expect("it runs").moves.works = false;
        let ask = node.want(process, device, mib(1500));
        assert!(node.granted(ask));
        node.tell(Event::Suspend { tenant: other });
        node.live(secs(3));
        assert_eq!(node.place(other, device) == Place::Out, managed_too);
    }
}
