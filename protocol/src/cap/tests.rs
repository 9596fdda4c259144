use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const DEBT: u64 = SECOND;

fn part(thousandths: u16) -> Permille {
    Permille::new(thousandths).unwrap()
}

#[test]
fn alone_it_is_open_for_the_caps_part_of_the_time() {
    let mut bucket = Bucket::new(part(300));
    let (mut held, mut total) = (0, 0);
    for _ in 0..1000 {
        let on = bucket.lasts();
        bucket.pass(on, on, DEBT);
        bucket.turn_over(true);
        assert!(!bucket.allows(), "it ran empty");
        let off = bucket.wait();
        bucket.pass(off, 0, DEBT);
        assert!(bucket.allows(), "it waited as long as it was told");
        (held, total) = (held + on, total + on + off);
    }
    let part = held * 10_000 / total;
    assert!(part.abs_diff(3000) <= 2, "{part} of 10000");
}

#[test]
fn saving_up_stops_at_the_capacity() {
    let mut bucket = Bucket::new(part(500));
    bucket.pass(100 * SECOND, 0, DEBT);
    assert_eq!(bucket.lasts(), 36 * MS);
}

#[test]
fn a_debt_is_paid_back_and_one_above_the_most_is_not() {
    let mut bucket = Bucket::new(part(500));
    bucket.pass(105 * MS, 105 * MS, DEBT);
    bucket.turn_over(true);
    assert_eq!(bucket.wait(), 105 * MS, "to the level before");
    bucket.pass(100 * SECOND, 100 * SECOND, DEBT);
    assert!(bucket.at_most_debt(DEBT));
    assert_eq!(bucket.wait(), 2 * (SECOND + 25 * MS / 2));
}

#[test]
fn a_short_use_leaves_it_open_without_waiting_for_a_whole_turn() {
    let mut bucket = Bucket::new(part(100));
    bucket.pass(MS, MS, DEBT);
    bucket.turn_over(false);
    assert!(bucket.allows());
}

#[test]
fn without_turns_all_that_collected_is_used_and_little_is_waited_for() {
    let mut bucket = Bucket::new(part(250));
    bucket.pass(SECOND, 0, DEBT);
    for round in 0..3 {
        while bucket.lasts() > 0 {
            assert!(
                bucket.allows(),
                "in round {round} {} are left",
                bucket.lasts()
            );
            bucket.pass(MS, MS, DEBT);
            bucket.used();
        }
        assert!(!bucket.allows());
        let wait = bucket.wait();
        assert!((4 * MS..8 * MS).contains(&wait), "{wait}");
        bucket.pass(wait - 1, 0, DEBT);
        bucket.used();
        assert!(!bucket.allows(), "not before it was waited for");
        bucket.pass(4, 0, DEBT);
        bucket.used();
    }
}

#[test]
fn under_a_smaller_cap_no_more_is_waited_for_than_its_own_turn() {
    let mut bucket = Bucket::new(part(500));
    let on = bucket.lasts();
    bucket.pass(on, on, DEBT);
    bucket.turn_over(true);
    let lower = Bucket::under(Some(bucket), part(10));
    let wait = lower.wait();
    assert!((190 * MS..=198 * MS).contains(&wait), "{wait}");
    assert!(!lower.allows());
    let mut open = Bucket::new(part(500));
    open.pass(MS, MS, DEBT);
    assert!(
        Bucket::under(Some(open), part(10)).allows(),
        "it waited for nothing"
    );
}

#[test]
fn a_cycle_is_a_tenth_of_a_second_unless_a_turn_would_not_fit() {
    for (cap, on, cycle) in [
        (5, 2_000, 400_000),
        (20, 2_000, 100_000),
        (100, 10_000, 100_000),
        (500, 25_000, 50_000),
        (990, 99_000, 100_000),
    ] {
        let mut bucket = Bucket::new(part(cap));
        let lasts = bucket.lasts();
        assert!(lasts.abs_diff(on * 1000) <= 1000, "{cap}: {lasts:?}");
        bucket.pass(lasts, lasts, DEBT);
        bucket.turn_over(true);
        assert!(
            (lasts + bucket.wait()).abs_diff(cycle * 1000) <= 1000,
            "{cap}"
        );
    }
}

#[test]
fn a_level_stored_as_a_time_is_full_after_a_pause_and_no_fuller() {
    let cap = Cap::new(part(250));
    for now in [100 * SECOND, 200 * SECOND] {
        let empty_at = cap.bound_empty_at(0, now, 60 * SECOND);
        assert_eq!(cap.level_at(empty_at, now), BURST_CAPACITY);
    }
}

#[test]
fn a_level_stored_as_a_time_falls_by_what_is_held_and_fills_again() {
    let cap = Cap::new(part(500));
    let now = 100 * SECOND;
    // Full at `now`, then 8 ms are paid.
    let full = cap.bound_empty_at(0, now, 60 * SECOND);
    let paid = full + cap.fill_time(8 * MS);
    assert_eq!(cap.level_at(paid, now), BURST_CAPACITY - 8 * MS);
    assert_eq!(cap.level_at(paid, now + 4 * MS), BURST_CAPACITY - 6 * MS);
    let debt = now + cap.fill_time(MS);
    assert_eq!(cap.level_at(debt, now), 0);
    assert_eq!(cap.reaches(0, debt), now + 2 * MS);
    let opens = cap.reaches(cap.turn_worth(), debt);
    assert_eq!(opens, now + 2 * MS + 25 * MS);
}

#[test]
fn a_stored_time_of_another_clock_is_bounded_both_ways() {
    let (cap, now) = (Cap::new(part(500)), 100 * SECOND);
    let most = 60 * SECOND;
    assert_eq!(
        cap.bound_empty_at(u64::MAX, now, most),
        now + cap.fill_time(most)
    );
    assert_eq!(
        cap.level_at(cap.bound_empty_at(0, now, most), now),
        BURST_CAPACITY
    );
}

#[test]
fn both_forms_of_a_level_agree() {
    for cap in [5, 100, 333, 500, 900, 999] {
        let (cap, mut bucket) = (Cap::new(part(cap)), Bucket::new(part(cap)));
        let mut now = 100 * SECOND;
        let mut empty_at = now - cap.fill_time(cap.turn_worth());
        for (step, more) in [2, 0, 2, 0, 1, 2, 2, 0, 0].into_iter().enumerate() {
            // A millisecond more or less than what flows in: it never overflows.
            let time = 300 * MS;
            let held = (cap.inflow(time) + more * MS).saturating_sub(MS);
            bucket.pass(time, held, DEBT);
            now += time;
            empty_at = cap.bound_empty_at(empty_at + cap.fill_time(held), now, DEBT);
            let level = cap.level_at(empty_at, now);
            let known = u64::try_from(bucket.level).unwrap_or(0);
            assert!(level.abs_diff(known) <= 20, "{cap:?}, step {step}");
        }
    }
}
