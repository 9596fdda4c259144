//! Finding rows: by exported name, and by the rule of `cuGetProcAddress`.

use super::{CUDA, CudaSymbol, NVML, NvmlSymbol, REASONS, Reason, packed};

/// The row of an exported name, as `dlsym` sees it, with its index in [`CUDA`].
///
/// Names are exact: `cuMemAlloc` is the function of CUDA 2 with 32-bit addresses, today's is
/// `cuMemAlloc_v2`.
pub fn cuda_by_name(name: &str) -> Option<(usize, &'static CudaSymbol)> {
    let index = packed::by_name(name)?;
    Some((index, &CUDA[index]))
}

/// The row `cuGetProcAddress(base, …, version, flags)` means, with its index in [`CUDA`].
///
/// Of the variants of `base` it is the newest one that `version` (1000 * major + 10 * minor)
/// reaches; `None` where `version` reaches none, or the name is not in the table. With
/// `PER_THREAD_DEFAULT_STREAM` it is that variant's twin, where there is one; `None` where
/// `version` does not reach the twin, as the driver finds none then. Twins appeared with CUDA 7,
/// later than some of their functions.
///
/// The same string can mean another function than by [`cuda_by_name`]: `cuMemAlloc` from version
/// 3020 on is `cuMemAlloc_v2`. A base name never carries a version: for `cuMemAlloc_v2` the answer
/// is `None`, as the driver documents. Should a driver answer such a name all the same, it can only
/// mean the export of that name, which [`cuda_by_name`] finds.
///
/// A version above [`NEWEST_VERSION`] may, on a newer driver, select a variant this table does not
/// know. The row given here is then an older variant of the function, which need not have the same
/// parameters.
pub fn cuda_by_version(
    base: &str,
    version: u32,
    flags: u64,
) -> Option<(usize, &'static CudaSymbol)> {
    let index = packed::by_version(base, version, flags)?;
    Some((index, &CUDA[index]))
}

/// The newest version any row needs: what this table knows the driver up to. A constant, so that a
/// library that asks for it does not contain the table.
pub const NEWEST_VERSION: u32 = newest_version();

const fn newest_version() -> u32 {
    let mut newest = 0;
    let mut index = 0;
    while index < CUDA.len() {
        if CUDA[index].min_version > newest {
            newest = CUDA[index].min_version;
        }
        index += 1;
    }
    newest
}

/// The row of an NVML function, with its index in [`NVML`].
pub fn nvml_by_name(name: &str) -> Option<(usize, &'static NvmlSymbol)> {
    let index = NVML.binary_search_by(|row| row.name.cmp(name)).ok()?;
    Some((index, &NVML[index]))
}

/// The reason a code stands for.
pub fn reason(code: &str) -> Option<&'static Reason> {
    let index = REASONS
        .binary_search_by(|reason| reason.code.cmp(code))
        .ok()?;
    Some(&REASONS[index])
}
