//! The properties of any mix of tenants on a shared device, in virtual time: random programs,
//! weights and seeds. Figures: `cargo test -p gpushare-core --test main together_properties:: --
//! --nocapture`.
#![allow(
    clippy::float_arithmetic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "figures"
)]

use std::collections::BTreeMap;

use crate::together;
use crate::together::{Case, MS, Pattern, Program, Rng, S, SLICES, US, limit};

/// The tenant that fills the gaps, or the one for which others are held, becomes idle. The held
/// tenants wait until the next sample, which is 900 us later and up to 50 us late, and then wake
/// up.
const IDLE_BOUND: u64 = MS;
/// Random mixes of most tests.
const RUNS: u64 = 200;

/// The mixes of this run: fewer where `GPUTEST_MIXES` says so (CI).
fn runs() -> u64 {
    let given = std::env::var("GPUTEST_MIXES").ok();
    given.map_or(RUNS, |text| text.parse().expect("a number"))
}

fn queue(rng: &mut Rng) -> Program {
    let lengths = [50, 100, 200, 500, 1_000, 5_000].map(|us| us * US);
    Program::queue(*rng.pick(&lengths))
}

fn with_gaps(rng: &mut Rng) -> Program {
    let kernel = (50 + rng.below(300)) * US;
    match rng.below(4) {
        0 => Program::every(kernel * (3 + rng.below(20)), kernel),
        1 => Program::sync(kernel, rng.below(2_000) * US),
        2 => Program::poisson(kernel * (3 + rng.below(20)), kernel),
        _ => queue(rng).pauses((20 + rng.below(200)) * MS, (20 + rng.below(200)) * MS),
    }
}

/// Two to four tenants, one at least that always has work. Requests sum to the whole where there
/// are any.
fn mix(seed: u64) -> Case {
    let mut rng = Rng(seed);
    let mut programs = vec![queue(&mut rng)];
    for _ in 0..=rng.below(3) {
        let next = if rng.one_in(2) {
            queue(&mut rng)
        } else {
            with_gaps(&mut rng)
        };
        programs.push(next);
    }
    let slice = *rng.pick(&SLICES);
    let case = Case::new("mix", &programs)
        .slice(slice)
        .times(500 * MS, 2 * S);
    let mut case = Case { seed, ..case };
    if rng.one_in(2) {
        let mut rest = 100;
        for at in 0..programs.len() {
            let others = (programs.len() - at - 1) as u64 * 10;
            let part = if others == 0 {
                rest
            } else {
                10 + rng.below(rest - others - 9)
            };
            rest -= part;
            case = case.of(
                at,
                500,
                together::request(u16::try_from(part).expect("small")),
            );
        }
    } else if rng.one_in(4) {
        case = case.of(
            0,
            500,
            limit(10 + u16::try_from(rng.below(60)).expect("small")),
        );
    }
    case
}

fn is_backlogged(case: &Case, at: usize) -> bool {
    let program = &case.programs[at].1;
    matches!(program.pattern, Pattern::Queue(_)) && program.pauses.is_none()
}

/// The part of the device's time that a tenant may count on, percent.
fn part(case: &Case, at: usize) -> f64 {
    let percent = |compute: gpushare_core::Compute, cap| {
        let part = if cap { compute.limit } else { compute.request };
        part.map(|part| f64::from(part.get()) / 10.0)
    };
    let compute = case.terms.get(&at).map(|(_, compute)| *compute);
    let compute = compute.unwrap_or_default();
    let even = 100.0 / case.programs.len() as f64;
    let part = percent(compute, false).unwrap_or(even);
    part.min(percent(compute, true).unwrap_or(100.0))
}

