//! Counters and answers, and what they add up to.

use super::*;
use gpushare_core::AskId;

const PROCESS: ProcessId = ProcessId(1);
const ASK: AskKey = (PROCESS, AskId(1));
const T: Nanos = Nanos::ZERO;

fn at(seconds: u64) -> Nanos {
    Nanos::secs(seconds)
}

fn refused(refused: u64) -> Counters {
    Counters {
        refused,
        ..Counters::default()
    }
}

fn tally() -> Tally {
    let mut tally = Tally::new(1, T);
    tally.read(PROCESS, 0, refused(0));
    tally
}

/// What the refusals of a device are after its counter showed each of these in turn.
fn shown(counts: &[u64]) -> Vec<u64> {
    let mut tally = tally();
    let each = counts.iter().map(|count| {
        tally.read(PROCESS, 0, refused(*count));
        tally.refused()
    });
    each.collect()
}

#[test]
fn a_counter_that_jumps_adds_what_a_program_can_be_refused() {
    let all = shown(&[1 << 63, 0, 1 << 63, u64::MAX, 1]);
    let [once, fallen, twice, more, last] = all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((once, fallen, twice), (AT_ONCE, AT_ONCE, 2 * AT_ONCE));
    assert_eq!((more, last), (3 * AT_ONCE, 3 * AT_ONCE + 1));
    // What it may have been refused is counted whole.
    assert_eq!(shown(&[AT_ONCE, AT_ONCE + 5]), [AT_ONCE, AT_ONCE + 5]);
}

#[test]
fn the_sums_of_forged_counts_end_at_the_greatest_number() {
    let most = Refusals {
        over_limit: u64::MAX,
        cycle: 1,
        no_room: u64::MAX,
        ..Refusals::default()
    };
    let mut all = most;
    all.add(most);
    assert_eq!((all.over_limit, all.cycle), (u64::MAX, 2));
    assert_eq!((all.sum(), all.without_room()), (u64::MAX, u64::MAX));
    let mut tally = Tally::new(2, T);
    for (device_index, service) in [(0, u64::MAX), (1, 7)] {
        for service in [0, service] {
            let counters = Counters {
                service,
                ..Counters::default()
            };
            tally.read(PROCESS, device_index, counters);
        }
    }
    assert_eq!(tally.service(), u64::MAX);
}

#[test]
fn a_refusal_without_an_answer_was_over_the_limit() {
    let mut tally = tally();
    tally.read(PROCESS, 0, refused(3));
    let told = tally.take_untold(0, at(1), false).unwrap();
    assert_eq!((told.over_limit, told.sum()), (3, 3));
    assert_eq!(tally.take_untold(0, at(100), false), None, "once");
    assert_eq!(tally.refused(), 3);
}

#[test]
fn the_largest_refusal_is_told_with_those_it_was_among() {
    let of = |count, mib: u64, pid| Counters {
        largest: Some(Largest {
            bytes: Bytes(mib << 20),
            pid,
        }),
        ..refused(count)
    };
    let mut tally = tally();
    tally.read(PROCESS, 0, of(1, 300, 7));
    tally.read(PROCESS, 0, of(2, 80, 8));
    assert_eq!(tally.take_sizes(0).0, of(0, 300, 7).largest);
    assert_eq!(tally.take_sizes(0).0, None, "once");
    // That of an earlier process in the same row is not told.
    tally.read(ProcessId(2), 0, of(1, 900, 9));
    tally.read(ProcessId(2), 0, refused(2));
    assert_eq!(tally.take_sizes(0).0, None);
}

#[test]
fn refusals_are_told_at_a_limited_rate_and_none_is_left_out() {
    let mut tally = tally();
    let mut told = 0;
    let mut events = 0;
    for second in 1..=60 {
        tally.read(PROCESS, 0, refused(second * 1000));
        if let Some(refusals) = tally.take_untold(0, at(second), second == 60) {
            told += refusals.sum();
            events += 1;
        }
    }
    assert_eq!(told, 60_000);
    assert!(events <= 7, "{events}");
}

