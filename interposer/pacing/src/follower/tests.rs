//! A gate's reaction to turns, in virtual time.

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};

use crate::follower::{
    Act, DRAIN_PAUSES, FIRST_PATIENCE, Facts, IDLE_AFTER, LeaseFollower, NEVER, STARTS,
};

mod closing;
mod shared;
mod steady;

const MS: u64 = 1_000_000;
const DONE: Facts = Facts {
    empty: true,
    quiet: true,
    last_active: 0,
    left: 0,
};
const BUSY: Facts = Facts {
    empty: false,
    left: MS,
    ..DONE
};

fn turn(state: LeaseState, epoch: u64) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, state),
        deadline: NO_DEADLINE,
        contended: true,
        ..Turn::default()
    }
}

fn open(epoch: u64, deadline: u64) -> Turn {
    Turn {
        deadline,
        ..turn(LeaseState::Open, epoch)
    }
}

fn closed(epoch: u64) -> Turn {
    turn(LeaseState::Closed, epoch)
}

#[test]
fn a_gate_that_nothing_binds_sleeps() {
    let mut follower = LeaseFollower::default();
    let free = turn(LeaseState::Free, 0);
    assert_eq!(follower.step(MS, &free, &DONE), Act::Sleep(NEVER));
    assert_eq!(follower.want(), None);
}

#[test]
fn a_turn_opens_closes_and_is_said_to_be_drained_once_it_is() {
    let mut follower = LeaseFollower::default();
    assert_eq!(follower.step(0, &open(1, NO_DEADLINE), &DONE), Act::Open);
    assert_eq!(follower.step(1, &closed(1), &BUSY), Act::Close);
    assert_eq!(
        follower.step(1, &closed(1), &BUSY),
        Act::Sleep(1 + FIRST_PATIENCE)
    );
    let inside = Facts {
        quiet: false,
        ..DONE
    };
    assert_eq!(
        follower.step(2, &closed(1), &inside),
        Act::Sleep(2 + DRAIN_PAUSES.0)
    );
    assert_eq!(follower.step(3, &closed(1), &DONE), Act::Drained(1));
    assert_eq!(follower.step(3, &closed(1), &DONE), Act::Sleep(NEVER));
    assert_eq!(follower.step(9, &open(2, NO_DEADLINE), &DONE), Act::Open);
}

#[test]
fn at_its_deadline_it_closes_by_itself_and_stays_closed_under_that_epoch() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &open(1, MS), &DONE);
    assert_eq!(follower.step(MS, &open(1, MS), &DONE), Act::Close);
    assert_eq!(follower.step(MS, &open(1, MS), &DONE), Act::Drained(1));
    assert_eq!(
        follower.step(MS, &open(1, 9 * MS), &DONE),
        Act::Sleep(NEVER),
        "a deadline that moves later comes with another epoch"
    );
    assert_eq!(follower.step(MS, &closed(1), &DONE), Act::Sleep(NEVER));
    assert_eq!(follower.step(MS, &open(2, 9 * MS), &DONE), Act::Open);
}

#[test]
fn a_turn_that_came_and_went_unseen_while_work_goes_on_is_told_once() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &open(1, NO_DEADLINE), &DONE);
    follower.step(1, &closed(1), &BUSY);
    assert_eq!(follower.want(), Some(1));
    let sleeps = |act| matches!(act, Act::Sleep(_));
    assert!(
        sleeps(follower.step(2, &closed(1), &BUSY)),
        "it is the same"
    );
    assert_eq!(follower.step(3, &closed(3), &BUSY), Act::Missed);
    assert_eq!(follower.want(), Some(3), "the report about 1 is void");
    assert!(sleeps(follower.step(4, &closed(3), &BUSY)));
    assert_eq!(follower.want(), None);
    assert_eq!(follower.step(5, &closed(3), &DONE), Act::Drained(3));
}

#[test]
fn an_extension_under_a_new_epoch_reaches_a_gate_that_is_closing() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &open(1, MS), &DONE);
    assert!(follower.land(MS / 2));
    assert!(!follower.land(MS / 2));
    assert!(matches!(
        follower.step(MS, &open(1, MS), &BUSY),
        Act::Sleep(_)
    ));
    assert_eq!(follower.step(MS, &open(2, 3 * MS), &BUSY), Act::Open);
}

