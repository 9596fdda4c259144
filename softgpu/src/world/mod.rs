//! The machine: devices and their physical memory, shared by the processes of one name.
//!
//! From the outside in: [`process()`] is what `cuInit` made; a [`Device`] takes and gives pages
//! through its machine, whose state lies in a shared file under a lock that survives its holder.
//! File locks tell which processes are alive: they die with their holders, so a killed
//! process needs no cleaning up of its own.

mod device;
mod ext;
mod folder;
mod layout;
pub(crate) mod machine;
pub(crate) mod process;
mod recovery;
mod share;
mod shm;
mod state;
pub mod sys;
mod visible;

pub use device::{Device, Kind, PageRun, uuid, uuid_text};
pub use ext::Ext;
pub use folder::PRIVATE;
pub use process::{Process, init, process, still_there};
pub use share::{MAX_TAG, Share};
pub use visible::VARIABLE as VISIBLE;
