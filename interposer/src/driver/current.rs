//! The calling thread's current context, changed for a while and put back.

use core::marker::PhantomData;

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};

use crate::driver::calls;

/// While this lives a context is the calling thread's current one. Never kept across a wait: the
/// program's thread would go on with our context if it left the wait by a jump.
#[derive(Debug)]
pub(crate) struct CurrentContext {
    pushed: bool,
    /// Current in the thread that made it, and in no other.
    thread: PhantomData<*const ()>,
}

impl CurrentContext {
    /// Makes a context that lives current, unless it is.
    ///
    /// # Errors
    /// The driver's error: the context is destroyed, has failed, or is a green context that is
    /// current in another thread.
    pub(crate) fn make(context: CUcontext) -> Result<Self, CUresult> {
        let pushed = calls::current_context() != Ok(context);
        if pushed {
            calls::push_context(context)?;
        }
        Ok(Self {
            pushed,
            thread: PhantomData,
        })
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        if self.pushed {
            let _ = calls::pop_context();
        }
    }
}
