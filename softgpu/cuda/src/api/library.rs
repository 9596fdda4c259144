//! Libraries and their kernels.

use std::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel,
    CUlibrary, CUlibraryOption, CUmodule, CUresult,
};
use softgpu::Result;
use softgpu::graph::forbidden::Unsafe;
use softgpu::module::{Image, library};
use softgpu::{context, exec, world};

use super::func::param_info;
use super::link::Options;
use super::module::told;
use crate::abi::{image_at, inputs, out, outputs, required, text};

fn accept_library_options(
    count: u32,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
) -> Result {
    let given = inputs(
        options.cast_const(),
        usize::try_from(count).map_err(|_| CUresult::INVALID_VALUE)?,
    )?;
    if !given.is_empty() {
        required(values.cast_const())?;
    }
    let known = given
        .iter()
        .all(|option| *option < CUlibraryOption::NUM_OPTIONS);
    if known {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

fn load(library: *mut CUlibrary, image: Image, jit: &Options) -> Result {
    let log = image.log();
    let loaded = library::load(image);
    jit.write_log(&log, loaded.is_err())?;
    out(library, loaded?)
}

/// The ordinal of an existing device.
fn ordinal(device: CUdevice) -> Result<u32> {
    let ordinal = world::process()?.device(device)?.ordinal();
    Ok(ordinal)
}

/// No managed variable, and no function that devices and host share, can be found.
fn no_variable(library: CUlibrary, name: *const c_char) -> Result {
    text(name)?;
    library::lookup(library)?;
    Err(CUresult::NOT_FOUND)
}

driver! {
    fn cuLibraryLoadData(library: *mut CUlibrary, image: *const c_void, jit: *mut CUjit_option, jit_values: *mut *mut c_void, jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32) {
        required(library)?;
        required(image)?;
        let jit = super::link::accept_options(jit_count, jit, jit_values)?;
        accept_library_options(count, options, values)?;
        load(library, image_at(image), &jit)
    }

    fn cuLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, jit: *mut CUjit_option, jit_values: *mut *mut c_void, jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32) {
        required(library)?;
        let jit = super::link::accept_options(jit_count, jit, jit_values)?;
        accept_library_options(count, options, values)?;
        load(library, Image::read(&super::link::file(path)?), &jit)
    }

    fn cuLibraryUnload(library: CUlibrary) {
        exec::capture_forbids(Unsafe::Unload)?;
        library::unload(library)
    }

    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        required(kernel)?;
        let name = text(name)?;
        out(kernel, library::lookup(library)?.kernel(&name)?)
    }

    fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) {
        required(count)?;
        let known = library::lookup(library)?.known_kernels().len();
        out(count, u32::try_from(known).map_err(|_| CUresult::UNKNOWN)?)
    }

    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: u32, library: CUlibrary) {
        required(kernels)?;
        let room = usize::try_from(room).map_err(|_| CUresult::INVALID_VALUE)?;
        outputs(kernels, room, &library::lookup(library)?.known_kernels())
    }

    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) {
        required(module)?;
        let context = context::current()?;
        out(module, library::lookup(library)?.module_in(&context)?.handle())
    }

    fn cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) {
        let context = context::current()?;
        let name = text(name)?;
        let (at, size) = library::lookup(library)?.module_in(&context)?.variable(&name)?;
        told(address, bytes, (at, usize::try_from(size).map_err(|_| CUresult::UNKNOWN)?))
    }

    fn cuLibraryGetManaged(_address: *mut CUdeviceptr, _bytes: *mut usize, library: CUlibrary, name: *const c_char) {
        no_variable(library, name)
    }

    fn cuLibraryGetUnifiedFunction(_function: *mut *mut c_void, library: CUlibrary, name: *const c_char) {
        no_variable(library, name)
    }

    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) {
        required(function)?;
        let context = context::current()?;
        let kernel = library::kernel(kernel)?;
        out(function, library::function_in(&kernel, &context)?)
    }

    fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) {
        required(library)?;
        out(library, library::kernel(kernel)?.library()?.handle())
    }

    fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) {
        required(name)?;
        super::func::named(kernel.is_null())?;
        out(name, library::kernel(kernel)?.c_name().as_ptr())
    }

    fn cuKernelGetAttribute(value: *mut i32, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) {
        required(value)?;
        let device = ordinal(device)?;
        out(value, library::kernel(kernel)?.attribute(device, attribute)?)
    }

    fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, device: CUdevice) {
        let device = ordinal(device)?;
        library::kernel(kernel)?.set_attribute(device, attribute, value)
    }

    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) {
        ordinal(device)?;
        library::kernel(kernel)?;
        if config > CUfunc_cache::EQUAL { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        required(offset)?;
        param_info(library::kernel(kernel)?.params(), index, offset, size)
    }

    fn cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) {
        required(count)?;
        out(count, library::kernel(kernel)?.params().map_or(0, |params| params.len()))
    }
}
