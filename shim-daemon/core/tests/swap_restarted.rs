//! A daemon that restarts while tenants' memory moves: its books begin with what their processes
//! show, whenever they come.

use crate::node::late::shown;
use crate::node::swap::{Moves, Obeys, policy, swapping};
use crate::node::{Guest, Manners, Node, Proc, mib, secs};
use crate::swap::denials;
use gpushare_core::{
    Bytes, DeviceId, Event, Notice, Order, Place, Policy, ProcessId, Running, TenantId, TenantSpec,
    World,
};
use std::collections::BTreeMap;

/// A node whose previous daemon died while a tenant was out, beside one that was in.
fn restarted() -> (Node, DeviceId, [TenantId; 2]) {
    restarted_with(Bytes::ZERO)
}

/// The same beside one of which so much was out.
fn restarted_with(away: Bytes) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = recovering();
    let tenants = [mib(1024), away].map(|away| {
        let (tenant, process) = survivor(&mut node, device, away);
        comes(&mut node, device, process);
        shows(&mut node, device, process);
        tenant
    });
    node.thorough = true;
    (node, device, tenants)
}

/// A daemon that was restarted; its recovery ends after three seconds.
fn recovering() -> (Node, DeviceId) {
    recovering_with(1536, Bytes::ZERO)
}

/// The same with a card of so many MiB, where a context is expected to take so much.
fn recovering_with(card: u64, first_overhead: Bytes) -> (Node, DeviceId) {
    let policy = Policy {
        first_overhead,
        ..policy(64)
    };
    let mut node = Node::of(World::recovering(policy, secs(3)), policy);
    let device = node.device_of(mib(card));
    node.thorough = false;
    (node, device)
}

/// A tenant of the previous daemon, with one process of whose memory so much is out.
fn survivor(node: &mut Node, device: DeviceId, away: Bytes) -> (TenantId, ProcessId) {
    survivor_of(node, device, (away, Bytes::ZERO), Running::default())
}

/// The same with a context that takes so much, of which the previous daemon knew this.
fn survivor_of(
    node: &mut Node,
    device: DeviceId,
    (away, context): (Bytes, Bytes),
    running: Running,
) -> (TenantId, ProcessId) {
    let (tenant, process) = (TenantId(node.fresh()), ProcessId(node.fresh()));
    let spec = swapping(device, 1024);
    let moves = Moves {
        works: false,
        ..Moves::default()
    };
    let guest = Guest {
        spec: spec.clone(),
        admitted: true,
        refused: None,
        manners: Manners::Polite,
        page: BTreeMap::from([(device, mib(1024))]),
        leases: BTreeMap::new(),
        signals: Vec::new(),
        worked: false,
        moves,
    };
    node.guests.insert(tenant, guest);
    let mut proc = Proc::new(tenant);
    proc.charged.insert(device, mib(1024));
    proc.contexts.insert(device, context);
    proc.set_away(device, away);
    node.add(process, proc);
    node.tell(Event::Register {
        tenant,
        spec,
        running: Some(running),
    });
    (tenant, process)
}

/// A process of such a tenant registers with the new daemon.
fn comes(node: &mut Node, device: DeviceId, process: ProcessId) {
    let proc = &node.processes[&process];
    let (tenant, charged) = (proc.tenant, proc.charged(device));
    node.tell(Event::ProcessStarted {
        process,
        tenant,
        adopted: false,
        gated: true,
    });
    node.tell(Event::Movable { process });
    node.tell(Event::Presented {
        process,
        device,
        charged,
        credit: charged,
        grant: mib(1024),
    });
    node.tell(Event::Adopted { process });
}

/// It shows where its memory is.
fn shows(node: &mut Node, device: DeviceId, process: ProcessId) {
    let proc = &node.processes[&process];
    let residue = node.guests[&proc.tenant].moves.residue;
    let shown = shown(proc, device, residue);
    node.tell(Event::Shown {
        process,
        device,
        shown,
    });
}

#[test]
fn a_tenant_that_comes_after_the_recovery_is_where_it_shows() {
    for (away, place) in [(mib(1024), Place::Out), (Bytes::ZERO, Place::In)] {
        let (mut node, device) = recovering();
        let (tenant, process) = survivor(&mut node, device, away);
        let other = (!away.is_zero()).then(|| survivor(&mut node, device, Bytes::ZERO));
        if let Some((_, other)) = other {
            comes(&mut node, device, other);
            shows(&mut node, device, other);
        }
        node.pass(secs(3));
        if let Some((other, _)) = other {
            assert_eq!(node.place(other, device), Place::In);
        }
        comes(&mut node, device, process);
        assert_eq!(node.place(tenant, device), Place::Out, "it may be anywhere");
        shows(&mut node, device, process);
        assert_eq!(node.place(tenant, device), place);
        node.thorough = true;
        node.live(secs(2));
        node.calls(tenant, device);
        node.live(secs(20));
        assert_eq!(node.place(tenant, device), Place::In);
    }
}

