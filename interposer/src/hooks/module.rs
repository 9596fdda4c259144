//! Modules and libraries: the device memory of their code and variables is measured as overhead.
//!
//! With lazy loading the driver loads a kernel or a variable when the program first asks for it, or
//! at the first launch of a library's kernel: that part is not measured here. A seal holds these
//! calls, and those questions: a tenant that is out has no room on the device for more.

use core::ffi::{c_char, c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::contexts;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::gate::{apart, seal};
use crate::holdings::overhead;

hooks! {
    fn cuModuleLoad(module: Out<'_, CUmodule>, file: *const c_char) -> CUresult = |call| module_loading(module, call);
    fn cuModuleLoadData | cuModuleLoadFatBinary(module: Out<'_, CUmodule>, image: *const c_void) -> CUresult
        = |call| module_loading(module, call);
    fn cuModuleLoadDataEx(module: Out<'_, CUmodule>, image: *const c_void, count: u32, options: *mut CUjit_option,
        values: *mut *mut c_void) -> CUresult = |call| module_loading(module, call);
    fn cuModuleUnload(module: CUmodule) -> CUresult = |call| unloading(module.0, call);
    fn cuLibraryLoadData(library: Out<'_, CUlibrary>, code: *const c_void, jit: *mut CUjit_option, jit_values: *mut *mut c_void,
        jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32) -> CUresult
        = |call| library_loading(library, call);
    fn cuLibraryLoadFromFile(library: Out<'_, CUlibrary>, file: *const c_char, jit: *mut CUjit_option,
        jit_values: *mut *mut c_void, jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32)
        -> CUresult = |call| library_loading(library, call);
    // The module of a library in the current context goes with the library.
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult = |call| loading(call, || Some(library.0));
    fn cuLibraryUnload(library: CUlibrary) -> CUresult = |call| unloading(library.0, call);
    fn cuFuncLoad(function: CUfunction) -> CUresult = |call| load_function(call);
    // With lazy loading these load.
    #[held]
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuModuleGetGlobal(at: *mut CUdeviceptr_v1, bytes: *mut c_uint, module: CUmodule, name: *const c_char) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuModuleGetGlobal_v2(at: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuLibraryGetGlobal(at: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuLibraryGetManaged(at: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char) -> CUresult
        = |call| seal::pass(call);
}

/// Makes a call that loads code or data in the current context, and books its memory under the
/// handle that `handle` reads after success. Without a current context nothing is loaded yet, and
/// nothing is measured.
fn loading(
    call: impl FnOnce() -> CUresult,
    handle: impl FnOnce() -> Option<*mut c_void>,
) -> CUresult {
    // Outside the measurement, for which nothing else may come or go meanwhile.
    seal::pass(|| loading_unsealed(call, handle))
}

fn loading_unsealed(
    call: impl FnOnce() -> CUresult,
    handle: impl FnOnce() -> Option<*mut c_void>,
) -> CUresult {
    let Some(here) = contexts::here() else {
        return call();
    };
    let (answer, took) = overhead::measured(Some(here.device), call);
    if answer.is_success()
        && let Some(handle) = handle()
    {
        overhead::book(handle.addr() as u64, here.handle, here.device, took);
    }
    answer
}

fn module_loading(module: Out<'_, CUmodule>, call: impl FnOnce() -> CUresult) -> CUresult {
    loading(call, || module.read_back().map(|module| module.0))
}

fn library_loading(library: Out<'_, CUlibrary>, call: impl FnOnce() -> CUresult) -> CUresult {
    loading(call, || library.read_back().map(|library| library.0))
}

/// A function has no unloading of its own: it counts as its context's.
fn load_function(call: impl FnOnce() -> CUresult) -> CUresult {
    let context = contexts::here().map_or(core::ptr::null_mut(), |here| here.handle.0);
    loading(call, || Some(context))
}

fn unloading(handle: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    seal::pass(|| {
        let going = overhead::going(handle.addr() as u64);
        let answer = call();
        if answer.is_success() {
            apart::forget();
        }
        match going {
            Some(going) if answer.is_success() => going.gone(),
            Some(going) => going.stays(),
            None => {}
        }
        answer
    })
}
