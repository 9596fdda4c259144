//! The driver's own functions: where they are found, and how they are called.
//!
//! [`Slot`] remembers the address of one function. It is filled when a program looks the function
//! up, or on demand from the copy of libcuda.so.1 / libnvidia-ml.so.1 that the program has loaded;
//! this library loads NVML itself only where a process died with memory charged ([`load_nvml`]).
//!
//! # Safety
//! `unsafe` is here for two things: calls into the dynamic linker with strings that live for ever,
//! and the one cast of an address to a function pointer ([`Slot::get`]), sound because the code
//! that makes the slot names the symbol and its C type together.
#![allow(
    unsafe_code,
    reason = "talks to the dynamic linker and turns addresses into functions"
)]

use core::cmp;
use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};
use gpushare_cuda_abi::nvml::nvmlReturn_t;
use gpushare_cuda_abi::symbols;

use crate::guest::{late, linker};

/// A C status code that says that the driver has no such function.
pub(crate) trait Missing {
    /// It.
    const MISSING: Self;
}

impl Missing for CUresult {
    const MISSING: Self = Self::NOT_FOUND;
}

impl Missing for nvmlReturn_t {
    const MISSING: Self = Self::FUNCTION_NOT_FOUND;
}

/// A name with its NUL as a C string, for the macros of this crate.
pub(crate) const fn c_name(with_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a C name holds no NUL"),
    }
}

/// The type of `dlsym`, and of the function behind our hook.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The type of `dlvsym`, and of the function behind our hook.
pub(crate) type Dlvsym =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The library a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The CUDA driver.
    Cuda,
    /// NVML.
    Nvml,
}

impl Library {
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
    /// The handle is kept: from then on the library stays mapped, because programs hold our hooks
    /// and those hold its addresses.
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

    /// Loads the library, which stays for the life of the process, because unloading a driver's
    /// library is asking for trouble. `false` if there is none.
    fn load(self) -> bool {
        // SAFETY: a static string; the constructors are those that the program itself would run.
        let handle = unsafe { libc::dlopen(self.soname().as_ptr(), libc::RTLD_LAZY) };
        if handle.is_null() {
            linker::forget_error();
        }
        !handle.is_null()
    }