#[test]
fn a_process_that_has_come_and_shown_nothing_yet_is_waited_for() {
    for away in [mib(1024), Bytes::ZERO] {
        for ends in [true, false] {
            let (mut node, device) = recovering();
            let (tenant, first) = survivor(&mut node, device, away);
            let second = ProcessId(node.fresh());
            let mut proc = Proc::new(tenant);
            proc.contexts.insert(device, Bytes::ZERO);
            node.add(second, proc);
            comes(&mut node, device, first);
            shows(&mut node, device, first);
            comes(&mut node, device, second);
            node.pass(secs(3));
            assert_eq!(node.place(tenant, device), Place::Out);
            match ends {
                true => node.exit(second),
                false => shows(&mut node, device, second),
            }
            let wanted: &[Place] = match (away.is_zero(), ends) {
                (true, _) => &[Place::In],
                (false, true) => &[Place::Out],
                // All of it is out but a process without memory: nothing is left to copy.
                (false, false) => &[Place::Leaving, Place::Out],
            };
            let now = node.place(tenant, device);
            assert!(wanted.contains(&now), "{now:?}");
        }
    }
}

#[test]
fn a_tenant_that_was_out_stays_out_under_a_new_daemon_until_it_calls() {
    let (mut node, device, [out, there]) = restarted();
    assert_eq!(node.place(out, device), Place::Out);
    let (epoch, order) = node.guests[&out].moves.orders[&device];
    assert!(order == Order::Out && epoch > 0);
    let (_, order) = node.guests[&there].moves.orders[&device];
    assert_eq!(
        order,
        Order::Out,
        "it may be a part of a tenant that is out"
    );
    node.live(secs(5));
    assert_eq!(
        node.world.account(out, device).expect("it runs").away,
        mib(1024)
    );
    assert_eq!(
        node.world.device(device).expect("it is there").taken,
        mib(1024)
    );
    node.calls(out, device);
    node.live(secs(10));
    assert_eq!(node.place(out, device), Place::In);
    assert_ne!(node.place(there, device), Place::In);
}

#[test]
fn a_tenant_found_on_its_way_out_makes_room_for_one_that_calls() {
    let (mut node, device, [out, halfway]) = restarted_with(mib(400));
    assert_eq!(node.place(halfway, device), Place::Out);
    node.calls(out, device);
    node.live(secs(10));
    assert_eq!(node.place(out, device), Place::In);
    let account = node.world.account(halfway, device).expect("it runs");
    assert_eq!(
        (account.away, node.physical(device)),
        (mib(1024), mib(1024))
    );
    node.calls(halfway, device);
    node.live(secs(30));
    assert_eq!(node.place(halfway, device), Place::In);
}

#[test]
fn a_new_daemon_believes_memory_gone_only_by_a_look() {
    let (node, device, [out, _]) = restarted();
    let account = node.world.account(out, device).expect("it runs");
    assert_eq!((account.grant, account.away), (mib(1024), Bytes::ZERO));
    let spec = TenantSpec {
        wait_timeout: secs(60),
        ..swapping(device, 1024)
    };
    let mut node = node;
    let (_, process) = node.run(spec);
    let ask = node.want(process, device, mib(512));
    assert!(node.waits(ask));
    node.live(secs(6));
    assert!(node.granted(ask), "{:?}", denials(&node));
}

#[test]
fn a_new_daemon_gives_nothing_in_advance_before_all_had_time_to_come() {
    let (mut node, _, [out, there]) = restarted();
    // What a process that has not come yet has of the host is in no count.
    assert_eq!(node.world.may_give(there, mib(64)), Bytes::ZERO);
    let reserved = node.world.may_give(out, mib(2048));
    assert_eq!(reserved, mib(1024), "what is away has its room");
    node.live(secs(5));
    assert_eq!(node.world.may_give(there, mib(64)), mib(64));
}

/// A tenant of the previous daemon that has come within the recovery, of which so much is out and
/// 64 MiB cannot move. It obeys so.
fn found(
    (node, device): (&mut Node, DeviceId),
    (away, context): (Bytes, Bytes),
    obeys: Obeys,
    suspended: bool,
) -> TenantId {
    let running = Running {
        suspended,
        ..Running::default()
    };
    let (tenant, process) = survivor_of(node, device, (away, context), running);
    node.guests.get_mut(&tenant).expect("it runs").moves.residue = mib(64);
    node.obeys(tenant, obeys);
    comes(node, device, process);
    shows(node, device, process);
    tenant
}

fn is_called_a_liar(node: &Node) -> bool {
    let lied = |one: &Notice| matches!(one, Notice::LeftLess { .. });
    node.notices.iter().any(lied)
}

#[test]
fn one_with_a_dearer_context_than_expected_is_no_liar() {
    for away in [mib(960), mib(400)] {
        let (mut node, device) = recovering_with(4096, mib(512));
        let context = mib(700);
        let tenant = found((&mut node, device), (away, context), Obeys::Honestly, false);
        node.thorough = true;
        node.live(secs(10));
        assert!(!is_called_a_liar(&node));
        assert_eq!(node.place(tenant, device), Place::Out);
        assert!(node.world.residence(tenant, device).expect("it moves").left <= 1);
    }
}

