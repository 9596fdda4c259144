//! The types of `nvml.h` (CUDA 13.5) that monitoring tools use, under the header's own names.
//!
//! The functions of [`symbols::NVML`](crate::symbols::NVML) whose types are not here are about
//! virtual GPUs, links, power and confidential computing; nothing of ours looks into those.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    reason = "types and fields carry the header's names"
)]

mod handles;
mod identity;
mod memory;
mod process;
mod result;
mod state;

pub use handles::*;
pub use identity::*;
pub use memory::*;
pub use process::*;
pub use result::*;
pub use state::*;

/// The `version` member of a struct whose first member is one: the struct's size in the low 24
/// bits, its number above.
///
/// `struct_version::<nvmlMemory_v2_t>(2)` is 0x0200_0028. A library must answer anything else with
/// [`nvmlReturn_t::ARGUMENT_VERSION_MISMATCH`].
pub const fn struct_version<T>(number: u8) -> u32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "no struct of NVML reaches 16 MiB, which is asserted"
    )]
    let size = size_of::<T>() as u32;
    assert!(size_of::<T>() < 1 << 24, "the size has 24 bits");
    size | (number as u32) << 24
}
