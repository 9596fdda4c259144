//! Functions that glibc kept in libraries of their own until version 2.34: threads in
//! `libpthread.so.0`, questions to the dynamic linker in `libdl.so.2`.
//!
//! A library that names them has both loaded into every program, which took a third of what this
//! library costs a program that never uses a GPU (ADR 136). So they are defined here, for this
//! library alone, also where the standard library calls them: each finds the C library's own at
//! its first call, or all do by [`bind`]. That comes with the program's first CUDA call, and
//! libcuda needs both libraries.
//!
//! # Safety
//! Each function here has the type of the C library's function of its name, which it calls with its
//! own arguments. Tables of loaded objects are read under the dynamic linker's lock; the dynamic
//! linker itself reads them by the same rules.
#![allow(
    unsafe_code,
    reason = "finds and calls functions of the C library by name"
)]

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::guest::exports;

/// glibc's own flag of `__libc_dlopen_mode`: "opened by the program", as `dlopen` says it.
const BY_PROGRAM: c_int = 1 << 31;

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type TakeError = unsafe extern "C" fn() -> *mut c_char;

/// Defines functions by name and type, with the answer to give where the C library has none.
macro_rules! late {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty, else $missing:expr;)*) => {$(
        /// # Safety
        /// As the C library's function of this name.
        unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            let address = $name::address();
            if address.is_null() {
                return $missing;
            }
            // SAFETY: the C library's function of this name, whose type stands in the list.
            let real = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $answer>(address) };
            // SAFETY: the caller's own promise to the C library's function.
            unsafe { real($($argument),*) }
        }

        mod $name {
            use super::*;

            pub(super) fn address() -> *mut c_void {
                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
                const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
                known(&FOUND, NAME)
            }
        }

        // The name itself: hidden, so that the program's calls stay the C library's.
        global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {ours}",
            #[cfg(target_arch = "aarch64")]
            "b {ours}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".popsection",
            ours = sym $name,
        );
    )*

    /// Finds all of them now. To find one takes the lock that the linker holds while it runs the
    /// constructors of a library, and a constructor may call us.
    pub(crate) fn bind() {
        $($name::address();)*
    }};
}

/// A name with its NUL as a C string.
const fn c_name(with_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a C name holds no NUL"),
    }
}

late! {
    dlopen(name: *const c_char, flags: c_int) -> *mut c_void, else ptr::null_mut();
    dlclose(handle: *mut c_void) -> c_int, else -1;
    dlerror() -> *mut c_char, else ptr::null_mut();
    dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int, else 0;
    dladdr1(
        address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int
    ) -> c_int, else 0;
    pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        main: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void
    ) -> c_int, else libc::EAGAIN;
    pthread_attr_init(attributes: *mut libc::pthread_attr_t) -> c_int, else libc::ENOSYS;
    __pthread_get_minstack(attributes: *const libc::pthread_attr_t) -> usize, else 0;
    pthread_attr_destroy(attributes: *mut libc::pthread_attr_t) -> c_int, else libc::ENOSYS;
    pthread_attr_setdetachstate(attributes: *mut libc::pthread_attr_t, state: c_int) -> c_int,
        else libc::ENOSYS;
    pthread_attr_setstacksize(attributes: *mut libc::pthread_attr_t, bytes: usize) -> c_int,
        else libc::ENOSYS;
    pthread_sigmask(how: c_int, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> c_int,
        else libc::ENOSYS;
    pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int, else libc::ENOSYS;
    pthread_key_create(
        key: *mut libc::pthread_key_t, destructor: Option<unsafe extern "C" fn(*mut c_void)>
    ) -> c_int, else libc::ENOSYS;
    pthread_key_delete(key: libc::pthread_key_t) -> c_int, else libc::ENOSYS;
    pthread_setspecific(key: libc::pthread_key_t, value: *const c_void) -> c_int,
        else libc::ENOSYS;
    pthread_rwlock_rdlock(lock: *mut libc::pthread_rwlock_t) -> c_int, else libc::ENOSYS;
    pthread_rwlock_wrlock(lock: *mut libc::pthread_rwlock_t) -> c_int, else libc::ENOSYS;
    pthread_rwlock_unlock(lock: *mut libc::pthread_rwlock_t) -> c_int, else libc::ENOSYS;
}

