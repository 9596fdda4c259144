//! Which keys give way to new ones.

use super::*;

/// So many keys of one set.
fn of_one_set(many: usize) -> Vec<u64> {
    (1..)
        .filter(|key| set_of(*key) == set_of(1))
        .take(many)
        .collect()
}

#[test]
fn keys_that_are_launched_no_more_give_way_however_well_they_are_known() {
    let keys = of_one_set(WAYS + 2);
    let mut estimates = Estimates::default();
    for key in &keys[2..] {
        (0..3).for_each(|_| estimates.learn(&batch(&[(*key, 10_000)]), 10_000, 10_000));
        estimates.launched(*key, 1);
    }
    for _ in 0..200 {
        keys[..2].iter().for_each(|key| estimates.launched(*key, 1));
    }
    assert!(keys[..2].iter().all(|key| !estimates.is_first(*key, 1)));
}

#[test]
fn a_known_key_that_is_launched_gives_way_to_none_that_is_not_known() {
    let keys = of_one_set(WAYS + 1);
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| estimates.learn(&batch(&[(keys[0], 10_000)]), 10_000, 10_000));
    for _ in 0..200 {
        keys.iter().for_each(|key| estimates.launched(*key, 1));
    }
    assert!(estimates.of(keys[0], ASSUMED).known);
}