    /// The library's own function of this name, `None` if the library is not loaded or has no such
    /// function.
    fn own(self, symbol: &CStr) -> Option<*mut c_void> {
        let (dlsym, handle) = (real_dlsym()?, self.handle()?);
        // SAFETY: the handle is kept for ever, the name is a string.
        let found = unsafe { dlsym(handle, symbol.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// Has NVML in the process. `false` if there is none.
pub(crate) fn load_nvml() -> bool {
    Library::Nvml.load()
}

/// Addresses of the driver's functions by row of the symbol table, null while unknown.
static CUDA: [AtomicPtr<c_void>; symbols::CUDA.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; symbols::CUDA.len()];
/// The same for NVML.
static NVML: [AtomicPtr<c_void>; symbols::NVML.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; symbols::NVML.len()];

/// By rank: whether the library has been seen not to export the function, so that it is not looked
/// for again.
static LACKED: [AtomicBool; RANKS] = [const { AtomicBool::new(false) }; RANKS];

/// How many symbols both tables have.
pub(crate) const RANKS: usize = CUDA_RANKS + symbols::NVML.len();
/// How many that of the driver has. A number of its own: a program would have to load a table that
/// is read for it.
const CUDA_RANKS: usize = symbols::CUDA.len();

/// Room for the longest symbol that is hooked or called, and the zero behind it.
const LONGEST: usize = 56;

/// One function of the symbol table, and its real address once that is known. It holds no pointer,
/// which the dynamic linker would have to adjust in each program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The exact symbol, suffixes and all, and zeros behind it.
    symbol: [u8; LONGEST],
    length: usize,
    library: Library,
    index: usize,
}

impl Row {
    /// The row of `symbol`; at compile time, where a symbol that the table does not have is an
    /// error. The tables are in byte order: to read them from the beginning for each function took
    /// a third of the crate's compilation.
    pub(crate) const fn of(symbol: &'static CStr) -> Self {
        let (name, mut from, mut to) = (symbol.to_bytes(), 0, symbols::CUDA.len());
        while from < to {
            let middle = (from + to) / 2;
            match order(symbols::CUDA[middle].name.as_bytes(), name) {
                cmp::Ordering::Less => from = middle + 1,
                cmp::Ordering::Equal => return Self::at(symbol, Library::Cuda, middle),
                cmp::Ordering::Greater => to = middle,
            }
        }
        (from, to) = (0, symbols::NVML.len());
        while from < to {
            let middle = (from + to) / 2;
            match order(symbols::NVML[middle].name.as_bytes(), name) {
                cmp::Ordering::Less => from = middle + 1,
                cmp::Ordering::Equal => return Self::at(symbol, Library::Nvml, middle),
                cmp::Ordering::Greater => to = middle,
            }
        }
        panic!("not in the symbol table")
    }

    const fn at(symbol: &'static CStr, library: Library, index: usize) -> Self {
        Self {
            symbol: inline(symbol),
            length: symbol.to_bytes().len(),
            library,
            index,
        }
    }

    /// The place of the symbol among those of both tables in byte order, below [`RANKS`].
    pub(crate) const fn rank(&self) -> usize {
        match self.library {
            Library::Cuda => self.index,
            Library::Nvml => CUDA_RANKS + self.index,
        }
    }

    /// The exact symbol.
    pub(crate) const fn name(&self) -> &[u8] {
        self.symbol.split_at(self.length).0
    }

    /// The exact symbol, as C has it.
    pub(crate) fn symbol(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.symbol).unwrap_or(c"")
    }

    #[inline(always)]
    fn cell(&self) -> &'static AtomicPtr<c_void> {
        match self.library {
            Library::Cuda => &CUDA[self.index],
            Library::Nvml => &NVML[self.index],
        }
    }

    /// The driver's function, `None` if the program has no driver or its driver no such function.
    #[inline]
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let known = self.cell().load(Ordering::Acquire);
        if known.is_null() {
            self.fill()
        } else {
            Some(known)
        }
    }

    #[cold]
    fn fill(&self) -> Option<*mut c_void> {
        if LACKED[self.rank()].load(Ordering::Relaxed) {
            return None;
        }
        let found = self.library.own(self.symbol())?;
        self.cell().store(found, Ordering::Release);
        Some(found)
    }

    /// Learns the address from an answer of the driver itself, for a function that it does not
    /// export.
    pub(crate) fn offer(&self, address: *mut c_void) {
        if self.address().is_none() {
            self.cell().store(address, Ordering::Release);
        }
    }
}

/// Finds these functions of one library now, where the program has it. To find one takes the lock
/// that the linker holds while it runs the constructors of a library. A constructor may call the
/// driver and wait for another thread's step, which so must need no function that is not found yet.
pub(crate) fn bind(rows: &[Row]) {
    let loaded = |row: &Row| row.library.handle().is_some();
    let mut failed = !rows.first().is_some_and(loaded);
    if !failed {
        for row in rows.iter().filter(|row| row.address().is_none()) {
            LACKED[row.rank()].store(true, Ordering::Relaxed);
            failed = true;
        }
    }
    if failed {
        linker::forget_error();
    }
}

/// The text of a symbol with zeros behind it.
const fn inline(symbol: &CStr) -> [u8; LONGEST] {
    let (bytes, mut text, mut at) = (symbol.to_bytes(), [0; LONGEST], 0);
    assert!(
        bytes.len() < LONGEST,
        "a longer symbol than there is room for"
    );
    while at < bytes.len() {
        text[at] = bytes[at];
        at += 1;
    }
    text
}

/// The byte order of two names.
const fn order(a: &[u8], b: &[u8]) -> cmp::Ordering {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return if a[i] < b[i] {
                cmp::Ordering::Less
            } else {
                cmp::Ordering::Greater
            };
        }
        i += 1;
    }
    if a.len() < b.len() {
        cmp::Ordering::Less
    } else if a.len() > b.len() {
        cmp::Ordering::Greater
    } else {
        cmp::Ordering::Equal
    }
}

