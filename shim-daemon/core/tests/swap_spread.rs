//! Tenants on two devices, which work only while they are in on both.

use crate::node::swap::swapping;
use crate::node::{Node, Proc, Rng, mib, ranked, resolving, secs};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Place, ProcessId, Quota, Resolver, TenantId, TenantSpec,
};

/// Two devices of a GiB and a half.
pub(crate) fn devices() -> (Node, [DeviceId; 2]) {
    let (mut node, device) = Node::swaps(1536, 64);
    let other = node.device_of(mib(1536));
    (node, [device, other])
}

/// A tenant that swaps on these devices, with no request and a limit in MiB.
pub(crate) fn on(devices: &[DeviceId], limit: u64) -> TenantSpec {
    let (request, limit) = (Bytes::ZERO, mib(limit));
    let quota = Quota { request, limit };
    TenantSpec {
        quotas: devices.iter().map(|device| (*device, quota)).collect(),
        ..swapping(devices[0], 0)
    }
}

/// The tenants work, where they are in, for so long.
pub(crate) fn work(node: &mut Node, tenants: &[TenantId], time: Nanos) {
    let (end, beat) = (node.now + time, Nanos::millis(250));
    while node.now < end {
        for tenant in tenants {
            if node.guests[tenant].moves.open.is_some() {
                node.tell(Event::Worked { tenant: *tenant });
            }
        }
        node.live(beat.min(end - node.now));
    }
}

pub(crate) fn set_works(node: &mut Node, tenant: TenantId, works: bool) {
    node.guests.get_mut(&tenant).expect("it runs").moves.works = works;
}

/// The tenant runs, gets so much on each of its devices, and then does nothing.
pub(crate) fn fills(node: &mut Node, spec: TenantSpec) -> (TenantId, ProcessId) {
    let quotas = spec.quotas.clone();
    let (tenant, process) = node.run(spec);
    set_works(node, tenant, false);
    for (device, quota) in quotas {
        let ask = node.want(process, device, quota.limit);
        node.live(secs(12));
        assert!(node.granted(ask));
    }
    (tenant, process)
}

/// How often a tenant came back.
fn returns(node: &Node, tenant: TenantId) -> usize {
    let all = node.notices.iter();
    let back =
        all.filter(|one| matches!(one, Notice::Returned { tenant: of, .. } if *of == tenant));
    back.count()
}

fn is_in(node: &Node, tenant: TenantId, devices: &[DeviceId]) -> bool {
    let mut all = devices.iter();
    all.all(|device| node.place(tenant, *device) == Place::In)
}

/// The time of these tenants counts from now on.
fn count_anew(node: &mut Node, tenants: &[TenantId]) {
    for tenant in tenants {
        let now = node.now;
        let guest = node.guests.get_mut(tenant).expect("it runs");
        guest.moves.count_anew(now);
    }
}

#[test]
fn only_a_better_asker_moves_a_tenant_at_work_on_two_devices() {
    for (request, priority, better) in [(512, 500, true), (0, 600, true), (0, 500, false)] {
        let (mut node, both) = devices();
        let (wide, one) = node.run(on(&both, 1536));
        let all = node.want(one, both[0], mib(1536));
        work(&mut node, &[wide], secs(10));
        assert!(node.granted(all));
        let quota = Quota {
            request: mib(request),
            limit: mib(512),
        };
        let asker = TenantSpec {
            quotas: vec![(both[0], quota)],
            ..swapping(both[0], 512)
        };
        let asker = resolving(&[Resolver::Swap, Resolver::Wait], ranked(priority, asker));
        let (_, two) = node.run(asker);
        let ask = node.want(two, both[0], mib(512));
        work(&mut node, &[wide], secs(5));
        assert_eq!(node.granted(ask), better, "{request} {priority}");
    }
}

