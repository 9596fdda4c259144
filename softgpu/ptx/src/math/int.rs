//! Whole-number arithmetic.

use crate::ty::{Ty, low, signed};

/// Operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Not,
    /// 1 for zero, else 0.
    Cnot,
    Popc,
    Clz,
    Brev,
    /// The place of the highest bit that differs from the sign.
    Bfind,
    /// How far to shift left until that bit is the highest.
    BfindShift,
}

/// Operations of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    AddSat,
    Sub,
    SubSat,
    Mul,
    MulHigh,
    /// The whole product, twice as wide.
    MulWide,
    /// The low, or the high part of the product of the lowest 24 bits.
    Mul24,
    Mul24High,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// Operations of three operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ternary {
    Mad,
    MadHigh,
    MadHighSat,
    MadWide,
    Mad24,
    Mad24High,
    /// The distance of two numbers, and a third.
    Sad,
    /// A field of bits: value, place, length.
    Bfe,
    /// Two words shifted as one: the high, or the low word; the count wraps, or is limited.
    ShfLeftWrap,
    ShfLeftClamp,
    ShfRightWrap,
    ShfRightClamp,
    Prmt,
    /// As `prmt`, with modes: forward, backward, one byte, towards the edge, half words.
    PrmtF4e,
    PrmtB4e,
    PrmtRc8,
    PrmtEcl,
    PrmtEcr,
    PrmtRc16,
}

/// Comparisons. The unordered ones hold for a NaN; `Lo` to `Hs` are without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Lo,
    Ls,
    Hi,
    Hs,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// An operand as a number, with its sign if the type has one.
pub(crate) fn number(value: u64, ty: Ty) -> i128 {
    if ty.is_signed() {
        i128::from(signed(value, ty.bits()))
    } else {
        i128::from(low(value, ty.bits()))
    }
}

/// The lowest 64 bits of a number.
pub(crate) const fn bits(value: i128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "these are the lowest bits")]
    let low = value.cast_unsigned() as u64;
    low
}

/// The range of a type's numbers.
pub(crate) fn range(ty: Ty) -> (i128, i128) {
    let half = 1_i128 << (ty.bits() - 1);
    if ty.is_signed() {
        (-half, half - 1)
    } else {
        (0, 2 * half - 1)
    }
}

fn limited(value: i128, ty: Ty) -> u64 {
    let (least, most) = range(ty);
    bits(value.clamp(least, most))
}

/// An operation of one operand; the result is as wide as the type, but counts have 32 bits.
pub(crate) fn unary(of: Unary, ty: Ty, a: u64) -> u64 {
    let width = ty.bits();
    let value = low(a, width);
    let highest = || {
        let value = if ty.is_signed() && signed(value, width) < 0 {
            low(!value, width)
        } else {
            value
        };
        value.checked_ilog2()
    };
    match of {
        Unary::Neg => low(value.wrapping_neg(), width),
        Unary::Abs => low(signed(value, width).unsigned_abs(), width),
        Unary::Not => low(!value, width),
        Unary::Cnot => u64::from(value == 0),
        Unary::Popc => u64::from(value.count_ones()),
        Unary::Clz => u64::from(value.leading_zeros() - (64 - width)),
        Unary::Brev => value.reverse_bits() >> (64 - width),
        Unary::Bfind => u64::from(highest().unwrap_or(u32::MAX)),
        Unary::BfindShift => u64::from(highest().map_or(u32::MAX, |at| width - 1 - at)),
    }
}

