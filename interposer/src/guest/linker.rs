//! Questions to the dynamic linker: which object holds an address, and in which order objects are
//! searched.
//!
//! # Safety
//! The structures are glibc's public ones (`link.h`, `dlfcn.h`), and `dladdr1` has the type of the
//! C library's. What belongs to an object is read under the linker's own lock, or where the object
//! cannot go away because its code is on the stack. Any other object may be unloaded by another
//! thread at any moment.
#![allow(unsafe_code, reason = "talks to the dynamic linker")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::ffi::CString;

/// `RTLD_DL_LINKMAP` of `dlfcn.h`: ask `dladdr1` for the object itself.
const LINK_MAP: c_int = 2;

// SAFETY: the type is that of `dlfcn.h`.
unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// The public part of glibc's `struct link_map`.
#[repr(C)]
pub(super) struct LinkMap {
    /// What is added to the addresses in its file.
    pub(super) base: usize,
    name: *const c_char,
    /// Its dynamic section.
    pub(super) dynamic: *const c_void,
    /// The object loaded after it.
    pub(super) next: *const Self,
    _previous: *const Self,
}

impl LinkMap {
    /// Whether its file has this name.
    pub(super) fn is_called(&self, file: &[u8]) -> bool {
        if self.name.is_null() {
            return false;
        }
        // SAFETY: a C string of the linker's, which lives as long as the object.
        let path = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        path.rsplit(|byte| *byte == b'/').next() == Some(file)
    }
}

/// A loaded object. Not counted: it is valid as long as another owner keeps it loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object(*const LinkMap);

impl Object {
    /// The object that holds this address.
    pub(crate) fn of(address: *const c_void) -> Option<Self> {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
        let mut map = ptr::null_mut();
        // SAFETY: both results are written to before use; the address is only compared with those
        // of the objects.
        let found = unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut map, LINK_MAP) };
        (found != 0 && !map.is_null()).then_some(Self(map.cast()))
    }

    /// The name of the file that an object was loaded from; empty for the program.
    ///
    /// # Safety
    /// The object stays loaded meanwhile.
    unsafe fn name(self) -> CString {
        // SAFETY: the caller's promise.
        let name = unsafe { (*self.0).name };
        if name.is_null() {
            return CString::default();
        }
        // SAFETY: a C string of the linker's, which lives as long as the object.
        unsafe { CStr::from_ptr(name) }.to_owned()
    }
}

/// The object whose code makes the call that this thread is in, and so cannot be unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(Object);

impl Caller {
    /// By the address that its call returns to.
    ///
    /// # Safety
    /// The thread returns there.
    pub(crate) unsafe fn of(address: *const c_void) -> Option<Self> {
        Object::of(address).map(Self)
    }

    /// The object.
    pub(crate) fn object(self) -> Object {
        self.0
    }

    /// It as a handle for `dlsym`: itself and its dependencies. (A `link_map` by itself is none:
    /// glibc gives an object a search list of its own only when it is opened.)
    pub(crate) fn open(self) -> Option<Scope> {
        // SAFETY: its code is on the stack.
        open(&unsafe { self.0.name() })
    }
}

/// The loaded object of this name as a handle for `dlsym`, which keeps it loaded; the program if it
/// is empty.
fn open(name: &CStr) -> Option<Scope> {
    let name = if name.is_empty() {
        ptr::null()
    } else {
        name.as_ptr()
    };
    // SAFETY: a C string or null; RTLD_NOLOAD loads nothing.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // Not `then_some`: what that drops would be closed.
    (!handle.is_null()).then(|| Scope(handle))
}

/// A counted handle.
#[derive(Debug)]
pub(crate) struct Scope(*mut c_void);

impl Scope {
    /// The handle, good while this value lives.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once. Where all other owners have closed the object
        // meanwhile, its destructors run here: in a call of the program's to `dlsym`, outside all
        // locks of this library.
        unsafe { libc::dlclose(self.0) };
    }
}

/// Drops the message of a failed look of ours, so that `dlerror` says nothing after an answer.
pub(crate) fn forget_error() {
    // SAFETY: no arguments; the returned text is not used.
    unsafe { libc::dlerror() };
}

