//! Tests of bills.

use super::*;

const SPAN: Nanos = Nanos::millis(2);
const RULES: Rules = Rules {
    slice: SPAN,
    switch: Nanos::ZERO,
};

/// Its bills for so many spans with work pending and so much service in each, beside another
/// tenant that has so many thousandths of the time.
fn beside(meter: &mut Meter, spans: u64, service: u64, others: u64) -> u64 {
    let done = Done {
        service,
        pending: 1000,
        works: true,
        ..Done::default()
    };
    let bill = |_| {
        let bill = meter.bill(done, &RULES, (SPAN, 2000), false);
        meter.leave(SPAN.0 * others / 1000);
        bill
    };
    (0..spans).map(bill).sum()
}

/// The same with half of the time.
fn bills(meter: &mut Meter, spans: u64, service: u64) -> u64 {
    beside(meter, spans, service, 500)
}

#[test]
fn an_operation_that_was_billed_by_time_is_not_billed_again() {
    let mut meter = Meter::default();
    let by_time = bills(&mut meter, 100, 0);
    assert_eq!(by_time, SPAN.0 * 50);
    assert_eq!(bills(&mut meter, 1, by_time), 0);
    assert_eq!(bills(&mut meter, 10, SPAN.0), SPAN.0 * 10);
}

/// Its work waited, and had nothing of the device.
#[test]
fn time_that_no_operation_took_is_no_credit() {
    let mut meter = Meter::default();
    bills(&mut meter, 5_000, 0);
    assert_eq!(bills(&mut meter, 1, SPAN.0), 0);
    assert_eq!(bills(&mut meter, 10, SPAN.0), SPAN.0 * 10);
    // Nor for operations that are longer than a span.
    for _ in 0..10 {
        assert_eq!(beside(&mut meter, 2, 0, 0), 0);
        assert_eq!(beside(&mut meter, 1, SPAN.0 * 3, 0), SPAN.0 * 3);
    }
    // Nor for those that are so long that they are billed by time.
    for _ in 0..10 {
        let by_time = beside(&mut meter, 9, 0, 0);
        let all = by_time + beside(&mut meter, 1, SPAN.0 * 10, 0);
        assert_eq!(all, SPAN.0 * 10);
    }
}

/// What it has submitted runs on while its gate is closed.
#[test]
fn service_behind_a_closed_gate_is_billed_after_a_stall() {
    let (mut meter, service) = (Meter::default(), SPAN.0 * 10);
    bills(&mut meter, 5_000, 0);
    bills(&mut meter, 1, SPAN.0);
    let pending = Done {
        pending: 1000,
        ..Done::default()
    };
    for _ in 0..9 {
        assert_eq!(meter.bill(pending, &RULES, (SPAN, 1000), true), 0);
    }
    let ends = Done { service, ..pending };
    assert_eq!(meter.bill(ends, &RULES, (SPAN, 1000), true), service);
}

/// Another stream or process of the tenant completes something meanwhile.
#[test]
fn a_long_operation_is_billed_once_beside_a_short_one() {
    let (mut meter, short) = (Meter::default(), 50_000);
    let before = bills(&mut meter, 100, 0) + bills(&mut meter, 1, short);
    let by_time = before + bills(&mut meter, 10, 0);
    let all = by_time + bills(&mut meter, 1, by_time);
    let service = short + by_time;
    assert!(all.abs_diff(service) <= 2 * SPAN.0, "{all} of {service}");
}

/// One process beside two of another tenant has a third. Its completions show every 12 ms.
#[test]
fn what_is_billed_in_a_silence_is_no_more_than_others_leave() {
    let (mut meter, mut billed) = (Meter::default(), 0);
    for _ in 0..50 {
        billed += beside(&mut meter, 5, 0, 667);
        billed += beside(&mut meter, 1, SPAN.0 * 2, 667);
    }
    let served = 50 * SPAN.0 * 2;
    assert!(
        billed.abs_diff(served) <= served / 10,
        "{billed} of {served}"
    );
}

/// The driver gives each context its slices.
#[test]
fn what_is_billed_in_a_silence_is_a_part_for_each_context() {
    for (own, all) in [(1, 2), (3, 4), (1, 4)] {
        let (mut meter, mut billed) = (Meter::default(), 0);
        let silent = Done {
            pending: 1000,
            contexts: own * 1000,
            works: true,
            ..Done::default()
        };
        for _ in 0..100 {
            billed += meter.bill(silent, &RULES, (SPAN, all * 1000), false);
        }
        let part = 100 * SPAN.0 * own / all;
        assert!(billed.abs_diff(part) <= SPAN.0, "{billed} of {part}");
    }
}

