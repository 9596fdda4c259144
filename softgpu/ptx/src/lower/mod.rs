//! From [`ast`](crate::ast) to [`code`](crate::code): names become numbers. An instruction that is
//! not known becomes [`Op::Unknown`]; a module may hold such instructions, and a kernel that can
//! reach one is not run.

mod control;
mod data;
mod meet;
mod operands;
mod real;
mod whole;
mod words;

use std::collections::{BTreeSet, HashMap};

use crate::ParseError;
use crate::ast::{Body, Function, Instruction, Linkage, Space, Variable, What};
use crate::code::{Dst, Inst, Op};
use crate::ty::Ty;
use words::{Unknown, Words};

/// A parameter or a result of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Formal {
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) align: u32,
    /// The register it is in, if it is not in the parameters' bytes.
    pub(crate) register: Option<Dst>,
}

/// A function that can be run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lowered {
    pub(crate) name: String,
    pub(crate) entry: bool,
    pub(crate) returns: Vec<Formal>,
    pub(crate) params: Vec<Formal>,
    /// Bytes of the parameters of the function itself, and with those it passes on.
    pub(crate) own_bytes: u32,
    pub(crate) param_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) code: Vec<Inst>,
    /// Instructions that are not known here: the line and the text of each.
    pub(crate) unknown: Vec<(u32, String)>,
    /// Variables of the module and of shared memory it names, by their numbers, and the functions
    /// it calls.
    pub(crate) variables: BTreeSet<u32>,
    pub(crate) shared: BTreeSet<u32>,
    pub(crate) calls: BTreeSet<u32>,
    /// Whether it calls a function by its address.
    pub(crate) indirect: bool,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) max_registers: Option<u32>,
    pub(crate) exact_threads: Option<[u32; 3]>,
}

/// The meaning of a name in a module.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meaning {
    /// A variable in global or constant memory, by its number.
    Variable(u32),
    Shared(u32),
    /// A function with a body, by its number.
    Function(u32),
    /// A function that is declared only.
    Declared,
}

/// The meaning of a name in a function.
#[derive(Debug, Clone)]
enum Named<'a> {
    Register(u32, Ty),
    /// Offset and size.
    Param(u32, u32),
    Local(u32),
    Shared(u32),
    Targets(Vec<&'a str>),
    Prototype,
}

/// The lowering of one function.
struct Lowering<'a, 'm> {
    names: &'m HashMap<&'a str, Meaning>,
    scopes: Vec<(usize, HashMap<String, Named<'a>>)>,
    labels: HashMap<(usize, &'a str), u32>,
    out: Lowered,
}

/// A function with the numbers that its variables of shared memory have, in order.
pub(crate) fn function<'a>(
    function: &Function<'a>,
    body: &Body<'a>,
    names: &HashMap<&'a str, Meaning>,
    shared: &[u32],
) -> Result<Lowered, ParseError> {
    let out = Lowered {
        name: function.name.to_owned(),
        entry: function.entry,
        max_threads: function.max_threads,
        max_registers: function.max_registers,
        exact_threads: function.exact_threads,
        ..Lowered::default()
    };
    let scopes = body
        .scopes
        .iter()
        .map(|parent| (*parent, HashMap::new()))
        .collect();
    let mut lowering = Lowering {
        names,
        scopes,
        labels: HashMap::new(),
        out,
    };
    for (list, is_result) in [(&function.params, false), (&function.returns, true)] {
        for formal in list {
            let formal = lowering.formal(formal)?;
            let into = if is_result {
                &mut lowering.out.returns
            } else {
                &mut lowering.out.params
            };
            into.push(formal);
        }
    }
    lowering.out.own_bytes = lowering.out.param_bytes;
    lowering.declare(body, shared)?;
    for item in &body.items {
        if let What::Instruction(instruction) = &item.what {
            let inst = lowering.instruction(instruction, item.scope, item.line);
            lowering.out.code.push(inst);
        }
    }
    let line = body.items.last().map_or(function.line, |item| item.line);
    lowering.out.code.push(Inst {
        guard: None,
        op: Op::Ret,
        line,
        is_volatile: false,
    });
    Ok(lowering.out)
}

impl<'a> Lowering<'a, '_> {
    fn register(&mut self, scope: usize, name: String, ty: Ty) -> Dst {
        let register = self.out.registers;
        self.out.registers += 1;
        self.scopes[scope]
            .1
            .insert(name, Named::Register(register, ty));
        Dst {
            register,
            bits: ty.bits(),
        }
    }

    fn formal(&mut self, formal: &Variable<'a>) -> Result<Formal, ParseError> {
        if formal.space == Space::Reg {
            let register = Some(self.register(0, formal.name.to_owned(), formal.ty));
            return Ok(Formal {
                offset: 0,
                size: formal.ty.bytes(),
                align: 1,
                register,
            });
        }
        let (offset, size) = self.param(0, formal)?;
        Ok(Formal {
            offset,
            size,
            align: formal.align,
            register: None,
        })
    }

