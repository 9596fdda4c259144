//! Modules: an image loaded into a context, and the functions found in it.
//!
//! Loading is lazy unless `CUDA_MODULE_LOADING=EAGER`: the memory is taken when a function is first
//! launched. So a context grows long after the load call succeeded, as with drivers since CUDA
//! 12.2.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::{CUfunction, CUmodule, CUresult};

use super::device_heap;
use super::function::{self, Function};
use super::image::Image;
use super::memory::{CodeMemory, PAGES};
use super::variables::Variables;
use crate::context::Context;
use crate::error::Result;
use crate::handle::Handles;

static MODULES: Handles<Module> = Handles::new();

/// The time at which code is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    /// At the load call.
    Eager,
    /// At the first launch.
    Lazy,
}

/// The loading mode of this process, from `CUDA_MODULE_LOADING`.
pub fn loading() -> Loading {
    static MODE: OnceLock<Loading> = OnceLock::new();
    *MODE.get_or_init(|| match std::env::var("CUDA_MODULE_LOADING") {
        Ok(mode) if mode.eq_ignore_ascii_case("eager") => Loading::Eager,
        _ => Loading::Lazy,
    })
}

/// An image loaded into a context.
#[derive(Debug)]
pub struct Module {
    handle: usize,
    context: Arc<Context>,
    image: Arc<Image>,
    /// It is a library's in this context: the library alone unloads it.
    is_of_library: bool,
    functions: Mutex<HashMap<String, CUfunction>>,
    memory: Mutex<Option<CodeMemory>>,
    variables: Mutex<Option<Variables>>,
}

impl Module {
    /// Its handle.
    pub fn handle(&self) -> CUmodule {
        CUmodule(std::ptr::without_provenance_mut(self.handle))
    }

    /// The context it is loaded in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The attributes of the functions in its image.
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// The function with this name; equal names give the same function.
    ///
    /// # Errors
    /// `NOT_FOUND` for the empty name, and for a name that a readable image does not have, unless a
    /// built-in kernel has it. Every other name may exist in an opaque image.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<CUfunction> {
        if !self.image.may_have(name) {
            return Err(CUresult::NOT_FOUND);
        }
        let mut functions = self.functions();
        if let Some(known) = functions.get(name) {
            return Ok(*known);
        }
        let made = Function::enter(name, self);
        functions.insert(name.to_owned(), made);
        Ok(made)
    }

    /// The functions of a readable image, and those that were looked up by name, oldest first. No
    /// other functions of an opaque image are known.
    pub fn known_functions(self: &Arc<Self>) -> Vec<CUfunction> {
        for name in self.image.functions() {
            // A name that the image has is found.
            let _ = self.function(name);
        }
        let mut known: Vec<CUfunction> = self.functions().values().copied().collect();
        known.sort_unstable();
        known
    }

    /// Loads the code if it is not loaded.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory, `SHARED_OBJECT_INIT_FAILED` if it lacks that
    /// of the context's heap.
    pub fn make_resident(&self) -> Result {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_none() {
            if self.image.may_allocate() {
                device_heap::take(&self.context)?;
            }
            *memory = Some(CodeMemory::take(self.context.device(), PAGES)?);
            // With both locks held: other threads that need this module or submit in its context
            // wait.
            let _held = self.context.hold();
            std::thread::sleep(Duration::from_nanos(self.context.device().spec().load));
        }
        drop(memory);
        self.with_variables(|_| ())
    }

    /// Address and size of the variable with this name. Its memory is taken with the first.
    ///
    /// # Errors
    /// `NOT_FOUND` if the image declares none, or cannot be read; `OUT_OF_MEMORY`.
    pub fn variable(&self, name: &str) -> Result<(u64, u64)> {
        self.with_variables(|variables| variables.place(name))?
            .ok_or(CUresult::NOT_FOUND)
    }

    fn with_variables<T>(&self, ask: impl FnOnce(&Variables) -> T) -> Result<T> {
        let mut variables = self
            .variables
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let loaded = match variables.take() {
            Some(loaded) => loaded,
            None => Variables::load(&self.context, self.image.variables())?,
        };
        Ok(ask(variables.insert(loaded)))
    }

    /// Whether the code is loaded.
    pub fn is_resident(&self) -> bool {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn functions(&self) -> MutexGuard<'_, HashMap<String, CUfunction>> {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads any image.
///
/// # Errors
/// `INVALID_PTX` for a PTX text with errors; `OUT_OF_MEMORY` under eager loading.
pub fn load(context: &Arc<Context>, image: Arc<Image>) -> Result<Arc<Module>> {
    load_as(context, image, false)
}

/// Loads the image of a library, for the library.
///
/// # Errors
/// As [`load`].
pub(super) fn load_of_library(context: &Arc<Context>, image: Arc<Image>) -> Result<Arc<Module>> {
    load_as(context, image, true)
}

fn load_as(context: &Arc<Context>, image: Arc<Image>, is_of_library: bool) -> Result<Arc<Module>> {
    image.check()?;
    let module = Arc::new(Module {
        handle: MODULES.fresh(),
        context: Arc::clone(context),
        image,
        is_of_library,
        functions: Mutex::default(),
        memory: Mutex::default(),
        variables: Mutex::default(),
    });
    if loading() == Loading::Eager {
        module.make_resident()?;
    }
    MODULES.insert_at(module.handle, Arc::clone(&module));
    Ok(module)
}

/// The module of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no module.
pub fn lookup(module: CUmodule) -> Result<Arc<Module>> {
    MODULES.get(module.0.addr()).ok_or(CUresult::INVALID_HANDLE)
}

/// Unloads a module: its functions are removed, its memory is freed when no launch uses it any
/// more.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no module, `NOT_PERMITTED` for one of a library.
pub fn unload(module: CUmodule) -> Result {
    if lookup(module)?.is_of_library {
        return Err(CUresult::NOT_PERMITTED);
    }
    let module = MODULES
        .remove(module.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)?;
    forget(&module);
    Ok(())
}

/// Unloads a module with the library that it is of, unless its context has gone meanwhile.
pub(super) fn unload_of_library(module: &Module) {
    MODULES.remove(module.handle);
    forget(module);
}

fn forget(module: &Module) {
    let functions = std::mem::take(&mut *module.functions());
    functions.into_values().for_each(function::forget);
}

pub(super) fn context_gone(context: u64) {
    MODULES
        .remove_if(|module| module.context.id() == context)
        .iter()
        .for_each(|module| forget(module));
}
