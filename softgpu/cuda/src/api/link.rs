//! The just-in-time linker, and the JIT options it shares with module loading.

use std::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use softgpu::Result;
use softgpu::context;
use softgpu::module::linker::{self, LinkInput};

use super::module::options as jit_options;
use crate::abi::{inputs, out, outputs, required, text};

/// Checks JIT options, and writes the output options: no log and no time.
pub(super) fn accept_options(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result {
    let given = jit_options(count, options.cast_const())?;
    if !given.is_empty() {
        required(values.cast_const())?;
    }
    for (at, option) in given.into_iter().enumerate() {
        match option {
            CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES
            | CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES
            | CUjit_option::WALL_TIME => {
                outputs(values.wrapping_add(at), 1, &[std::ptr::null_mut()])?;
            }
            other if other < CUjit_option::NUM_OPTIONS => {}
            _ => return Err(CUresult::INVALID_VALUE),
        }
    }
    Ok(())
}

/// The content of an image file.
pub(super) fn file(path: *const c_char) -> Result<Vec<u8>> {
    std::fs::read(text(path)?).map_err(|_| CUresult::FILE_NOT_FOUND)
}

fn create(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    link: *mut CUlinkState,
) -> Result {
    required(link)?;
    context::current()?;
    accept_options(count, options, values)?;
    out(link, linker::create())
}

fn add_data(link: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize) -> Result {
    context::current()?;
    required(data)?;
    linker::add(
        link,
        &LinkInput {
            kind,
            bytes: inputs(data.cast::<u8>().cast_const(), size)?,
        },
    )
}

fn add_file(link: CUlinkState, kind: CUjitInputType, path: *const c_char) -> Result {
    context::current()?;
    linker::add(
        link,
        &LinkInput {
            kind,
            bytes: file(path)?,
        },
    )
}

driver! {
    fn cuLinkCreate(count: u32, options: *mut CUjit_option, values: *mut *mut c_void, link: *mut CUlinkState) {
        create(count, options, values, link)
    }

    fn cuLinkCreate_v2(count: u32, options: *mut CUjit_option, values: *mut *mut c_void, link: *mut CUlinkState) {
        create(count, options, values, link)
    }

    fn cuLinkAddData(link: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, _name: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        accept_options(count, options, values)?;
        add_data(link, kind, data, size)
    }

    fn cuLinkAddData_v2(link: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, _name: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        accept_options(count, options, values)?;
        add_data(link, kind, data, size)
    }

    fn cuLinkAddFile(link: CUlinkState, kind: CUjitInputType, path: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        accept_options(count, options, values)?;
        add_file(link, kind, path)
    }

    fn cuLinkAddFile_v2(link: CUlinkState, kind: CUjitInputType, path: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        accept_options(count, options, values)?;
        add_file(link, kind, path)
    }

    fn cuLinkComplete(link: CUlinkState, image: *mut *mut c_void, size: *mut usize) {
        required(image)?;
        context::current()?;
        let (address, length) = linker::complete(link)?;
        crate::abi::out_if(size, length);
        out(image, std::ptr::with_exposed_provenance_mut(address))
    }

    fn cuLinkDestroy(link: CUlinkState) {
        linker::destroy(link)
    }
}