#[test]
fn a_thread_that_waits_opens_for_the_next_turn_and_for_none_that_was() {
    let mut follower = LeaseFollower::default();
    assert!(!follower.is_opened_by(&turn(LeaseState::Free, 0)));
    follower.step(0, &open(1, MS), &DONE);
    assert!(!follower.is_opened_by(&open(2, MS)), "it is open");
    let before = follower.stands();
    assert!(follower.land(MS / 2));
    assert_ne!(follower.stands(), before, "earlier facts are outdated");
    for _ in 0..2 {
        assert!(
            !follower.is_opened_by(&open(1, 9 * MS)),
            "that turn is over"
        );
        assert!(!follower.is_opened_by(&closed(2)));
        assert!(follower.is_opened_by(&open(2, MS)));
        assert!(follower.is_opened_by(&turn(LeaseState::Free, 2)));
        let _ = follower.step(MS, &open(1, MS), &DONE);
    }
    assert_eq!(follower.step(MS, &open(2, 9 * MS), &DONE), Act::Open);
}

#[test]
fn a_turn_that_was_missed_is_answered_by_its_epoch() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &closed(1), &DONE);
    assert_eq!(follower.step(0, &closed(1), &DONE), Act::Drained(1));
    assert_eq!(follower.want(), Some(1));
    assert_eq!(follower.want(), None, "once");
    assert_eq!(follower.step(0, &closed(2), &DONE), Act::Missed);
    assert_eq!(follower.want(), Some(2), "it still waits");
    assert_eq!(follower.step(0, &closed(2), &DONE), Act::Drained(2));
}

/// A gate that has drained, for long and with late looks.
fn drained_late() -> LeaseFollower {
    let mut follower = LeaseFollower::default();
    follower.step(0, &closed(1), &BUSY);
    let late = Facts { left: 0, ..BUSY };
    follower.step(MS, &closed(1), &late);
    assert_eq!(follower.step(900 * MS, &closed(1), &DONE), Act::Drained(1));
    follower
}

/// While the gate is drained it is not asked whether a thread is inside.
const UNASKED: Facts = Facts {
    quiet: false,
    ..DONE
};

#[test]
fn a_turn_that_was_missed_is_answered_at_once_after_a_late_drain_too() {
    let mut follower = drained_late();
    let now = 900 * MS;
    let mut acts = Vec::new();
    for facts in [&UNASKED, &DONE] {
        acts.push(follower.step(now, &closed(2), facts));
    }
    assert_eq!(acts, [Act::Missed, Act::Drained(2)]);
}

#[test]
fn a_thread_inside_after_a_late_drain_is_looked_at_soon_again() {
    let now = 900 * MS;
    let mut follower = drained_late();
    assert_eq!(follower.step(now, &closed(2), &UNASKED), Act::Missed);
    let soon = Act::Sleep(now + DRAIN_PAUSES.0);
    assert_eq!(follower.step(now, &closed(2), &UNASKED), soon);
}

#[test]
fn an_idle_holder_is_idle_after_a_while_and_busy_when_it_works() {
    let mut follower = LeaseFollower::default();
    let held = open(4, NO_DEADLINE);
    follower.step(0, &held, &DONE);
    assert_eq!(follower.step(0, &held, &DONE), Act::Sleep(IDLE_AFTER));
    let worked = Facts {
        last_active: MS,
        ..DONE
    };
    assert_eq!(
        follower.step(MS, &held, &worked),
        Act::Sleep(MS + IDLE_AFTER)
    );
    let later = MS + IDLE_AFTER;
    assert_eq!(follower.step(later, &held, &worked), Act::Idle(4));
    assert_eq!(follower.step(later, &held, &worked), Act::Sleep(NEVER));
    assert_eq!(follower.work(), Some(4));
    assert_eq!(follower.work(), None);
    assert_eq!(follower.step(9 * MS, &held, &worked), Act::Idle(4));
}

