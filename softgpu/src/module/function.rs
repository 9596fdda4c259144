//! Functions: a name in a module of a context.

use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUfunction, CUkernel, CUresult};

use super::attributes::Attributes;
use super::image::Image;
use super::kernels::{self, Builtin};
use super::legacy::LegacyState;
use super::library;
use super::modules::Module;
use crate::context::Context;
use crate::error::Result;
use crate::handle::Handles;

static FUNCTIONS: Handles<Function> = Handles::new();

/// A function that can be launched.
#[derive(Debug)]
pub struct Function {
    handle: usize,
    name: CString,
    module: Arc<Module>,
    builtin: Option<&'static Builtin>,
    attributes: Mutex<Attributes>,
    legacy: Mutex<LegacyState>,
}

impl Function {
    /// Creates the function `name` of `module`.
    pub(super) fn enter(name: &str, module: &Arc<Module>) -> CUfunction {
        let handle = FUNCTIONS.fresh();
        let function = Self {
            handle,
            name: c_name(name),
            module: Arc::clone(module),
            builtin: builtin(name, module.image()),
            attributes: Mutex::new(Attributes::of_image(module.image().attributes(name))),
            legacy: Mutex::default(),
        };
        FUNCTIONS.insert_at(handle, Arc::new(function));
        CUfunction(std::ptr::without_provenance_mut(handle))
    }

    /// Its handle.
    pub fn handle(&self) -> CUfunction {
        CUfunction(std::ptr::without_provenance_mut(self.handle))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// Its name as a C string that lives as long as the function.
    pub fn c_name(&self) -> &CStr {
        &self.name
    }

    /// The module it is in.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The context it runs in.
    pub fn context(&self) -> &Arc<Context> {
        self.module.context()
    }

    /// Its built-in kernel, if it has one.
    pub fn builtin(&self) -> Option<&'static Builtin> {
        self.builtin
    }

    /// Offset and size of each parameter; `None` if they are unknown.
    pub fn params(&self) -> Option<Vec<(usize, usize)>> {
        params(self.name(), self.module.image())
    }

    /// Whether it is a kernel of a PTX text, which runs as it is written.
    pub(super) fn is_program(&self) -> bool {
        let module = self.module.image().ptx();
        self.builtin.is_none() && module.is_some_and(|module| module.kernel(self.name()).is_some())
    }

    /// Offset and size of each parameter that a launch copies: all of a kernel that does something,
    /// and none of another one.
    pub fn copied(&self) -> Vec<(usize, usize)> {
        let known = self.builtin.is_some() || self.is_program();
        self.params().filter(|_| known).unwrap_or_default()
    }

    /// Its attributes.
    pub fn attributes(&self) -> MutexGuard<'_, Attributes> {
        self.attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The launch state that the functions of CUDA 2 and 3 set step by step before a launch.
    pub fn legacy(&self) -> MutexGuard<'_, LegacyState> {
        self.legacy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function of a handle. A kernel's handle means the kernel's function in `context`.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names neither a function nor a kernel; as
/// [`library::function_in`].
pub fn function(context: &Arc<Context>, handle: CUfunction) -> Result<Arc<Function>> {
    if let Some(found) = FUNCTIONS.get(handle.0.addr()) {
        return Ok(found);
    }
    let kernel = library::kernel(CUkernel(handle.0))?;
    let handle = library::function_in(&kernel, context)?;
    FUNCTIONS
        .get(handle.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)
}

pub(super) fn forget(function: CUfunction) {
    FUNCTIONS.remove(function.0.addr());
}

/// The built-in kernel that a function of this name is. A kernel of a PTX text runs as it is
/// written, unless it has the name and the parameters of a kernel that only takes time. A function
/// of another image that is known to have other parameters is a program's own.
fn builtin(name: &str, image: &Image) -> Option<&'static Builtin> {
    let found = kernels::find(name)?;
    let is_it = match image.ptx().and_then(|module| module.kernel(name)) {
        Some(kernel) => {
            let sizes = kernel.params().into_iter().map(|param| param.size);
            found.is_timed() && sizes.eq(found.params.iter().copied())
        }
        None => image
            .params(name)
            .is_none_or(|params| params == layout_of(found)),
    };
    is_it.then_some(found)
}

/// Offset and size of each parameter of the function of this name: those of a built-in kernel, or
/// what the image says.
pub(super) fn params(name: &str, image: &Image) -> Option<Vec<(usize, usize)>> {
    match builtin(name, image) {
        Some(builtin) => Some(layout_of(builtin)),
        None => image.params(name).map(<[_]>::to_vec),
    }
}

fn layout_of(builtin: &Builtin) -> Vec<(usize, usize)> {
    (0..builtin.params.len())
        .filter_map(|index| builtin.param(index))
        .collect()
}

/// A name as a C string.
pub(super) fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}
