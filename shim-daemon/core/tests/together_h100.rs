//! Rows at the times of a recorded H100.
use crate::together::{Case, MS, Program, US};
use gpushare_core::Compute;

fn run(what: &str, programs: &[Program]) {
    let case = Case::new(what, programs).h100();
    let pair = case.pair();
    println!("   of bare {:.1} %", pair.useful_of_bare());
}

#[test]
fn rows() {
    let q = |us: u64| Program::queue(us * US);
    let e = |p: u64, k: u64| Program::every(p * US, k * US);
    run("gaps-2", &[e(500, 200), e(500, 200)]);
    run("gaps-4", &vec![e(1000, 200); 4]);
    run(
        "sync",
        &[Program::sync(50 * US, 0), Program::sync(50 * US, 0)],
    );
    run("serving-1", &[q(500), e(1000, 300)]);
    run("serving-1 of 5 in 10", &[q(500), e(10000, 5000)]);
    run("serving-1 of 1 in 10", &[q(500), e(10000, 1000)]);
    run("serving-1 of 1 in 5", &[q(500), e(5000, 1000)]);
    run(
        "serving-3",
        &[q(500), e(1000, 200), e(1000, 200), e(1000, 200)],
    );
    run(
        "serving-3 of 200",
        &[q(200), e(1000, 200), e(1000, 200), e(1000, 200)],
    );
    run("serving-2", &[q(500), q(500), e(1000, 300)]);
    run("poisson", &[q(500), Program::poisson(MS, 300 * US)]);
    for ms in [1, 2, 5, 20] {
        run(&format!("curve {ms}"), &[q(ms * 1000), e(1000, 300)]);
    }
    run("rare", &[q(500), e(10000, 100)]);
    run("decode", &[q(500), Program::sync(10 * MS, 0)]);
    run("50 and sync 50+0", &[q(50), Program::sync(50 * US, 0)]);
    run("50 and sync 200+0", &[q(50), Program::sync(200 * US, 0)]);
    run(
        "2 of 50 and sync 50",
        &[q(50), q(50), Program::sync(50 * US, 0)],
    );
    run("4 sync 50", &vec![Program::sync(50 * US, 0); 4]);
    run(
        "3 sync 50 and server",
        &[
            Program::sync(50 * US, 0),
            Program::sync(50 * US, 0),
            Program::sync(50 * US, 0),
            e(1000, 100),
        ],
    );
    run("two queues", &[q(500), q(500)]);
    run(
        "50 and sync 50+20",
        &[q(50), Program::sync(50 * US, 20 * US)],
    );
    run(
        "500 and sync 50+20",
        &[q(500), Program::sync(50 * US, 20 * US)],
    );
    for (a, b) in [(70, 30), (90, 10)] {
        let case = Case::new("queues of shares", &[q(500), q(500)]).h100();
        let pair = case.requests(&[a, b]).pair();
        println!("   {a}:{b} of bare {:.1} %", pair.useful_of_bare());
    }
    let case = Case::new("higher server", &[q(500), e(1000, 300)]).h100();
    let pair = case.of(1, 900, Compute::default()).pair();
    println!("   higher of bare {:.1} %", pair.useful_of_bare());
    for us in [20, 50, 200] {
        let case = Case::new("higher loop", &[q(500), Program::sync(us * US, 0)]).h100();
        let pair = case.of(1, 900, Compute::default()).pair();
        println!("   higher of bare {:.1} %", pair.useful_of_bare());
    }
}
