//! A gang with a request beside neighbours that always have work: these are held for it on all its
//! devices at once, or each device's holds fall at a moment at which another's neighbour is open,
//! and the gang's kernels wait for their peers.

use super::{collective, even, member};
use crate::together::{
    Devices, H100, MS, Member, Pace, Program, Report, S, SLICES, US, at_least, near, request,
};
use gpushare_core::Compute;
use std::cell::RefCell;
use std::rc::Rc;

/// The parts of the gang at which neighbours are held for it.
const PARTS: [u16; 3] = [60, 70, 80];

/// The reports of each device, with gpushare or on the bare driver.
struct Run {
    what: String,
    reports: Vec<Report>,
}

impl Run {
    fn steered(what: &str, pace: Pace, members: Vec<Member>) -> Self {
        Self::after(300 * MS, what, pace, members)
    }

    /// What happens after so much time.
    fn after(warm_up: u64, what: &str, pace: Pace, members: Vec<Member>) -> Self {
        let reports = Devices { pace, members }.steered(warm_up, S);
        Self::with(format!("{what}, {} us", pace.slice / US), reports)
    }

    fn bare(what: &str, pace: Pace, members: Vec<Member>) -> Self {
        let reports = Devices { pace, members }.bare(300 * MS, S);
        Self::with(format!("{what}, {} us, bare", pace.slice / US), reports)
    }

    fn with(what: String, reports: Vec<Report>) -> Self {
        for (at, report) in reports.iter().enumerate() {
            let all = (0..report.tenants.len()).map(|tenant| {
                let wait = report.tenants[tenant].wait_if_any(990);
                let wait = wait.map_or(String::new(), |wait| format!(" p99 {} us", wait / US));
                let (useful, has) = (report.useful(tenant), report.share(tenant));
                format!("{useful:.1} (has {has:.1}){wait}")
            });
            let (all, sum) = (all.collect::<Vec<_>>().join("; "), report.all_useful());
            println!("{what} on {at}: useful {sum:.1}: {all}");
        }
        Self { what, reports }
    }

    /// On each device so much is useful, and the neighbours' part, in percent, is theirs. On a
    /// device that changes contexts for nothing, the gang occupies the rest.
    fn gives(&self, useful: f64, part: u16) {
        for report in &self.reports {
            at_least(&self.what, report.all_useful(), useful);
            let neighbours = (1..report.tenants.len()).map(|one| report.useful(one));
            let least = f64::from(100 - part) * report.used() / 100.0;
            at_least(&self.what, neighbours.sum(), least - 0.5);
            if report.used() > 99.9 {
                near(&self.what, report.share(0), f64::from(part), 1.0);
            }
        }
    }

    /// A tenant's wait on a device that one in a hundred exceeds (ns).
    fn wait(&self, at: usize, tenant: usize) -> u64 {
        self.reports[at].tenants[tenant].wait(990)
    }
}

/// The sides of a collective of 250 us.
fn sides(many: usize) -> Vec<Program> {
    let board = Rc::new(RefCell::new(vec![0; many]));
    let side = |at| Program::queue(250 * US).meets(&board, at);
    (0..many).map(side).collect()
}

/// The gang: a tenant on all devices.
fn gang(part: u16, sides: Vec<Program>) -> Member {
    let sides: Vec<_> = sides.into_iter().map(Some).collect();
    member(request(part), &sides)
}

/// A tenant on one device.
fn on(at: usize, own: Compute, program: Program) -> Member {
    let mut programs = vec![None; at];
    programs.push(Some(program));
    member(own, &programs)
}

/// The gang beside a deep queue on each of two devices, the second `apart` ns later.
fn pair(part: u16, apart: u64) -> Vec<Member> {
    let rest = request(100 - part);
    vec![
        gang(part, sides(2)),
        on(0, rest, Program::trainer()),
        on(1, rest, Program::trainer().from(apart)),
    ]
}

/// Changes of contexts take no time.
fn free(slice: u64) -> Pace {
    Pace {
        slice,
        ..Pace::default()
    }
}

#[test]
fn a_gang_with_a_request_above_half_waits_for_no_peer() {
    for slice in SLICES {
        for part in PARTS {
            for apart in [MS, 3 * MS] {
                let what = format!("{part} % apart {apart}");
                let run = Run::steered(&what, free(slice), pair(part, apart));
                run.gives(90.0, part);
            }
        }
    }
}

#[test]
fn a_gang_with_a_request_above_half_waits_for_no_peer_on_an_h100() {
    // In phase; against it the bare driver leaves less.
    let bare = &Run::bare("in phase", H100, pair(60, MS)).reports[0];
    for part in PARTS {
        for apart in [MS, 3 * MS] {
            let what = format!("{part} % apart {apart}");
            let run = Run::steered(&what, H100, pair(part, apart));
            run.gives(bare.all_useful() - 2.0, part);
            at_least(&what, run.reports[0].useful(0), 1.15 * bare.useful(0));
        }
    }
}

