//! The content of an image: attributes and parameters of its functions, and its variables. A
//! compiled image is an ELF file with NVIDIA's sections (cubin). A PTX module is parsed wholly, and
//! its kernels run ([`program`](super::program)). Other images (fat binaries, any bytes) say
//! nothing.
//!
//! The sections were read from files that ptxas 12.9 made for compute capability 9.0, and compared
//! with the values that ptxas reports.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUfunction_attribute as Attribute, CUresult};

use super::header::is_ptx;
use super::variables::Variable;
use crate::error::Result;

/// Entries of `.nv.info` with a function's symbol and a number: registers, bytes of the stack.
const REGISTERS: u8 = 0x2f;
const FRAME: u8 = 0x11;
/// Entries of a function's own `.nv.info.NAME`: a parameter's index, offset and size; the most
/// threads of a block; the threads that a block must have.
const PARAM: u8 = 0x17;
const MAX_THREADS: u8 = 0x05;
const REQUIRED_THREADS: u8 = 0x10;
/// The format of an entry that has a length.
const SIZED: u8 = 4;
/// Shared memory of each block that the system takes where an image has a section for it (bytes).
const RESERVED: u64 = 1 << 10;
/// Sizes of a file header, a section header and a symbol.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// An image's functions, by their names, and its variables.
#[derive(Debug, Default)]
pub struct Image {
    functions: HashMap<String, Told>,
    variables: Vec<Variable>,
    /// The module of a PTX text, or why the text is none.
    text: Option<std::result::Result<Arc<softgpu_ptx::Module>, String>>,
    /// No kernel of it calls device `malloc`, as far as that is known.
    never_allocates: bool,
}

/// An image's facts about one function.
#[derive(Debug, Default)]
struct Told {
    attributes: BTreeMap<u32, i32>,
    /// Offset and size of each parameter.
    params: Vec<(usize, usize)>,
}

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
    align: u64,
}

/// One entry of a table of symbols.
struct Symbol {
    name: String,
    /// Whether it is data.
    is_object: bool,
    section: usize,
    /// Offset in its section.
    value: u64,
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
            let align = header.number(48, 8)?;
            Some(Section {
                name,
                bytes,
                size,
                align,
            })
        };
        (0..count).map(section).collect()
    }
}

/// The symbols, by number.
fn symbols(sections: &[Section<'_>]) -> Option<Vec<Symbol>> {
    let find = |name| sections.iter().find(|section| section.name == name);
    let (table, names) = (find(".symtab")?, File(find(".strtab")?.bytes));
    let symbol = |entry: &[u8]| {
        let entry = File(entry);
        Some(Symbol {
            name: names.text(entry.number(0, 4)?)?,
            is_object: entry.number(4, 1)? & 0xf == 1,
            section: usize::try_from(entry.number(6, 2)?).ok()?,
            value: entry.number(8, 8)?,
            size: entry.number(16, 8)?,
        })
    };
    table.bytes.chunks_exact(SYMBOL).map(symbol).collect()
}

/// The entries of an information section: kind and value.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = (u8, File<'_>)> {
    std::iter::from_fn(move || {
        let (entry, after) = rest.split_first_chunk::<4>()?;
        let length = if entry[0] == SIZED {
            usize::from(u16::from_le_bytes([entry[2], entry[3]]))
        } else {
            0
        };
        let (value, next) = after.split_at_checked(length)?;
        rest = next;
        Some((entry[1], File(value)))
    })
}

impl Image {
    /// Reads an image.
    pub fn read(bytes: &[u8]) -> Self {
        let mut next = bytes.iter().copied();
        if is_ptx(|| next.next().unwrap_or(0)) {
            let end = bytes.iter().position(|byte| *byte == 0);
            let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
            let mut image = Self::of_text(&text);
            if let Some(most) = super::linker::most_registers(&text) {
                image.limit_registers(most);
            }
            return image;
        }
        let header = bytes.first_chunk::<HEADER>();
        let file = header.and_then(length).and(Some(File(bytes)));
        file.and_then(|file| Self::of(&file)).unwrap_or_default()
    }

