//! The types of `cuda.h` (CUDA 13.5), one file per subject, under the header's own names.
//!
//! Enumerations are integers with named constants (`c_enum` in `abi.rs`), never Rust enums: a
//! driver newer than this file may answer a value that is not listed. A member that has no name in
//! C is called `anon`; `type` and `fn` are `type_` and `fn_`. Where the header has several versions
//! of a struct, the plain name is the header's default, as in C.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    reason = "types and fields carry the header's names"
)]

mod array;
mod batch;
mod callbacks;
mod checkpoint;
mod context;
mod device;
mod diagnostics;
mod external;
mod fabric;
mod func;
mod graph;
mod graph_nodes;
mod handles;
mod ipc;
mod launch;
mod memory;
mod pool;
mod procaddr;
mod resource;
mod result;
mod stream;
mod texture;
mod vmm;

pub use array::*;
pub use batch::*;
pub use callbacks::*;
pub use checkpoint::*;
pub use context::*;
pub use device::*;
pub use diagnostics::*;
pub use external::*;
pub use fabric::*;
pub use func::*;
pub use graph::*;
pub use graph_nodes::*;
pub use handles::*;
pub use ipc::*;
pub use launch::*;
pub use memory::*;
pub use pool::*;
pub use procaddr::*;
pub use resource::*;
pub use result::*;
pub use stream::*;
pub use texture::*;
pub use vmm::*;