#[test]
fn neighbours_on_three_devices_are_held_at_once() {
    for (pace, useful) in [(free(2 * MS), 90.0), (H100, 88.0)] {
        let mut members = pair(60, MS);
        members[0] = gang(60, sides(3));
        members.push(on(2, request(40), Program::trainer().from(3 * MS)));
        Run::steered("three devices", pace, members).gives(useful, 60);
    }
}

#[test]
fn a_device_without_a_neighbour_does_not_count() {
    for (pace, useful) in [(free(2 * MS), 90.0), (H100, 88.0)] {
        let mut members = pair(70, MS);
        members[0] = gang(70, sides(3));
        let mut run = Run::steered("alone on the third", pace, members);
        run.reports.pop();
        run.gives(useful, 70);
    }
}

/// Its neighbours are open while it pauses, and a step takes no longer than on the bare driver.
#[test]
fn a_gang_that_pauses_between_its_steps_loses_no_useful_time() {
    for pace in [free(2 * MS), H100] {
        let members = || {
            let board = Rc::new(RefCell::new(vec![0; 2]));
            let side = |at| Program::sync(250 * US, MS).burst(40).meets(&board, at);
            let mut members = pair(60, MS);
            members[0] = gang(60, vec![side(0), side(1)]);
            members
        };
        let bare = Run::bare("steps", pace, members());
        let run = Run::steered("steps", pace, members());
        for (at, (bare, steered)) in bare.reports.iter().zip(&run.reports).enumerate() {
            at_least(&run.what, steered.all_useful(), bare.all_useful() - 4.0);
            at_least(&run.what, steered.useful(0), 1.15 * bare.useful(0));
            let waits = [bare, steered].map(|report| report.tenants[0].wait(990));
            assert!(waits[1] <= waits[0] + 2 * MS, "on {at}: {waits:?}");
        }
    }
}

/// Programs that leave gaps: a server under regular load, and one that waits for each operation.
fn visitors() -> [Program; 2] {
    [
        Program::every(2 * MS, 300 * US),
        Program::sync(300 * US, 600 * US),
    ]
}

#[test]
fn a_neighbour_that_leaves_gaps_keeps_its_rate_and_its_waits() {
    for (part, visitor) in [60, 80].into_iter().zip(visitors()) {
        for pace in [free(2 * MS), H100] {
            let members = || {
                let mut members = pair(part, 0);
                members[2] = on(1, even(), visitor.clone());
                members
            };
            let bare = Run::bare("gaps", pace, members());
            let run = Run::steered("gaps", pace, members());
            let rates = [&bare, &run].map(|run| run.reports[1].useful(1));
            at_least(&run.what, rates[1], rates[0] - 0.1);
            let waits = [&bare, &run].map(|run| run.wait(1, 1));
            assert!(waits[1] <= waits[0] + 100 * US, "{waits:?}");
        }
    }
}

/// The gang beside a visitor and a deep queue on the second device.
fn visited(visitor: &Program) -> Vec<Member> {
    let mut members = pair(60, 0);
    members[2] = on(1, even(), visitor.clone());
    members.push(on(1, even(), Program::trainer()));
    members
}

#[test]
fn beside_a_neighbour_that_is_held_one_with_gaps_is_open() {
    for pace in [free(2 * MS), H100] {
        for visitor in visitors() {
            let bare = Run::bare("gaps and a queue", pace, visited(&visitor));
            let run = Run::steered("gaps and a queue", pace, visited(&visitor));
            let rates = [&bare, &run].map(|run| run.reports[1].useful(1));
            at_least(&run.what, rates[1], rates[0]);
            let waits = [&bare, &run].map(|run| run.wait(1, 1));
            assert!(waits[1] <= waits[0], "{waits:?}");
        }
    }
}

/// Beside the server the gang has what the server leaves, more than its part. On the other device
/// that takes nothing from it, though the mean decides.
#[test]
fn a_lead_on_one_device_takes_no_request_on_another() {
    let [server, _] = visitors();
    let run = Run::after(4_000 * MS, "lead", free(2 * MS), visited(&server));
    at_least(&run.what, run.reports[1].share(0), 65.0);
    near(&run.what, run.reports[0].share(0), 60.0, 1.0);
}

#[test]
fn of_two_neighbours_on_a_device_each_has_its_part() {
    let parts = [(60, 20, 20), (60, 25, 15), (80, 15, 5)];
    for (part, one, other) in parts {
        for pace in [free(2 * MS), H100] {
            let mut members = pair(part, 0);
            members[2] = on(1, request(one), Program::trainer());
            members.push(on(1, request(other), Program::trainer()));
            let what = format!("{part}, {one} and {other} %");
            let run = Run::after(1_000 * MS, &what, pace, members);
            let report = &run.reports[1];
            for (tenant, part) in [(1, one), (2, other)] {
                // A lag of 2 L is 0.4 % of the time.
                let least = f64::from(part) * report.used() / 100.0;
                at_least(&run.what, report.useful(tenant), least - 1.0);
            }
            at_least(&run.what, report.share(0), f64::from(part) * 0.93 - 0.5);
        }
    }
}