#[test]
fn one_that_has_launched_nothing_is_not_idle_for_its_first_second() {
    let (after, nothing) = (20 * MS, DONE);
    let held = Turn {
        idle_after: after,
        ..open(4, NO_DEADLINE)
    };
    let mut follower = LeaseFollower::default();
    follower.step(MS, &held, &nothing);
    let started = MS + STARTS;
    assert_eq!(
        follower.step(MS + after, &held, &nothing),
        Act::Sleep(MS + 2 * after),
        "its first launch is seen as soon as another"
    );
    assert_eq!(follower.step(started, &held, &nothing), Act::Idle(4));
    let worked = Facts {
        last_active: 2 * MS,
        ..DONE
    };
    let mut follower = LeaseFollower::default();
    follower.step(MS, &held, &worked);
    let rested = 2 * MS + after;
    assert_eq!(follower.step(rested, &held, &worked), Act::Idle(4));
    // A later turn of a process that never launched begins no second anew.
    let mut follower = LeaseFollower::default();
    follower.step(MS, &turn(LeaseState::Free, 1), &nothing);
    follower.step(9 * STARTS, &held, &nothing);
    let rested = 9 * STARTS + after;
    assert_eq!(follower.step(rested, &held, &nothing), Act::Idle(4));
}

#[test]
fn one_that_makes_a_context_says_again_that_it_is_idle() {
    let held = Turn {
        idle_after: 20 * MS,
        ..open(4, NO_DEADLINE)
    };
    let mut follower = LeaseFollower::default();
    follower.step(0, &held, &DONE);
    assert_eq!(follower.step(STARTS, &held, &DONE), Act::Idle(4));
    assert_eq!(
        follower.step(2 * STARTS, &held, &DONE),
        Act::Sleep(NO_DEADLINE)
    );
    // The daemon has not heard that, or forgets it.
    assert_eq!(follower.joins(2 * STARTS), Some(4));
    assert!(!follower.is_idle());
    let soon = follower.step(3 * STARTS - 1, &held, &DONE);
    assert!(matches!(soon, Act::Sleep(_)), "it starts there: {soon:?}");
    assert_eq!(follower.step(3 * STARTS, &held, &DONE), Act::Idle(4));
    // One that has said nothing takes nothing back.
    let mut works = LeaseFollower::default();
    works.step(0, &held, &BUSY);
    assert_eq!(works.joins(MS), None);
}

#[test]
fn a_busy_holder_is_looked_at_less_and_less_and_never_past_its_deadline() {
    let mut follower = LeaseFollower::default();
    let held = open(4, 100 * MS);
    follower.step(0, &held, &BUSY);
    let (mut now, mut looks) = (0, 0);
    while now < 100 * MS {
        let facts = Facts {
            last_active: now,
            left: 0,
            ..BUSY
        };
        match follower.step(now, &held, &facts) {
            Act::Sleep(until) => now = until,
            act => assert_eq!(act, Act::Close),
        }
        looks += 1;
    }
    assert_eq!(now, 100 * MS);
    assert!(looks <= 60, "{looks}");
}

#[test]
fn nobody_asks_whether_a_lone_holder_is_idle_unless_it_has_a_cap() {
    let mut follower = LeaseFollower::default();
    let alone = Turn {
        contended: false,
        ..open(4, NO_DEADLINE)
    };
    follower.step(0, &alone, &DONE);
    assert_eq!(follower.step(9 * MS, &alone, &DONE), Act::Sleep(NEVER));
    let capped = Turn { cap: 300, ..alone };
    assert_eq!(follower.step(9 * MS, &capped, &DONE), Act::Idle(4));
}

/// Looks of a drain that ends at `end` and is expected to end at `expected`, and when its end is
/// seen, if a sleep takes `late` longer than it should.
fn looks(expected: u64, end: u64, late: u64) -> (u32, u64) {
    let mut follower = LeaseFollower::default();
    follower.step(0, &closed(1), &BUSY);
    let (mut now, mut looks) = (0, 0);
    loop {
        looks += 1;
        let facts = Facts {
            empty: now >= end,
            left: expected.saturating_sub(now),
            ..BUSY
        };
        match follower.step(now, &closed(1), &facts) {
            Act::Sleep(until) => now = until + late,
            act => {
                assert_eq!(act, Act::Drained(1));
                return (looks, now - end);
            }
        }
    }
}

#[test]
fn the_end_of_a_drain_that_was_foreseen_is_seen_when_it_comes() {
    for end in [5 * MS - 20_000, 5 * MS, 5 * MS + 60_000] {
        let (looks, late) = looks(5 * MS, end, 35_000);
        assert!(late <= 80_000, "{late} ns late");
        assert!(looks < 60, "{looks} looks");
    }
}

#[test]
fn the_end_of_a_drain_that_was_not_foreseen_is_seen_soon_after() {
    for (expected, end, most) in [
        (MS, 5 * MS, MS),
        (9 * MS, MS, MS),
        (MS, MS + 300_000, 80_000),
    ] {
        let (looks, late) = looks(expected, end, 35_000);
        assert!(
            late <= most,
            "{late} ns late, expected {expected}, ended {end}"
        );
        assert!(looks < 120, "{looks} looks");
    }
}

