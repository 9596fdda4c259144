//! A gang with a request beside neighbours that always have work: these are held on all its devices
//! at once.

use super::{member, trainer};
use crate::together::{Devices, H100, MS, Member, Pace, Program, Report, S, US, request};
use gpushare_core::Compute;
use std::cell::RefCell;
use std::rc::Rc;

/// The sides of a collective of 250 us.
fn sides(many: usize) -> Vec<Program> {
    let board = Rc::new(RefCell::new(vec![0; many]));
    let side = |at| Program::queue(250 * US).meets(&board, at);
    (0..many).map(side).collect()
}

/// A tenant on all devices.
fn gang(own: Compute, sides: Vec<Program>) -> Member {
    let sides: Vec<_> = sides.into_iter().map(Some).collect();
    member(own, &sides)
}

/// A tenant on one device.
fn on(at: usize, own: Compute, program: Program) -> Member {
    let mut programs = vec![None; at];
    programs.push(Some(program));
    member(own, &programs)
}

const SOFT: Pace = Pace {
    slice: 2 * MS,
    switch: 0,
    preempt: 0,
};

fn show(what: &str, pace: Pace, members: &dyn Fn() -> Vec<Member>) -> (Vec<Report>, Vec<Report>) {
    let devices = || Devices {
        pace,
        members: members(),
    };
    let bare = devices().bare(S, 4 * S);
    let steered = devices().steered(S, 4 * S);
    for (name, all) in [("bare", &bare), ("steered", &steered)] {
        for (at, r) in all.iter().enumerate() {
            let t: Vec<String> = (0..r.tenants.len())
                .map(|t| {
                    let p99 = r.tenants[t]
                        .wait_if_any(990)
                        .map_or(String::new(), |w| format!(" p99 {} us", w / US));
                    format!(
                        "{:.1} (has {:.1}, {} gates){p99}",
                        r.useful(t),
                        r.share(t),
                        r.tenants[t].gate_changes
                    )
                })
                .collect();
            println!(
                "{what} {name} {at}: all {:.1} idle {:.1}: {}",
                r.all_useful(),
                r.idle(),
                t.join("; ")
            );
        }
    }
    (bare, steered)
}

#[test]
fn x_scratch_main() {
    for (name, pace) in [
        ("soft", SOFT),
        ("h100", H100),
        ("L1", Pace { slice: MS, ..SOFT }),
    ] {
        for part in [50, 60, 70, 80] {
            for apart in [1, 3] {
                show(&format!("{name} {part} apart {apart}"), pace, &|| {
                    vec![
                        gang(request(part), sides(2)),
                        on(0, request(100 - part), trainer()),
                        on(1, request(100 - part), trainer().from(apart * MS)),
                    ]
                });
            }
        }
    }
}