#[test]
fn in_any_mix_nobody_starves_and_the_device_is_not_idle() {
    let (mut longest, mut least, mut most_changes, mut changes) = (0, f64::MAX, 0, 0);
    for seed in 0..runs() {
        let case = mix(seed);
        let capped = case
            .terms
            .values()
            .any(|(_, compute)| compute.limit.is_some());
        let mut rig = case.rig(case.brain());
        let report = rig.measured(case.warm_up, case.time);
        assert_eq!(rig.steering.broken, None, "seed {seed}");
        for at in (0..case.programs.len()).filter(|at| is_backlogged(&case, *at)) {
            let had = report.useful(at) / part(&case, at);
            least = had.min(least);
            assert!(
                had >= 0.5,
                "seed {seed}: {at} had {had:.2} of its part: {case:?}"
            );
        }
        // A cap states that the device may be idle.
        if !capped {
            longest = report.longest_idle.max(longest);
            let idle = report.longest_idle;
            assert!(
                idle <= IDLE_BOUND,
                "seed {seed}: idle for {idle} ns: {case:?}"
            );
        }
        let (_, changed) = rig.steering.changes();
        // A tenant that goes idle ends all steering, which then restarts in two steps.
        let own = changed.saturating_sub(3 * rig.steering.idles);
        (most_changes, changes) = (own.max(most_changes), changes + changed);
    }
    let all = runs();
    let minutes = all as f64 * 2.5 / 60.0;
    println!(
        "{all} mixes: longest idle {} us, least {least:.2} of a part, {:.0} mode changes a minute, at most {most_changes} in 2.5 s not by idle tenants",
        longest / US,
        changes as f64 / minutes
    );
    // Up at once, down after a calm of 250 ms that doubles.
    assert!(most_changes <= 12, "{most_changes} in 2.5 s");
}

/// The same where changes of contexts take a part of the time: tenants that wait for each operation
/// take turns, and steering is tried. What is useful is divided. A turn whose tenant pauses ends at
/// the second look. A client of this model has one operation in flight if that is as long as its
/// window, so there is none here; and no figure is asserted of one that pauses, which the driver
/// lets submit a whole queue before it does.
#[test]
fn on_a_real_device_no_tenant_starves_in_any_mix_either() {
    let (mut longest, mut least, mut kept) = (0, [f64::MAX; 2], f64::MAX);
    let mut mixes = 0;
    let is_long = |(_, program): &(usize, Program)| program.kernels.iter().any(|ns| *ns >= 5 * MS);
    for seed in 0..runs() {
        let case = mix(seed).h100().times(500 * MS, 4 * S);
        let compute = || case.terms.values().map(|(_, compute)| compute);
        let capped = compute().any(|compute| compute.limit.is_some());
        if capped || case.programs.iter().any(is_long) {
            continue;
        }
        let pair = case.pair();
        let (bare, steered) = (&pair.bare, &pair.steered);
        for at in 0..case.programs.len() {
            let due = part(&case, at) * steered.all_useful() / 100.0;
            let (kind, due) = match is_backlogged(&case, at) {
                true => (0, due),
                false if case.programs[at].1.pauses.is_some() => continue,
                false => (1, due.min(bare.useful(at))),
            };
            let had = steered.useful(at) / due;
            assert!(had >= 0.5, "seed {seed}: {at} had {had:.2}: {case:?}");
            least[kind] = had.min(least[kind]);
        }
        let idle = steered.longest_idle;
        assert!(idle <= 2 * IDLE_BOUND, "seed {seed}: idle {idle}: {case:?}");
        longest = idle.max(longest);
        mixes += 1;
        kept = kept.min(steered.all_useful() / bare.all_useful());
    }
    let [dense, with_gaps] = least;
    assert!(mixes >= runs() / 4, "{mixes} mixes");
    println!(
        "{mixes} mixes, changes of 150 us: longest idle {} us, least {dense:.2} of a part and {with_gaps:.2} of the driver's, useful {kept:.2} of bare",
        longest / US
    );
    // A request may cost a quarter, and what is tried 15 %.
    assert!(kept >= 0.64, "{kept:.2}");
}

/// A tenant that goes idle ends all steering, and one that returns restarts it: two steps up and
/// one down. Pauses too short for that lengthen the calm period that a lower mode needs.
#[test]
fn mode_changes_are_bounded() {
    for (on, off, most) in [(300, 700, 3 * 60), (300, 15, 40), (30, 15, 40)] {
        let on_and_off = Program::queue(200 * US).pauses(on * MS, off * MS);
        let case = Case::new("on and off", &[Program::queue(500 * US), on_and_off])
            .requests(&[30, 70])
            .times(0, 60 * S);
        let steered = case.steered();
        println!(
            "{on} ms on, {off} off: {} changes a minute",
            steered.changes
        );
        assert!(steered.changes <= most, "{}", steered.changes);
    }
}