/// True if the object that holds `address` was loaded before this library, so that its `RTLD_NEXT`
/// can find ours.
pub(crate) fn precedes_us(address: *const c_void) -> bool {
    let mut search = Search {
        address: address.addr() as u64,
        ours: (visit as *const c_void).addr() as u64,
        met: None,
    };
    // SAFETY: the callback keeps to its contract, the data outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.met == Some(Met::Address)
}

/// An object that was loaded when it was looked for. It may be gone.
#[derive(Debug)]
pub(crate) struct Loaded {
    name: CString,
    address: *const c_void,
}

impl Loaded {
    /// It as a handle for `dlsym`, and where it is, for as long as the handle lives; `None` if it
    /// is gone.
    pub(crate) fn open(&self) -> Option<(Scope, Object)> {
        if self.name.is_empty() {
            return None;
        }
        let scope = open(&self.name)?;
        Some((scope, Object::of(self.address)?))
    }
}

/// The objects that were loaded after the one that holds `address`, in that order.
pub(crate) fn behind(address: *const c_void) -> Vec<Loaded> {
    let mut search = ObjectsAfter {
        address: address.addr() as u64,
        met: false,
        found: Vec::new(),
    };
    // SAFETY: the callback keeps to its contract, the data outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(follow), (&raw mut search).cast()) };
    search.found
}

struct ObjectsAfter {
    address: u64,
    met: bool,
    found: Vec<Loaded>,
}

/// Records the objects behind the one that holds the address.
///
/// # Safety
/// The linker calls it, for [`behind`].
unsafe extern "C" fn follow(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker hands out a valid description; `data` is the `ObjectsAfter` of `behind`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<ObjectsAfter>()) };
    // SAFETY: the object's own program headers, as many as it says.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let mut loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD)
        .map(|header| (info.dlpi_addr.wrapping_add(header.p_vaddr), header.p_memsz));
    if search.met {
        let first = loaded
            .next()
            .and_then(|(from, _)| usize::try_from(from).ok());
        let name = if info.dlpi_name.is_null() {
            CString::default()
        } else {
            // SAFETY: a C string of the linker's, which is locked meanwhile.
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned()
        };
        let address = first.map(ptr::without_provenance::<c_void>);
        search
            .found
            .extend(address.map(|address| Loaded { name, address }));
    } else {
        search.met = loaded.any(|(from, bytes)| search.address.wrapping_sub(from) < bytes);
    }
    0
}

#[derive(PartialEq)]
enum Met {
    Address,
    Us,
}

struct Search {
    address: u64,
    ours: u64,
    met: Option<Met>,
}

/// Stops at the first object that holds one of the two addresses.
///
/// # Safety
/// The linker calls it, for [`precedes_us`].
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker hands out a valid description; `data` is the `Search` of `precedes_us`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    // SAFETY: the object's own program headers, as many as it says.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let holds = |address: u64| {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .any(|header| {
                address.wrapping_sub(info.dlpi_addr.wrapping_add(header.p_vaddr)) < header.p_memsz
            })
    };
    search.met = if holds(search.address) {
        Some(Met::Address)
    } else if holds(search.ours) {
        Some(Met::Us)
    } else {
        return 0;
    };
    1
}

/// Whether an object is loaded whose file has this name, or begins with it and a dot (a version
/// follows).
pub(crate) fn has(name: &[u8]) -> bool {
    let mut search = (name, false);
    // SAFETY: the callback keeps to its contract, the data outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit_named), (&raw mut search).cast()) };
    search.1
}

/// Stops at the first object of that name.
///
/// # Safety
/// The linker calls it, for [`has`].
unsafe extern "C" fn visit_named(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker hands out a valid description; `data` is the search of `has`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<(&[u8], bool)>()) };
    if !info.dlpi_name.is_null() {
        // SAFETY: a C string of the linker's, which is locked meanwhile.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let rest = file.strip_prefix(search.0);
        search.1 = rest.is_some_and(|rest| matches!(rest, [] | [b'.', ..]));
    }
    c_int::from(search.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_its_file_name_with_and_without_a_version() {
        assert!(has(b"libc.so.6"));
        assert!(has(b"libc.so"));
        assert!(has(b"libc"));
        for name in [&b"libc.s"[..], b"libc.so.7", b"ibc.so.6", b"libc10_cuda.so"] {
            assert!(!has(name), "{name:?}");
        }
    }
}
