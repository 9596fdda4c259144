//! Pointer attributes.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUpointer_attribute, CUresult};
use softgpu::memory::pointer::{self, Answer};
use softgpu::{Result, world};

use crate::abi::{input, inputs, out, required};

driver! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        required(data)?;
        write(data, pointer::attribute(attribute, ptr)?)
    }
    /// An attribute that a pointer lacks, or any attribute of an unknown pointer, gives a null
    /// value instead of an error.
    fn cuPointerGetAttributes(num_attributes: u32, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, ptr: CUdeviceptr) {
        let count = usize::try_from(num_attributes).map_err(|_| CUresult::INVALID_VALUE)?;
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        world::process()?;
        for (attribute, data) in inputs(attributes, count)?.into_iter().zip(inputs(data, count)?) {
            required(data)?;
            let answer = pointer::attribute(attribute, ptr).or_else(|_| pointer::nothing(attribute))?;
            write(data, answer)?;
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        if attribute != CUpointer_attribute::SYNC_MEMOPS {
            return Err(CUresult::INVALID_VALUE);
        }
        pointer::set_sync_memops(ptr, input(value.cast::<i32>())? != 0)
    }
}

fn write(data: *mut c_void, answer: Answer) -> Result {
    match answer {
        Answer::Pointer(value) | Answer::Long(value) => out(data.cast::<u64>(), value),
        Answer::Int(value) => out(data.cast::<u32>(), value),
        Answer::Flag(value) => out(data.cast::<u32>(), u32::from(value)),
    }
}
