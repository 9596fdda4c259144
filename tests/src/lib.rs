//! Helpers for the end-to-end tests: the build products, C clients compiled on demand, guests that
//! run under `gpushare run` and answer line by line, and the software GPU's counters, with which
//! gpushare's are compared.
//!
//! A test makes a [`Gpu`], starts [`Guest`]s on it, sends them commands, and compares with the
//! software GPU's counters. A test waits for a guest by reading its answer. Only [`waiting`]
//! sleeps, for state without a notification.
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "a test helper fails its test by panicking"
)]

pub mod alone;
pub mod artefacts;
mod charged;
pub mod clients;
pub mod container;
pub mod daemon;
pub mod dealer;
mod desk;
pub mod gpu;
pub mod guest;
pub mod home;
pub mod host_store;
mod looks;
pub mod machine;
pub mod measured;
pub mod movable;
pub mod moves;
pub mod mps;
pub mod process;
pub mod referee;
mod residency;
pub mod rivals;
pub mod runnable;
pub mod schema;
pub mod serving;
pub mod slices;
pub mod sweep;
mod talk;
pub mod terminal;
pub mod threads;
pub mod tokens;
pub mod turns;
pub mod waiting;
pub mod web;

pub use alone::Alone;
pub use daemon::{Daemon, Tenant};
pub use dealer::Dealer;
pub use gpu::{Gpu, links};
pub use guest::{Ended, Guest};
pub use home::Home;
pub use machine::Machine;
pub use serving::Serving;
pub use talk::alloc;
pub use turns::Watch;
pub use waiting::{Meeting, until, until_some};

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;
