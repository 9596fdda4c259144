//! The result of a program's lookup of a function.
//!
//! One rule: where the answer would be the driver's own function, and we hook that very symbol, the
//! answer is our hook; everything else is answered as if this library were not there. That our own
//! exported names can be *found* must therefore never make a function exist that the driver does
//! not have.
//!
//! # Safety
//! Strings and handles are the caller's, valid by the contract of `dlsym`. Addresses are compared,
//! never followed.
#![allow(unsafe_code, reason = "answers dlsym for C callers")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::driver::real::{Dlsym, real_dlsym};
use crate::entry::state;
use crate::guest::linker::{self, Caller, Object};
use crate::hooks::{self, Found};

/// The next step of the `dlsym` thunk; returned in two registers.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Verdict {
    /// Where to jump with the caller's own arguments, or null: return `answer`.
    forward: *const c_void,
    /// The value to return.
    answer: *mut c_void,
}

impl Verdict {
    fn forward(real: Dlsym) -> Self {
        Self {
            forward: real as *const c_void,
            answer: ptr::null_mut(),
        }
    }

    fn answer(answer: *mut c_void) -> Self {
        Self {
            forward: ptr::null(),
            answer,
        }
    }
}

/// Decides one `dlsym(handle, name)` called from the code at `caller`.
///
/// # Safety
/// `handle` and `name` are the program's arguments to `dlsym`; `caller` is its return address.
pub(crate) unsafe extern "C" fn classify(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Verdict {
    let Some(real) = real_dlsym() else {
        return Verdict::answer(ptr::null_mut());
    };
    if name.is_null() {
        return Verdict::forward(real);
    }
    // SAFETY: not null, and the caller's promise makes it a string.
    let name = unsafe { CStr::from_ptr(name) };
    match name.to_bytes() {
        [b'c', b'u', b'A'..=b'Z', ..] | [b'n', b'v', b'm', b'l', ..] => {}
        b"dlsym" => return itself(real, handle),
        _ => return Verdict::forward(real),
    }
    match hooks::find(name) {
        Some(hook) if !state::is_secure() => hooked(&Lookup { real, hook, caller }, handle),
        _ => Verdict::forward(real),
    }
}

/// `dlsym` looked up by name: a program that looks it up in the C library gets ours, which does the
/// same.
fn itself(real: Dlsym, handle: *mut c_void) -> Verdict {
    if ptr::eq(handle, libc::RTLD_NEXT) {
        return Verdict::forward(real);
    }
    // SAFETY: the caller's handle and a static name; only compared.
    let found = unsafe { real(handle, c"dlsym".as_ptr()) };
    if ptr::eq(found, real as *const c_void) && !state::is_secure() {
        return Verdict::answer(crate::resolve::dlsym::dlsym as *mut c_void);
    }
    Verdict::forward(real)
}

/// A look for a symbol that we hook.
struct Lookup {
    real: Dlsym,
    hook: Found,
    caller: *const c_void,
}

impl Lookup {
    /// The result of the real `dlsym`, called from here.
    fn find(&self, handle: *mut c_void) -> *mut c_void {
        // SAFETY: the caller's own handle, a special one, or that of a library with code on this
        // thread's stack.
        unsafe { (self.real)(handle, self.hook.row.symbol().as_ptr()) }
    }

    /// The object that asks.
    fn caller(&self) -> Option<Caller> {
        // SAFETY: the return address of the program's call, by the promise of `classify`.
        unsafe { Caller::of(self.caller) }
    }

    /// The hook in place of the driver's own function, anything else as it was found.
    fn judge(&self, found: *mut c_void) -> Verdict {
        if found.is_null() {
            return Verdict::answer(found);
        }
        let answer = if self.is_drivers(found) {
            self.hook.ours.cast_mut()
        } else {
            found
        };
        linker::forget_error();
        Verdict::answer(answer)
    }

    fn is_ours(&self, found: *mut c_void) -> bool {
        ptr::eq(found, self.hook.ours)
    }

    fn is_drivers(&self, found: *mut c_void) -> bool {
        self.drivers() == Some(found)
    }

    fn drivers(&self) -> Option<*mut c_void> {
        self.hook.row.address()
    }
}

fn hooked(lookup: &Lookup, handle: *mut c_void) -> Verdict {
    if ptr::eq(handle, libc::RTLD_NEXT) {
        return next(lookup);
    }
    let found = lookup.find(handle);
    if !ptr::eq(handle, libc::RTLD_DEFAULT) && !lookup.is_ours(found) {
        return lookup.judge(found);
    }
    // The order of a program's libraries, or a handle that includes it (`dlopen(NULL)`).
    if !found.is_null() && !lookup.is_ours(found) {
        return lookup.judge(found);
    }
    beyond_us(lookup)
}

/// The first definition that is not ours: behind us in the program's order, else among the caller's
/// own libraries.
fn beyond_us(lookup: &Lookup) -> Verdict {
    let behind = lookup.find(libc::RTLD_NEXT);
    if !behind.is_null() {
        return lookup.judge(behind);
    }
    if let Some(scope) = lookup.caller().and_then(Caller::open) {
        let found = lookup.find(scope.handle());
        if !found.is_null() && !lookup.is_ours(found) {
            return lookup.judge(found);
        }
    }
    // Asked again because the last failed look is what `dlerror` tells the caller about.
    Verdict::answer(lookup.find(libc::RTLD_NEXT))
}

/// `RTLD_NEXT`: the caller's own meaning, except that our exported names neither add a function nor
/// lose one to the driver.
fn next(lookup: &Lookup) -> Verdict {
    if linker::precedes_us(lookup.caller) {
        // Its next one is ours or one between the two of us: right as it is, if there is anything
        // for our hook to call.
        return if lookup.drivers().is_some() {
            Verdict::forward(lookup.real)
        } else {
            lookup.judge(lookup.find(libc::RTLD_NEXT))
        };
    }
    // Behind us. A library that defines the name wraps it, and must get the definition after its
    // own, or it would call itself.
    let Some(caller) = lookup.caller() else {
        return Verdict::forward(lookup.real);
    };
    let first = caller
        .open()
        .map_or(ptr::null_mut(), |scope| lookup.find(scope.handle()));
    if lookup.is_drivers(first) && Object::of(first) != Some(caller.object()) {
        return lookup.judge(first);
    }
    // A wrapper whose next definition is the driver's own gets our hook: its calls are charged,
    // too.
    match after(lookup) {
        Some(found) if lookup.is_drivers(found) => lookup.judge(found),
        _ => Verdict::forward(lookup.real),
    }
}

/// The first definition in an object that was loaded after the caller's.
fn after(lookup: &Lookup) -> Option<*mut c_void> {
    let own = |loaded: linker::Loaded| {
        let (scope, object) = loaded.open()?;
        let found = lookup.find(scope.handle());
        (Object::of(found) == Some(object)).then_some(found)
    };
    linker::behind(lookup.caller).into_iter().find_map(own)
}
