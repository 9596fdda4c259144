//! The decisions of the interposer's gate: how much work a process may have under way on a device,
//! when its gate opens and closes, when its memory moves, and what it reports.
//!
//! Nothing here reads a clock, calls the driver, or holds a lock or a static. Every function takes
//! the time (`CLOCK_MONOTONIC` nanoseconds) and the facts, and returns a decision; the gate in
//! `interposer/src/gate/` carries it out. [`cap::Bucket`] alone writes memory that other processes
//! share, through references that it is given.
#![forbid(unsafe_code)]

pub mod cap;
pub mod estimate;
pub mod follower;
pub mod looks;
pub mod mover;
mod queue;
mod ran;
pub mod report;
pub mod slices;
pub mod window;
