//! The stack of current contexts that each thread has.

use std::cell::RefCell;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::Context;
use crate::error::Result;

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's current context, usable.
///
/// # Errors
/// `INVALID_CONTEXT` if there is none, `CONTEXT_IS_DESTROYED`, or the context's sticky error.
pub fn current() -> Result<Arc<Context>> {
    let context = current_unchecked().ok_or(CUresult::INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

/// The calling thread's current context, whatever state it is in.
pub fn current_unchecked() -> Option<Arc<Context>> {
    // A destructor of another thread-local may call the driver after this one is gone: then there is no context.
    STACK
        .try_with(|stack| stack.borrow().last().cloned())
        .ok()
        .flatten()
}

/// Makes `context` current above the others.
pub fn push(context: Arc<Context>) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

/// Takes the current context off.
pub fn pop() -> Option<Arc<Context>> {
    STACK
        .try_with(|stack| stack.borrow_mut().pop())
        .ok()
        .flatten()
}

/// Replaces the current context (or takes it off, with `None`).
pub fn set_current(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}
