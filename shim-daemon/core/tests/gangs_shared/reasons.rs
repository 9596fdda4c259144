//! Why a gang is closed: for tenants that rank higher, or because it is ahead where it works.

use super::*;

/// A gang beside an equal on each device; on the first there is another tenant, of this priority
/// and share, too: these three have so many percent of the first, and the gang's gates moved so
/// often in the second second.
fn beside_equals(priority: u16, compute: Compute) -> ([u64; 3], usize) {
    let mut rig = Rig::new();
    let even = Compute::default();
    let gang = rig.start(on(&[(ONE, even), (TWO, even)]));
    let equal = rig.start(on(&[(ONE, even)]));
    rig.start(on(&[(TWO, even)]));
    let other = rig.start(TenantSpec {
        priority,
        ..on(&[(ONE, compute)])
    });
    rig.run(1_000);
    let all = [gang, equal, other];
    let before = all.map(|tenant| rig.had(tenant, ONE));
    rig.run(5_000);
    let after = all.map(|tenant| rig.had(tenant, ONE));
    let had: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(to, from)| to - from)
        .collect();
    let whole: u64 = had.iter().sum();
    let turns = rig.turns_of(&[(gang, ONE), (gang, TWO)]);
    let late = turns.iter().filter(|(at, _)| *at > Nanos::secs(1));
    assert!(!rig.sliced.contains(&gang));
    ([0, 1, 2].map(|at| had[at] * 100 / whole), late.count())
}

#[test]
fn a_higher_class_closes_a_gang_that_is_ahead_of_an_equal() {
    let (had, turns) = beside_equals(900, Compute::default());
    assert!(turns > 40, "{turns}: {had:?}");
    assert!(had[2] >= 65, "{had:?} %");
}

#[test]
fn a_guarantee_that_is_due_closes_a_gang_ahead_of_an_equal() {
    let (had, turns) = beside_equals(100, part(60));
    assert!(turns > 10, "{turns}: {had:?}");
    assert!(had[2] >= 55, "{had:?} %");
}

/// The opposite: it is ahead of its equals only, and not on the second device.
#[test]
fn an_equal_closes_no_gang_that_is_not_ahead_elsewhere() {
    let (had, turns) = beside_equals(500, part(60));
    assert_eq!(turns, 0, "{had:?} %");
}

/// A gang with 30 % of the first device, of which a neighbour has 70. On the second, where `works`
/// says how many milliseconds it works, there is another.
fn with_a_context_elsewhere(works: u64) -> (Rig, TenantId, TenantId) {
    let (mut rig, gang, neighbour) = ahead_on_the_first(Some((30, 70)));
    rig.run(works);
    rig.workers
        .retain(|worker| (worker.tenant, worker.device) != (gang, TWO));
    // It used the second device 4 s ago, and what it was ahead by is repaid first.
    rig.run(25_000);
    (rig, gang, neighbour)
}

#[test]
fn a_tenant_with_a_stray_context_is_steered_by_the_device_it_uses() {
    for works in [0, 1_000] {
        let (mut rig, gang, neighbour) = with_a_context_elsewhere(works);
        (rig.sliced, rig.turned) = (Vec::new(), Vec::new());
        let before = [gang, neighbour].map(|tenant| rig.had(tenant, ONE));
        rig.run(5_000);
        let own = rig.had(gang, ONE) - before[0];
        let other = rig.had(neighbour, ONE) - before[1];
        let share = own * 100 / (own + other);
        assert!((28..=32).contains(&share), "{share} % are not its 30");
        assert!(rig.sliced.contains(&gang), "as any tenant");
        assert_eq!(rig.turns_of(&[(gang, TWO)]), [], "it uses one device");
    }
}

/// The opposite: from its first work on the second device on.
#[test]
fn a_tenant_that_begins_to_use_a_second_device_is_a_gang() {
    let (mut rig, gang, _) = with_a_context_elsewhere(0);
    let process = ProcessId(gang.0);
    rig.workers.push(Worker {
        tenant: gang,
        process,
        device: TWO,
        service: 0,
    });
    rig.run(10);
    (rig.sliced, rig.turned) = (Vec::new(), Vec::new());
    rig.run(5_000);
    assert!(!rig.sliced.contains(&gang));
    assert!(rig.turns_of(&[(gang, ONE), (gang, TWO)]).len() > 10);
}

/// Nothing is looked at where it is alone.
#[test]
fn a_tenant_that_works_alone_on_its_other_device_is_a_gang() {
    let (mut rig, gang, _) = ahead_on_the_first(None);
    rig.run(10_000);
    assert!(!rig.sliced.contains(&gang));
}

