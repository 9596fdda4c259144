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

/// The percent of the first device that a gang has, of which it has 30 and a neighbour 70, and how
/// often its gates moved. On the second, where `works` says how long it works, there is another.
fn with_a_context_elsewhere(works: u64) -> (u64, usize) {
    let (mut rig, gang, neighbour) = ahead_on_the_first(Some((30, 70)));
    rig.run(works);
    rig.workers
        .retain(|worker| (worker.tenant, worker.device) != (gang, TWO));
    // What it was ahead by is repaid first.
    rig.run(25_000);
    let before = [gang, neighbour].map(|tenant| rig.had(tenant, ONE));
    rig.run(5_000);
    let own = rig.had(gang, ONE) - before[0];
    let other = rig.had(neighbour, ONE) - before[1];
    let turns = rig.turns_of(&[(gang, ONE), (gang, TWO)]);
    (own * 100 / (own + other), turns.len())
}

#[test]
fn a_gang_is_closed_for_being_ahead_beside_a_stray_context() {
    for works in [0, 1_000] {
        let (share, turns) = with_a_context_elsewhere(works);
        assert!(turns > 4, "{turns}");
        assert!((28..=32).contains(&share), "{share} % are not its 30");
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
