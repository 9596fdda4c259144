//! Device memory as the API sees it: linear, pitched, managed, pooled, mapped, shared.
//!
//! [`table`] knows every allocation by its address; [`phys`] holds pages and addresses and gives
//! both back when dropped. Above them a file or folder per family. [`copy`] and [`memset`] describe
//! work, check it when the call is made, and touch bytes when it runs.

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
mod phys;
pub mod pointer;
pub mod pool;
mod table;
pub mod texture;
pub mod vmm;

pub use copy::{Place, Transfer};
pub use memset::Fill;
pub use table::{bytes, still};

use std::sync::Arc;

use crate::context::Context;
use table::What;

/// Frees everything that belongs to a context that is gone, after its work.
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
