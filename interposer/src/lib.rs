//! libgpushare.so: loaded in front of a program (`LD_PRELOAD`), it charges every allocation of GPU memory to the program's
//! container before the driver is asked, and refuses what does not fit.
//!
//! A call's way in: the program finds a function by [`dlsym`], by `cuGetProcAddress` (both answered in [`lookup`]) or by linking to
//! an exported name; it lands in one function made by [`entry::hooks`], which starts the library on the first call ([`state`]),
//! and runs the hook's body from the family's file in [`hooks`]; the body calls the driver's own function ([`real`]).
//!
//! A program that never calls CUDA or NVML is left alone: nothing here runs but the look at the names given to `dlsym`.
#![deny(unsafe_code)]

mod account;
mod background;
mod captures;
mod contexts;
mod device;
mod dlsym;
mod driver;
mod entry;
mod exit;
mod fork;
mod frames;
mod gate;
mod green;
mod hooks;
mod linker;
mod log;
mod lookup;
mod mps;
mod objects;
mod overhead;
mod real;
mod session;
mod state;
mod table;
mod views;
