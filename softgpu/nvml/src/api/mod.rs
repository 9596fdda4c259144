//! NVML's functions, one file per family.

mod affinity;
mod clocks;
mod events;
mod fields;
mod health;
mod identity;
mod init;
mod memory;
mod process;
mod state;
mod system;