/// Its kernels on the other device wait for ever, and complete nothing.
#[test]
fn once_a_member_stops_no_neighbour_is_held_for_it() {
    for pace in [free(2 * MS), H100] {
        let mut sides = sides(2);
        sides[1] = sides[1].clone().until(400 * MS);
        let mut members = pair(80, MS);
        members[0] = gang(80, sides);
        let run = Run::after(1_000 * MS, "a member stops", pace, members);
        at_least(&run.what, run.reports[1].useful(1), 99.9);
        let part = 0.2 * run.reports[0].used();
        at_least(&run.what, run.reports[0].useful(1), part - 0.5);
    }
}

#[test]
fn a_neighbour_that_ends_leaves_the_others_theirs() {
    // A hold begins each 20 to 40 ms: some of these moments are in one.
    for end in (200..240).step_by(10) {
        let mut members = pair(70, MS);
        members[1] = on(0, request(30), Program::trainer().until(end * MS));
        let run = Run::steered("a neighbour ends", H100, members);
        let [alone, beside] = [0, 1].map(|at| &run.reports[at]);
        near(&run.what, alone.share(0), 100.0, 0.1);
        at_least(&run.what, beside.useful(1), 0.3 * beside.used() - 0.5);
        at_least(&run.what, beside.all_useful(), 88.0);
    }
}

#[test]
fn where_a_member_has_no_request_no_neighbour_is_held() {
    let named = |own, side: Program, at: usize| Member {
        gang: Some("job"),
        ..on(at, own, side)
    };
    let [one, two] = collective();
    let members = vec![
        named(request(70), one, 0),
        named(even(), two, 1),
        on(0, even(), Program::trainer()),
        on(1, even(), Program::trainer()),
    ];
    let run = Run::steered("a request on one", free(2 * MS), members);
    let changes = [0, 1].map(|at| run.reports[at].tenants[1].gate_changes);
    assert!(changes[0] > 0, "held on the first");
    assert_eq!(changes[1], 0, "not on the second");
}

/// Two gangs beside a deep queue on each of two devices, the second queue `apart` ns later.
fn two_gangs([one, two, rest]: [u16; 3], apart: u64) -> Vec<Member> {
    let mut members = pair(one, apart);
    for neighbour in &mut members[1..] {
        neighbour.compute = request(rest);
    }
    members.insert(1, gang(two, sides(2)));
    members
}

/// So much is useful where changes of contexts take no time, and on an H100, whenever the second
/// queue starts. The queue, a device's last tenant, has its 30 %.
fn leaves(what: &str, useful: [f64; 2], members: &dyn Fn(u64) -> Vec<Member>) {
    for (pace, useful) in [free(2 * MS), H100].into_iter().zip(useful) {
        for apart in [MS, 3 * MS] {
            let what = format!("{what} apart {apart}");
            let run = Run::after(500 * MS, &what, pace, members(apart));
            for report in &run.reports {
                at_least(&run.what, report.all_useful(), useful);
                let queue = report.useful(report.tenants.len() - 1);
                at_least(&run.what, queue, 0.3 * report.used() - 1.0);
            }
        }
    }
}

/// The holds of one and of the other would fall at different moments.
#[test]
fn the_neighbours_of_two_gangs_are_held_for_both_at_once() {
    for parts in [[60, 10, 30], [50, 20, 30], [40, 30, 30]] {
        let what = format!("two gangs {parts:?}");
        leaves(&what, [90.0, 85.0], &|apart| two_gangs(parts, apart));
    }
}

#[test]
fn the_neighbours_of_three_gangs_are_held_for_all_at_once() {
    leaves("three gangs", [90.0, 80.0], &|apart| {
        let mut members = two_gangs([40, 20, 30], apart);
        // The deep queues come last.
        members.insert(0, gang(10, sides(2)));
        members
    });
}

/// It works for 5 ms and pauses for 20: with each of its bursts the gangs would be decided for as
/// one, and by themselves again.
#[test]
fn a_gang_that_pauses_beside_another_leaves_each_device_to_itself() {
    leaves("now and then", [68.0, 60.0], &|apart| {
        let board = Rc::new(RefCell::new(vec![0; 2]));
        let side = |at| Program::sync(250 * US, 20 * MS).burst(20).meets(&board, at);
        let mut members = two_gangs([60, 10, 30], apart);
        members[1] = gang(10, vec![side(0), side(1)]);
        members
    });
}

/// Beside the gang and its neighbours it works on the first device now and then.
#[test]
fn a_stray_context_beside_a_gang_is_no_other_gang() {
    for pace in [free(2 * MS), H100] {
        let run = |stray: Option<Program>| {
            let now_and_then = Program::every(20 * MS, 200 * US);
            let mut members = pair(60, MS);
            members.push(member(even(), &[Some(now_and_then), stray]));
            Run::after(1_000 * MS, "now and then", pace, members)
        };
        let [without, with] = [None, Some(Program::trainer().starts(1_000 * S))].map(run);
        for (without, report) in without.reports.iter().zip(&with.reports) {
            at_least(&with.what, report.all_useful(), without.all_useful() - 2.0);
        }
    }
}
