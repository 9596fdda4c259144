//! When a holder of a shared device is looked at whose work has no mark behind it.

use super::*;
use crate::window::BATCH_AGE;

/// When the next look comes after one at `now`, of a holder that has been busy for long and has
/// had work without a mark `since` then.
fn next_look(now: u64, since: Option<u64>) -> u64 {
    let mut follower = LeaseFollower::default();
    let turn = shared(true);
    assert_eq!(follower.step(0, &turn, &BUSY), Act::Open);
    for _ in 0..20 {
        follower.step(now, &turn, &BUSY);
    }
    let facts = Facts {
        unmarked: since,
        ..BUSY
    };
    match follower.step(now, &turn, &facts) {
        Act::Sleep(until) => until - now,
        other => panic!("{other:?}"),
    }
}

const NOW: u64 = 2_000 * MS;

#[test]
fn work_without_a_mark_is_looked_at_once_it_is_old_enough_for_one() {
    assert_eq!(next_look(NOW, Some(NOW)), BATCH_AGE);
    assert_eq!(next_look(NOW, Some(NOW - 2 * MS)), BATCH_AGE - 2 * MS);
}

#[test]
fn work_that_could_not_be_marked_is_looked_at_no_more_often() {
    let usual = next_look(NOW, None);
    assert!(usual > BATCH_AGE);
    for old in [BATCH_AGE, 10 * BATCH_AGE] {
        assert_eq!(next_look(NOW, Some(NOW - old)), usual);
    }
}
