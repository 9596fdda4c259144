//! The machine: devices and their physical memory, shared by the processes of one name.

mod device;
mod ext;
pub(crate) mod process;
pub mod sys;

pub use device::{Device, Kind, PageRun, Share};
pub use ext::Ext;
pub use process::{Process, process};