    fn of_text(text: &str) -> Self {
        let module = match softgpu_ptx::Module::parse(text) {
            Ok(module) => Arc::new(module),
            Err(error) => {
                return Self {
                    text: Some(Err(error.to_string())),
                    ..Self::default()
                };
            }
        };
        let mut image = Self {
            variables: super::program::variables(&module),
            ..Self::default()
        };
        for name in module.kernel_names() {
            if let Some(kernel) = module.kernel(name) {
                for (attribute, value) in super::program::attributes(&module, &kernel) {
                    image.say(name, attribute, value);
                }
                let params = kernel.params();
                let params = params.iter().map(|param| (param.offset, param.size));
                image.functions.entry(name.to_owned()).or_default().params = params.collect();
            }
        }
        image.text = Some(Ok(module));
        image.never_allocates = !text.contains("malloc");
        image
    }

    /// Its functions, where they are compiled from PTX, use no more registers than that, or 16.
    pub fn limit_registers(&mut self, most: u32) {
        if self.text.is_none() {
            return;
        }
        let most = i32::try_from(most).unwrap_or(i32::MAX).max(16);
        for told in self.functions.values_mut() {
            let registers = told.attributes.get_mut(&Attribute::NUM_REGS.0);
            if let Some(registers) = registers {
                *registers = most.min(*registers);
            }
        }
    }

    /// The module of a PTX text.
    pub(super) fn ptx(&self) -> Option<&Arc<softgpu_ptx::Module>> {
        self.text.as_ref()?.as_ref().ok()
    }

    /// Why the image cannot be loaded: a PTX text with errors.
    ///
    /// # Errors
    /// `INVALID_PTX`.
    pub(super) fn check(&self) -> Result {
        match self.text {
            Some(Err(_)) => Err(CUresult::INVALID_PTX),
            _ => Ok(()),
        }
    }

    /// A compiler's log of the image: errors, and the reasons for which kernels cannot be launched.
    pub fn log(&self) -> String {
        match &self.text {
            None => String::new(),
            Some(Err(error)) => error.clone(),
            Some(Ok(module)) => {
                let names = module.kernel_names().into_iter();
                let lacks = names.filter_map(|name| super::program::lacks(module, name));
                lacks.collect::<Vec<_>>().join("\n")
            }
        }
    }

    fn of(file: &File<'_>) -> Option<Self> {
        let sections = file.sections()?;
        let symbols = symbols(&sections)?;
        let mut image = Self {
            functions: HashMap::new(),
            variables: variables(&sections, &symbols),
            text: None,
            never_allocates: false,
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
        // The flags of the file name the architectures: of the code, and of the PTX it is from.
        let (binary, ptx) = (file.number(48, 1)?, file.number(50, 1)?);
        for section in &sections {
            if let Some(function) = section.name.strip_prefix(".text.") {
                let shared = size_of(&format!(".nv.shared.{function}")).saturating_sub(reserved);
                image.say(function, Attribute::SHARED_SIZE_BYTES, shared);
                image.say(
                    function,
                    Attribute::CONST_SIZE_BYTES,
                    size_of(".nv.constant3"),
                );
                image.say(function, Attribute::BINARY_VERSION, binary);
                image.say(function, Attribute::PTX_VERSION, ptx);
            }
        }
        for section in &sections {
            if section.name == ".nv.info" {
                image.of_file(section.bytes, &symbols);
            } else if let Some(function) = section.name.strip_prefix(".nv.info.") {
                image.of_function(function, section.bytes);
            }
        }
        Some(image)
    }

    fn say(&mut self, function: &str, attribute: Attribute, value: u64) {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        let told = self.functions.entry(function.to_owned()).or_default();
        told.attributes.insert(attribute.0, value);
    }

    /// Reads the information about all functions.
    fn of_file(&mut self, bytes: &[u8], symbols: &[Symbol]) {
        for (kind, value) in entries(bytes) {
            let attribute = match kind {
                REGISTERS => Attribute::NUM_REGS,
                FRAME => Attribute::LOCAL_SIZE_BYTES,
                _ => continue,
            };
            let number = |at| value.number(at, 4);
            let symbol = number(0).and_then(|index| symbols.get(usize::try_from(index).ok()?));
            if let (Some(symbol), Some(value)) = (symbol, number(4)) {
                self.say(&symbol.name, attribute, value);
            }
        }
    }

    /// Reads the information about one function.
    fn of_function(&mut self, function: &str, bytes: &[u8]) {
        let mut params = BTreeMap::new();
        for (kind, value) in entries(bytes) {
            let number = |at, len| value.number(at, len);
            match kind {
                PARAM => {
                    // The size is in the highest 14 bits.
                    let found = (number(4, 2), number(6, 2), number(8, 4));
                    if let (Some(ordinal), Some(offset), Some(bits)) = found {
                        let long = |value| usize::try_from(value).unwrap_or(usize::MAX);
                        params.insert(ordinal, (long(offset), long(bits >> 18)));
                    }
                }
                MAX_THREADS | REQUIRED_THREADS => {
                    let sides = [0, 4, 8].map(|at| number(at, 4).unwrap_or(0));
                    self.say(
                        function,
                        Attribute::MAX_THREADS_PER_BLOCK,
                        sides.iter().fold(1, |all, side| all.saturating_mul(*side)),
                    );
                }
                _ => {}
            }
        }
        let told = self.functions.entry(function.to_owned()).or_default();
        told.params = params.into_values().collect();
    }

    /// Whether a function of this name may be in the image, or is built in.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let known = self.functions.contains_key(name) || super::kernels::find(name).is_some();
        known || (!self.is_read() && !name.is_empty())
    }