#[test]
fn an_answer_explains_a_refusal() {
    let timed_out = Denial::TimedOut { waited: at(2) };
    let no_room = Denial::NoRoom { short: Bytes(1) };
    let none = Refusals::default();
    for (denials, driver, wanted) in [
        (
            vec![timed_out],
            false,
            Refusals {
                timed_out: 1,
                ..none
            },
        ),
        (vec![Denial::Cycle], false, Refusals { cycle: 1, ..none }),
        (
            vec![no_room],
            false,
            Refusals {
                no_room: 1,
                short: Bytes(1),
                ..none
            },
        ),
        (vec![no_room], true, Refusals { driver: 1, ..none }),
    ] {
        let mut tally = tally();
        for denial in denials {
            tally.asks(ASK, 0, Bytes(5), driver);
            tally.settled(ASK, at(2), Some(denial));
        }
        tally.read(PROCESS, 0, refused(1));
        assert_eq!(tally.take_untold(0, at(3), false), Some(wanted));
        // The next one has another reason.
        tally.read(PROCESS, 0, refused(2));
        let told = tally.take_untold(0, at(13), false).unwrap();
        assert_eq!((told.over_limit, told.sum()), (1, 1));
    }
}

#[test]
fn an_answer_explains_refusals_of_its_own_process_alone() {
    let mut tally = tally();
    let other = ProcessId(2);
    tally.read(other, 0, refused(0));
    tally.asks((other, AskId(1)), 0, Bytes(5), false);
    tally.settled(
        (other, AskId(1)),
        at(2),
        Some(Denial::TimedOut { waited: at(2) }),
    );
    tally.read(PROCESS, 0, refused(1));
    tally.read(other, 0, refused(1));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.timed_out, told.over_limit), (1, 1));
}

#[test]
fn an_answer_explains_a_refusal_that_is_counted_within_the_next_second() {
    for (seconds, timed_out) in [(0, 1), (1, 1), (2, 0)] {
        let mut tally = tally();
        denied(&mut tally, Denial::TimedOut { waited: at(2) });
        for _ in 0..seconds {
            tally.read(PROCESS, 0, refused(0));
            tally.second();
        }
        tally.read(PROCESS, 0, refused(1));
        let told = tally.take_untold(0, at(3), false).unwrap();
        assert_eq!((told.timed_out, told.sum()), (timed_out, 1), "{seconds}");
    }
}

/// A scrape reads all counters twice; a process may be kept from its own for a while.
#[test]
fn scrapes_before_a_refusal_is_counted_leave_it_its_answer() {
    let mut tally = tally();
    denied(&mut tally, Denial::NoRoom { short: Bytes(1) });
    (0..9).for_each(|_| tally.read(PROCESS, 0, refused(0)));
    tally.read(PROCESS, 0, refused(1));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.no_room, told.over_limit), (1, 0));
}

#[test]
fn refusals_are_told_with_what_was_charged_at_them() {
    let mut tally = tally();
    let second = |tally: &mut Tally, charged: u64, count: u64| {
        // Of another process, too, which was refused nothing.
        for (process, count) in [(ProcessId(2), 0), (PROCESS, count)] {
            tally.charged(0, Bytes(charged));
            tally.read(process, 0, refused(count));
        }
        tally.second();
    };
    // It is refused, and frees its batch before its counter is read.
    second(&mut tally, 78, 0);
    second(&mut tally, 12, 1);
    // The event comes later.
    (0..5).for_each(|_| second(&mut tally, 40, 1));
    assert_eq!(tally.take_sizes(0).1, Bytes(78));
    assert_eq!(tally.take_sizes(0).1, Bytes(0), "once");
    second(&mut tally, 30, 2);
    assert_eq!(tally.take_sizes(0).1, Bytes(40), "not of long before");
}

fn denied(tally: &mut Tally, denial: Denial) {
    tally.asks(ASK, 0, Bytes(5), false);
    tally.settled(ASK, at(2), Some(denial));
}

#[test]
fn a_refusal_says_whether_its_allocation_had_waited() {
    let no_room = Denial::NoRoom { short: Bytes(1) };
    let over_limit = Denial::OverLimit { limit: Bytes(1) };
    for (denial, driver) in [
        (no_room, false),
        (no_room, true),
        (over_limit, false),
        (Denial::Cycle, false),
        (Denial::TimedOut { waited: at(1) }, false),
    ] {
        for waits in [true, false] {
            let mut tally = tally();
            tally.asks(ASK, 0, Bytes(5), driver);
            if waits {
                tally.waits(ASK, at(1));
            }
            tally.settled(ASK, at(2), Some(denial));
            // The second one has no answer.
            tally.read(PROCESS, 0, refused(2));
            let told = tally.take_untold(0, at(3), false).unwrap();
            assert_eq!((told.sum(), told.waited), (2, waits.into()), "{denial:?}");
            let is_limit = denial == over_limit;
            assert_eq!(told.over_limit, 1 + u64::from(is_limit), "{denial:?}");
            // Nothing is left of it.
            tally.read(PROCESS, 0, refused(3));
            let told = tally.take_untold(0, at(13), false).unwrap();
            assert_eq!((told.sum(), told.waited), (1, 0), "{denial:?}");
        }
    }
}

