//! Assertions on figures of real time.
//!
//! A share, a rate or a length that real processes got depends on what else the machine does. Such
//! a figure is asserted with [`assert_measured!`](crate::assert_measured), and only a test that
//! failed by one may be run again: `.config/nextest.toml` names the files, `scripts/flaky.py` reads
//! the failures. Everything else that a test asserts must hold at the first attempt.

/// How the panic of such an assertion begins. `scripts/flaky.py` looks for it.
pub const MEASURED: &str = "measured in real time: ";

/// Asserts a figure of real time. The message says the figure.
#[macro_export]
macro_rules! assert_measured {
    ($holds:expr, $($said:tt)+) => {
        assert!($holds, "{}{}", $crate::measured::MEASURED, format_args!($($said)+))
    };
}
