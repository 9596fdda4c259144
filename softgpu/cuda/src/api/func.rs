//! Functions: queries and settings.

use std::ffi::c_char;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUresult,
    CUsharedconfig,
};
use softgpu::Result;
use softgpu::context;
use softgpu::module::{self, Function};

use crate::abi::{out, out_if, required};

fn function(f: CUfunction) -> Result<Arc<Function>> {
    module::function(&context::current()?, f)
}

/// Refuses the null handle of a function or kernel whose name is asked for. Elsewhere it is an
/// invalid handle.
pub(super) fn named(is_null: bool) -> Result {
    if is_null {
        Err(CUresult::INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Returns the offset and the size of a parameter. The parameters of an opaque kernel are unknown,
/// so it has none.
pub(super) fn param_info(
    params: Option<Vec<(usize, usize)>>,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result {
    let params = params.unwrap_or_default();
    let (at, length) = *params.get(index).ok_or(CUresult::INVALID_VALUE)?;
    out_if(size, length);
    out(offset, at)
}

driver! {
    fn cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, f: CUfunction) {
        required(value)?;
        out(value, function(f)?.attributes().get(attribute)?)
    }

    fn cuFuncSetAttribute(f: CUfunction, attribute: CUfunction_attribute, value: i32) {
        function(f)?.attributes().set(attribute, value)
    }

    fn cuFuncSetCacheConfig(f: CUfunction, config: CUfunc_cache) {
        function(f)?;
        if config > CUfunc_cache::EQUAL { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncSetSharedMemConfig(f: CUfunction, config: CUsharedconfig) {
        function(f)?;
        if config > CUsharedconfig::EIGHT_BYTE_BANK_SIZE { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncGetModule(module: *mut CUmodule, f: CUfunction) {
        required(module)?;
        out(module, function(f)?.module().handle())
    }

    fn cuFuncGetName(name: *mut *const c_char, f: CUfunction) {
        required(name)?;
        named(f.is_null())?;
        out(name, function(f)?.c_name().as_ptr())
    }

    fn cuFuncGetParamInfo(f: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        required(offset)?;
        param_info(function(f)?.params(), index, offset, size)
    }

    fn cuFuncGetParamCount(f: CUfunction, count: *mut usize) {
        required(count)?;
        out(count, function(f)?.params().map_or(0, |params| params.len()))
    }

    fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, f: CUfunction) {
        required(state)?;
        let loaded = function(f)?.module().is_resident();
        out(state, if loaded { CUfunctionLoadingState::LOADED } else { CUfunctionLoadingState::UNLOADED })
    }

    fn cuFuncLoad(f: CUfunction) {
        function(f)?.module().make_resident()
    }
}