#[test]
fn work_that_never_ends_is_never_drained_and_looked_at_now_and_then() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &closed(1), &BUSY);
    let hung = Facts { left: 0, ..BUSY };
    let (mut now, mut looks) = (0, 0);
    while now < 60_000 * MS {
        match follower.step(now, &closed(1), &hung) {
            Act::Sleep(until) => now = until,
            act => panic!("{act:?}"),
        }
        looks += 1;
    }
    assert!(looks < 6_500, "{looks} looks in a minute");
    assert_eq!(follower.step(now, &closed(1), &DONE), Act::Drained(1));
}

#[test]
fn a_new_daemon_is_told_again() {
    let mut follower = LeaseFollower::default();
    follower.step(0, &closed(7), &DONE);
    follower.step(0, &closed(7), &DONE);
    assert_eq!(follower.want(), Some(7));
    follower.forget();
    assert_eq!(follower.want(), Some(7));
    assert_eq!(follower.step(0, &closed(7), &DONE), Act::Drained(7));
}

/// The reports of a holder after this, if it said `Idle` in the first epoch.
fn says_after(event: impl FnOnce(&mut LeaseFollower)) -> Act {
    let mut follower = LeaseFollower::default();
    let turn = shared(true);
    let done = Facts {
        last_active: 1,
        ..DONE
    };
    follower.step(1, &turn, &done);
    let now = 1 + 20 * MS;
    assert_eq!(follower.step(now, &turn, &done), Act::Idle(1));
    event(&mut follower);
    let busy = Facts {
        last_active: now,
        ..BUSY
    };
    match follower.step(now, &turn, &busy) {
        Act::Open => follower.step(now, &turn, &busy),
        act => act,
    }
}

fn passes_alone(follower: &mut LeaseFollower) {
    follower.falls_silent();
    let free = Turn::default();
    assert_eq!(follower.step(0, &free, &BUSY), Act::Free);
}

#[test]
fn after_a_silence_of_the_daemon_one_that_was_idle_says_that_it_works() {
    assert_eq!(says_after(passes_alone), Act::Busy(1));
    assert_eq!(says_after(LeaseFollower::give_up), Act::Busy(1));
}

#[test]
fn a_daemon_that_was_not_silent_or_that_is_new_is_told_nothing() {
    assert!(matches!(says_after(|_| ()), Act::Sleep(_)), "idle");
    let works = says_after(|follower| {
        follower.work();
        passes_alone(follower);
    });
    assert!(matches!(works, Act::Sleep(_)), "it said so before");
    let anew = says_after(|follower| {
        passes_alone(follower);
        follower.forget();
    });
    assert!(matches!(anew, Act::Sleep(_)), "a new connection");
}

#[test]
fn any_page_at_any_time_is_answered_and_what_is_done_is_soon_all() {
    let mut state = 1_u64;
    let mut any = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => MS,
            3 => 1 << 62,
            _ => state >> (state % 60),
        }
    };
    let mut follower = LeaseFollower::default();
    for _ in 0..100_000 {
        let turn = Turn {
            word: LeaseWord::from_bits(any()),
            deadline: any(),
            window: any(),
            contended: any() % 2 == 0,
            slice: any(),
            cap: u32::try_from(any() % 2000).unwrap(),
            idle_after: any(),
        };
        let facts = Facts {
            empty: any() % 2 == 0,
            quiet: any() % 2 == 0,
            last_active: any() >> 2,
            left: any(),
        };
        // Times of a machine that has not run for a century.
        let now = any() >> 2;
        let acts = (0..8).find(|_| matches!(follower.step(now, &turn, &facts), Act::Sleep(_)));
        assert!(acts.is_some(), "{turn:?} {facts:?} at {now}: never at rest");
        match any() % 6 {
            0 => _ = follower.land(now),
            1 => _ = follower.want(),
            2 => _ = follower.work(),
            3 => follower.falls_silent(),
            4 => follower.give_up(),
            _ => follower.forget(),
        }
    }
}

/// A turn of a device that tenants share.
fn shared(contended: bool) -> Turn {
    Turn {
        contended,
        idle_after: 20 * MS,
        window: 2 * MS,
        ..open(1, NO_DEADLINE)
    }
}
