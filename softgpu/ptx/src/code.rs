//! Instructions as the interpreter runs them: names are numbers, and each has its form.

use crate::math::convert::Conversion;
use crate::math::float::{self, Form};
use crate::math::int::{self, Compare};
use crate::ty::Ty;

/// A result: a register and its width. [`Dst::NONE`] is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dst {
    pub(crate) register: u32,
    pub(crate) bits: u32,
}

impl Dst {
    /// `_`.
    pub(crate) const NONE: Self = Self {
        register: u32::MAX,
        bits: 64,
    };
}

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Src {
    Reg(u32),
    Imm(u64),
    Special(Special),
    /// The address of a variable, by its number in the module.
    Global(u32, i64),
    /// The offset of a variable in the block's shared memory.
    Shared(u32, i64),
    /// An offset in the function's part of local memory.
    Local(i64),
    /// An offset in the function's parameters.
    Param(i64),
    /// The address of a function.
    Function(u32),
}

/// A predicate, which may have to be false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) src: Src,
    pub(crate) negative: bool,
}

/// Registers that the device sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// The thread in its block, and the other shapes, in dimensions 0 to 2 (3: 0, or 1 for sizes).
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Lane,
    Warp,
    Warps,
    Sm,
    Sms,
    Grid,
    /// Lanes equal to, below, up to, above, from this one.
    MaskEq,
    MaskLt,
    MaskLe,
    MaskGt,
    MaskGe,
    /// Nanoseconds: the device's clock has one cycle each.
    Clock,
    ClockHigh,
    Clock64,
    Timer,
    TimerLow,
    TimerHigh,
    DynamicShared,
    TotalShared,
}

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// Changes of a number in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Inc,
    Dec,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

impl Change {
    /// The change of this name.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "add" => Self::Add,
            "inc" => Self::Inc,
            "dec" => Self::Dec,
            "min" => Self::Min,
            "max" => Self::Max,
            "and" => Self::And,
            "or" => Self::Or,
            "xor" => Self::Xor,
            "exch" => Self::Exch,
            "cas" => Self::Cas,
            _ => return None,
        })
    }

    /// Whether the order of its steps does not change what many of them make of a number.
    pub(crate) fn is_reduction(self) -> bool {
        use Change::{Add, And, Cas, Dec, Exch, Inc, Max, Min, Or, Xor};
        match self {
            Add | Min | Max | And | Or | Xor => true,
            Inc | Dec | Exch | Cas => false,
        }
    }
}

/// How the result of a comparison is joined with another predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    And,
    Or,
    Xor,
}

/// Instructions at which the threads of a warp meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Shuffles: up, down, butterfly, by index.
    ShflUp,
    ShflDown,
    ShflBfly,
    ShflIdx,
    VoteAll,
    VoteAny,
    VoteUni,
    VoteBallot,
    /// Lanes with an equal value; all lanes if their values are equal.
    MatchAny,
    MatchAll,
    Redux(Change),
    Elect,
    /// No result.
    Sync,
}

/// The result of a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    Nothing,
    /// The number of threads whose predicate holds; whether all do; whether any does.
    Popc,
    And,
    Or,
}

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) target: Target,
    /// The values that go in and come out.
    pub(crate) inputs: Vec<Carried>,
    pub(crate) outputs: Vec<Carried>,
}

/// The function that is called.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Known(u32),
    /// A function that has no body anywhere.
    Absent(Box<str>),
    Address(Src),
}

/// A parameter of a call, on the side of the caller or of the function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Carried {
    /// Bytes of the caller's parameters: where, and how many.
    Bytes(u32, u32),
    Value(Src, u32),
    Into(Dst),
}