    /// Whether its kernels may call device `malloc`.
    pub(super) fn may_allocate(&self) -> bool {
        !self.never_allocates
    }

    /// Whether the image's functions are known.
    pub(super) fn is_read(&self) -> bool {
        !self.functions.is_empty()
    }

    /// The names of its functions, in order.
    pub(super) fn functions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.functions.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The attributes of a function; empty for an unknown one.
    pub(super) fn attributes(&self, function: &str) -> BTreeMap<u32, i32> {
        let told = self.functions.get(function);
        told.map(|told| told.attributes.clone()).unwrap_or_default()
    }

    /// Offset and size of each parameter of a function; `None` for an unknown one.
    pub(super) fn params(&self, function: &str) -> Option<&[(usize, usize)]> {
        Some(&self.functions.get(function)?.params)
    }

    /// Its variables.
    pub(super) fn variables(&self) -> &[Variable] {
        &self.variables
    }
}

/// The variables of a compiled image: the data in the sections of global and of constant memory.
fn variables(sections: &[Section<'_>], symbols: &[Symbol]) -> Vec<Variable> {
    const HOMES: [&str; 3] = [".nv.global", ".nv.global.init", ".nv.constant3"];
    let variable = |symbol: &Symbol| {
        let home = sections.get(symbol.section)?;
        let data = symbol.is_object && HOMES.contains(&home.name.as_str());
        let end = symbol.value.checked_add(symbol.size)?;
        if !data || end > home.size || symbol.size == 0 {
            return None;
        }
        let place = usize::try_from(symbol.value).ok()?..usize::try_from(end).ok()?;
        // As strict as its place in the section shows, at most as the section's own.
        let align = 1
            << symbol
                .value
                .trailing_zeros()
                .min(home.align.checked_ilog2()?);
        Some(Variable {
            name: symbol.name.clone(),
            size: place.len(),
            align,
            initial: home
                .bytes
                .get(place)
                .map(<[u8]>::to_vec)
                .unwrap_or_default(),
            patches: Vec::new(),
        })
    };
    symbols.iter().filter_map(variable).collect()
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
            (Attribute::BINARY_VERSION, 90),
            (Attribute::PTX_VERSION, 90),
        ];
        assert_eq!(told, wanted.map(|(of, value)| (of.0, value)).into());
        assert!(Image::read(CUBIN).attributes("idle").is_empty());
        assert_eq!(Image::read(CUBIN).params("busy").unwrap(), [(0, 8), (8, 4)]);
        assert_eq!(Image::read(CUBIN).params("idle"), None);
        assert_eq!(Image::read(CUBIN).functions(), ["busy"]);
    }

    #[test]
    fn an_image_has_the_variables_of_its_source() {
        let image = Image::read(CUBIN);
        let told = |variable: &Variable| (variable.name.clone(), variable.size, variable.align);
        let told: Vec<_> = image.variables().iter().map(told).collect();
        assert_eq!(
            told,
            [("table".to_owned(), 80, 4), ("counter".to_owned(), 4, 4)]
        );
        assert_eq!(image.variables()[0].initial.len(), 80);
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
        assert!(!Image::read(b".version 7.8").is_read());
    }
}
