//! Device memory in the API's kinds: linear, pitched, managed, pooled, mapped, shared.
//!
//! [`table`] maps addresses to allocations. [`phys`] holds pages and addresses and frees both on
//! drop. Each kind of memory has a file or folder. [`copy`] and [`memset`] describe work, check it
//! when the call is made, and access memory when it runs.

pub mod array;
mod blocks;
pub mod copy;
mod extents;
pub mod graph;
mod heap;
pub mod host;
pub mod ipc;
pub mod linear;
pub mod managed;
pub mod memset;
mod module;
mod phys;
mod pinned;
pub mod pointer;
pub mod pool;
mod table;
pub mod texture;
pub mod vmm;

pub(crate) use copy::home_of;
pub use copy::{Place, Transfer};
pub use memset::Fill;
pub(crate) use module::ModuleMemory;
pub use table::{bytes, still};
pub(crate) use table::{close, comes, is_reached};

use std::sync::Arc;

use crate::context::Context;
use table::What;

/// Frees everything that belongs to a destroyed context, after its work.
pub fn context_gone(context: &Arc<Context>) {
    let id = context.id();
    ipc::context_gone(id);
    texture::context_gone(id);
    array::context_gone(id);
    for (address, record) in table::drain(|record| record.context == id) {
        if let What::Small(heap, len) = record.what {
            heap.give(address, len);
        }
    }
}