/// An instruction's effect. `d` are results, `a` to `e` operands.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Nop,
    Mov {
        d: Dst,
        a: Src,
    },
    /// Joins parts of `bits` each, the lowest first.
    Pack {
        d: Dst,
        bits: u32,
        parts: Box<[Src]>,
    },
    Unpack {
        ds: Box<[Dst]>,
        bits: u32,
        a: Src,
    },
    Int1 {
        of: int::Unary,
        ty: Ty,
        d: Dst,
        a: Src,
    },
    Int2 {
        of: int::Binary,
        ty: Ty,
        d: Dst,
        a: Src,
        b: Src,
    },
    Int3 {
        of: int::Ternary,
        ty: Ty,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    /// An addition with carry: whether it takes the carry, sets it, is a subtraction.
    Carry {
        ty: Ty,
        d: Dst,
        a: Src,
        b: Src,
        takes: bool,
        sets: bool,
        minus: bool,
    },
    MadCarry {
        ty: Ty,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
        high: bool,
        takes: bool,
        sets: bool,
    },
    Bfi {
        ty: Ty,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
        e: Src,
    },
    Lop3 {
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
        table: u64,
    },
    Dot {
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
        signs: (bool, bool),
        halves: Option<bool>,
    },
    Float1 {
        of: float::Unary,
        form: Form,
        d: Dst,
        a: Src,
    },
    Float2 {
        of: float::Binary,
        form: Form,
        d: Dst,
        a: Src,
        b: Src,
    },
    Fma {
        form: Form,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    /// On each of two numbers of 16 bits.
    Halves1 {
        of: float::Unary,
        form: Form,
        d: Dst,
        a: Src,
    },
    Halves2 {
        of: float::Binary,
        form: Form,
        d: Dst,
        a: Src,
        b: Src,
    },
    HalvesFma {
        form: Form,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    TestNumber {
        of: NumberTest,
        ty: Ty,
        d: Dst,
        a: Src,
    },
    Setp {
        how: Compare,
        ty: Ty,
        ftz: bool,
        join: Option<(Join, Test)>,
        d: Dst,
        not: Dst,
        a: Src,
        b: Src,
    },
    /// As `Setp`; the result is all bits set, or 1.0.
    Set {
        how: Compare,
        ty: Ty,
        ftz: bool,
        join: Option<(Join, Test)>,
        d: Dst,
        yes: u64,
        a: Src,
        b: Src,
    },
    Selp {
        d: Dst,
        a: Src,
        b: Src,
        test: Test,
    },
    /// By the sign of `c`, which has type `by`.
    Slct {
        d: Dst,
        a: Src,
        b: Src,
        by: Ty,
        c: Src,
    },
    PredLogic {
        of: int::Binary,
        d: Dst,
        a: Test,
        b: Test,
    },
    Cvt {
        of: Conversion,
        d: Dst,
        a: Src,
    },
    /// Two numbers into halves of 16 bits; the first is the high one.
    CvtHalves {
        of: Conversion,
        d: Dst,
        a: Src,
        b: Src,
    },
    /// To a generic address, or from one.
    Cvta {
        place: Place,
        from_generic: bool,
        d: Dst,
        a: Src,
    },
    Isspacep {
        place: Place,
        d: Dst,
        a: Src,
    },
    Ld {
        place: Place,
        ty: Ty,
        ds: Box<[Dst]>,
        a: Src,
        offset: i64,
    },
    St {
        place: Place,
        ty: Ty,
        values: Box<[Src]>,
        a: Src,
        offset: i64,
    },
    Atom {
        of: Change,
        place: Place,
        ty: Ty,
        d: Dst,
        a: Src,
        offset: i64,
        b: Src,
        c: Src,
    },
    Bra {
        to: u32,
    },
    Brx {
        to: Box<[u32]>,
        a: Src,
    },
    Call(Box<Call>),
    Ret,
    Exit,
    Trap,
    /// A barrier of the block: its number, how many threads, whether the thread goes on.
    Bar {
        a: Src,
        count: Option<Src>,
        tally: Tally,
        test: Test,
        d: Dst,
        arrives: bool,
    },
    /// The threads of `mask` meet; operands by the kind.
    Meet {
        of: Meeting,
        ty: Ty,
        d: Dst,
        p: Dst,
        a: Src,
        b: Src,
        c: Src,
        test: Test,
        mask: Option<Src>,
    },
    ActiveMask {
        d: Dst,
    },
    /// Gives other threads their turn.
    Yield,
    /// The index of a text that says what is not known here.
    Unknown(u32),
}

/// Classes of floating-point numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// An instruction with its guard.
#[derive(Debug, Clone)]
pub(crate) struct Inst {
    pub(crate) guard: Option<Test>,
    pub(crate) op: Op,
    pub(crate) line: u32,
    /// An access to volatile memory: other threads have their turn after it. So the threads of a
    /// warp that run the same code see each other's volatile values as if they ran in step.
    pub(crate) is_volatile: bool,
}
