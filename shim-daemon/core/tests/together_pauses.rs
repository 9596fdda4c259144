//! Tenants that pause and come back: the steering that was found for them is kept for a while. In
//! virtual time. Figures: `cargo test -p gpushare-core --test main together_pauses:: --
//! --nocapture`.

use crate::together::{Case, MS, Program, S, US, at_least};

/// A server that works for `on` ms and has nothing to do for `off` ms.
fn pausing(on: u64, off: u64) -> Case {
    let what = format!("server, {on} ms on, {off} ms off");
    let server = Program::every(MS, 300 * US).pauses(on * MS, off * MS);
    Case::new(&what, &[Program::trainer(), server]).h100()
}

#[test]
fn a_pause_shorter_than_a_calm_leaves_the_mode_as_it_is() {
    let pair = pausing(400, 300).pair();
    assert!(pair.changes <= 10, "{} changes of the mode", pair.changes);
    at_least("useful", pair.useful_of_bare(), 80.0);
}

#[test]
fn after_a_pause_longer_than_a_calm_tenants_begin_together() {
    let case = pausing(400, 3000);
    let changes = case.steered().changes;
    assert!(changes >= 6, "{changes} changes of the mode");
}

/// The mode that is kept is that of tenants beside each other.
#[test]
fn a_tenant_alone_is_shown_together_and_free() {
    let case = pausing(1000, 500);
    let mut rig = case.rig(case.brain());
    let mut seen = Vec::new();
    for _ in 0..60 {
        rig.run(100 * MS);
        let at = rig.now() % (1500 * MS);
        let rests = (1100 * MS..1450 * MS).contains(&at);
        let mode = rig.steering.changes().0;
        if rests {
            assert_eq!(mode, gpushare_core::Mode::Together, "at {at}");
        } else if at < 1000 * MS && rig.now() > S {
            seen.push(mode);
        }
    }
    assert!(seen.contains(&gpushare_core::Mode::Hold), "{seen:?}");
}
