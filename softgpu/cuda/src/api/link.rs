//! The just-in-time linker, and the JIT options it shares with module loading.

use std::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use softgpu::Result;
use softgpu::context;
use softgpu::module::linker::{self, LinkInput};

use super::module::options as jit_options;
use crate::abi::{input, inputs, out, out_text, outputs, required, text};

/// The options of a just-in-time compilation.
pub(super) struct Options {
    options: Vec<CUjit_option>,
    values: *mut *mut c_void,
}

/// Checks JIT options, and writes the output options: no log and no time.
pub(super) fn accept_options(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<Options> {
    let given = jit_options(count, options.cast_const())?;
    if !given.is_empty() {
        required(values.cast_const())?;
    }
    if given
        .iter()
        .any(|option| *option >= CUjit_option::NUM_OPTIONS)
    {
        return Err(CUresult::INVALID_VALUE);
    }
    let accepted = Options {
        options: given,
        values,
    };
    accepted.set(CUjit_option::WALL_TIME, 0)?;
    Ok(accepted)
}

impl Options {
    /// Where the value of an option is.
    fn place(&self, wanted: CUjit_option) -> Option<*mut *mut c_void> {
        let at = self.options.iter().position(|option| *option == wanted)?;
        Some(self.values.wrapping_add(at))
    }

    /// The registers that a function compiled from PTX may use.
    pub(super) fn most_registers(&self) -> Result<Option<u32>> {
        let Some(at) = self.place(CUjit_option::MAX_REGISTERS) else {
            return Ok(None);
        };
        let value = input(at.cast_const())?.addr();
        // The option is 32 bits wide; 0 is no limit.
        let most = u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
        Ok((most > 0).then_some(most))
    }

    fn set(&self, wanted: CUjit_option, value: usize) -> Result {
        self.place(wanted).map_or(Ok(()), |at| {
            outputs(at, 1, &[std::ptr::without_provenance_mut(value)])
        })
    }

    /// Writes a log: of errors if the image was refused, else of information. The sizes of the
    /// buffers become what was written. The other log is empty.
    pub(super) fn write_log(&self, text: &str, refused: bool) -> Result {
        use CUjit_option as O;
        let logs = [
            (O::INFO_LOG_BUFFER, O::INFO_LOG_BUFFER_SIZE_BYTES, !refused),
            (O::ERROR_LOG_BUFFER, O::ERROR_LOG_BUFFER_SIZE_BYTES, refused),
        ];
        for (buffer, size, is_it) in logs {
            let text = if is_it { text } else { "" };
            let room = self
                .place(size)
                .map(|at| input(at.cast_const()))
                .transpose()?;
            let buffer = self
                .place(buffer)
                .map(|at| input(at.cast_const()))
                .transpose()?;
            let room = room.map_or(0, |room| room.addr());
            let written = match buffer {
                Some(buffer) if !buffer.is_null() && room > 0 => {
                    out_text(buffer.cast(), room, text)?;
                    if text.is_empty() {
                        0
                    } else {
                        room.min(text.len() + 1)
                    }
                }
                _ => 0,
            };
            self.set(size, written)?;
        }
        Ok(())
    }
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
    let options = accept_options(count, options, values)?;
    options.write_log("", false)?;
    out(link, linker::create(options.most_registers()?))
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
        accept_options(count, options, values)?.write_log("", false)?;
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
