//! Modules and libraries: the device memory of their code and variables is measured as overhead.
//!
//! With lazy loading the driver may load a kernel only at its first launch: that part is not seen here.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::contexts;
use crate::entry::hooks;
use crate::gate::apart;
use crate::holdings::overhead;

hooks! {
    fn cuModuleLoad(module: *mut CUmodule, file: *const c_char) -> CUresult = load_file;
    fn cuModuleLoadData | cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) -> CUresult = load_data;
    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option,
        values: *mut *mut c_void) -> CUresult = load_data_with_options;
    fn cuModuleUnload(module: CUmodule) -> CUresult = unload;
    fn cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, jit: *mut CUjit_option, jit_values: *mut *mut c_void,
        jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32) -> CUresult = library_data;
    fn cuLibraryLoadFromFile(library: *mut CUlibrary, file: *const c_char, jit: *mut CUjit_option,
        jit_values: *mut *mut c_void, jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32)
        -> CUresult = library_file;
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult = library_module;
    fn cuLibraryUnload(library: CUlibrary) -> CUresult = unload_library;
    fn cuFuncLoad(function: CUfunction) -> CUresult = load_function;
}

/// Makes a call that loads something in the current context and books what it took under the handle that `handle` reads after
/// success; without a current context nothing is loaded yet, and nothing measured.
fn loading(call: impl FnOnce() -> CUresult, handle: impl FnOnce() -> *mut c_void) -> CUresult {
    let Some(here) = contexts::here() else {
        return call();
    };
    let (answer, took) = overhead::measured(Some(here.device), call);
    if answer.is_success() {
        overhead::book(handle().addr() as u64, here.handle, here.device, took);
    }
    answer
}

fn load_file(real: cuModuleLoad, module: *mut CUmodule, file: *const c_char) -> CUresult {
    // SAFETY: the program's own arguments; the driver has written the module when it is read.
    loading(|| unsafe { real(module, file) }, || unsafe { (*module).0 })
}

fn load_data(real: cuModuleLoadData, module: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as above.
    loading(|| unsafe { real(module, image) }, || unsafe { (*module).0 })
}

fn load_data_with_options(
    real: cuModuleLoadDataEx,
    module: *mut CUmodule,
    image: *const c_void,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: as above.
    loading(
        || unsafe { real(module, image, count, options, values) },
        || unsafe { (*module).0 },
    )
}

fn unload(real: cuModuleUnload, module: CUmodule) -> CUresult {
    // SAFETY: the program's own argument.
    forgetting(module.0, unsafe { real(module) })
}

fn library_data(
    real: cuLibraryLoadData,
    library: *mut CUlibrary,
    code: *const c_void,
    jit: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: u32,
) -> CUresult {
    loading(
        // SAFETY: the program's own arguments.
        || unsafe {
            real(
                library, code, jit, jit_values, jit_count, options, values, count,
            )
        },
        // SAFETY: the driver has written it by then.
        || unsafe { (*library).0 },
    )
}

fn library_file(
    real: cuLibraryLoadFromFile,
    library: *mut CUlibrary,
    file: *const c_char,
    jit: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: u32,
) -> CUresult {
    loading(
        // SAFETY: the program's own arguments.
        || unsafe {
            real(
                library, file, jit, jit_values, jit_count, options, values, count,
            )
        },
        // SAFETY: the driver has written it by then.
        || unsafe { (*library).0 },
    )
}

/// The module of a library in the current context goes with the library.
fn library_module(real: cuLibraryGetModule, module: *mut CUmodule, library: CUlibrary) -> CUresult {
    // SAFETY: the program's own arguments.
    loading(|| unsafe { real(module, library) }, || library.0)
}

fn unload_library(real: cuLibraryUnload, library: CUlibrary) -> CUresult {
    // SAFETY: the program's own argument.
    forgetting(library.0, unsafe { real(library) })
}

/// A function has no unloading of its own: it counts as its context's.
fn load_function(real: cuFuncLoad, function: CUfunction) -> CUresult {
    let context = contexts::here().map_or(core::ptr::null_mut(), |here| here.handle.0);
    // SAFETY: the program's own argument.
    loading(|| unsafe { real(function) }, || context)
}

fn forgetting(handle: *mut c_void, answer: CUresult) -> CUresult {
    if answer.is_success() {
        apart::forget();
        overhead::forget(handle.addr() as u64);
    }
    answer
}