    /// Room for a parameter.
    fn param(&mut self, scope: usize, param: &Variable<'a>) -> Result<(u32, u32), ParseError> {
        let size = room(param)?;
        let offset = self.out.param_bytes.next_multiple_of(param.align);
        self.out.param_bytes = offset.checked_add(size).ok_or_else(|| too_large(param))?;
        self.scopes[scope]
            .1
            .insert(param.name.to_owned(), Named::Param(offset, size));
        Ok((offset, size))
    }

    /// Enters the declarations and the labels.
    fn declare(&mut self, body: &Body<'a>, shared: &[u32]) -> Result<(), ParseError> {
        let (mut at, mut shared) = (0, shared.iter());
        for item in &body.items {
            match &item.what {
                What::Instruction(_) => at += 1,
                What::Label(name) => drop(self.labels.insert((item.scope, name), at)),
                What::Register(ty, name, None) => {
                    self.register(item.scope, (*name).to_owned(), *ty);
                }
                What::Register(ty, name, Some(count)) => {
                    for index in 0..*count {
                        self.register(item.scope, format!("{name}{index}"), *ty);
                    }
                }
                What::Targets(name, labels) => {
                    self.scopes[item.scope]
                        .1
                        .insert((*name).to_owned(), Named::Targets(labels.clone()));
                }
                What::Prototype(name) => {
                    self.scopes[item.scope]
                        .1
                        .insert((*name).to_owned(), Named::Prototype);
                }
                What::Variable(variable) => {
                    let meaning = match variable.space {
                        Space::Param => {
                            self.param(item.scope, variable)?;
                            continue;
                        }
                        Space::Local => {
                            let offset = self.out.local_bytes.next_multiple_of(variable.align);
                            let end = offset.checked_add(room(variable)?);
                            self.out.local_bytes = end.ok_or_else(|| too_large(variable))?;
                            Named::Local(offset)
                        }
                        Space::Shared => {
                            let number = shared.next();
                            Named::Shared(*number.ok_or_else(|| too_large(variable))?)
                        }
                        _ => {
                            return Err(ParseError::new(
                                variable.line,
                                "a function has no variable of this kind",
                            ));
                        }
                    };
                    self.scopes[item.scope]
                        .1
                        .insert(variable.name.to_owned(), meaning);
                }
            }
        }
        Ok(())
    }

    fn find(&self, mut scope: usize, name: &str) -> Option<&Named<'a>> {
        loop {
            let (parent, names) = &self.scopes[scope];
            if let Some(found) = names.get(name) {
                return Some(found);
            }
            if scope == 0 {
                return None;
            }
            scope = *parent;
        }
    }

    fn label(&self, mut scope: usize, name: &'a str) -> Result<u32, Unknown> {
        loop {
            if let Some(at) = self.labels.get(&(scope, name)) {
                return Ok(*at);
            }
            if scope == 0 {
                return Err(format!("names the label `{name}`, which is not there"));
            }
            scope = self.scopes[scope].0;
        }
    }

    fn instruction(&mut self, instruction: &Instruction<'a>, scope: usize, line: u32) -> Inst {
        let guard = instruction
            .guard
            .map(|(name, negative)| self.guard(scope, name, negative))
            .transpose();
        let lowered = guard.and_then(|guard| Ok((guard, self.op(instruction, scope)?)));
        let (guard, op) = lowered.unwrap_or_else(|why| {
            let index = u32::try_from(self.out.unknown.len()).unwrap_or(u32::MAX);
            let text = format!("`{}` {why}", instruction.full_name());
            self.out.unknown.push((line, text));
            (None, Op::Unknown(index))
        });
        Inst {
            guard,
            op,
            line,
            is_volatile: instruction.words.contains(&"volatile"),
        }
    }

    /// The operation of an instruction, by the family of its name.
    fn op(&mut self, instruction: &Instruction<'a>, scope: usize) -> Result<Op, Unknown> {
        let mut words = Words::new(&instruction.words);
        let mut ops = Operands {
            of: self,
            scope,
            name: instruction.name,
            args: &instruction.args,
        };
        let families = [
            Operands::data,
            Operands::whole,
            Operands::real,
            Operands::control,
            Operands::meeting,
        ];
        for family in families {
            if let Some(op) = family(&mut ops, &mut words) {
                let op = op?;
                words.done()?;
                return Ok(op);
            }
        }
        Err("is not known".to_owned())
    }
}

/// An instruction's operands while it is lowered.
struct Operands<'a, 'm, 'l> {
    of: &'l mut Lowering<'a, 'm>,
    scope: usize,
    name: &'a str,
    args: &'l [crate::ast::Arg<'a>],
}

fn room(variable: &Variable<'_>) -> Result<u32, ParseError> {
    // A function without a size of its last parameter takes any number of bytes: not supported.
    variable
        .size
        .and_then(|size| u32::try_from(size).ok())
        .ok_or_else(|| too_large(variable))
}

fn too_large(variable: &Variable<'_>) -> ParseError {
    ParseError::new(
        variable.line,
        &format!("`{}` is too large, or has no size", variable.name),
    )
}

/// Whether a function of this linkage may be replaced by another one.
pub(crate) fn is_weak(linkage: Linkage) -> bool {
    linkage == Linkage::Weak
}
