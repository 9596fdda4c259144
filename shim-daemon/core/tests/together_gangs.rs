//! Gangs whose kernels meet, each beside a tenant on each of two devices, on softgpu's round robin
//! in virtual time. Figures: `cargo test -p gpushare-core --test main together_gangs:: --
//! --nocapture`.
#![allow(clippy::float_arithmetic, clippy::print_stdout, reason = "figures")]

use crate::together::{
    Devices, MS, Member, Pace, Program, Report, SLICES, US, at_least, near, request,
};
use gpushare_core::Compute;
use std::cell::RefCell;
use std::rc::Rc;

mod held;

/// The two sides of a collective of 250 us.
fn collective() -> [Program; 2] {
    let board = Rc::new(RefCell::new(vec![0; 2]));
    [0, 1].map(|side| Program::queue(250 * US).meets(&board, side))
}

fn member(compute: Compute, programs: &[Option<Program>]) -> Member {
    Member {
        gang: None,
        class: 500,
        compute,
        programs: programs.to_vec(),
    }
}

/// A tenant on both devices beside one on each.
fn one_process(own: Compute, other: Compute, apart: u64) -> Vec<Member> {
    let [one, two] = collective();
    vec![
        member(own, &[Some(one), Some(two)]),
        member(other, &[Some(Program::trainer()), None]),
        member(other, &[None, Some(Program::trainer().from(apart))]),
    ]
}

/// A tenant of one gang on each device, each beside a tenant.
fn pods(own: Compute, other: Compute, apart: u64) -> Vec<Member> {
    let [one, two] = collective();
    let pod = |programs: &[Option<Program>]| Member {
        gang: Some("job"),
        ..member(own, programs)
    };
    vec![
        pod(&[Some(one), None]),
        pod(&[None, Some(two)]),
        member(other, &[Some(Program::trainer()), None]),
        member(other, &[None, Some(Program::trainer().from(apart))]),
    ]
}

/// A gang beside a tenant on each device: without gpushare, and with it.
struct Pair {
    what: String,
    bare: Vec<Report>,
    steered: Vec<Report>,
}

impl Pair {
    /// The second device's neighbour comes `apart` ns later, which decides whether the gang's
    /// slices of both devices are at the same time.
    fn of(what: &str, slice: u64, apart: u64, members: &dyn Fn(u64) -> Vec<Member>) -> Self {
        let pace = Pace {
            slice,
            ..Pace::default()
        };
        let devices = || Devices {
            pace,
            members: members(apart),
        };
        let (warm_up, time) = (500 * MS, 1_500 * MS);
        let pair = Self {
            what: format!("{what} L={} apart {} us", slice / US, apart / US),
            bare: devices().bare(warm_up, time),
            steered: devices().steered(warm_up, time),
        };
        pair.print();
        pair
    }

    fn both(&self) -> impl Iterator<Item = (&Report, &Report)> {
        self.bare.iter().zip(&self.steered)
    }

    fn print(&self) {
        for (at, (bare, steered)) in self.both().enumerate() {
            println!(
                "{} on {at}: gang {:.1} to {:.1} % useful, has {:.1} to {:.1} %; other {:.1} to {:.1} %",
                self.what,
                bare.useful(0),
                steered.useful(0),
                bare.share(0),
                steered.share(0),
                bare.useful(1),
                steered.useful(1),
            );
        }
    }

    /// Of the rate and of the useful time without gpushare there is at least so much, in percent.
    fn keeps(&self, rate: f64, useful: f64) {
        for (bare, steered) in self.both() {
            let part = 100.0 * steered.useful(0) / bare.useful(0);
            at_least(&self.what, part, rate);
            let part = 100.0 * steered.all_useful() / bare.all_useful();
            at_least(&self.what, part, useful);
        }
    }
}

/// At each length of the driver's slice, in phase and against it.
fn each(what: &str, members: &dyn Fn(u64) -> Vec<Member>, check: &dyn Fn(&Pair)) {
    for slice in SLICES {
        for apart in [slice / 2, slice * 3 / 2] {
            check(&Pair::of(what, slice, apart, members));
        }
    }
}

fn even() -> Compute {
    Compute::default()
}

#[test]
fn a_gang_without_a_guarantee_keeps_its_rate_and_the_devices_theirs() {
    let keeps = |pair: &Pair| pair.keeps(90.0, 95.0);
    each("pods", &|apart| pods(even(), even(), apart), &keeps);
    let one = |apart| one_process(even(), even(), apart);
    each("one process", &one, &keeps);
}

/// What a gang occupies is its guarantee, and the driver gives it half without any help.
#[test]
fn a_gang_with_a_guarantee_of_half_keeps_its_rate() {
    let half = |apart| pods(request(50), request(50), apart);
    each("half", &half, &|pair| {
        pair.keeps(90.0, 95.0);
        for report in &pair.steered {
            near(&pair.what, report.share(0), 50.0, 1.0);
        }
    });
}

#[test]
fn a_gang_has_the_time_that_its_guarantee_says() {
    let most = |apart| one_process(request(70), request(30), apart);
    each("70 %", &most, &|pair| {
        for report in &pair.steered {
            near(&pair.what, report.share(0), 70.0, 2.0);
        }
        // Its kernels do not wait for each other in that time.
        pair.keeps(135.0, 95.0);
    });
}

/// It is closed for half of the time at most, on both devices at once.
#[test]
fn a_gang_ahead_of_its_part_leaves_its_neighbours_theirs() {
    let least = |apart| one_process(request(20), request(80), apart);
    each("20 %", &least, &|pair| {
        for report in &pair.steered {
            assert!(report.share(0) <= 35.0, "{:.1}", report.share(0));
            at_least(&pair.what, report.useful(1), 65.0);
        }
        pair.keeps(50.0, 95.0);
    });
}

/// A trainer and a server, each on both devices with kernels that wait for nothing.
fn without_collectives(apart: u64) -> Vec<Member> {
    let server = || Program::every(MS, 300 * US);
    let server = [Some(server()), Some(server().from(apart))];
    let both = [
        Some(Program::trainer()),
        Some(Program::trainer().from(apart)),
    ];
    vec![member(even(), &server), member(even(), &both)]
}

#[test]
fn a_server_on_two_devices_is_not_held_beside_a_trainer_on_both() {
    let check = |pair: &Pair| pair.keeps(95.0, 95.0);
    each("server on both", &without_collectives, &check);
}

/// A trainer beside a server that asks for 30 % of the first device: what the server has there.
/// `works`: the trainer's kernels on the second device take so long; `None`: it has only a context.
fn beside_a_trainer(works: Option<u64>) -> f64 {
    let there = match works {
        Some(kernel) => Program::queue(kernel),
        None => Program::trainer().starts(1_000_000 * MS),
    };
    let members = vec![
        member(even(), &[Some(Program::trainer()), Some(there)]),
        member(even(), &[Some(Program::every(MS, 300 * US)), None]),
    ];
    let pace = Pace {
        slice: 2 * MS,
        ..Pace::default()
    };
    let reports = Devices { pace, members }.steered(500 * MS, 1_500 * MS);
    reports[0].useful(1)
}

#[test]
fn a_stray_context_of_a_trainer_takes_nothing_from_a_server() {
    let stray = beside_a_trainer(None);
    println!("beside a stray context {stray:.1} %");
    at_least("stray", stray, 28.0);
    // The opposite: no tenant that uses two devices is sliced.
    let used = beside_a_trainer(Some(500 * US));
    println!("beside a gang {used:.1} %");
    assert!(used < 20.0, "{used:.1}");
}
