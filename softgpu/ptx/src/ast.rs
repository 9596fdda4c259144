//! A module as it is written: names are not resolved, instructions are words and operands.

use crate::ty::Ty;

/// The state space of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Reg,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// The visibility of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Linkage {
    /// The module.
    #[default]
    Own,
    /// Other modules, and the driver's look-ups.
    Visible,
    /// It is defined elsewhere.
    Extern,
    /// As visible; another definition may replace it.
    Weak,
}

/// A part of an initial value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Init<'a> {
    /// A number, with its sign.
    Number(bool, &'a str),
    /// An address, and a number added to it.
    Address(&'a str, i64),
}

/// A variable, or an array.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    pub(crate) space: Space,
    pub(crate) linkage: Linkage,
    pub(crate) ty: Ty,
    /// Bytes from one element to the next: vectors have several numbers.
    pub(crate) stride: u32,
    pub(crate) align: u32,
    /// Bytes; `None` for an array without a size.
    pub(crate) size: Option<u64>,
    pub(crate) managed: bool,
    pub(crate) init: Vec<Init<'a>>,
    pub(crate) line: u32,
}

/// A function or a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) entry: bool,
    pub(crate) linkage: Linkage,
    pub(crate) returns: Vec<Variable<'a>>,
    pub(crate) params: Vec<Variable<'a>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) max_registers: Option<u32>,
    pub(crate) exact_threads: Option<[u32; 3]>,
    pub(crate) body: Option<Body<'a>>,
    pub(crate) line: u32,
}

/// The body of a function: its items in order, and the scope that each nested scope is in. Scope 0
/// is the body itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body<'a> {
    pub(crate) scopes: Vec<usize>,
    pub(crate) items: Vec<Item<'a>>,
}

/// An item of a body.
#[derive(Debug, Clone)]
pub(crate) struct Item<'a> {
    pub(crate) scope: usize,
    pub(crate) line: u32,
    pub(crate) what: What<'a>,
}

/// The kinds of items.
#[derive(Debug, Clone)]
pub(crate) enum What<'a> {
    Label(&'a str),
    /// A register, or a number of them that are named with an index.
    Register(Ty, &'a str, Option<u32>),
    Variable(Variable<'a>),
    /// The labels of an indexed branch.
    Targets(&'a str, Vec<&'a str>),
    /// The form of an indirect call.
    Prototype(&'a str),
    Instruction(Instruction<'a>),
}

/// An instruction.
#[derive(Debug, Clone)]
pub(crate) struct Instruction<'a> {
    /// The predicate it depends on, and whether it must be false.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) name: &'a str,
    pub(crate) words: Vec<&'a str>,
    pub(crate) args: Vec<Arg<'a>>,
}

impl Instruction<'_> {
    /// Its name with all its words.
    pub(crate) fn full_name(&self) -> String {
        let words = self.words.iter().map(|word| format!(".{word}"));
        self.name.to_owned() + &words.collect::<String>()
    }
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arg<'a> {
    /// A name, and a number added to it.
    Name(&'a str, i64),
    /// A component of a special register.
    Part(&'a str, &'a str),
    /// A number, with its sign.
    Number(bool, &'a str),
    /// `{a, b}`.
    Vector(Vec<Self>),
    /// `[a]`: a base and an offset.
    Memory(Box<Self>, i64),
    /// `a|b`.
    Pair(Box<Self>, Box<Self>),
    /// `!a`.
    Not(Box<Self>),
    /// `(a, b)`.
    List(Vec<Self>),
}