/// An operation of two operands. A quotient by zero has all bits set, and a remainder is the
/// dividend, as on devices; PTX says nothing of them.
pub(crate) fn binary(of: Binary, ty: Ty, a: u64, b: u64) -> u64 {
    let width = ty.bits();
    let (wide_a, wide_b) = (|| number(a, ty), || number(b, ty));
    let plain = match of {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::AddSat => limited(wide_a() + wide_b(), ty),
        Binary::SubSat => limited(wide_a() - wide_b(), ty),
        Binary::MulHigh => bits(wide_a().wrapping_mul(wide_b()) >> width),
        Binary::MulWide => return low(bits(wide_a().wrapping_mul(wide_b())), 2 * width),
        Binary::Mul24 => bits(part24(a, ty) * part24(b, ty)),
        Binary::Mul24High => bits((part24(a, ty) * part24(b, ty)) >> 16),
        Binary::Div if low(b, width) == 0 => u64::MAX,
        Binary::Div => bits(wide_a() / wide_b()),
        Binary::Rem if low(b, width) == 0 => a,
        Binary::Rem => bits(wide_a() % wide_b()),
        Binary::Min => bits(wide_a().min(wide_b())),
        Binary::Max => bits(wide_a().max(wide_b())),
        // The count has 32 bits, whatever the type.
        Binary::Shl => match low(b, 32) {
            count if count >= u64::from(width) => 0,
            count => a << count,
        },
        Binary::Shr => bits(wide_a() >> low(b, 32).min(u64::from(width))),
    };
    low(plain, width)
}

fn part24(value: u64, ty: Ty) -> i128 {
    if ty.is_signed() {
        i128::from(signed(value, 24))
    } else {
        i128::from(low(value, 24))
    }
}

/// An operation of three operands.
pub(crate) fn ternary(of: Ternary, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    let width = ty.bits();
    let sum = |value: u64| low(value.wrapping_add(c), width);
    match of {
        Ternary::Mad => sum(a.wrapping_mul(b)),
        Ternary::MadHigh => sum(binary(Binary::MulHigh, ty, a, b)),
        Ternary::MadHighSat => low(
            limited(
                number(binary(Binary::MulHigh, ty, a, b), ty) + number(c, ty),
                ty,
            ),
            width,
        ),
        Ternary::MadWide => low(binary(Binary::MulWide, ty, a, b).wrapping_add(c), 2 * width),
        Ternary::Mad24 => sum(binary(Binary::Mul24, ty, a, b)),
        Ternary::Mad24High => sum(binary(Binary::Mul24High, ty, a, b)),
        Ternary::Sad => sum(bits((number(a, ty) - number(b, ty)).abs())),
        Ternary::Bfe => field(ty, a, low(b, 8), low(c, 8)),
        Ternary::ShfLeftWrap | Ternary::ShfLeftClamp => {
            let count = if of == Ternary::ShfLeftWrap {
                c & 31
            } else {
                low(c, 32).min(32)
            };
            low(((low(b, 32) << 32 | low(a, 32)) << count) >> 32, 32)
        }
        Ternary::ShfRightWrap | Ternary::ShfRightClamp => {
            let count = if of == Ternary::ShfRightWrap {
                c & 31
            } else {
                low(c, 32).min(32)
            };
            low((low(b, 32) << 32 | low(a, 32)) >> count, 32)
        }
        _ => permute(of, low(b, 32) << 32 | low(a, 32), c),
    }
}

/// The field of `length` bits from `from` on, continued with its sign.
fn field(ty: Ty, a: u64, from: u64, length: u64) -> u64 {
    let width = u64::from(ty.bits());
    let value = low(a, ty.bits());
    let bit = |at: u64| if at < width { value >> at & 1 } else { 0 };
    let sign = match (ty.is_signed(), length) {
        (false, _) | (true, 0) => 0,
        (true, _) => bit((from + length - 1).min(width - 1)),
    };
    let all = |from: u64, to: u64| (from..to).fold(0, |sum, at| sum | 1_u64 << at);
    let taken = length.min(width.saturating_sub(from)).min(width);
    let kept = if taken == 0 {
        0
    } else {
        value >> from & all(0, taken)
    };
    if sign == 1 {
        low(kept | all(taken, width), ty.bits())
    } else {
        kept
    }
}