#[test]
fn x_scratch_more() {
    for (name, pace) in [("soft", SOFT), ("h100", H100)] {
        for part in [60, 80] {
            let o = request(100 - part);
            let n = Compute::default();
            let both = |what: &str, f: &dyn Fn() -> Vec<Program>| {
                show(&format!("{name} {part} {what}"), pace, &|| {
                    let mut all = vec![gang(request(part), sides(2)), on(0, o, trainer())];
                    all.extend(f().into_iter().map(|p| on(1, n, p)));
                    all
                });
            };
            both("server 300/2000", &|| {
                vec![Program::every(2 * MS, 300 * US)]
            });
            both("server 300/2000 and trainer", &|| {
                vec![Program::every(2 * MS, 300 * US), trainer()]
            });
            both("sync 300 600", &|| vec![Program::sync(300 * US, 600 * US)]);
            both("sync 300 600 and trainer", &|| {
                vec![Program::sync(300 * US, 600 * US), trainer()]
            });
            both("poisson", &|| vec![Program::poisson(3 * MS, 200 * US)]);
            both("burst 10x500 think 2ms", &|| {
                vec![Program::sync(500 * US, 2 * MS).burst(10)]
            });
            both("two trainers", &|| vec![trainer(), trainer()]);
            both("q5000", &|| vec![Program::queue(5 * MS)]);
            both("q50", &|| vec![Program::queue(50 * US)]);
            both("nothing", &|| vec![]);
            both("pausing", &|| vec![trainer().pauses(30 * MS, 30 * MS)]);
            show(&format!("{name} {part} own 15 and rest"), pace, &|| {
                vec![
                    gang(request(part), sides(2)),
                    on(0, o, trainer()),
                    on(1, request(15), trainer()),
                    on(1, n, trainer()),
                ]
            });
            show(&format!("{name} {part} three"), pace, &|| {
                vec![
                    gang(request(part), sides(3)),
                    on(0, o, trainer()),
                    on(1, o, trainer().from(MS)),
                    on(2, o, trainer().from(3 * MS)),
                ]
            });
            show(&format!("{name} {part} three, one alone"), pace, &|| {
                vec![
                    gang(request(part), sides(3)),
                    on(0, o, trainer()),
                    on(1, o, trainer().from(MS)),
                ]
            });
            show(&format!("{name} {part} class"), pace, &|| {
                let mut g = gang(Compute::default(), sides(2));
                g.class = 900;
                vec![g, on(0, n, trainer()), on(1, n, trainer().from(MS))]
            });
            show(&format!("{name} {part} below"), pace, &|| {
                let mut g = gang(request(part), sides(2));
                g.class = 100;
                vec![g, on(0, n, trainer()), on(1, n, trainer().from(MS))]
            });
            show(&format!("{name} {part} step"), pace, &|| {
                let board = Rc::new(RefCell::new(vec![0; 2]));
                let side = |at| Program::sync(250 * US, MS).burst(40).meets(&board, at);
                vec![
                    gang(request(part), vec![side(0), side(1)]),
                    on(0, o, trainer()),
                    on(1, o, trainer().from(MS)),
                ]
            });
            show(
                &format!("{name} {part} two gangs, other without"),
                pace,
                &|| {
                    vec![
                        gang(request(part), sides(2)),
                        gang(n, sides(2)),
                        on(0, n, trainer()),
                        on(1, n, trainer().from(MS)),
                    ]
                },
            );
            show(&format!("{name} {part} two gangs, 3 ms"), pace, &|| {
                vec![
                    gang(request(part), sides(2)),
                    gang(request(10), sides(2)),
                    on(0, n, trainer()),
                    on(1, n, trainer().from(3 * MS)),
                ]
            });
            show(&format!("{name} {part} two gangs only"), pace, &|| {
                vec![
                    gang(request(part), sides(2)),
                    gang(request(100 - part), sides(2)),
                ]
            });
            show(&format!("{name} {part} request on one"), pace, &|| {
                let mut s = sides(2);
                let two = s.pop();
                let one = s.pop();
                let mut a = member(request(part), &[one]);
                a.gang = Some("job");
                let mut b = member(n, &[None, two]);
                b.gang = Some("job");
                vec![a, b, on(0, n, trainer()), on(1, n, trainer().from(MS))]
            });
            show(&format!("{name} {part} step 5ms"), pace, &|| {
                let board = Rc::new(RefCell::new(vec![0; 2]));
                let side = |at| Program::sync(250 * US, 5 * MS).burst(100).meets(&board, at);
                vec![
                    gang(request(part), vec![side(0), side(1)]),
                    on(0, o, trainer()),
                    on(1, o, trainer().from(MS)),
                ]
            });
            show(&format!("{name} {part} two gangs"), pace, &|| {
                vec![
                    gang(request(part), sides(2)),
                    gang(request(10), sides(2)),
                    on(0, n, trainer()),
                    on(1, n, trainer().from(MS)),
                ]
            });
        }
    }
}

#[test]
fn x_scratch_ends() {
    for (name, pace) in [("soft", SOFT), ("h100", H100)] {
        for part in [60, 80] {
            let o = request(100 - part);
            let n = Compute::default();
            // In the measured time, which begins at 1 s.
            show(
                &format!("{name} {part} member stops at 1.5 s"),
                pace,
                &|| {
                    let mut s = sides(2);
                    s[1] = s[1].clone().until(1500 * MS);
                    vec![
                        gang(request(part), s),
                        on(0, o, trainer()),
                        on(1, o, trainer().from(MS)),
                    ]
                },
            );
            show(
                &format!("{name} {part} pods, member stops at 1.5 s"),
                pace,
                &|| {
                    let mut s = sides(2);
                    s[1] = s[1].clone().until(1500 * MS);
                    let two = s.pop();
                    let one = s.pop();
                    let mut a = member(request(part), &[one]);
                    a.gang = Some("job");
                    let mut b = member(request(part), &[None, two]);
                    b.gang = Some("job");
                    vec![a, b, on(0, n, trainer()), on(1, n, trainer().from(MS))]
                },
            );
            show(&format!("{name} {part} gang stops at 1.5 s"), pace, &|| {
                let s = sides(2).into_iter().map(|p| p.until(1500 * MS)).collect();
                vec![
                    gang(request(part), s),
                    on(0, o, trainer()),
                    on(1, o, trainer().from(MS)),
                ]
            });
            show(
                &format!("{name} {part} neighbour stops at 1.5 s"),
                pace,
                &|| {
                    vec![
                        gang(request(part), sides(2)),
                        on(0, o, trainer().until(1500 * MS)),
                        on(1, o, trainer().from(MS)),
                    ]
                },
            );
            show(
                &format!("{name} {part} neighbour comes at 1.5 s"),
                pace,
                &|| {
                    vec![
                        gang(request(part), sides(2)),
                        on(0, o, trainer().from(1500 * MS)),
                        on(1, o, trainer().from(MS)),
                    ]
                },
            );
        }
    }
}
