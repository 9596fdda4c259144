//! The stack of current contexts that each thread has.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::Context;
use super::green::{Green, Held, Named};
use crate::error::Result;
use crate::world::sys;

/// A context on a thread's stack. A green context is held there: no other thread may have it
/// meanwhile.
#[derive(Debug)]
struct Entry {
    named: Named,
    _held: Option<Held>,
}

thread_local! {
    // Without a destructor, which would run before exit handlers: they may call the driver as the
    // thread did.
    static STACK: RefCell<ManuallyDrop<Vec<Entry>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// The thread ends, and has nothing any more.
extern "C" fn ended() {
    STACK.with(|stack| stack.borrow_mut().clear());
}

/// The calling thread's current context, usable; of a green context, its primary context.
///
/// # Errors
/// `INVALID_CONTEXT` if there is none, `CONTEXT_IS_DESTROYED`, or the context's sticky error.
pub fn current() -> Result<Arc<Context>> {
    let named = current_named().ok_or(CUresult::INVALID_CONTEXT)?;
    named.check()?;
    Ok(named.context)
}

/// What is current in the calling thread, whatever state it is in.
pub fn current_named() -> Option<Named> {
    STACK.with(|stack| stack.borrow().last().map(|entry| entry.named.clone()))
}

/// The calling thread's current context, whatever state it is in; of a green context, its primary
/// context.
pub fn current_unchecked() -> Option<Arc<Context>> {
    current_named().map(|named| named.context)
}

/// The green context that is current in the calling thread, if one is.
pub fn current_green() -> Option<Arc<Green>> {
    current_named()?.green
}

/// Makes `named` current above the others.
///
/// # Errors
/// `INVALID_CONTEXT` for a green context that another thread has.
pub fn push(named: Named) -> Result {
    let entry = Entry::new(named)?;
    STACK.with(|stack| stack.borrow_mut().push(entry));
    Ok(())
}

/// Takes the current context off.
pub fn pop() -> Option<Named> {
    let entry = STACK.with(|stack| stack.borrow_mut().pop())?;
    Some(entry.named)
}

/// Replaces the current context (or takes it off, with `None`).
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