#[test]
fn a_return_waits_a_round_for_an_equal_at_work_on_two_devices() {
    // Before that it had the device for longer than the other, or for a small part of that time.
    for alone in [100, 0] {
        let (mut node, both) = devices();
        let device = both[0];
        let (first, _) = fills(&mut node, on(&[device], 1024));
        node.live(secs(alone));
        let (wide, _) = fills(&mut node, on(&both, 1024));
        assert!(is_in(&node, wide, &both));
        set_works(&mut node, wide, true);
        work(&mut node, &[wide], secs(40));
        let since = node.now;
        node.calls(first, device);
        let round = Nanos((node.world.rotation_bound(device, since) - since).0 / 2);
        work(&mut node, &[wide], secs(1));
        assert_eq!(returns(&node, first), 0, "it is at work");
        work(&mut node, &[wide], round - secs(1) - Nanos::millis(250));
        assert_eq!(returns(&node, first), usize::from(alone == 0), "{alone}");
        work(&mut node, &[wide], secs(1));
        assert_eq!(returns(&node, first), 1);
    }
}

#[test]
fn of_two_that_each_lack_a_device_one_gets_both() {
    for offset in [0, 10, 25, 40, 400].map(Nanos::millis) {
        let (mut node, both) = devices();
        let (one, _) = fills(&mut node, on(&both, 1024));
        let (two, _) = fills(&mut node, on(&both, 1024));
        node.calls(one, both[0]);
        node.live(secs(10));
        assert!(is_in(&node, one, &both[..1]) && is_in(&node, two, &both[1..]));
        for tenant in [one, two] {
            set_works(&mut node, tenant, true);
        }
        node.calls(one, both[1]);
        node.pass(offset);
        node.calls(two, both[0]);
        let end = node.world.rotation_bound(both[1], node.now);
        while !is_in(&node, one, &both) && !is_in(&node, two, &both) {
            assert!(node.now < end, "{offset:?} apart");
            work(&mut node, &[one, two], Nanos::millis(10));
        }
        work(&mut node, &[one, two], secs(300));
        for tenant in [one, two] {
            let useful = node.guests[&tenant].moves.useful(node.now);
            assert!(useful > secs(100), "{offset:?} apart: {useful:?}");
        }
    }
}

/// A tenant that always works on the second device, beside a wide one that waits for both and for
/// the first of which another one works all the time, within its request or not. How much of ten
/// minutes each of the first two could work, in thousandths.
fn beside_one_that_waits(fixed: bool) -> (Node, [DeviceId; 2], [TenantId; 3], [u64; 2]) {
    let (mut node, both) = devices();
    let (wide, _) = fills(&mut node, on(&both, 1024));
    let limit = mib(1024);
    let request = if fixed { limit } else { Bytes::ZERO };
    let first = TenantSpec {
        quotas: vec![(both[0], Quota { request, limit })],
        ..swapping(both[0], 1024)
    };
    let (first, _) = fills(&mut node, first);
    let (narrow, _) = fills(&mut node, on(&both[1..], 1024));
    let tenants = [wide, narrow, first];
    for tenant in tenants {
        set_works(&mut node, tenant, true);
    }
    work(&mut node, &tenants, secs(1));
    node.call_where_out(wide);
    work(&mut node, &tenants, secs(60));
    count_anew(&mut node, &tenants);
    work(&mut node, &tenants, secs(600));
    let part = |tenant: TenantId| node.guests[&tenant].moves.useful(node.now).0 / 600_000_000;
    let parts = [narrow, wide].map(part);
    eprintln!("the first is within its request: {fixed}; {parts:?} thousandths");
    (node, both, tenants, parts)
}

