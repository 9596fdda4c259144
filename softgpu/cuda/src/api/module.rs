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

use super::link::Options;
use crate::abi::{image_at, inputs, out, out_if, outputs, required, text};

fn load(module: *mut CUmodule, image: *const c_void, options: Option<&Options>) -> Result {
    required(module)?;
    let context = context::current()?;
    required(image)?;
    let mut image = image_at(image);
    if let Some(most) = options.map_or(Ok(None), Options::most_registers)? {
        image.limit_registers(most);
    }
    let log = image.log();
    let loaded = module::load(&context, Arc::new(image));
    if let Some(options) = options {
        options.write_log(&log, loaded.is_err())?;
    }
    out(module, loaded?.handle())
}

/// Writes address and size of a variable; each pointer may be NULL, not both.
pub(super) fn told<A, B>(address: *mut A, bytes: *mut B, place: (A, B)) -> Result {
    if address.is_null() && bytes.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    out_if(address, place.0);
    out_if(bytes, place.1);
    Ok(())
}

fn variable(module: CUmodule, name: *const c_char) -> Result<(u64, u64)> {
    context::current()?;
    let name = text(name)?;
    module::lookup(module)?.variable(&name)
}

/// Fails with `NOT_FOUND`: references to textures and surfaces are not read.
fn no_reference(module: CUmodule, name: *const c_char) -> Result {
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
        load(module, image, None)
    }

    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        let options = super::link::accept_options(count, options, values)?;
        load(module, image, Some(&options))
    }

    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) {
        load(module, image, None)
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

    /// The addresses of this version have 32 bits, and no memory is so low.
    fn cuModuleGetGlobal(address: *mut CUdeviceptr_v1, bytes: *mut u32, module: CUmodule, name: *const c_char) {
        let (at, size) = variable(module, name)?;
        let place = (u32::try_from(at), u32::try_from(size));
        let (Ok(at), Ok(size)) = place else { return Err(CUresult::OUT_OF_MEMORY) };
        told(address, bytes, (at, size))
    }

    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) {
        let (at, size) = variable(module, name)?;
        told(address, bytes, (at, usize::try_from(size).map_err(|_| CUresult::UNKNOWN)?))
    }

    fn cuModuleGetTexRef(_texture: *mut CUtexref, module: CUmodule, name: *const c_char) {
        no_reference(module, name)
    }

    fn cuModuleGetSurfRef(_surface: *mut CUsurfref, module: CUmodule, name: *const c_char) {
        no_reference(module, name)
    }
}

/// Reads the JIT options of the functions that take them.
pub(super) fn options(count: u32, options: *const CUjit_option) -> Result<Vec<CUjit_option>> {
    inputs(
        options,
        usize::try_from(count).map_err(|_| CUresult::INVALID_VALUE)?,
    )
}
