//! The attributes of the functions in a compiled image: an ELF file with NVIDIA's sections (cubin).
//! Other images (PTX, fat binaries, any bytes) have none.
//!
//! The sections were read from files that ptxas 12.9 made for compute capability 9.0, and compared
//! with the values that ptxas reports.

use std::collections::{BTreeMap, HashMap};

use gpushare_cuda_abi::cuda::CUfunction_attribute as Attribute;

/// Entries of `.nv.info` with a function's symbol and a number: registers, bytes of the stack.
const REGISTERS: u8 = 0x2f;
const FRAME: u8 = 0x11;
/// The format of an entry that has a length.
const SIZED: u8 = 4;
/// Shared memory of each block that the system takes where an image has a section for it (bytes).
const RESERVED: u64 = 1 << 10;
/// Sizes of a file header, a section header and a symbol.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// Attributes of functions, by the functions' names.
#[derive(Debug, Default)]
pub struct Image(HashMap<String, BTreeMap<u32, i32>>);

/// How long an ELF file is whose header this is: as far as its tables reach. `None` for anything
/// else.
pub fn length(header: &[u8; HEADER]) -> Option<usize> {
    let file = File(header);
    if !header.starts_with(b"\x7fELF\x02\x01") || file.number(18, 2)? != 190 {
        return None;
    }
    let end = |at: usize, size: usize, count: usize| {
        let bytes = file.number(size, 2)?.checked_mul(file.number(count, 2)?)?;
        file.number(at, 8)?.checked_add(bytes)
    };
    usize::try_from(end(32, 54, 56)?.max(end(40, 58, 60)?)).ok()
}

/// The bytes of a file.
struct File<'a>(&'a [u8]);

/// One section.
struct Section<'a> {
    name: String,
    bytes: &'a [u8],
    size: u64,
}

impl<'a> File<'a> {
    fn part(&self, at: u64, len: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        self.0.get(at..at.checked_add(usize::try_from(len).ok()?)?)
    }

    /// A little-endian number of `len` bytes.
    fn number(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.0.get(at..at.checked_add(len)?)?;
        let digit = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(bytes.iter().rev().fold(0, digit))
    }

    fn text(&self, at: u64) -> Option<String> {
        let rest = self.0.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
    }

    fn sections(&self) -> Option<Vec<Section<'a>>> {
        let (table, count) = (self.number(40, 8)?, self.number(60, 2)?);
        let header = |index: u64| {
            let at = table.checked_add(index.checked_mul(SECTION as u64)?)?;
            Some(File(self.part(at, SECTION as u64)?))
        };
        let names = header(self.number(62, 2)?)?.number(24, 8)?;
        let section = |index| {
            let header = header(index)?;
            let (kind, size) = (header.number(4, 4)?, header.number(32, 8)?);
            // A section without bytes in the file (NOBITS) has a size only.
            let bytes = if kind == 8 {
                &[]
            } else {
                self.part(header.number(24, 8)?, size)?
            };
            let name = self.text(names.checked_add(header.number(0, 4)?)?)?;
            Some(Section { name, bytes, size })
        };
        (0..count).map(section).collect()
    }
}

