//! Of equals the one goes first that had the card for less. The lead of a tenant is bounded:
//! neither time alone on the card nor hours without work decide the turns of hours.

use crate::node::Node;
use crate::node::program::{Script, Stage, Step};
use crate::node::swap::swapping;
use gpushare_core::{Bytes, Nanos};

const GIB: Bytes = Bytes(1 << 30);
const HOUR: Nanos = Nanos::secs(3600);
/// Links on which a tenant of 1 GiB moves in 50 ms, and in a second.
const LINKS: [u64; 2] = [20 << 30, 1 << 30];

fn hours(count: u64) -> Nanos {
    Nanos(HOUR.0 * count)
}

/// Takes a GiB at `begins`, and computes without end from `works` on.
fn script(begins: Nanos, works: Nanos) -> Script {
    let first = [
        Step::Alloc(GIB),
        Step::Compute(Nanos::secs(1)),
        Step::Pause(works - begins),
    ];
    Script {
        begins,
        first: first.to_vec(),
        round: vec![Step::Compute(Nanos::secs(5))],
        rounds: u64::MAX,
        priority: 500,
    }
}

/// These on a card with room for one. `class`: a tenant without a process is there, too.
fn stage(scripts: &[Script], link: u64, class: bool) -> Stage {
    let (mut node, device) = Node::swaps(1536, 64);
    if class {
        node.register(swapping(device, 1024));
    }
    let mut stage = Stage::new(node, device, link);
    for script in scripts {
        stage.add(script.clone(), swapping(device, 1024));
    }
    stage
}

/// The device time of each in so long, in thousandths.
fn shares(stage: &mut Stage, time: Nanos) -> Vec<u64> {
    let done = |stage: &Stage| -> Vec<u64> {
        let all = stage.programs.iter();
        all.map(|one| one.done.0).collect()
    };
    let before = done(stage);
    let wall = stage.run(time);
    let before = before.into_iter().chain(std::iter::repeat(0));
    let all = done(stage).into_iter().zip(before);
    all.map(|(after, before)| (after - before) * 1000 / wall.0)
        .collect()
}

/// All three have at least a quarter of the first hour in which they all work.
fn share_alike(name: &str, scripts: &[Script], before: Nanos, class: bool) {
    let all = LINKS.map(|link| {
        let mut stage = stage(scripts, link, class);
        stage.run(before);
        let shares = shares(&mut stage, HOUR);
        eprintln!("{name}, {} MiB/s: {shares:?} thousandths", link >> 20);
        shares
    });
    let least = all.iter().flatten().min();
    assert!(least >= Some(&250), "{all:?}");
}

#[test]
fn one_that_worked_alone_for_hours_has_its_part_beside_newcomers() {
    let [alone, come] = [Nanos::ZERO, hours(5)].map(|begins| script(begins, begins));
    let all = [alone, come.clone(), come];
    share_alike("alone for 5 h", &all, hours(5), false);
}

#[test]
fn one_that_did_nothing_for_hours_has_no_more_than_its_part() {
    let works = script(Nanos::ZERO, Nanos::ZERO);
    let all = [script(Nanos::ZERO, hours(1)), works.clone(), works];
    share_alike("quiet for 1 h", &all, hours(1), false);
}

#[test]
fn a_newcomer_owes_and_claims_nothing_beside_one_that_never_ran() {
    let works = script(Nanos::ZERO, Nanos::ZERO);
    let all = [works.clone(), works, script(hours(1), hours(1))];
    share_alike("new beside a class", &all, hours(1), true);
}

#[test]
fn one_that_had_less_in_the_last_round_still_goes_first() {
    // Each visit takes the half of a second, and comes before the turn of one of two that always
    // work, however their turns lie.
    let works = script(Nanos::ZERO, Nanos::ZERO);
    let visits = Script {
        round: vec![
            Step::Compute(Nanos::millis(500)),
            Step::Pause(Nanos::secs(97)),
        ],
        ..works.clone()
    };
    let mut stage = stage(&[works.clone(), works, visits], 1 << 30, false);
    stage.run(HOUR);
    let waits = &stage.programs[2].waited;
    // A stay is 22 s; with the moves before and after it, it is 26 s until the next one comes.
    let longest = waits.iter().map(|(waited, _)| *waited).max();
    eprintln!("{} visits, the longest wait is {longest:?}", waits.len());
    assert!(waits.len() > 20 && longest < Some(Nanos::secs(28)));
}
