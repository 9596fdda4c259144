//! The turns according to the software GPU's counters: while one tenant has its turn, no work of
//! another tenant runs, whatever its threads do.

use gpushare_tests::turns::{STRICT, Seen};
use gpushare_tests::{Daemon, Gpu, Guest, Tenant, Watch, assert_measured, until};

/// The minimum number of turns of each tenant: a gate that closed seldom shows little.
const TURNS: u64 = 60;
/// At most one in so many of the other tenants' spells is an event in this tenant's turns. A thread
/// that closed a batch before the gate closed may record its event later: the mark of the whole
/// context stood for it, and no work is behind it.
const LATE_EVENTS: usize = 50;

fn started(tenant: &Tenant) -> Guest {
    tenant.client("turns", &[]).started()
}

/// Asserts that no work of one tenant ran while another tenant had its turn. `pids` are each
/// tenant's processes.
#[track_caller]
fn nobody_runs_in_anothers_turn(seen: &Seen, pids: &[Vec<i32>]) {
    for (mine, leases) in pids.iter().zip(&seen.leases) {
        let turns: Vec<_> = leases.iter().filter(|stretch| stretch.is_turn()).collect();
        let long: u64 = turns.iter().map(|turn| turn.to - turn.from).sum();
        let of = |pid: i32| mine.contains(&pid);
        let own = seen.spells.iter().filter(|spell| of(spell.pid));
        let own = own.filter(|spell| turns.iter().any(|turn| turn.meets(spell)));
        let own = own.count();
        eprintln!(
            "{} turns seen, {} ms in all, with {own} spells of its own",
            turns.len(),
            long / 1_000_000
        );
        // The pages are sampled: a sampler that does not run sees no turns.
        assert_measured!(own > 0 && turns.len() > 1, "nothing was observed");
        let others = seen
            .spells
            .iter()
            .filter(|spell| spell.pid != 0 && !of(spell.pid));
        let (mut all, mut late) = (0, 0);
        for spell in others {
            all += 1;
            let turn = turns.iter().find(|turn| turn.meets(spell));
            late += usize::from(turn.is_some() && spell.is_event());
            assert!(
                turn.is_none() || spell.is_event(),
                "{spell:?} within {turn:?}, the turn of {mine:?}"
            );
        }
        eprintln!("{late} events of others in them, of {all} spells");
        assert_measured!(
            late * LATE_EVENTS <= all,
            "{late} events of others in the turns of {mine:?}, of {all} spells"
        );
    }
}

#[test]
fn no_work_of_a_tenant_runs_in_another_tenants_turn() {
    let gpu = Gpu::new("");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (started(&one), started(&two));
    for guest in [&mut a, &mut b] {
        assert_eq!(guest.ask("storm 6 60000"), "storm 0");
    }
    daemon.turns_go_round(&["one", "two"], 2);
    let watch = Watch::begin(&gpu, &[&one, &two]);
    let rows = daemon.turns_go_round(&["one", "two"], TURNS);
    let seen = watch.end();
    let closings: u64 = rows.iter().map(|row| row.turns).sum();
    println!("{closings} turns dealt, {} spells", seen.spells.len());
    assert!(rows.iter().all(|row| row.overruns == 0), "{rows:?}");
    nobody_runs_in_anothers_turn(&seen, &[vec![a.pid().as_raw()], vec![b.pid().as_raw()]]);
    a.calms();
    b.calms();
}

#[test]
fn captures_of_all_modes_hold_what_was_launched_while_turns_go_round() {
    let gpu = Gpu::new("");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (started(&one), started(&two));
    for guest in [&mut a, &mut b] {
        assert_eq!(guest.ask("storm 2 60000"), "storm 0");
    }
    daemon.turns_go_round(&["one", "two"], 2);
    let watch = Watch::begin(&gpu, &[&one, &two]);
    let before = daemon.share("one").turns;
    let (mut captures, mut turns) = (0, 0);
    // Turns without a capture show nothing, and how many go by meanwhile depends on the machine.
    until("turns go round while threads capture", || {
        assert_eq!(a.ask("captures 6 18"), "captures 108 0");
        captures += 108;
        turns = daemon.share("one").turns - before;
        turns >= 5
    });
    println!("{turns} turns while 6 threads captured {captures} times");
    nobody_runs_in_anothers_turn(
        &watch.end(),
        &[vec![a.pid().as_raw()], vec![b.pid().as_raw()]],
    );
    a.calms();
    b.calms();
}
