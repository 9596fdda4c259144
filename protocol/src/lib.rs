//! Definitions that every part of gpushare shares: units, limits, device identities, paths, the
//! usage page.
//!
//! No dependencies, because the interposer links this crate into other people's programs. Parsing
//! is pure: its input is the environment and it never reads it itself; only [`paths`], [`sockets`],
//! [`injection`], [`time_namespace`] and [`mps::probe`] touch the file system.
#![deny(unsafe_code)]

pub mod cap;
pub mod histogram;
pub mod injection;
pub mod limits;
pub mod mps;
pub mod page;
pub mod paths;
pub mod report;
pub mod size;
pub mod sockets;
pub mod time_namespace;
pub mod units;
pub mod uuid;
pub mod version;
#[cfg(feature = "wire")]
pub mod wire;
