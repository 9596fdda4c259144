//! NVML's functions, a file per family.

mod identity;
mod init;
mod memory;
mod process;
mod state;
