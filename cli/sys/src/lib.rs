//! The parts of the command line that need unsafe code, one file each, so that the command line
//! itself forbids it.
#![deny(unsafe_code)]

pub mod cuda;
pub mod devices;
pub mod files;
pub mod proof;
pub mod spawn;
