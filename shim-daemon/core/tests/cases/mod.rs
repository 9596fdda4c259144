//! How many random histories a property sees, and which.
//!
//! Every run of the tests sees the same ones and those that failed once, so that a change that did not touch the brain
//! cannot fail over it; `scripts/soak.sh` looks at new ones. A history that fails is kept in `regressions.txt`.

#![allow(unreachable_pub, reason = "a module of several test files")]

use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// Where random histories begin unless `PROPTEST_RNG_SEED` says it.
const SEED: u64 = 20_261_121;

/// `PROPTEST_CASES` (256 unless told) by `divisor`, for properties whose single histories are long.
pub fn config(divisor: u32) -> Config {
    let file = FileFailurePersistence::Direct("tests/regressions.txt");
    let default = Config::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(SEED),
        told @ RngSeed::Fixed(_) => told,
    };
    Config {
        cases: default.cases.div_ceil(divisor),
        rng_seed,
        failure_persistence: Some(Box::new(file)),
        ..default
    }
}
