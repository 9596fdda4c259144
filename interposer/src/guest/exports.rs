//! The exports of a loaded library, read from its own tables: for the functions with which the
//! dynamic linker would be asked.
//!
//! # Safety
//! The structures are those of the ELF format. They are read while the dynamic linker keeps the
//! library loaded, by the addresses and counts that the library's own headers give.
#![allow(unsafe_code, reason = "reads tables of loaded libraries")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

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

/// The address of the function of this name that the loaded library of this file name defines. Of
/// several versions of a name, any.
pub(crate) fn find(file: &[u8], function: &CStr) -> Option<*mut c_void> {
    let mut search = Search {
        file,
        function,
        found: None,
    };
    // SAFETY: the callback keeps to its contract, the data outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search<'a> {
    file: &'a [u8],
    function: &'a CStr,
    found: Option<*mut c_void>,
}

/// Stops at the library.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker hands out a valid description; `data` is the `Search` of `find`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search<'_>>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a C string of the linker's, which is locked meanwhile.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if path.rsplit(|byte| *byte == b'/').next() != Some(search.file) {
        return 0;
    }
    // SAFETY: the library's own program headers, as many as it says.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    let base = address(info.dlpi_addr);
    search.found = dynamic.and_then(|header| {
        let tables = Tables::of(base, base.wrapping_add(address(header.p_vaddr)))?;
        tables.find(search.function)
    });
    1
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
unsafe fn read<T: Copy>(at: usize) -> T {
    // SAFETY: the caller's promise; tables are aligned.
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
