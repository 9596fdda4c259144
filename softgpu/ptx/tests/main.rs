//! Kernels and single instructions on memory in a test's own process. A new file needs a line here.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "the tests compare bits"
)]

mod common;

mod floats;
mod kernels;
mod limits;
mod modules;
mod threads;
mod wholes;