#[test]
fn refusals_for_want_of_room_say_the_most_that_was_missing() {
    let mut tally = tally();
    for (count, missing) in [(1, 3), (2, 7), (3, 5)] {
        denied(
            &mut tally,
            Denial::NoRoom {
                short: Bytes(missing),
            },
        );
        tally.read(PROCESS, 0, refused(count));
    }
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.no_room, told.short), (3, Bytes(7)));
    // Once told, it says nothing of later ones.
    denied(&mut tally, Denial::NoRoom { short: Bytes(2) });
    tally.read(PROCESS, 0, refused(4));
    let told = tally.take_untold(0, at(13), false).unwrap();
    assert_eq!((told.no_room, told.short), (1, Bytes(2)));
}

#[test]
fn refusals_for_another_reason_say_nothing_of_what_was_missing() {
    let mut tally = tally();
    denied(&mut tally, Denial::Cycle);
    tally.read(PROCESS, 0, refused(1));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.cycle, told.short), (1, Bytes::ZERO));
    // It waited for each allocation that was denied at once.
    denied(&mut tally, Denial::NoRoom { short: Bytes(9) });
    tally.asks(ASK, 0, Bytes(5), false);
    tally.waits(ASK, at(4));
    tally.settled(ASK, at(5), Some(Denial::TimedOut { waited: at(1) }));
    tally.read(PROCESS, 0, refused(2));
    let told = tally.take_untold(0, at(13), false).unwrap();
    assert_eq!((told.timed_out, told.short), (1, Bytes::ZERO));
    // The driver refused before the daemon had no room.
    tally.asks(ASK, 0, Bytes(5), true);
    tally.settled(ASK, at(14), Some(Denial::NoRoom { short: Bytes(9) }));
    tally.read(PROCESS, 0, refused(3));
    let told = tally.take_untold(0, at(23), false).unwrap();
    assert_eq!((told.driver, told.short), (1, Bytes::ZERO));
}

#[test]
fn a_wait_that_timed_out_explains_more_than_what_was_denied_at_once() {
    let mut tally = tally();
    denied(&mut tally, Denial::NoRoom { short: Bytes(1) });
    tally.read(PROCESS, 0, refused(0));
    denied(&mut tally, Denial::TimedOut { waited: at(2) });
    tally.read(PROCESS, 0, refused(1));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.timed_out, told.sum()), (1, 1));
}

/// It may be asked for up to three times.
#[test]
fn what_no_memory_can_come_for_is_not_blamed_on_the_limit() {
    let gone = [
        Denial::NoQuota,
        Denial::Ending,
        Denial::TooMany,
        Denial::DeviceLost,
    ];
    for denial in gone {
        for asks in [1, 3] {
            let mut tally = tally();
            (0..asks).for_each(|_| denied(&mut tally, denial));
            tally.read(PROCESS, 0, refused(1));
            let told = tally.take_untold(0, at(3), false).unwrap();
            assert_eq!((told.gone, told.sum()), (1, 1), "{denial:?}");
            assert_eq!((told.without_room(), told.waited), (1, 0), "{denial:?}");
            // The next one has no answer.
            tally.read(PROCESS, 0, refused(2));
            let told = tally.take_untold(0, at(13), false).unwrap();
            assert_eq!((told.over_limit, told.sum()), (1, 1), "{denial:?}");
        }
    }
    // It waited when its device was lost, and asked again.
    let mut tally = tally();
    tally.asks(ASK, 0, Bytes(5), false);
    tally.waits(ASK, at(1));
    tally.settled(ASK, at(2), Some(Denial::DeviceLost));
    denied(&mut tally, Denial::DeviceLost);
    tally.read(PROCESS, 0, refused(2));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.gone, told.waited, told.sum()), (2, 1, 2));
}