/// The address in `cell`, looked up once.
#[inline]
fn known(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cell.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = look_up(name);
    cell.store(found, Ordering::Release);
    found
}

/// Of several definitions the one that a reference to the name would get: the first in the
/// program's order. Where the program has none, the one of the library that older ones keep it in.
#[cold]
fn look_up(name: &CStr) -> *mut c_void {
    let Some(find) = own(c"dlsym") else {
        return ptr::null_mut();
    };
    // SAFETY: `dlsym` of the C library.
    let find: Find = unsafe { core::mem::transmute(find) };
    let threads = [&b"pthread_"[..], b"__pthread_"]
        .iter()
        .any(|prefix| name.to_bytes().starts_with(prefix));
    // Some of the functions for threads stand in an old libc.so.6, too, and do nothing there until
    // the library for threads is loaded.
    let family = if threads { c"pthread_create" } else { name };
    // SAFETY: a special handle and static strings.
    let in_program = |name: &CStr| unsafe { find(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !in_program(family).is_null() {
        return in_program(name);
    }
    let found = if threads {
        // SAFETY: a static string; the library is the C library's.
        let library = own(c"dlopen").map(|open| unsafe {
            core::mem::transmute::<*mut c_void, Open>(open)(
                c"libpthread.so.0".as_ptr(),
                libc::RTLD_NOW,
            )
        });
        // SAFETY: a live handle and a static string.
        let found = library.map(|library| unsafe { find(library, name.as_ptr()) });
        found.unwrap_or(ptr::null_mut())
    } else {
        own(name).unwrap_or(ptr::null_mut())
    };
    // The message of the failed look above is not the program's.
    if let Some(take) = own(c"dlerror") {
        // SAFETY: `dlerror` of the C library.
        unsafe { core::mem::transmute::<*mut c_void, TakeError>(take)() };
    }
    found
}

/// A function of the dynamic linker's in the C library: in `libc.so.6`, in older ones in
/// `libdl.so.2`, which is loaded for that where nothing else has. No function is called where one
/// of the two is loaded that has it, as both are in a program that calls such a function itself.
pub(crate) fn own(name: &CStr) -> Option<*mut c_void> {
    let loaded =
        || exports::find(b"libc.so.6", name).or_else(|| exports::find(b"libdl.so.2", name));
    loaded().or_else(|| {
        let open = exports::find(b"libc.so.6", c"__libc_dlopen_mode")?;
        // SAFETY: a function of glibc's before 2.34 for its own use, unchanged since 2.2: a name
        // and flags.
        let open: Open = unsafe { core::mem::transmute(open) };
        // SAFETY: a static string; the library is the C library's.
        let library = unsafe { open(c"libdl.so.2".as_ptr(), libc::RTLD_NOW | BY_PROGRAM) };
        if library.is_null() { None } else { loaded() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_the_c_librarys() {
        for name in [
            c"dlopen",
            c"dladdr1",
            c"pthread_create",
            c"pthread_attr_init",
        ] {
            // SAFETY: a special handle and a static string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(!expected.is_null());
            assert_eq!(look_up(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_function_that_no_library_has_is_not_found() {
        assert!(look_up(c"dl_of_no_library").is_null());
        assert!(look_up(c"pthread_of_no_library").is_null());
    }

    #[test]
    fn a_failed_look_leaves_no_message() {
        assert!(look_up(c"dl_of_no_library").is_null());
        // SAFETY: no arguments.
        assert!(unsafe { libc::dlerror() }.is_null());
    }
}