#[test]
fn one_that_lies_after_a_restart_frees_nothing_and_is_told_once_measured() {
    let (mut node, device) = recovering_with(4096, mib(512));
    let sizes = (mib(400), mib(512));
    let tenant = found((&mut node, device), sizes, Obeys::Lying, false);
    node.thorough = true;
    node.live(secs(10));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!(account.away, mib(400));
    assert!(!is_called_a_liar(&node), "nothing tells yet");
    node.calls(tenant, device);
    node.live(secs(10));
    assert_eq!(node.place(tenant, device), Place::In);
    node.tell(Event::Suspend { tenant });
    assert!(node.world.is_suspended(tenant));
    node.live(secs(10));
    assert!(is_called_a_liar(&node));
}

#[test]
fn tenants_that_are_out_with_small_contexts_come_back() {
    let (mut node, device) = recovering_with(1536, mib(512));
    let all = [(); 3].map(|()| {
        let sizes = (mib(960), mib(80));
        found((&mut node, device), sizes, Obeys::Honestly, false)
    });
    node.live(secs(5));
    let account = node.world.account(all[0], device).expect("it runs");
    assert!(account.overhead <= mib(144), "its context and its residue");
    node.calls(all[0], device);
    node.live(secs(5));
    assert_eq!(node.place(all[0], device), Place::In);
    let account = node.world.account(all[0], device).expect("it runs");
    assert_eq!(account.overhead, mib(80));
}

#[test]
fn a_tenant_that_a_command_moves_out_is_asked_by_the_next_daemon_too() {
    for suspended in [true, false] {
        for away in [Bytes::ZERO, mib(400), mib(960)] {
            let (mut node, device) = recovering();
            let sizes = (away, Bytes::ZERO);
            let tenant = found((&mut node, device), sizes, Obeys::Honestly, suspended);
            node.live(secs(10));
            let stays_in = !suspended && away.is_zero();
            let place = if stays_in { Place::In } else { Place::Out };
            assert_eq!(node.place(tenant, device), place, "{away}");
            assert_eq!(node.world.is_suspended(tenant), suspended);
            node.calls(tenant, device);
            node.live(secs(5));
            assert_eq!(node.place(tenant, device), Place::In);
            assert!(!node.world.is_suspended(tenant));
        }
    }
}

#[test]
fn one_found_partly_out_leaves_where_a_command_wants_that() {
    for suspended in [true, false] {
        let (mut node, device) = recovering();
        let running = Running {
            suspended,
            ..Running::default()
        };
        let sizes = (Bytes::ZERO, Bytes::ZERO);
        let (tenant, first) = survivor_of(&mut node, device, sizes, running);
        let second = ProcessId(node.fresh());
        let mut proc = Proc::new(tenant);
        proc.charged.insert(device, mib(256));
        proc.contexts.insert(device, Bytes::ZERO);
        proc.set_away(device, mib(256));
        node.add(second, proc);
        let proc = node.processes.get_mut(&first).expect("it lives");
        proc.charged.insert(device, mib(512));
        for process in [first, second] {
            comes(&mut node, device, process);
            shows(&mut node, device, process);
        }
        node.live(secs(10));
        let place = if suspended { Place::Out } else { Place::In };
        assert_eq!(node.place(tenant, device), place);
        let moved = node
            .world
            .residence(tenant, device)
            .expect("it moves")
            .moved;
        assert!(
            !suspended || moved == mib(768),
            "it returned first: {moved}"
        );
    }
}

/// A tenant that a command had moved out as a whole, and its process, during the recovery.
fn suspended_survivor() -> (Node, DeviceId, (TenantId, ProcessId)) {
    let (mut node, device) = recovering();
    let running = Running {
        suspended: true,
        ..Running::default()
    };
    let sizes = (mib(1024), Bytes::ZERO);
    let survivor = survivor_of(&mut node, device, sizes, running);
    (node, device, survivor)
}

#[test]
fn the_programs_that_ran_when_a_command_moved_them_out_are_gone() {
    let (mut node, device, (tenant, process)) = suspended_survivor();
    node.vanishes(process);
    node.live(secs(5));
    let process = node.start(tenant);
    node.want(process, device, mib(512));
    node.live(secs(5));
    assert!(!node.world.is_suspended(tenant));
    assert_eq!(node.place(tenant, device), Place::In);
}

#[test]
fn a_stopped_program_that_a_command_moved_out_comes_as_one() {
    let (mut node, device, (tenant, process)) = suspended_survivor();
    node.live(secs(20));
    assert!(node.world.is_suspended(tenant));
    comes(&mut node, device, process);
    shows(&mut node, device, process);
    node.live(secs(5));
    assert!(node.world.is_suspended(tenant));
    assert_eq!(node.place(tenant, device), Place::Out);
    node.calls(tenant, device);
    node.live(secs(5));
    assert!(!node.world.is_suspended(tenant));
    assert_eq!(node.place(tenant, device), Place::In);
}
