//! One device in virtual time, with several tenants that run together on it. Softgpu's round robin
//! is the device, programs with patterns of launches are the tenants, and a [`Steering`] opens,
//! slows and closes their gates.
//!
//! Read in this order: [`program`] (a tenant's behaviour), [`steering`] (the daemon's knowledge and
//! decisions), [`entry`] (the admission of a client's gate), [`books`] (a client's reports about
//! itself), [`client`] (one process), [`rig`] (the device and the order of events), [`report`] (the
//! results), [`case`] (the same steered and bare), [`gangs`] (two devices of one daemon, and
//! [`meeting`]: kernels that wait for each other). All times are nanoseconds of one virtual clock
//! from 0.
//!
//! Simplifications: a process has one stream, and sees the end of an operation when it happens. A
//! waiting thread continues [`Rig::wake`] after the end of its wait.
#![allow(unreachable_pub, reason = "a module of several test files")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    clippy::float_arithmetic,
    reason = "figures for people, and moments drawn from a distribution"
)]

mod books;
mod brain;
mod case;
mod client;
mod entry;
mod gangs;
mod meeting;
mod program;
mod report;
mod rig;
mod steering;

pub use crate::node::rng::Rng;
pub use brain::Brain;
pub use case::{Case, H100, Pair, SLICES, at_least, limit, near, request};
pub use gangs::{Devices, Member};
pub use program::{Pattern, Program};
pub use report::Report;
pub use rig::Rig;
pub use softgpu::model::Pace;
pub use steering::{Gate, NoSteering, Sample, Steering, Who};

/// A microsecond (ns).
pub const US: u64 = 1_000;
/// A millisecond (ns).
pub const MS: u64 = 1_000 * US;
/// A second (ns).
pub const S: u64 = 1_000 * MS;