/// One of the driver's functions with its C type `F`.
#[derive(Debug)]
pub(crate) struct Slot<F> {
    row: Row,
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
            row: Row::of(symbol),
            signature: PhantomData,
        }
    }

    /// The driver's function if its address has been needed before.
    #[inline(always)]
    pub(crate) fn known(&self) -> Option<F> {
        let address = self.row.cell().load(Ordering::Acquire);
        // SAFETY: as in `get`.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
    }

    /// The driver's function, `None` if the program has no driver or its driver no such function.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        // Not by `address`: the compiler would make two tests of one.
        self.known().or_else(|| {
            let address = self.row.fill()?;
            // SAFETY: the maker of the slot promised that the symbol at this address has type `F`;
            // sizes are equal (see `new`).
            Some(unsafe { core::mem::transmute_copy(&address) })
        })
    }

    /// As [`get`](Self::get), for a call of the program. A call that comes while the library is not
    /// loaded was meant for a stub of the program's own, which would have loaded it: the linker
    /// found our function of that name first.
    #[inline]
    pub(crate) fn called(&self) -> Option<F> {
        self.get().or_else(|| self.load())
    }

    #[cold]
    fn load(&self) -> Option<F> {
        let library = self.row.library;
        let is_new = library.handle().is_none() && library.load();
        is_new.then(|| self.get()).flatten()
    }
}

/// Where an exported function goes on: one of its own functions of C type `F`.
#[derive(Debug)]
pub(crate) struct Jump<F> {
    to: AtomicPtr<c_void>,
    signature: PhantomData<F>,
}

impl<F: Copy> Jump<F> {
    /// To the function at `address` at first.
    ///
    /// # Safety
    /// `address` must be that of a function of type `F`.
    pub(crate) const unsafe fn new(address: *const c_void) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self {
            to: AtomicPtr::new(address.cast_mut()),
            signature: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        let address = self.to.load(Ordering::Acquire);
        // SAFETY: a function of this type, by `new` and `set`; sizes are equal.
        unsafe { core::mem::transmute_copy(&address) }
    }

    /// To `function` from now on. It sees what was stored before.
    pub(crate) fn set(&self, function: F) {
        // SAFETY: sizes are equal.
        let address: *mut c_void = unsafe { core::mem::transmute_copy(&function) };
        self.to.store(address, Ordering::Release);
    }
}

/// The `dlsym` of the C library. `None` only where that has none.
///
/// It is read from the C library's tables and not asked for by name and version: where the version
/// is missing, as that of glibc 2.34 is in older ones, the linker makes a message, for which it
/// calls `malloc`, and another library's `malloc` may call `dlsym` for the next one.
pub(crate) fn real_dlsym() -> Option<Dlsym> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let address = of_the_c_library(&REAL, c"dlsym")?;
    // SAFETY: the address is that of the C library's function of this name.
    Some(unsafe { core::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// The `dlvsym` of the C library.
pub(crate) fn real_dlvsym() -> Option<Dlvsym> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let address = of_the_c_library(&REAL, c"dlvsym")?;
    // SAFETY: the address is that of the C library's function of this name.
    Some(unsafe { core::mem::transmute::<*mut c_void, Dlvsym>(address) })
}

fn of_the_c_library(cell: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut address = cell.load(Ordering::Acquire);
    if address.is_null() {
        address = late::own(name)?;
        cell.store(address, Ordering::Release);
    }
    Some(address)
}

/// The current context of a program's thread that is about to launch: none of this library's own
/// asks here. `None` where the driver does not say.
#[inline(always)]
pub(crate) fn launching_context() -> Option<CUcontext> {
    static SLOT: Slot<unsafe extern "C" fn(*mut CUcontext) -> CUresult> =
        // SAFETY: the type is the C function's, spelled next to its name.
        unsafe { Slot::new(c"cuCtxGetCurrent") };
    let real = SLOT.known()?;
    let mut context = CUcontext::NULL;
    // SAFETY: the pointer is to a local that outlives the call.
    unsafe { real(&raw mut context) }.ok().ok()?;
    Some(context)
}