/// `c` bits of `a` placed into `b`: value, receiver, place, length.
pub(crate) fn insert(ty: Ty, a: u64, b: u64, from: u64, length: u64) -> u64 {
    let width = u64::from(ty.bits());
    let (from, length) = (low(from, 8), low(length, 8));
    let mask = (from..(from + length).min(width)).fold(0, |sum, at| sum | 1_u64 << at);
    let placed = if from < 64 { a << from } else { 0 };
    low(b & !mask | placed & mask, ty.bits())
}

/// Four bytes of eight.
fn permute(of: Ternary, bytes: u64, selector: u64) -> u64 {
    let byte = |at: u64| bytes >> (8 * (at & 7)) & 0xff;
    let four =
        |choose: &dyn Fn(u64) -> u64| (0..4).fold(0, |sum, at| sum | byte(choose(at)) << (8 * at));
    let by = selector & 3;
    match of {
        Ternary::PrmtF4e => four(&|at| by + at),
        Ternary::PrmtB4e => four(&|at| by.wrapping_sub(at)),
        Ternary::PrmtRc8 => four(&|_| by),
        Ternary::PrmtEcl => four(&|at| at.max(by)),
        Ternary::PrmtEcr => four(&|at| at.min(by)),
        Ternary::PrmtRc16 => four(&|at| (by & 1) * 2 + (at & 1)),
        _ => (0..4).fold(0, |sum, at| {
            let choice = selector >> (4 * at) & 0xf;
            let found = byte(choice);
            let found = if choice & 8 == 0 {
                found
            } else {
                0xff * (found >> 7)
            };
            sum | found << (8 * at)
        }),
    }
}

/// Each bit by a table of eight.
pub(crate) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    let row = |at: u64| {
        let side = |value: u64, wanted: bool| if wanted { value } else { !value };
        side(a, at & 4 != 0) & side(b, at & 2 != 0) & side(c, at & 1 != 0)
    };
    low(
        (0..8)
            .filter(|at| table >> at & 1 == 1)
            .fold(0, |sum, at| sum | row(at)),
        32,
    )
}

/// Four (or two) products of bytes, summed: `dp4a`, and `dp2a` of the low or high half.
pub(crate) fn dot(a: u64, b: u64, c: u64, signs: (bool, bool), halves: Option<bool>) -> u64 {
    let part = |value: u64, width: u32, at: u32, sign: bool| {
        let value = value >> (width * at);
        if sign {
            signed(value, width)
        } else {
            low(value, width).cast_signed()
        }
    };
    let sum: i64 = match halves {
        None => (0..4)
            .map(|at| part(a, 8, at, signs.0) * part(b, 8, at, signs.1))
            .sum(),
        Some(high) => {
            let first = if high { 2 } else { 0 };
            (0..2)
                .map(|at| part(a, 16, at, signs.0) * part(b, 8, first + at, signs.1))
                .sum()
        }
    };
    low(sum.cast_unsigned().wrapping_add(c), 32)
}

/// Whether a comparison of two whole numbers holds.
pub(crate) fn compare(how: Compare, ty: Ty, a: u64, b: u64) -> bool {
    let (x, y) = (number(a, ty), number(b, ty));
    let (low_a, low_b) = (low(a, ty.bits()), low(b, ty.bits()));
    match how {
        Compare::Eq | Compare::Equ => low_a == low_b,
        Compare::Ne | Compare::Neu => low_a != low_b,
        Compare::Lt | Compare::Ltu => x < y,
        Compare::Le | Compare::Leu => x <= y,
        Compare::Gt | Compare::Gtu => x > y,
        Compare::Ge | Compare::Geu => x >= y,
        Compare::Lo => low_a < low_b,
        Compare::Ls => low_a <= low_b,
        Compare::Hi => low_a > low_b,
        Compare::Hs => low_a >= low_b,
        Compare::Num => true,
        Compare::Nan => false,
    }
}
