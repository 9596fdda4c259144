//! Modules: kernels and variables of a PTX text.

use std::collections::{BTreeSet, HashMap};

use crate::ParseError;
use crate::ast::{Function, Init, Linkage, Space};
use crate::lower::{self, Lowered, Meaning};
use crate::parse::{self, numbers};
use crate::ty::low;

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Where it begins in the parameters' bytes.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Its alignment (bytes).
    pub align: usize,
}

/// An address inside an initial value: the address of the variable with this number, and `addend`,
/// go to the eight bytes at `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Where in the value (bytes).
    pub offset: usize,
    /// The variable's number in [`Module::variables`].
    pub variable: usize,
    /// Bytes added to its address.
    pub addend: i64,
}

/// A variable in global or constant memory. The loader allocates it and tells its address
/// ([`Launch::addresses`](crate::Launch::addresses)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Its alignment (bytes).
    pub align: u64,
    /// Whether it is in constant memory.
    pub constant: bool,
    /// Whether the host may access it too (`.managed`).
    pub managed: bool,
    /// Whether look-ups by name find it.
    pub visible: bool,
    /// Its first bytes; the others are 0.
    pub init: Vec<u8>,
    /// Addresses inside the value.
    pub patches: Vec<Patch>,
}

/// A variable in the shared memory of each block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) align: u32,
    /// `None`: as long as a launch asks for.
    pub(crate) size: Option<u32>,
}

/// A parsed module.
#[derive(Debug)]
pub struct Module {
    version: (u32, u32),
    target: u32,
    pub(crate) functions: Vec<Lowered>,
    variables: Vec<Variable>,
    pub(crate) shared: Vec<Shared>,
    kernels: HashMap<String, usize>,
}

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    pub(crate) module: &'a Module,
    pub(crate) number: usize,
}

impl Module {
    /// Whether bytes are PTX text: they begin with a version, after comments.
    pub fn is_ptx(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        loop {
            rest = rest.trim_ascii_start();
            let end = if rest.starts_with(b"//") {
                rest.iter().position(|byte| *byte == b'\n')
            } else if rest.starts_with(b"/*") {
                rest.windows(2)
                    .position(|pair| pair == b"*/")
                    .map(|at| at + 2)
            } else {
                return rest.starts_with(b".version");
            };
            let Some(end) = end else { return false };
            rest = &rest[end..];
        }
    }

    /// Parses a text. It may hold several modules one after the other; they share their names, as
    /// if they were linked.
    ///
    /// # Errors
    /// The first thing that is not PTX, or a name with two meanings.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let unit = parse::unit(text)?;
        let mut names = HashMap::new();
        let (mut variables, mut shared) = (Vec::new(), Vec::new());
        let mut initial = Vec::new();
        for variable in &unit.variables {
            let size = || variable.size.unwrap_or(0);
            let known = names.get(variable.name);
            if let Some(known) = known {
                // A declaration, or a second weak definition, of what is known already.
                let declares =
                    variable.linkage == Linkage::Extern || lower::is_weak(variable.linkage);
                match known {
                    Meaning::Variable(number) if !declares => {
                        let number = usize::try_from(*number).unwrap_or(usize::MAX);
                        let earlier: &Variable = &variables[number];
                        if earlier.size != 0 && initial[number] != Linkage::Extern {
                            return Err(ParseError::new(
                                variable.line,
                                &format!("`{}` is defined twice", variable.name),
                            ));
                        }
                        variables[number] = of_variable(variable, size());
                        initial[number] = variable.linkage;
                    }
                    _ => {}
                }
                continue;
            }
            let meaning = match variable.space {
                Space::Shared => {
                    shared.push(of_shared(variable)?);
                    Meaning::Shared(number(shared.len() - 1))
                }
                _ => {
                    variables.push(of_variable(variable, size()));
                    initial.push(variable.linkage);
                    Meaning::Variable(number(variables.len() - 1))
                }
            };
            names.insert(variable.name, meaning);
        }
        let bodies = functions(&unit.functions, &mut names)?;
        for variable in &unit.variables {
            if let Some(Meaning::Variable(number)) = names.get(variable.name) {
                let into = &mut variables[usize::try_from(*number).unwrap_or(usize::MAX)];
                if into.init.is_empty() && !variable.init.is_empty() {
                    initialise(into, variable, &names)?;
                }
            }
        }
        let mut lowered = Vec::with_capacity(bodies.len());
        for (function, body) in bodies {
            let mut own = Vec::new();
            for item in &body.items {
                if let crate::ast::What::Variable(variable) = &item.what
                    && variable.space == Space::Shared
                {
                    shared.push(of_shared(variable)?);
                    own.push(number(shared.len() - 1));
                }
            }
            lowered.push(lower::function(function, body, &names, &own)?);
        }
        let kernels = lowered
            .iter()
            .enumerate()
            .filter(|(_, function)| function.entry);
        let kernels = kernels
            .map(|(at, function)| (function.name.clone(), at))
            .collect();
        let digits: String = unit.target.chars().filter(char::is_ascii_digit).collect();
        let target = digits.parse().unwrap_or(0);
        Ok(Self {
            version: unit.version,
            target,
            functions: lowered,
            variables,
            shared,
            kernels,
        })
    }

    /// The version of PTX it is written in: major, minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The compute capability it is written for, times ten.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Its variables in global and constant memory.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<Kernel<'_>> {
        let number = *self.kernels.get(name)?;
        Some(Kernel {
            module: self,
            number,
        })
    }

    /// The names of its kernels, in order.
    pub fn kernel_names(&self) -> Vec<&str> {
        let kernels = self.functions.iter().filter(|function| function.entry);
        kernels.map(|function| function.name.as_str()).collect()
    }
}