#[test]
fn one_that_waits_where_no_turn_comes_takes_no_turns_elsewhere() {
    let (mut node, both, [wide, narrow, first], [narrows, wides]) = beside_one_that_waits(true);
    assert!(narrows >= 950 && wides == 0, "{narrows} {wides}");
    // Once its device is free, both have their turns.
    node.finish(first);
    let end = node.world.rotation_bound(both[1], node.now);
    while !is_in(&node, wide, &both) {
        assert!(node.now < end);
        work(&mut node, &[wide, narrow], Nanos::millis(250));
    }
    count_anew(&mut node, &[wide, narrow]);
    work(&mut node, &[wide, narrow], secs(1500));
    let useful = |tenant: TenantId| node.guests[&tenant].moves.useful(node.now);
    let [wides, narrows] = [wide, narrow].map(useful);
    eprintln!("once it is free: {wides:?} {narrows:?} of 1500 s");
    assert!(
        wides > secs(600) && narrows > secs(200),
        "{wides:?} {narrows:?}"
    );
}

#[test]
fn one_that_waits_where_turns_come_has_its_turns_elsewhere() {
    let (.., [narrows, wides]) = beside_one_that_waits(false);
    assert!(narrows >= 250 && wides >= 250, "{narrows} {wides}");
}

/// For how long each of a few tenants could work in ten minutes, two of which are on both devices.
/// Of `ranks` priorities.
fn useful(seed: u64, ranks: u64) -> Vec<Nanos> {
    let mut rng = Rng(seed);
    let (mut node, both) = devices();
    let mut tenants = Vec::new();
    for at in 0..3 + rng.below(3) {
        let devices = match at {
            0 | 1 => both.to_vec(),
            _ => vec![*rng.pick(&both)],
        };
        let spec = on(&devices, 400 + rng.below(1100));
        let rank = u16::try_from(100 * rng.below(ranks)).expect("small");
        tenants.push(fills(&mut node, ranked(500 + rank, spec)).0);
    }
    for tenant in &tenants {
        let now = node.now;
        let moves = &mut node.guests.get_mut(tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (true, (1 + rng.below(20)) << 30);
        moves.count_anew(now);
        node.call_where_out(*tenant);
    }
    work(&mut node, &tenants, secs(600));
    let useful = tenants.iter();
    let useful = useful.map(|tenant| node.guests[tenant].moves.useful(node.now));
    let useful = useful.collect();
    eprintln!("seed {seed}, {ranks} priorities: {useful:?}");
    useful
}

/// The least of all tenants of these seeds.
fn least_useful(seeds: std::ops::Range<u64>, ranks: u64) -> Nanos {
    let least = seeds.flat_map(|seed| useful(seed, ranks)).min();
    least.expect("there are some")
}

#[test]
fn equals_on_one_and_on_two_devices_all_have_a_part_of_the_time() {
    let least = least_useful(1..7, 1);
    assert!(least > secs(4), "{least:?}");
}

#[test]
fn of_tenants_on_one_and_on_two_devices_none_of_a_low_priority_starves() {
    let least = least_useful(11..17, 2);
    assert!(least > secs(1), "{least:?}");
}

/// A tenant of two processes that has rested, each with a GiB on a device of its own, and one that
/// is out and needs the first device.
fn ranks() -> (Node, DeviceId, [TenantId; 2], [ProcessId; 2]) {
    let (mut node, both) = devices();
    let (waits, _) = fills(&mut node, on(&both[..1], 1024));
    let ranks = node.register(on(&both, 1024));
    set_works(&mut node, ranks, false);
    let processes = both.map(|device| node.start_on(ranks, &[device]));
    for (process, device) in processes.into_iter().zip(both) {
        let ask = node.want(process, device, mib(1024));
        node.live(secs(12));
        assert!(node.granted(ask));
    }
    assert_eq!(node.place(waits, both[0]), Place::Out);
    node.guarantees = false;
    (node, both[0], [ranks, waits], processes)
}

fn proc(node: &mut Node, process: ProcessId) -> &mut Proc {
    node.processes.get_mut(&process).expect("it lives")
}

/// A minute in which a tenant is asked to leave a device, and stays. How often it was sealed.
fn is_sealed_in_vain(node: &mut Node, tenant: TenantId, device: DeviceId) -> usize {
    let mut places = Vec::new();
    for _ in 0..6000 {
        node.live(Nanos::millis(10));
        places.push(node.place(tenant, device));
    }
    let stays = |place: &Place| matches!(place, Place::In | Place::Sealing);
    let other = places.iter().find(|place| !stays(place));
    assert_eq!(other, None, "a process of it is not sealed");
    let begins = places.windows(2).filter(|two| two[0] != two[1]);
    begins.filter(|two| two[1] == Place::Sealing).count()
}

#[test]
fn a_process_at_work_on_another_device_keeps_its_tenant_on_all() {
    let (mut node, device, [ranks, waits], [_, second]) = ranks();
    proc(&mut node, second).spins = true;
    node.calls(waits, device);
    let sealed = is_sealed_in_vain(&mut node, ranks, device);
    assert!((2..=6).contains(&sealed), "it has ever more time: {sealed}");
    // Its work has met that of the other. A launcher says nothing, and has no context.
    proc(&mut node, second).spins = false;
    let launcher = node.start_on(ranks, &[]);
    proc(&mut node, launcher).deaf = true;
    node.until("it leaves", 120, |node| returns(node, waits) == 1);
}

#[test]
fn a_tenant_leaves_once_its_processes_on_other_devices_are_sealed() {
    let (mut node, device, [ranks, waits], [_, second]) = ranks();
    proc(&mut node, second).deaf = true;
    node.calls(waits, device);
    let sealed = is_sealed_in_vain(&mut node, ranks, device);
    assert!(sealed >= 2, "{sealed}");
    // Where that process ends, nothing is waited for.
    let sealing = |node: &Node| node.place(ranks, device) == Place::Sealing;
    node.until("it is asked again", 60, sealing);
    node.live(Nanos::millis(100));
    assert_eq!(node.place(ranks, device), Place::Sealing);
    node.exit(second);
    node.live(Nanos::millis(1));
    assert_eq!(node.place(ranks, device), Place::Leaving);
    node.until("it has left", 60, |node| returns(node, waits) == 1);
}

#[test]
fn a_process_that_is_not_connected_is_not_waited_for_on_other_devices() {
    let (mut node, device, [_, waits], [_, second]) = ranks();
    proc(&mut node, second).deaf = true;
    let (process, away) = (second, true);
    node.tell(Event::Away { process, away });
    node.calls(waits, device);
    node.until("it has left", 10, |node| returns(node, waits) == 1);
}

/// How much of ten minutes a tenant of two devices could work beside one tenant on each that always
/// works, and how much these could, in thousandths: with one process on both, or one on each.
fn beside_narrow_ones(processes: &[&[usize]]) -> [u64; 3] {
    let (mut node, both) = devices();
    let wide = node.register(on(&both, 1024));
    for indices in processes {
        let own: Vec<DeviceId> = indices.iter().map(|index| both[*index]).collect();
        let process = node.start_on(wide, &own);
        for device in own {
            let ask = node.want(process, device, mib(1024));
            node.live(secs(12));
            assert!(node.granted(ask));
        }
    }
    let [one, two] = both.map(|device| fills(&mut node, on(&[device], 1024)).0);
    let tenants = [wide, one, two];
    for tenant in tenants {
        set_works(&mut node, tenant, true);
        node.call_where_out(tenant);
    }
    work(&mut node, &tenants, secs(60));
    count_anew(&mut node, &tenants);
    work(&mut node, &tenants, secs(600));
    tenants.map(|tenant| node.guests[&tenant].moves.useful(node.now).0 / 600_000_000)
}

#[test]
fn a_tenant_with_a_process_for_each_device_takes_turns_as_one_with_one() {
    let [one, two] = [&[&[0, 1][..]][..], &[&[0], &[1]]].map(beside_narrow_ones);
    eprintln!("one process: {one:?}, two: {two:?}");
    let differ = one.iter().zip(two).map(|(one, two)| one.abs_diff(two));
    assert!(differ.max() <= Some(20) && one[0] >= 200, "{one:?} {two:?}");
}