/// How far tenants that always have work are behind their part of the device's service, at any
/// time.
#[test]
fn the_lag_of_the_backlogged_is_bounded() {
    let mut furthest = 0.0_f64;
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let lengths = [50, 200, 500, 2_000, 5_000].map(|us| us * US);
        let programs: Vec<Program> = (0..2 + rng.below(3))
            .map(|_| Program::queue(*rng.pick(&lengths)))
            .collect();
        let even = 100.0 / programs.len() as f64;
        let weights: Vec<u16> = match programs.len() {
            2 => vec![70, 30],
            3 => vec![50, 30, 20],
            _ => vec![40, 30, 20, 10],
        };
        let case = Case::new("backlogged", &programs).slice(*rng.pick(&SLICES));
        let weighed = rng.one_in(2);
        let case = if weighed {
            case.requests(&weights)
        } else {
            case
        };
        let mut rig = case.rig(case.brain());
        rig.run(500 * MS);
        rig.measure();
        let mut lags = vec![0.0; programs.len()];
        for _ in 0..100 {
            let report = rig.measured(0, 20 * MS);
            let all: u64 = report.tenants.iter().map(|tenant| tenant.given).sum();
            for (at, lag) in lags.iter_mut().enumerate() {
                let part = if weighed {
                    f64::from(weights[at])
                } else {
                    even
                };
                *lag += all as f64 * part / 100.0 - report.tenants[at].given as f64;
                furthest = furthest.max(*lag / MS as f64);
            }
        }
        assert_eq!(rig.steering.broken, None);
    }
    println!("furthest behind: {furthest:.1} ms");
    assert!(furthest <= 60.0, "{furthest:.1} ms");
}

/// A mix with two classes and no shares, and the tenants of the higher class, one of which always
/// has work. Kernels of the lower class are shorter than a quarter of a slice: what longer ones
/// cost a tenant that leaves gaps is said in COMPUTE.
fn classes(seed: u64) -> Option<(Case, Vec<usize>)> {
    let mut case = mix(seed);
    if !case.terms.is_empty() {
        return None;
    }
    let mut rng = Rng(RUNS + seed);
    let (high, low): (Vec<usize>, Vec<usize>) =
        (0..case.programs.len()).partition(|_| rng.one_in(2));
    for at in &high {
        case = case.of(*at, 900, gpushare_core::Compute::default());
    }
    let longest = |at: &usize| case.programs[*at].1.kernels.iter().copied().max();
    let is_short = low.iter().all(|at| longest(at) <= Some(500 * US));
    let pauses = high.iter().any(|at| case.programs[*at].1.pauses.is_some());
    let backlogged = high.iter().any(|at| is_backlogged(&case, *at));
    let fits = is_short && !pauses && backlogged && !low.is_empty();
    fits.then_some((case, high))
}

/// The same mix without the lower class.
fn alone(case: &Case, high: &[usize]) -> Case {
    let programs = high.iter().map(|at| case.programs[*at].1.clone());
    Case {
        programs: programs.enumerate().collect(),
        terms: BTreeMap::new(),
        ..case.clone()
    }
}

#[test]
fn in_any_mix_a_lower_class_costs_a_backlogged_higher_one_little() {
    for real in [false, true] {
        let (mut least, mut longest, mut mixes) = (f64::MAX, 0, 0);
        for (case, high) in (0..2 * runs()).filter_map(classes) {
            let case = if real { case.h100() } else { case };
            let alone = alone(&case, &high).steered().report.all_useful();
            let report = case.steered().report;
            let had: f64 = high.iter().map(|at| report.useful(*at)).sum();
            assert!(had >= 0.85 * alone, "{had:.1} of {alone:.1}: {case:?}");
            least = least.min(had / alone);
            let idle = report.longest_idle;
            assert!(idle <= 2 * IDLE_BOUND, "idle {idle}: {case:?}");
            longest = longest.max(idle);
            mixes += 1;
        }
        println!(
            "{mixes} mixes of classes: least {least:.2} of alone, longest idle {} us",
            longest / US
        );
        assert!(mixes >= runs() * 3 / 20, "{mixes}");
    }
}
