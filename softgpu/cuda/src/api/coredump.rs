//! Core-dump attributes.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::CUcoredumpSettings;
use softgpu::Result;
use softgpu::context::{self, Context, coredump};

use crate::abi::{input, inputs, out, outputs, required};

/// Writes as much of the value as fits, and how much that is; without a place for it, how much
/// there is.
fn get(
    context: Option<&Context>,
    setting: CUcoredumpSettings,
    value: *mut c_void,
    size: *mut usize,
) -> Result {
    required(size.cast_const())?;
    let bytes = coredump::attribute(context, setting)?.bytes();
    if value.is_null() {
        return out(size, bytes.len());
    }
    let room = input(size.cast_const())?;
    outputs(value.cast::<u8>(), room, &bytes)?;
    out(size, room.min(bytes.len()))
}

/// Without a value it changes nothing.
fn set(
    context: Option<&Context>,
    setting: CUcoredumpSettings,
    value: *const c_void,
    size: *const usize,
) -> Result {
    let size = input(size)?;
    if value.is_null() {
        return coredump::attribute(context, setting).map(drop);
    }
    let bytes = inputs(value.cast::<u8>(), size)?;
    coredump::set_attribute(context, setting, &bytes)
}

driver! {
    fn cuCoredumpGetAttribute(setting: CUcoredumpSettings, value: *mut c_void, size: *mut usize) {
        get(Some(&*context::current()?), setting, value, size)
    }

    fn cuCoredumpGetAttributeGlobal(setting: CUcoredumpSettings, value: *mut c_void, size: *mut usize) {
        get(None, setting, value, size)
    }

    fn cuCoredumpSetAttribute(setting: CUcoredumpSettings, value: *mut c_void, size: *mut usize) {
        set(Some(&*context::current()?), setting, value.cast_const(), size.cast_const())
    }

    fn cuCoredumpSetAttributeGlobal(setting: CUcoredumpSettings, value: *mut c_void, size: *mut usize) {
        set(None, setting, value.cast_const(), size.cast_const())
    }
}
