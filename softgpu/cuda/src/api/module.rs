//! Modules.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
    CUsurfref, CUtexref,
};
use softgpu::Result;
use softgpu::graph::forbidden::Unsafe;
use softgpu::module::{self, Image, Loading};
use softgpu::{context, exec};

use crate::abi::{image_at, inputs, out, outputs, required, text};

fn load(module: *mut CUmodule, image: *const c_void) -> Result {
    required(module)?;
    let context = context::current()?;
    required(image)?;
    let image = Arc::new(image_at(image));
    out(module, module::load(&context, image)?.handle())
}

/// Fails with `NOT_FOUND`: an opaque image has no variable whose address is known.
fn no_variable(module: CUmodule, name: *const c_char) -> Result {
    context::current()?;
    text(name)?;
    module::lookup(module)?;
    Err(CUresult::NOT_FOUND)
}

driver! {
    fn cuModuleLoad(module: *mut CUmodule, path: *const c_char) {
        required(module)?;
        let context = context::current()?;
        let image = Arc::new(Image::read(&super::link::file(path)?));
        out(module, module::load(&context, image)?.handle())
    }

    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        load(module, image)
    }

    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        super::link::accept_options(count, options, values)?;
        load(module, image)
    }

    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) {
        load(module, image)
    }

    fn cuModuleUnload(module: CUmodule) {
        context::current()?;
        exec::capture_forbids(Unsafe::Unload)?;
        module::unload(module)
    }

    fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) {
        out(mode, match module::loading() {
            Loading::Eager => CUmoduleLoadingMode::EAGER_LOADING,
            Loading::Lazy => CUmoduleLoadingMode::LAZY_LOADING,
        })
    }

    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        required(function)?;
        context::current()?;
        let name = text(name)?;
        out(function, module::lookup(module)?.function(&name)?)
    }

    fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) {
        required(count)?;
        context::current()?;
        let known = module::lookup(module)?.known_functions().len();
        out(count, u32::try_from(known).map_err(|_| CUresult::UNKNOWN)?)
    }

    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, room: u32, module: CUmodule) {
        required(functions)?;
        context::current()?;
        let room = usize::try_from(room).map_err(|_| CUresult::INVALID_VALUE)?;
        outputs(functions, room, &module::lookup(module)?.known_functions())
    }

    fn cuModuleGetGlobal(_address: *mut CUdeviceptr_v1, _bytes: *mut u32, module: CUmodule, name: *const c_char) {
        no_variable(module, name)
    }

    fn cuModuleGetGlobal_v2(_address: *mut CUdeviceptr, _bytes: *mut usize, module: CUmodule, name: *const c_char) {
        no_variable(module, name)
    }

    fn cuModuleGetTexRef(_texture: *mut CUtexref, module: CUmodule, name: *const c_char) {
        no_variable(module, name)
    }

    fn cuModuleGetSurfRef(_surface: *mut CUsurfref, module: CUmodule, name: *const c_char) {
        no_variable(module, name)
    }
}

/// Reads the JIT options of the functions that take them.
pub(super) fn options(count: u32, options: *const CUjit_option) -> Result<Vec<CUjit_option>> {
    inputs(
        options,
        usize::try_from(count).map_err(|_| CUresult::INVALID_VALUE)?,
    )
}
