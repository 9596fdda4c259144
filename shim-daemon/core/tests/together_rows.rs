//! The table: the brain's results for programs that leave gaps, against the bare driver, in virtual
//! time and at both lengths of the driver's time slice. Figures: `cargo test -p gpushare-core
//! --test main together_rows:: -- --nocapture`.

use crate::together::{Case, MS, Program, SLICES, US, at_least};

fn half() -> Program {
    Program::every(500 * US, 200 * US)
}

/// Of the useful time of the bare driver at least 95 %, with changes of contexts at a cost 90 %;
/// waits at most twice as long.
fn loses_nothing(what: &str, programs: &[Program]) {
    for slice in SLICES {
        let case = Case::new(what, programs).slice(slice);
        let pair = case.pair();
        at_least(what, pair.useful_of_bare(), 95.0);
        pair.assert_waits(what);
        let pair = case.switch(50 * US).pair();
        at_least(what, pair.useful_of_bare(), 90.0);
    }
}

#[test]
fn two_tenants_with_gaps_lose_nothing() {
    loses_nothing("2 x 200 us every 500 us", &[half(), half()]);
}

#[test]
fn four_tenants_with_gaps_lose_nothing() {
    loses_nothing("4 x 200 us every 1 ms", &vec![Program::fifth(); 4]);
}

#[test]
fn tenants_with_gaps_are_never_escalated() {
    for programs in [vec![half(); 2], vec![Program::fifth(); 4]] {
        for slice in SLICES {
            let case = Case::new("gaps", &programs).slice(slice);
            assert_eq!(case.steered().changes, 0);
        }
    }
}

#[test]
fn two_synchronous_tenants_keep_the_device_as_busy_as_bare() {
    let sync = || Program::sync(50 * US, 0);
    let what = "2 x sync 50 us";
    loses_nothing(what, &[sync(), sync()]);
    for slice in SLICES {
        let pair = Case::new(what, &[sync(), sync()]).slice(slice).pair();
        at_least(what, pair.steered.used(), 98.0);
        at_least(what, pair.useful_of_bare(), 98.0);
    }
}

#[test]
fn a_server_beside_a_deep_queue_gets_what_it_asks() {
    let what = "trainer and server";
    for slice in SLICES {
        let case = Case::new(what, &[Program::trainer(), Program::server()]).slice(slice);
        let pair = case.pair();
        let (bare, steered) = (&pair.bare.tenants[1], &pair.steered.tenants[1]);
        assert!(bare.of_asked() < 80.0, "the bare driver starves it");
        at_least(what, steered.of_asked(), 90.0);
        assert!(steered.wait(990) <= MS, "{} ns", steered.wait(990));
        at_least(what, pair.steered.used(), 95.0);
        at_least(what, pair.useful_of_bare(), 95.0);
        pair.assert_waits(what);
        let pair = case.switch(50 * US).pair();
        at_least(what, pair.useful_of_bare(), 90.0);
        at_least(what, pair.steered.tenants[1].of_asked(), 90.0);
    }
}
