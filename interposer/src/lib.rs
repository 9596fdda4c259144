//! libgpushare.so: preloaded into a program (`LD_PRELOAD`), it charges every allocation of GPU
//! memory to the program's tenant before the driver is called, and refuses allocations that do not
//! fit.
//!
//! The layers, from the top; each imports only from those below it:
//!
//! | layer | contents |
//! |---|---|
//! | `resolve` | how a program finds a function: `dlsym`, `cuGetProcAddress` |
//! | `hooks` | the hooked functions, one family a file |
//! | `entry` | the `hooks!` macro, and the library's life in a process |
//! | `residency` | memory that moves to the host and back |
//! | `gate`, `holdings` | when work may go to a device; what the program holds there |
//! | `account` | the tenant's quota |
//! | `session`, `driver` | the connection with the daemon; the driver's own functions and objects |
//! | `guest` | the process itself: threads, forks, jumps, futexes, the linker, the log |
//!
//! A program that never calls CUDA or NVML is left alone: nothing here runs but the look at the
//! names given to `dlsym`.
#![deny(unsafe_code)]

mod account;
mod driver;
mod entry;
mod gate;
mod guest;
mod holdings;
mod hooks;
mod residency;
mod resolve;
mod session;
