//! What the command line cannot do in safe Rust, one file each, so that the command line itself
//! forbids unsafe code.
#![deny(unsafe_code)]

pub mod cuda;
pub mod devices;
pub mod spawn;
