//! The exports of a loaded library, read from its own tables: for the functions with which the
//! dynamic linker would be asked.
//!
//! # Safety
//! The structures are those of the ELF format. They are read while the dynamic linker keeps the
//! library loaded, by the addresses and counts that the library's own tables give.
#![allow(unsafe_code, reason = "reads tables of loaded libraries")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use crate::guest::linker::LinkMap;

/// A table of a library's: `Elf64_Dyn`.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

const END: i64 = 0;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const GNU_HASH: i64 = 0x6fff_fef5;

/// The type of a symbol that is a function, in the lower half of its byte.
const FUNCTION: u8 = 2;

/// What the dynamic linker shows to debuggers: the beginning of glibc's `struct r_debug`.
#[repr(C)]
struct Debug {
    _version: c_int,
    objects: *const LinkMap,
}

// SAFETY: the dynamic linker defines a variable of this name and type (`link.h`) in every process.
unsafe extern "C" {
    #[link_name = "_r_debug"]
    static LINKER: Debug;
}

/// The address of the function of this name that the loaded library of this file name defines. Of
/// several versions of a name, any.
///
/// No function is called for that: other libraries wrap those with which the linker would be asked,
/// and a sanitizer's runtime calls `dlsym` before its own may be called. The list is read without
/// the linker's lock. The C library's parts stand in it before all that may be unloaded: whatever
/// unloads has loaded them.
pub(crate) fn find(file: &[u8], function: &CStr) -> Option<*mut c_void> {
    // SAFETY: a variable of the dynamic linker's, set before any other code runs.
    let mut next = unsafe { (&raw const LINKER.objects).read() };
    loop {
        // SAFETY: null, or an object of the list.
        let object = unsafe { next.as_ref() }?;
        if object.is_called(file) {
            return Tables::of(object.base, object.dynamic.expose_provenance())?.find(function);
        }
        next = object.next;
    }
}

/// An address of this process; both are 64 bits wide here.
fn address(value: u64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Where a library's tables are.
struct Tables {
    base: usize,
    strings: usize,
    symbols: usize,
    hash: usize,
}

/// A value of a type that has no invalid values, at an address of a table.
///
/// # Safety
/// The table belongs to an object that stays loaded, and has so many bytes behind `at`, which is
/// aligned for `T`.
unsafe fn read<T: Copy>(at: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { ptr::with_exposed_provenance::<T>(at).read() }
}

impl Tables {
    /// Those that the dynamic section at this address names; `None` if one is missing.
    fn of(base: usize, dynamic: usize) -> Option<Self> {
        let (mut strings, mut symbols, mut hash) = (None, None, None);
        let mut entry = ptr::with_exposed_provenance::<Entry>(dynamic);
        loop {
            // SAFETY: the section ends with an entry of its own.
            let Entry { tag, value } = unsafe { entry.read() };
            // glibc stores addresses here; where it did not, it is the place in the file.
            let place = Some(if value < base {
                base.wrapping_add(value)
            } else {
                value
            });
            match tag {
                END => break,
                STRINGS => strings = place,
                SYMBOLS => symbols = place,
                GNU_HASH => hash = place,
                _ => {}
            }
            // SAFETY: not the last one.
            entry = unsafe { entry.add(1) };
        }
        Some(Self {
            base,
            strings: strings?,
            symbols: symbols?,
            hash: hash?,
        })
    }

    /// By the library's table of hashes.
    fn find(&self, function: &CStr) -> Option<*mut c_void> {
        // SAFETY: the table begins with four numbers.
        let [buckets, first, bloom, _]: [u32; 4] = unsafe { read(self.hash) };
        let word = size_of::<u32>();
        let table = self.hash + 4 * word + bloom as usize * size_of::<usize>();
        let chains = table + buckets as usize * word;
        let wanted = hash(function);
        if buckets == 0 {
            return None;
        }
        // SAFETY: one of the buckets.
        let mut index: u32 = unsafe { read(table + (wanted % buckets) as usize * word) };
        if index < first {
            return None;
        }
        loop {
            // SAFETY: a chain has an entry for each symbol of its bucket.
            let met: u32 = unsafe { read(chains + (index - first) as usize * word) };
            if (met | 1) == (wanted | 1)
                && let Some(found) = self.symbol(index, function)
            {
                return Some(found);
            }
            if met & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }

    /// The symbol of this index, if it is a function of this name.
    fn symbol(&self, index: u32, function: &CStr) -> Option<*mut c_void> {
        let at = self.symbols + index as usize * size_of::<libc::Elf64_Sym>();
        // SAFETY: the table of hashes names symbols of this table only.
        let symbol: libc::Elf64_Sym = unsafe { read(at) };
        let name = self.strings + symbol.st_name as usize;
        // SAFETY: a C string of the table of strings.
        let name = unsafe { CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(name)) };
        let defined = symbol.st_shndx != 0 && symbol.st_info & 0xf == FUNCTION;
        let value = self.base.wrapping_add(address(symbol.st_value));
        (defined && name == function).then(|| ptr::with_exposed_provenance_mut(value))
    }
}

/// The hash of a name in a library's table.
fn hash(name: &CStr) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.to_bytes().iter().fold(5381, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_where_the_linker_says() {
        for name in [c"malloc", c"dl_iterate_phdr", c"getenv", c"environ"] {
            // SAFETY: a special handle and a static string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // A variable is no function.
            let expected = (name != c"environ").then_some(expected);
            assert_eq!(find(b"libc.so.6", name), expected, "{name:?}");
        }
    }

    #[test]
    fn what_a_library_does_not_define_is_not_found() {
        assert_eq!(find(b"libc.so.6", c"no_such_function"), None);
        assert_eq!(find(b"libc.so.6", c""), None);
        assert_eq!(find(b"libno.so.1", c"malloc"), None);
    }
}
