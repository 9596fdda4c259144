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

use crate::driver::real::{Dlsym, real_dlsym, real_dlvsym};
use crate::entry::state;
use crate::guest::linker::{self, Caller, Object};
use crate::hooks::{self, Found};
use crate::resolve::dlsym;

/// The next step of a thunk; returned in two registers.
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
        Self::jump(real as *const c_void)
    }

    fn jump(real: *const c_void) -> Self {
        Self {
            forward: real,
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
        b"dlsym" | b"dlvsym" => return itself(real, handle, name),
        _ => return Verdict::forward(real),
    }
    match hooks::find(name) {
        Some(hook) if !state::is_secure() => hooked(&Lookup { real, hook, caller }, handle),
        _ => Verdict::forward(real),
    }
}

/// A way to look names up: the C library's function, and ours, which does the same.
struct Way {
    theirs: *const c_void,
    ours: *mut c_void,
}

impl Way {
    fn named(name: &CStr) -> Option<Self> {
        match name.to_bytes() {
            b"dlsym" => Some(Self {
                theirs: real_dlsym()? as *const c_void,
                ours: dlsym::dlsym as *mut c_void,
            }),
            b"dlvsym" => Some(Self {
                theirs: real_dlvsym()? as *const c_void,
                ours: dlsym::dlvsym as *mut c_void,
            }),
            _ => None,
        }
    }
}

/// `dlsym` or `dlvsym` looked up by name: a program that looks it up in the C library gets ours.
fn itself(real: Dlsym, handle: *mut c_void, name: &CStr) -> Verdict {
    if ptr::eq(handle, libc::RTLD_NEXT) {
        return Verdict::forward(real);
    }
    // SAFETY: the caller's handle and name; only compared.
    let found = unsafe { real(handle, name.as_ptr()) };
    match Way::named(name) {
        Some(way) if ptr::eq(found, way.theirs) && !state::is_secure() => Verdict::answer(way.ours),
        _ => Verdict::forward(real),
    }
}

/// Decides one `dlvsym(handle, name, version)` called from the code at `caller`.
///
/// Tools that wrap `dlsym` find the C library's by its version. A definition of ours has none, so
/// they would pass by us; and a preload by variable stands before one by `/etc/ld.so.preload`, so
/// that all the program's lookups are the tool's.
///
/// # Safety
/// As [`classify`], and `version` is the program's argument.
pub(crate) unsafe extern "C" fn classify_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Verdict {
    let Some(real) = real_dlvsym() else {
        return Verdict::answer(ptr::null_mut());
    };
    let forward = Verdict::jump(real as *const c_void);
    if name.is_null() || state::is_secure() {
        return forward;
    }
    // SAFETY: not null, and the caller's promise makes it a string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(way) = Way::named(name) else {
        // SAFETY: the caller's handle, name and version; only compared.
        let find = || unsafe { real(handle, name.as_ptr(), version) };
        return hooked_versioned(handle, name, find).unwrap_or(forward);
    };
    // Behind us the next one is not ours.
    if ptr::eq(handle, libc::RTLD_NEXT) && !linker::precedes_us(caller) {
        return forward;
    }
    // SAFETY: the caller's handle, name and version; only compared.
    let found = unsafe { real(handle, name.as_ptr(), version) };
    if ptr::eq(found, way.theirs) {
        Verdict::answer(way.ours)
    } else {
        forward
    }
}

/// The hook of a function that a driver has under a version, where that is the very function that
/// we hook; `None` for all else, which is answered as without us.
fn hooked_versioned(
    handle: *mut c_void,
    name: &CStr,
    find: impl FnOnce() -> *mut c_void,
) -> Option<Verdict> {
    let is_ours = matches!(
        name.to_bytes(),
        [b'c', b'u', b'A'..=b'Z', ..] | [b'n', b'v', b'm', b'l', ..]
    );
    // The next one is the caller's next, which only a jump finds.
    if !is_ours || ptr::eq(handle, libc::RTLD_NEXT) {
        return None;
    }
    let hook = hooks::find(name)?;
    let found = find();
    let is_drivers = !found.is_null() && hook.row.address() == Some(found);
    is_drivers.then(|| Verdict::answer(hook.ours.cast_mut()))
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