/// Of the time that two have, changes of contexts take a tenth.
#[test]
fn changes_of_contexts_are_not_billed_in_a_silence() {
    let (mut meter, rules) = (
        Meter::default(),
        Rules {
            switch: Nanos(SPAN.0 / 9),
            ..RULES
        },
    );
    let silent = Done {
        pending: 1000,
        works: true,
        ..Done::default()
    };
    let bill = |_| meter.bill(silent, &rules, (SPAN, 2000), false);
    let billed: u64 = (0..100).map(bill).sum();
    assert!(billed.abs_diff(SPAN.0 * 45) <= SPAN.0, "{billed}");
}

/// 28 of its 29 neighbours pause together while its turn has not come.
#[test]
fn a_silence_is_billed_by_those_that_were_there() {
    let (mut meter, mut billed) = (Meter::default(), 0);
    bills(&mut meter, 1, SPAN.0);
    let silent = Done {
        pending: 1000,
        works: true,
        ..Done::default()
    };
    for at in 0..40 {
        let (beside, others) = if at < 28 {
            (30_000, SPAN.0)
        } else {
            (2_000, 0)
        };
        billed += meter.bill(silent, &RULES, (SPAN, beside), false);
        meter.leave(others);
        // All of the time once it is alone with one other.
        let most = 28 * SPAN.0 / 30 + (at + 1_u64).saturating_sub(28) * SPAN.0 / 2;
        assert!(billed <= most, "{at}: {billed} of {most}");
    }
    assert!(billed >= 12 * SPAN.0 / 2, "{billed}");
}

/// A span of a tenant that has this bill and claims this service (ns), and nothing else.
fn cost(bill: u64, service: u64) -> Cost {
    Cost {
        bill,
        service,
        goes_on: false,
    }
}

#[test]
fn work_behind_the_gate_that_a_cap_closed_is_paid_once_it_is_complete() {
    let (mut meter, span) = (Meter::default(), Nanos::millis(2));
    let behind = Flight::Behind(span);
    for _ in 0..50 {
        // Of a tenant that was not measured the time in flight is its bill.
        assert_eq!(meter.capped(span, cost(span.0, 0), behind), Nanos::ZERO);
    }
    let bill = Nanos::millis(8);
    assert_eq!(meter.capped(span, cost(bill.0, bill.0), behind), bill);
    assert_eq!(meter.capped(span, cost(0, 0), behind), Nanos::ZERO);
}

/// What a guess that ends behind the closed gate, or as that has just opened, costs after 100
/// ms there and 4 ms before, if it claims so many milliseconds.
fn cost_of_a_guess(claims: u64, opened: bool) -> Nanos {
    let (mut meter, span) = (Meter::default(), Nanos::millis(2));
    let mut paid = Nanos::ZERO;
    let before = [Flight::Alone(span); 2];
    let behind = [Flight::Behind(span); 50];
    for flight in before.into_iter().chain(behind) {
        paid = paid + meter.capped(span, cost(span.0, 0), flight);
    }
    let flight = if opened {
        Flight::Alone
    } else {
        Flight::Behind
    };
    paid + meter.capped(span, cost(span.0, claims * 1_000_000), flight(span))
}

#[test]
fn a_guess_of_work_behind_the_gate_is_paid_as_far_as_time_allows() {
    for opened in [false, true] {
        let cost = |claims| cost_of_a_guess(claims, opened).0 / 1_000_000;
        assert!((5..=8).contains(&cost(1)), "{}", cost(1));
        assert!((90..=98).contains(&cost(90)), "{}", cost(90));
        assert!((104..=108).contains(&cost(104)), "{}", cost(104));
        assert_eq!(cost(5_000), cost(104), "no more than was in flight");
    }
}

/// What a guess of 200 ms costs that ends behind the closed gate after as long there, where an
/// operation of 50 us of another process ended in the middle. If it did not go on then, it has
/// begun after that.
fn cost_beside_a_short_one(goes_on: bool) -> Nanos {
    let (mut meter, span) = (Meter::default(), Nanos::millis(2));
    let behind = Flight::Behind(span);
    let mut spans = [cost(span.0, 0); 102];
    spans[50] = Cost {
        goes_on,
        ..cost(span.0, 50_000)
    };
    spans[101].service = Nanos::millis(200).0;
    let all = spans.into_iter();
    let paid = all.map(|one| meter.capped(span, one, behind));
    paid.fold(Nanos::ZERO, |sum, paid| sum + paid)
}

#[test]
fn a_short_operation_pays_nothing_of_a_long_one_that_goes_on() {
    let paid = [true, false].map(|goes_on| cost_beside_a_short_one(goes_on).0 / 1_000_000);
    assert!((195..=205).contains(&paid[0]), "{}", paid[0]);
    assert!((100..=106).contains(&paid[1]), "{}", paid[1]);
}
