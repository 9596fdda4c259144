//! Libraries: images that belong to no context. A library becomes a module in each context that
//! uses its kernels.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gpushare_cuda_abi::cuda::{CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUresult};

use super::attributes::Attributes;
use super::function::{c_name, function};
use super::image::Image;
use super::modules::{self, Module};
use crate::context::Context;
use crate::error::Result;
use crate::handle::Handles;

static LIBRARIES: Handles<Library> = Handles::new();
static KERNELS: Handles<Kernel> = Handles::new();

/// A loaded library.
#[derive(Debug)]
pub struct Library {
    handle: usize,
    image: Arc<Image>,
    kernels: Mutex<HashMap<String, usize>>,
    /// Its module in each context, by the context's number.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct Kernel {
    name: CString,
    library: Weak<Library>,
    image: Arc<Image>,
    /// Attributes set for a device, by ordinal. The kernel's function on that device takes them
    /// over.
    attributes: Mutex<HashMap<u32, Attributes>>,
}

impl Library {
    /// Its handle.
    pub fn handle(&self) -> CUlibrary {
        CUlibrary(std::ptr::without_provenance_mut(self.handle))
    }

    /// The kernel with this name; equal names give the same kernel.
    ///
    /// # Errors
    /// `NOT_FOUND` for the empty name, and for one that a readable image does not have, unless a
    /// built-in kernel has it.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<CUkernel> {
        if !self.image.may_have(name) {
            return Err(CUresult::NOT_FOUND);
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let value = *kernels.entry(name.to_owned()).or_insert_with(|| {
            let (name, library) = (c_name(name), Arc::downgrade(self));
            KERNELS.insert(Arc::new(Kernel {
                name,
                library,
                image: Arc::clone(&self.image),
                attributes: Mutex::default(),
            }))
        });
        Ok(CUkernel(std::ptr::without_provenance_mut(value)))
    }

    /// The kernels of a readable image, and those that were looked up by name, oldest first.
    pub fn known_kernels(self: &Arc<Self>) -> Vec<CUkernel> {
        for name in self.image.functions() {
            // A name that the image has is found.
            let _ = self.kernel(name);
        }
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known: Vec<usize> = kernels.values().copied().collect();
        known.sort_unstable();
        known
            .into_iter()
            .map(|value| CUkernel(std::ptr::without_provenance_mut(value)))
            .collect()
    }

    /// Its module in `context`, loaded at first use.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` under eager loading.
    pub fn module_in(&self, context: &Arc<Context>) -> Result<Arc<Module>> {
        let mut modules = self.modules();
        if let Some(module) = modules.get(&context.id()) {
            return Ok(Arc::clone(module));
        }
        let module = modules::load_of_library(context, Arc::clone(&self.image))?;
        modules.insert(context.id(), Arc::clone(&module));
        Ok(module)
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<u64, Arc<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// Its name as a C string that lives as long as the kernel.
    pub fn c_name(&self) -> &CStr {
        &self.name
    }

    /// The library it is in.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if the library was unloaded.
    pub fn library(&self) -> Result<Arc<Library>> {
        self.library.upgrade().ok_or(CUresult::INVALID_HANDLE)
    }

    /// Offset and size of each parameter; `None` if they are unknown.
    pub fn params(&self) -> Option<Vec<(usize, usize)>> {
        super::function::params(self.name(), &self.image)
    }

    /// An attribute's value for a device.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an attribute that does not exist.
    pub fn attribute(&self, device: u32, attribute: CUfunction_attribute) -> Result<i32> {
        self.on(&mut self.attributes(), device).get(attribute)
    }

    /// Sets an attribute for a device.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an attribute that cannot be set, or a value out of its range.
    pub fn set_attribute(
        &self,
        device: u32,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result {
        self.on(&mut self.attributes(), device)
            .set(attribute, value)
    }

    fn on<'a>(&self, all: &'a mut HashMap<u32, Attributes>, device: u32) -> &'a mut Attributes {
        let told = || Attributes::of_image(self.image.attributes(self.name()));
        all.entry(device).or_insert_with(told)
    }

    fn attributes(&self) -> MutexGuard<'_, HashMap<u32, Attributes>> {
        self.attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads a library.
///
/// # Errors
/// `INVALID_PTX` for a PTX text with errors.
pub fn load(image: Image) -> Result<CUlibrary> {
    image.check()?;
    let handle = LIBRARIES.fresh();
    let library = Arc::new(Library {
        handle,
        image: Arc::new(image),
        kernels: Mutex::default(),
        modules: Mutex::default(),
    });
    LIBRARIES.insert_at(handle, Arc::clone(&library));
    Ok(library.handle())
}

/// The library of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no library.
pub fn lookup(library: CUlibrary) -> Result<Arc<Library>> {
    LIBRARIES
        .get(library.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)
}

/// The kernel of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no kernel.
pub fn kernel(kernel: CUkernel) -> Result<Arc<Kernel>> {
    KERNELS.get(kernel.0.addr()).ok_or(CUresult::INVALID_HANDLE)
}

/// A kernel's function in `context`.
///
/// # Errors
/// `INVALID_HANDLE` if its library was unloaded, `OUT_OF_MEMORY` under eager loading.
pub fn function_in(kernel: &Kernel, context: &Arc<Context>) -> Result<CUfunction> {
    let handle = kernel
        .library()?
        .module_in(context)?
        .function(kernel.name())?;
    let set = kernel
        .attributes()
        .get(&context.device().ordinal())
        .cloned();
    if let Some(set) = set {
        *function(context, handle)?.attributes() = set;
    }
    Ok(handle)
}

/// Unloads a library with its kernels and modules.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no library.
pub fn unload(library: CUlibrary) -> Result {
    let library = LIBRARIES
        .remove(library.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)?;
    for kernel in library.known_kernels() {
        KERNELS.remove(kernel.0.addr());
    }
    let modules = std::mem::take(&mut *library.modules());
    modules
        .values()
        .for_each(|module| modules::unload_of_library(module));
    Ok(())
}

pub(super) fn context_gone(context: u64) {
    for (_, library) in LIBRARIES.all() {
        library.modules().remove(&context);
    }
}