/// The names of symbols, by number.
fn symbols(sections: &[Section<'_>]) -> Option<Vec<String>> {
    let find = |name| sections.iter().find(|section| section.name == name);
    let (table, names) = (find(".symtab")?, File(find(".strtab")?.bytes));
    let name = |symbol: &[u8]| names.text(File(symbol).number(0, 4)?);
    table.bytes.chunks_exact(SYMBOL).map(name).collect()
}

impl Image {
    /// Reads an image.
    pub fn read(bytes: &[u8]) -> Self {
        let header = bytes.first_chunk::<HEADER>();
        let file = header.and_then(length).and(Some(File(bytes)));
        file.and_then(|file| Self::of(&file)).unwrap_or_default()
    }

    fn of(file: &File<'_>) -> Option<Self> {
        let sections = file.sections()?;
        let names = symbols(&sections)?;
        let mut functions: HashMap<String, BTreeMap<u32, i32>> = HashMap::new();
        let mut say = |name: &str, attribute: Attribute, value: u64| {
            let value = i32::try_from(value).unwrap_or(i32::MAX);
            let known = functions.entry(name.to_owned()).or_default();
            known.insert(attribute.0, value);
        };
        let size_of = |name: &str| {
            let found = sections.iter().find(|section| section.name == name);
            found.map_or(0, |section| section.size)
        };
        let reserves = |section: &Section<'_>| section.name.starts_with(".nv.shared.reserved.");
        let reserved = if sections.iter().any(reserves) {
            RESERVED
        } else {
            0
        };
        for section in &sections {
            let Some(function) = section.name.strip_prefix(".text.") else {
                continue;
            };
            let shared = size_of(&format!(".nv.shared.{function}"));
            say(
                function,
                Attribute::SHARED_SIZE_BYTES,
                shared.saturating_sub(reserved),
            );
            say(
                function,
                Attribute::CONST_SIZE_BYTES,
                size_of(".nv.constant3"),
            );
        }
        let info = sections.iter().find(|section| section.name == ".nv.info");
        let mut rest = info.map_or(&[][..], |section| section.bytes);
        while let Some((entry, after)) = rest.split_first_chunk::<4>() {
            let entry = File(entry);
            let (format, kind) = (entry.number(0, 1)?, entry.number(1, 1)?);
            let length = if format == u64::from(SIZED) {
                entry.number(2, 2)?
            } else {
                0
            };
            let (value, next) = after.split_at_checked(usize::try_from(length).ok()?)?;
            rest = next;
            let attribute = match u8::try_from(kind) {
                Ok(REGISTERS) => Attribute::NUM_REGS,
                Ok(FRAME) => Attribute::LOCAL_SIZE_BYTES,
                _ => continue,
            };
            let symbol = usize::try_from(File(value).number(0, 4)?).ok()?;
            say(names.get(symbol)?, attribute, File(value).number(4, 4)?);
        }
        Some(Self(functions))
    }

    /// The attributes of a function; empty for an unknown one.
    pub(super) fn attributes(&self, function: &str) -> BTreeMap<u32, i32> {
        self.0.get(function).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image that ptxas 12.9 made of one kernel, `busy`, for compute capability 9.0. ptxas
    /// reported 14 registers, 4000 bytes of stack, 400 bytes of shared memory. The source has 80
    /// bytes of constants.
    const CUBIN: &[u8] = include_bytes!("image.cubin");

    #[test]
    fn an_image_says_what_its_compiler_said() {
        let told = Image::read(CUBIN).attributes("busy");
        let wanted = [
            (Attribute::NUM_REGS, 14),
            (Attribute::LOCAL_SIZE_BYTES, 4000),
            (Attribute::SHARED_SIZE_BYTES, 400),
            (Attribute::CONST_SIZE_BYTES, 80),
        ];
        assert_eq!(told, wanted.map(|(of, value)| (of.0, value)).into());
        assert!(Image::read(CUBIN).attributes("idle").is_empty());
    }

    #[test]
    fn a_file_is_as_long_as_its_tables_reach() {
        assert_eq!(length(CUBIN.first_chunk().unwrap()), Some(CUBIN.len()));
        assert_eq!(length(&[0; HEADER]), None);
    }

    #[test]
    fn torn_and_changed_images_are_read_without_harm() {
        for end in 0..CUBIN.len() {
            Image::read(&CUBIN[..end]);
        }
        for at in 0..CUBIN.len() {
            for value in [0, 0x7f, 0xff] {
                let mut changed = CUBIN.to_vec();
                changed[at] = value;
                Image::read(&changed);
            }
        }
        assert!(Image::read(b".version 7.8").attributes("busy").is_empty());
    }
}
