//! Names and descriptions of results.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use gpushare_cuda_abi::cuda::CUresult;

use crate::abi::{out, required};

driver! {
    early fn cuGetErrorName(error: CUresult, name: *mut *const c_char) {
        required(name)?;
        let known = error.c_name();
        out(name, known.map_or(std::ptr::null(), std::ffi::CStr::as_ptr))?;
        known.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }
    early fn cuGetErrorString(error: CUresult, description: *mut *const c_char) {
        required(description)?;
        let known = DESCRIPTIONS.get(&error.0);
        out(description, known.map_or(std::ptr::null(), |text| text.as_ptr()))?;
        known.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }
}

/// A description of each result: its name in lower case without the prefix. The strings live as
/// long as the library, because callers may keep the pointers.
static DESCRIPTIONS: LazyLock<BTreeMap<u32, CString>> = LazyLock::new(|| {
    let words = |name: &str| match name.strip_prefix("CUDA_ERROR_") {
        Some(error) => error.to_ascii_lowercase().replace('_', " "),
        None => "no error".to_owned(),
    };
    let described = |(number, name): &(u32, &std::ffi::CStr)| {
        let text = CString::new(words(&name.to_string_lossy())).expect("a name holds no NUL");
        (*number, text)
    };
    // If a number has two names, the first one is used, as in `cuGetErrorName`.
    CUresult::NAMES.iter().rev().map(described).collect()
});
