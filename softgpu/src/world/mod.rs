//! The machine: devices and their physical memory, shared by all processes that open the same name.
//!
//! From the outside in: [`process()`] is the state that `cuInit` creates. A [`Device`] takes and
//! frees pages through its machine. The machine's state is in a shared file, under a mutex that
//! survives the death of its holder. File locks show which processes are alive: the kernel drops
//! them when the holder dies, so a killed process needs no cleanup of its own.

mod device;
mod event;
mod ext;
mod folder;
mod layout;
pub(crate) mod machine;
pub(crate) mod process;
mod recovery;
mod resident;
mod share;
mod shm;
mod state;
pub mod sys;
mod visible;

pub use device::{Device, Kind, PageRun, uuid, uuid_text};
pub(crate) use event::SharedEvent;
pub use ext::Ext;
pub use folder::PRIVATE;
#[cfg(test)]
pub(crate) use layout::SPEC_TEXT;
pub use process::{Process, init, process, still_there};
pub use resident::Resident;
pub use share::{MAX_TAG, Share};
pub use visible::VARIABLE as VISIBLE;
