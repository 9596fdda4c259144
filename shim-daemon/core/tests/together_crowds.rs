//! Many tenants on one device: what one of them gets of its request, and what a stopped one costs.
//! In virtual time. Figures: `cargo test -p gpushare-core --test main together_crowds:: --
//! --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, S, US, near, request};
use gpushare_core::{Nanos, TenantId};

/// The first of so many tenants, and trainers.
fn crowd(first: Program, many: usize) -> Case {
    let others = std::iter::repeat_n(Program::trainer(), many - 1);
    let programs: Vec<Program> = std::iter::once(first).chain(others).collect();
    Case::new(&format!("the first of {many}"), &programs).times(2 * S, 10 * S)
}

/// Each waits for a slice of every other between two of its own, and completes nothing meanwhile.
#[test]
fn a_request_is_kept_among_many_deep_queues() {
    for (switch, most) in [(0, 16), (150 * US, 30)] {
        for many in [8, 12, 16, 30] {
            if many > most {
                continue;
            }
            let case = crowd(Program::trainer(), many).switch(switch);
            let report = case.of(0, 500, request(15)).steered().report;
            let had = report.share(0) * 100.0 / report.used();
            near(&format!("among {many}"), had, 15.0, 1.0);
        }
    }
}

/// The opposite: its work is pending and does not run, and the others have its time.
#[test]
fn one_that_was_stopped_among_many_counts_as_idle() {
    for many in [3, 17, 31] {
        let stopped = Program::trainer().stalls(2 * S, 100 * S);
        let case = crowd(stopped, many).of(0, 500, request(30));
        let mut rig = case.rig(case.brain());
        rig.run(2 * S + 150 * MS);
        let held = |rig: &crate::together::Rig<crate::together::Brain>| {
            let device = rig.steering.device.borrow();
            let share = device.share(TenantId(1), Nanos(rig.now()));
            share.map_or(0, |share| share.held.0)
        };
        let before = held(&rig);
        rig.run(S);
        assert_eq!(held(&rig), before, "it is billed nothing among {many}");
    }
}