/// Of this tenant's name there is another one on the second device, that works or has a context.
#[test]
fn a_named_gang_whose_other_tenants_do_nothing_is_none() {
    for works in [false, true] {
        let mut rig = Rig::new();
        let first = rig.start(named(None, on(&[(ONE, part(30))])));
        let second = rig.start(named(None, on(&[(TWO, part(30))])));
        for device in [ONE, TWO] {
            rig.start(on(&[(device, part(70))]));
        }
        if !works {
            rig.workers.retain(|worker| worker.tenant != second);
        }
        rig.run(5_000);
        assert_eq!(rig.sliced.contains(&first), !works);
    }
}

/// G is behind on TWO, so it is not closed as it says that it is idle there.
#[test]
fn a_gang_is_closed_for_being_ahead_where_it_is_idle_elsewhere() {
    let (mut rig, gang, neighbour) = ahead_on_the_first(Some((70, 30)));
    rig.run(1_000);
    rig.workers
        .retain(|worker| (worker.tenant, worker.device) != (gang, TWO));
    let (process, epoch) = (ProcessId(gang.0), rig.leases[&(gang, TWO)].epoch);
    let report = gpushare_core::Report::Idle;
    rig.tell(Event::Reported {
        process,
        device: TWO,
        epoch,
        report,
    });
    rig.run(25_000);
    let before = [gang, neighbour].map(|one| rig.had(one, ONE));
    rig.run(5_000);
    let after = [gang, neighbour].map(|one| rig.had(one, ONE));
    let [own, other] = [0, 1].map(|at| after[at] - before[at]);
    let share = own * 100 / (own + other);
    assert!((28..=32).contains(&share), "{share} % are not its 30");
}

/// A kernel of 20 s there took all that its cap of a tenth allows for minutes.
#[test]
fn a_debt_to_a_cap_closes_no_other_gpu_once_nothing_is_asked_there() {
    for others in [&[TWO][..], &[TWO, THREE]] {
        debt_to_a_cap_beside(others);
    }
}

fn debt_to_a_cap_beside(others: &[DeviceId]) {
    let mut rig = Rig::new();
    let mut places = vec![(ONE, capped(10))];
    places.extend(others.iter().map(|other| (*other, Compute::default())));
    let gang = rig.start(on(&places));
    rig.spins = Some((gang, ONE));
    rig.run(20_000);
    while !rig.is_open(gang, ONE) {
        rig.run(1);
    }
    rig.spins = None;
    rig.workers.retain(|worker| worker.device != ONE);
    let (process, device) = (ProcessId(gang.0), ONE);
    let work = gpushare_core::Work {
        service: 20_000 * MS,
        ..gpushare_core::Work::default()
    };
    let works = vec![(process, work)];
    rig.now = rig.now + Nanos::micros(100);
    rig.tell(Event::Served { device, works });
    let epoch = rig.leases[&(gang, ONE)].epoch;
    rig.run(5_000);
    assert!(!rig.is_open(gang, ONE), "it owes minutes");
    let open = |rig: &Rig| others.iter().filter(|one| rig.is_open(gang, **one)).count();
    assert_eq!(open(&rig), others.len());
    // The opposite: it wants that device again.
    rig.tell(Event::Reported {
        process,
        device: ONE,
        epoch,
        report: gpushare_core::Report::Wanted,
    });
    rig.run(10);
    assert_eq!(open(&rig), 0);
}

/// In how many of so many milliseconds neighbours of a gang are held on both GPUs, and on one. The
/// second came later, so its GPU's looks are at other moments.
fn held_on_both_and_on_one(gang: Compute) -> (u32, u32) {
    let mut rig = Rig::new();
    rig.start(on(&[(ONE, gang), (TWO, gang)]));
    let one = rig.start(on(&[(ONE, part(20))]));
    rig.run(33);
    let two = rig.start(on(&[(TWO, part(20))]));
    rig.run(1_000);
    let (mut both, mut single) = (0, 0);
    for _ in 0..4_000 {
        rig.run(1);
        match (rig.is_open(one, ONE), rig.is_open(two, TWO)) {
            (false, false) => both += 1,
            (true, true) => {}
            _ => single += 1,
        }
    }
    (both, single)
}

#[test]
fn the_neighbours_of_a_gang_with_a_request_are_held_at_once() {
    let (both, single) = held_on_both_and_on_one(part(80));
    assert!(both > 20 * single && both > 1_000, "{both}, {single}");
}

#[test]
fn the_neighbours_of_a_gang_without_a_request_are_open() {
    assert_eq!(held_on_both_and_on_one(Compute::default()), (0, 0));
}
