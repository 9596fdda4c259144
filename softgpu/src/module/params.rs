//! Kernel parameters: copied from the application at launch, in the layout of a C struct.
//!
//! # Safety
//! The `unsafe` code follows the two forms that `cuLaunchKernel` documents: an array with one
//! pointer per parameter, each to a value of that parameter's size; or a list of options ended by
//! `CU_LAUNCH_PARAM_END` that names one buffer and its size. NULL is refused.
#![allow(unsafe_code, reason = "the caller passes pointers to the parameters")]

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END, CUresult,
};

use super::kernels::Builtin;
use crate::error::Result;

/// The bytes of a launch's parameters. Empty if the kernel does nothing and the launch passed an
/// array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<u8>);

/// The maximum size of a kernel's parameters (bytes, since CUDA 12.1).
const MOST: usize = 32_764;

impl Params {
    /// Reads the parameters of a launch.
    ///
    /// # Errors
    /// `INVALID_VALUE` if both forms are given, the parameters that are copied are missing or too
    /// short, or an option is unknown.
    ///
    /// # Safety
    /// `kernel_params` and `extra` are NULL or as `cuLaunchKernel` requires for a kernel with these
    /// parameters: the offset and the size of each.
    pub unsafe fn read(
        places: &[(usize, usize)],
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<Self> {
        match (kernel_params.is_null(), extra.is_null()) {
            (false, false) => Err(CUresult::INVALID_VALUE),
            (true, true) if !places.is_empty() => Err(CUresult::INVALID_VALUE),
            (true, true) => Ok(Self::default()),
            // SAFETY: the caller guarantees one pointer for each of this kernel's parameters.
            (false, true) => unsafe { Self::from_array(places, kernel_params) },
            // SAFETY: the caller guarantees a list of options with its end marker.
            (true, false) => unsafe { Self::from_options(places, extra) },
        }
    }

    /// Parameters as bytes in C layout, for launches that set them step by step.
    ///
    /// # Errors
    /// `INVALID_VALUE` if they are too short for parameters at these places.
    pub fn from_bytes(places: &[(usize, usize)], bytes: &[u8]) -> Result<Self> {
        if bytes.len() < end(places) {
            Err(CUresult::INVALID_VALUE)
        } else {
            Ok(Self(bytes.to_vec()))
        }
    }

    unsafe fn from_array(places: &[(usize, usize)], array: *mut *mut c_void) -> Result<Self> {
        let mut bytes = vec![0; end(places)];
        for (index, &(offset, size)) in places.iter().enumerate() {
            // SAFETY: the array has an entry for each parameter.
            let value = unsafe { array.add(index).read() };
            if value.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            // SAFETY: the entry points to a value of this parameter's size, and `bytes` has that
            // much space at its offset.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    value.cast::<u8>(),
                    bytes.as_mut_ptr().add(offset),
                    size,
                )
            };
        }
        Ok(Self(bytes))
    }

    unsafe fn from_options(places: &[(usize, usize)], list: *mut *mut c_void) -> Result<Self> {
        let (mut buffer, mut size, mut at) = (std::ptr::null_mut(), None, 0);
        loop {
            // SAFETY: the list continues until its end marker, which ends this loop.
            let (option, value) = unsafe {
                let option = list.add(at).read();
                if option == CU_LAUNCH_PARAM_END {
                    break;
                }
                (option, list.add(at + 1).read())
            };
            match option {
                CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = value,
                CU_LAUNCH_PARAM_BUFFER_SIZE if !value.is_null() => {
                    // SAFETY: this option's value points to the size.
                    size = Some(unsafe { value.cast::<usize>().read() });
                }
                _ => return Err(CUresult::INVALID_VALUE),
            }
            at += 2;
        }
        let size = size
            .filter(|size| *size <= MOST && *size >= end(places))
            .ok_or(CUresult::INVALID_VALUE)?;
        if buffer.is_null() && size > 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if size == 0 {
            return Ok(Self::default());
        }
        // SAFETY: the buffer has the size that the list gives.
        Ok(Self(
            unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), size) }.to_vec(),
        ))
    }

    /// The parameter at `index` of `builtin` as an unsigned number (a float as its bits).
    pub(super) fn number(&self, builtin: &Builtin, index: usize) -> u64 {
        let (offsets, _) = layout(builtin.params);
        let (Some(&offset), Some(&size)) = (offsets.get(index), builtin.params.get(index)) else {
            return 0;
        };
        let mut value = [0; 8];
        if let Some(bytes) = self.0.get(offset..offset + size) {
            value[..size].copy_from_slice(bytes);
        }
        u64::from_le_bytes(value)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where the last of these places ends.
fn end(places: &[(usize, usize)]) -> usize {
    let ends = places.iter().map(|(offset, size)| offset + size);
    ends.max().unwrap_or(0)
}

/// The offset of each parameter and the total size; every parameter is aligned to its size.
pub(super) fn layout(sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut end = 0_usize;
    let offsets = sizes
        .iter()
        .map(|&size| {
            let offset = end.next_multiple_of(size);
            end = offset + size;
            offset
        })
        .collect();
    (offsets, end)
}

#[cfg(test)]
mod tests {
    use super::super::kernels;
    use super::*;

    #[test]
    fn parameters_have_the_layout_of_a_c_struct() {
        assert_eq!(layout(&[4, 8, 8, 8]), (vec![0, 8, 16, 24], 32));
        assert_eq!(layout(&[8, 8, 4]), (vec![0, 8, 16], 20));
    }

    #[test]
    fn both_forms_give_equal_parameters_and_missing_ones_are_refused() {
        let fill = kernels::find("fill").unwrap();
        let places = [(0, 8), (8, 8), (16, 4)];
        let (mut dst, mut count, mut value) = (0x1000_u64, 7_u64, 0xdead_beef_u32);
        let mut array: [*mut c_void; 3] = [
            (&raw mut dst).cast(),
            (&raw mut count).cast(),
            (&raw mut value).cast(),
        ];
        let mut buffer = [0_u8; 20];
        buffer[..8].copy_from_slice(&dst.to_le_bytes());
        buffer[8..16].copy_from_slice(&count.to_le_bytes());
        buffer[16..].copy_from_slice(&value.to_le_bytes());
        let options = |size: *mut usize, buffer: *mut u8| {
            [
                CU_LAUNCH_PARAM_BUFFER_POINTER,
                buffer.cast(),
                CU_LAUNCH_PARAM_BUFFER_SIZE,
                size.cast(),
                CU_LAUNCH_PARAM_END,
            ]
        };
        let null = std::ptr::null_mut();
        let mut size = 20_usize;
        let mut extra = options(&raw mut size, buffer.as_mut_ptr());
        // SAFETY: both forms are as the kernel requires.
        let (one, two) = unsafe {
            (
                Params::read(&places, array.as_mut_ptr(), null).unwrap(),
                Params::read(&places, null, extra.as_mut_ptr()).unwrap(),
            )
        };
        assert_eq!(one, two);
        assert_eq!(one.number(fill, 2), 0xdead_beef);
        let mut short = 19_usize;
        let mut extra = options(&raw mut short, buffer.as_mut_ptr());
        // SAFETY: as above.
        unsafe {
            assert_eq!(
                Params::read(&places, null, extra.as_mut_ptr()),
                Err(CUresult::INVALID_VALUE)
            );
            assert_eq!(
                Params::read(&places, null, null),
                Err(CUresult::INVALID_VALUE)
            );
            assert_eq!(
                Params::read(&places, array.as_mut_ptr(), extra.as_mut_ptr()),
                Err(CUresult::INVALID_VALUE)
            );
            assert_eq!(Params::read(&[], null, null), Ok(Params::default()));
        }
    }
}
