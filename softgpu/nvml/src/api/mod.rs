//! NVML's functions, one file per family.

mod identity;
mod init;
mod memory;
mod process;
mod state;