#[test]
fn several_denials_at_once_explain_no_refusal_that_is_read_later() {
    let mut tally = tally();
    for _ in 0..3 {
        denied(&mut tally, Denial::NoRoom { short: Bytes(1) });
    }
    tally.read(PROCESS, 0, refused(1));
    tally.read(PROCESS, 0, refused(2));
    let told = tally.take_untold(0, at(3), false).unwrap();
    assert_eq!((told.no_room, told.over_limit), (1, 1));
}

#[test]
fn what_was_not_there_at_once_and_then_waited_for_is_no_refusal() {
    let mut tally = tally();
    tally.asks(ASK, 0, Bytes(5), false);
    let no_room = Denial::NoRoom { short: Bytes(1) };
    assert_eq!(tally.settled(ASK, at(1), Some(no_room)), None);
    tally.asks(ASK, 0, Bytes(5), false);
    tally.waits(ASK, at(1));
    assert_eq!(tally.settled(ASK, at(4), None), Some((0, at(3))));
    assert_eq!((tally.waited, tally.devices[0].peak), (at(3), Bytes(5)));
    assert_eq!(tally.take_untold(0, at(5), false), None);
    // An unrelated refusal later is not explained by it.
    tally.read(PROCESS, 0, refused(1));
    assert_eq!(tally.take_untold(0, at(6), false).unwrap().over_limit, 1);
}

#[test]
fn a_row_that_another_process_had_begins_where_it_stands() {
    let mut tally = Tally::new(1, T);
    tally.read(PROCESS, 0, refused(500));
    assert_eq!(tally.take_untold(0, at(1), true), None);
    tally.read(PROCESS, 0, refused(501));
    assert_eq!(tally.take_untold(0, at(1), true).unwrap().sum(), 1);
    tally.left(PROCESS);
    tally.read(PROCESS, 0, refused(700));
    assert_eq!(tally.take_untold(0, at(20), true), None);
}

#[test]
fn the_peak_is_the_most_that_was_seen_or_granted() {
    let mut tally = tally();
    tally.charged(0, Bytes(7));
    tally.asks(ASK, 0, Bytes(9), false);
    tally.settled(ASK, T, None);
    tally.asks(ASK, 0, Bytes(90), false);
    tally.settled(ASK, T, Some(Denial::Cycle));
    tally.charged(0, Bytes(3));
    assert_eq!(tally.devices[0].peak, Bytes(9));
}

/// It may be told more than once that an ask waits: each resolver that lets it wait says so.
#[test]
fn a_wait_that_is_told_again_counts_from_its_begin() {
    for (end, waited) in [(31, 31), (90, 90)] {
        let mut tally = tally();
        tally.asks(ASK, 0, Bytes(5), false);
        assert_eq!(tally.waits(ASK, T), None);
        assert_eq!(tally.waits(ASK, at(30)), Some(at(30)));
        let served = tally.settled(ASK, at(end), None);
        assert_eq!(served, Some((0, at(waited))));
        assert_eq!(tally.waited, at(waited));
    }
    // One that was not told again, and one that is new.
    let mut tally = tally();
    tally.asks(ASK, 0, Bytes(5), false);
    tally.waits(ASK, at(30));
    assert_eq!(tally.settled(ASK, at(31), None), Some((0, at(1))));
    tally.asks(ASK, 0, Bytes(5), false);
    assert_eq!(tally.waits(ASK, at(40)), None);
}

#[test]
fn a_wait_that_is_given_up_is_counted() {
    let mut tally = tally();
    tally.asks(ASK, 0, Bytes(9), false);
    tally.waits(ASK, at(1));
    tally.given_up(ASK, at(6));
    tally.given_up(ASK, at(9));
    assert_eq!(tally.waited, at(5));
}

#[test]
fn kernels_that_ran_while_nothing_was_billed_were_alone() {
    let mut tally = Tally::new(2, Nanos::ZERO);
    let second = 1_000_000_000;
    for (billed, alone) in [
        (0, second),
        (0, 2 * second),
        // Another came: it is billed, and alone again from the look after next.
        (700, 2 * second),
        // A program of it has ended, which ran in that second and was billed more.
        (900, 2 * second),
        (900, 3 * second),
        (900, 4 * second),
    ] {
        tally.ran_until(0, second, billed);
        let told = [0, 1].map(|at| tally.device(at).map(DeviceTally::alone));
        assert_eq!(told, [Some(alone), Some(0)], "{billed}");
    }
}
