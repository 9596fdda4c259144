//! The driver's own functions: where they are found, and how they are called.
//!
//! [`Slot`] remembers the address of one function. It is filled when a program looks the function up, or on demand from the copy of
//! libcuda.so.1 / libnvidia-ml.so.1 that the program has loaded; this library never loads one.
//!
//! # Safety
//! `unsafe` is here for two things: calls into the dynamic linker with strings that live for ever, and the one cast of an address
//! to a function pointer ([`Slot::get`]), sound because whoever makes the slot names the symbol and its C type together.
#![allow(
    unsafe_code,
    reason = "talks to the dynamic linker and turns addresses into functions"
)]

use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// `dlsym` and the real thing behind ours.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The library a hooked function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The CUDA driver.
    Cuda,
    /// NVML.
    Nvml,
}

impl Library {
    /// The library of a function, by the prefix NVIDIA gives its names.
    pub(crate) const fn of(symbol: &CStr) -> Self {
        match symbol.to_bytes() {
            [b'n', b'v', b'm', b'l', ..] => Self::Nvml,
            _ => Self::Cuda,
        }
    }

    const fn soname(self) -> &'static CStr {
        match self {
            Self::Cuda => c"libcuda.so.1",
            Self::Nvml => c"libnvidia-ml.so.1",
        }
    }

    fn cell(self) -> &'static AtomicPtr<c_void> {
        static CUDA: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        static NVML: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        match self {
            Self::Cuda => &CUDA,
            Self::Nvml => &NVML,
        }
    }

    /// The loaded copy of this library, `None` while the program has none.
    ///
    /// The handle is kept: from then on the library stays mapped, because programs hold our hooks and those hold its addresses.
    fn handle(self) -> Option<*mut c_void> {
        let cell = self.cell();
        let known = cell.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        // SAFETY: the name is a static string; RTLD_NOLOAD loads nothing and runs no constructor.
        let found =
            unsafe { libc::dlopen(self.soname().as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if found.is_null() {
            return None;
        }
        if cell
            .compare_exchange(ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: another thread kept its reference; this one is ours to give back.
            unsafe { libc::dlclose(found) };
        }
        Some(found)
    }

    /// The library's own function of this name, `None` if the library is not loaded or has no such function.
    pub(crate) fn own(self, symbol: &CStr) -> Option<*mut c_void> {
        let (dlsym, handle) = (real_dlsym()?, self.handle()?);
        // SAFETY: the handle is kept for ever, the name is a string.
        let found = unsafe { dlsym(handle, symbol.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// One of the driver's functions. `F` is its C type.
#[derive(Debug)]
pub(crate) struct Slot<F> {
    symbol: &'static CStr,
    address: AtomicPtr<c_void>,
    signature: PhantomData<F>,
}

impl<F: Copy> Slot<F> {
    /// A slot for `symbol`.
    ///
    /// # Safety
    /// `F` must be the function pointer type of the C function `symbol`.
    pub(crate) const unsafe fn new(symbol: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self {
            symbol,
            address: AtomicPtr::new(ptr::null_mut()),
            signature: PhantomData,
        }
    }

    /// The driver's function, `None` if the program has no driver or its driver no such function.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = self.fill()?;
        }
        // SAFETY: the maker of the slot promised that the symbol at this address has type `F`; sizes are equal (see `new`).
        Some(unsafe { core::mem::transmute_copy(&address) })
    }

    #[cold]
    fn fill(&self) -> Option<*mut c_void> {
        let found = Library::of(self.symbol).own(self.symbol)?;
        self.address.store(found, Ordering::Release);
        Some(found)
    }
}

/// The `dlsym` of the C library, found without using `dlsym`. `None` only where no known version of it exists.
pub(crate) fn real_dlsym() -> Option<Dlsym> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut address = REAL.load(Ordering::Acquire);
    if address.is_null() {
        address = find_dlsym()?;
        REAL.store(address, Ordering::Release);
    }
    // SAFETY: the address is that of a function named `dlsym` with a version only the C library gives.
    Some(unsafe { core::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// glibc 2.34 moved `dlsym` from libdl to libc and gave it a second version; older ones know only the first.
const DLSYM_VERSIONS: [&CStr; 2] = [
    c"GLIBC_2.34",
    if cfg!(target_arch = "aarch64") {
        c"GLIBC_2.17"
    } else {
        c"GLIBC_2.2.5"
    },
];

#[cold]
fn find_dlsym() -> Option<*mut c_void> {
    DLSYM_VERSIONS.iter().find_map(|version| {
        // SAFETY: static strings; RTLD_NEXT from here means the libraries loaded after this one, the C library among them.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        (!found.is_null() && !ptr::eq(found, crate::dlsym::dlsym as *const c_void)).then_some(found)
    })
}
