//! The stack of current contexts of each thread.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::Context;
use super::green::{Green, GreenGuard, Named};
use crate::error::Result;
use crate::world::sys;

/// A context on a thread's stack. The entry keeps a green context current in this thread, so that
/// no other thread can make it current.
#[derive(Debug)]
struct Entry {
    named: Named,
    _held: Option<GreenGuard>,
}

thread_local! {
    // Without a destructor: a destructor would run before exit handlers, and exit handlers may call
    // the driver with the thread's context.
    static STACK: RefCell<ManuallyDrop<Vec<Entry>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Clears the stack when the thread ends.
extern "C" fn ended() {
    STACK.with(|stack| stack.borrow_mut().clear());
}

/// The calling thread's current context, if usable; for a green context its primary context.
///
/// # Errors
/// `INVALID_CONTEXT` if there is none, `CONTEXT_IS_DESTROYED`, or the context's sticky error.
pub fn current() -> Result<Arc<Context>> {
    let named = current_named().ok_or(CUresult::INVALID_CONTEXT)?;
    named.check()?;
    Ok(named.context)
}

/// The calling thread's current context, in any state.
pub fn current_named() -> Option<Named> {
    STACK.with(|stack| stack.borrow().last().map(|entry| entry.named.clone()))
}

/// The calling thread's current context, in any state; for a green context its primary context.
pub fn current_unchecked() -> Option<Arc<Context>> {
    current_named().map(|named| named.context)
}

/// The green context that is current in the calling thread, if any.
pub fn current_green() -> Option<Arc<Green>> {
    current_named()?.green
}

/// Pushes `named` onto the stack: it becomes current.
///
/// # Errors
/// `INVALID_CONTEXT` for a green context that is current in another thread.
pub fn push(named: Named) -> Result {
    let entry = Entry::new(named)?;
    STACK.with(|stack| stack.borrow_mut().push(entry));
    Ok(())
}

/// Pops the current context.
pub fn pop() -> Option<Named> {
    let entry = STACK.with(|stack| stack.borrow_mut().pop())?;
    Some(entry.named)
}

/// Replaces the current context; `None` pops it.
///
/// # Errors
/// As [`push`].
pub fn set_current(named: Option<Named>) -> Result {
    let entry = named.map(Entry::new).transpose()?;
    pop();
    STACK.with(|stack| stack.borrow_mut().extend(entry));
    Ok(())
}

impl Entry {
    fn new(named: Named) -> Result<Self> {
        sys::at_thread_end(ended);
        let held = named.green.as_ref().map(Green::hold).transpose()?;
        Ok(Self { named, _held: held })
    }
}
