//! How many random histories a property sees, and which.
//!
//! Every run of the tests uses the same cases and those that failed once, so a change that did not
//! touch the brain cannot fail by chance; `scripts/soak.sh` tries new cases. A history that fails
//! is kept in `regressions.txt`.

#![allow(unreachable_pub, reason = "a module of several test files")]

use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// Where random histories begin unless `PROPTEST_RNG_SEED` says it.
const SEED: u64 = 20_261_121;

/// `PROPTEST_CASES` (default 256) divided by `divisor`, for properties whose single histories are
/// long.
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