/// The functions with bodies, by number; their names are entered.
fn functions<'a, 'u>(
    all: &'u [Function<'a>],
    names: &mut HashMap<&'a str, Meaning>,
) -> Result<Vec<(&'u Function<'a>, &'u crate::ast::Body<'a>)>, ParseError> {
    let mut bodies: Vec<(&Function<'a>, _)> = Vec::new();
    for function in all {
        let Some(body) = &function.body else {
            names.entry(function.name).or_insert(Meaning::Declared);
            continue;
        };
        if let Some(Meaning::Function(_)) = names.get(function.name) {
            if lower::is_weak(function.linkage) {
                continue;
            }
            return Err(ParseError::new(
                function.line,
                &format!("`{}` is defined twice", function.name),
            ));
        }
        names.insert(function.name, Meaning::Function(number(bodies.len())));
        bodies.push((function, body));
    }
    Ok(bodies)
}

fn of_shared(variable: &crate::ast::Variable<'_>) -> Result<Shared, ParseError> {
    let size = variable
        .size
        .filter(|_| variable.linkage != Linkage::Extern || variable.size != Some(0));
    let size = size.map(u32::try_from).transpose();
    let size = size.map_err(|_| {
        ParseError::new(variable.line, &format!("`{}` is too large", variable.name))
    })?;
    Ok(Shared {
        align: variable.align,
        size,
    })
}

fn of_variable(variable: &crate::ast::Variable<'_>, size: u64) -> Variable {
    Variable {
        name: variable.name.to_owned(),
        size,
        align: u64::from(variable.align),
        constant: variable.space == Space::Const,
        managed: variable.managed,
        visible: variable.linkage != Linkage::Own,
        init: Vec::new(),
        patches: Vec::new(),
    }
}

/// The initial bytes of a variable.
fn initialise(
    into: &mut Variable,
    variable: &crate::ast::Variable<'_>,
    names: &HashMap<&str, Meaning>,
) -> Result<(), ParseError> {
    let width = usize::try_from(variable.ty.bytes()).unwrap_or(8);
    let error = |message: String| ParseError::new(variable.line, &message);
    for value in &variable.init {
        let bits = match value {
            Init::Number(negative, text) => numbers::bits(*negative, text, variable.ty)
                .ok_or_else(|| error(format!("`{text}` is no number of this type")))?,
            Init::Address(name, addend) => {
                let Some(Meaning::Variable(number)) = names.get(name) else {
                    return Err(error(format!(
                        "the address of `{name}` as an initial value is not supported"
                    )));
                };
                let variable = usize::try_from(*number).unwrap_or(usize::MAX);
                into.patches.push(Patch {
                    offset: into.init.len(),
                    variable,
                    addend: *addend,
                });
                0
            }
        };
        into.init
            .extend_from_slice(&low(bits, variable.ty.bits()).to_le_bytes()[..width]);
    }
    if into.size == 0 {
        into.size = into.init.len() as u64;
    }
    if into.init.len() as u64 > into.size {
        return Err(error(format!(
            "`{}` has more initial values than room",
            variable.name
        )));
    }
    Ok(())
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Kernel<'_> {
    fn function(&self) -> &Lowered {
        &self.module.functions[self.number]
    }

    /// Its parameters.
    pub fn params(&self) -> Vec<Param> {
        let wide = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let params = self.function().params.iter();
        params
            .map(|param| Param {
                offset: wide(param.offset),
                size: wide(param.size),
                align: wide(param.align),
            })
            .collect()
    }

    /// Threads of a block at most (`.maxntid`).
    pub fn max_threads(&self) -> Option<[u32; 3]> {
        self.function().max_threads
    }

    /// Threads of every block (`.reqntid`).
    pub fn exact_threads(&self) -> Option<[u32; 3]> {
        self.function().exact_threads
    }

    /// Bytes of shared memory that its own variables take.
    pub fn static_shared(&self) -> u32 {
        self.shared_layout(0).1
    }

    /// Bytes of local memory of a thread: the variables of the kernel and of what it calls.
    pub fn local_bytes(&self) -> u32 {
        self.reached()
            .iter()
            .map(|at| self.module.functions[*at].local_bytes)
            .sum()
    }

    /// An estimate of its registers: PTX has any number, of which a compiler makes few, and no more
    /// than the text allows (`.maxnreg`).
    pub fn registers(&self) -> u32 {
        let most = self.function().max_registers.unwrap_or(255);
        self.function().registers.clamp(16, most.clamp(16, 255))
    }

    /// Bytes of the module's constants.
    pub fn const_bytes(&self) -> u64 {
        let constants = self
            .module
            .variables
            .iter()
            .filter(|variable| variable.constant);
        constants.map(|variable| variable.size).sum()
    }

    /// Instructions of it, or of a function it may call, that the interpreter lacks: the line and
    /// the instruction. Empty if the kernel can run.
    pub fn unknown(&self) -> Vec<(u32, String)> {
        let functions = self.reached();
        functions
            .iter()
            .flat_map(|at| self.module.functions[*at].unknown.clone())
            .collect()
    }

    /// The variables that it, or a function it may call, names: their numbers in
    /// [`Module::variables`].
    pub fn variables(&self) -> Vec<usize> {
        let functions = self.reached();
        let named = functions
            .iter()
            .flat_map(|at| &self.module.functions[*at].variables);
        let named: BTreeSet<usize> = named.filter_map(|at| usize::try_from(*at).ok()).collect();
        named.into_iter().collect()
    }

    /// The functions it may run: itself, what it calls, and any function if it calls by address.
    fn reached(&self) -> BTreeSet<usize> {
        let (mut found, mut next) = (BTreeSet::new(), vec![self.number]);
        while let Some(at) = next.pop() {
            if !found.insert(at) {
                continue;
            }
            let function = &self.module.functions[at];
            next.extend(
                function
                    .calls
                    .iter()
                    .filter_map(|at| usize::try_from(*at).ok()),
            );
            if function.indirect {
                let all = self.module.functions.iter().enumerate();
                next.extend(
                    all.filter(|(_, function)| !function.entry)
                        .map(|(at, _)| at),
                );
            }
        }
        found
    }

    /// The offset of each variable of shared memory in a block, the bytes of those with a size, and
    /// of all of them. Variables without a size begin where the others end.
    pub(crate) fn shared_layout(&self, dynamic: u32) -> (Vec<u32>, u32, u32) {
        let functions = self.reached();
        let used: BTreeSet<u32> = functions
            .iter()
            .flat_map(|at| self.module.functions[*at].shared.iter().copied())
            .collect();
        let mut offsets = vec![0; self.module.shared.len()];
        let mut end = 0_u32;
        let of = |number: &u32| {
            usize::try_from(*number)
                .ok()
                .filter(|at| *at < self.module.shared.len())
        };
        let used: Vec<usize> = used.iter().filter_map(of).collect();
        for at in &used {
            if let Shared {
                align,
                size: Some(size),
            } = self.module.shared[*at]
            {
                offsets[*at] = end.next_multiple_of(align);
                end = offsets[*at].saturating_add(size);
            }
        }
        let mut total = end;
        for at in used {
            if let Shared { align, size: None } = self.module.shared[at] {
                offsets[at] = end.next_multiple_of(align.max(16));
                total = total.max(offsets[at].saturating_add(dynamic));
            }
        }
        (offsets, end, total.max(end.saturating_add(dynamic)))
    }
}
