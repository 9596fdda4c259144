//! Floating-point arithmetic. Numbers below 64 bits are computed in `f64` with the error of that
//! computation, then rounded once; so each result is the one that the format's own unit would give.

use super::round::{Mode, directed, from_f64, low32, nan, rounded, to_f64};
use crate::ty::Ty;

/// Operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Rcp,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
}

/// Operations of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// The smaller; a number rather than a NaN.
    Min,
    Max,
    /// The smaller; a NaN if one is.
    MinNan,
    MaxNan,
    Copysign,
}

/// How a result is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) ty: Ty,
    pub(crate) mode: Mode,
    /// Numbers too small to be normal are zero (32 bits only).
    pub(crate) ftz: bool,
    /// Results are limited to 0 to 1.
    pub(crate) sat: bool,
}

/// A value and the sign of what it lacks to the exact result.
type Sum = (f64, f64);

fn two_sum(a: f64, b: f64) -> Sum {
    let sum = a + b;
    let rest = sum - a;
    (sum, (a - (sum - rest)) + (b - rest))
}

impl Form {
    /// An operand's value.
    fn value(self, bits: u64) -> f64 {
        to_f64(self.flushed(bits), self.ty)
    }

    /// Zero of the same sign instead of a number too small to be normal.
    pub(crate) fn flushed(self, bits: u64) -> u64 {
        if self.ftz && self.ty == Ty::F32 && bits & 0x7f80_0000 == 0 {
            bits & 0x8000_0000
        } else {
            bits
        }
    }

    /// A result of `f64` arithmetic as bits of the type.
    fn done(self, (value, error): Sum) -> u64 {
        let bits = match self.ty {
            Ty::F64 if value.is_nan() => nan(Ty::F64),
            Ty::F64 => directed(value, error, self.mode).to_bits(),
            ty => self.flushed(rounded(value, error, ty, self.mode)),
        };
        self.limited(bits)
    }

    /// Limited to 0 to 1 if the instruction says so; a NaN is 0 then.
    pub(crate) fn limited(self, bits: u64) -> u64 {
        if !self.sat {
            return bits;
        }
        match to_f64(bits, self.ty) {
            value if value > 1.0 => from_f64(1.0, self.ty),
            value if value > 0.0 => bits,
            _ => 0,
        }
    }

    fn is_plain(self) -> bool {
        self.mode == Mode::Nearest && !self.ftz && !self.sat
    }

    /// An operation of one operand.
    pub(crate) fn unary(self, of: Unary, a: u64) -> u64 {
        let sign = 1_u64 << (self.ty.bits() - 1);
        match of {
            Unary::Neg => return self.flushed(a) ^ sign,
            Unary::Abs => return self.flushed(a) & !sign,
            _ => {}
        }
        let x = self.value(a);
        let near = |value: f64| (value, 0.0);
        self.done(match of {
            Unary::Sqrt => {
                let root = x.sqrt();
                (
                    root,
                    if root.is_finite() {
                        (-root).mul_add(root, x)
                    } else {
                        0.0
                    },
                )
            }
            Unary::Rcp => quotient(1.0, x),
            Unary::Rsqrt => near(1.0 / x.sqrt()),
            Unary::Sin => near(x.sin()),
            Unary::Cos => near(x.cos()),
            Unary::Lg2 => near(x.log2()),
            Unary::Ex2 => near(x.exp2()),
            Unary::Tanh => near(x.tanh()),
            Unary::Neg | Unary::Abs => near(x),
        })
    }

    /// An operation of two operands.
    pub(crate) fn binary(self, of: Binary, a: u64, b: u64) -> u64 {
        if self.ty == Ty::F32 && self.is_plain() {
            let (x, y) = (f32::from_bits(low32(a)), f32::from_bits(low32(b)));
            let result = match of {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                _ => return self.chosen(of, a, b),
            };
            return if result.is_nan() {
                nan(Ty::F32)
            } else {
                u64::from(result.to_bits())
            };
        }
        let (x, y) = (self.value(a), self.value(b));
        self.done(match of {
            Binary::Add => total(x, y),
            Binary::Sub => total(x, -y),
            Binary::Mul => {
                let product = x * y;
                (
                    product,
                    if product.is_finite() {
                        x.mul_add(y, -product)
                    } else {
                        0.0
                    },
                )
            }
            Binary::Div => quotient(x, y),
            _ => return self.chosen(of, a, b),
        })
    }

    /// One of the operands.
    fn chosen(self, of: Binary, a: u64, b: u64) -> u64 {
        let (a, b) = (self.flushed(a), self.flushed(b));
        let sign = 1_u64 << (self.ty.bits() - 1);
        if of == Binary::Copysign {
            // The sign of the first operand, the size of the second.
            return a & sign | b & !sign;
        }
        let (x, y) = (to_f64(a, self.ty), to_f64(b, self.ty));
        let either = matches!(of, Binary::MinNan | Binary::MaxNan);
        match (x.is_nan(), y.is_nan()) {
            (true, true) => return nan(self.ty),
            (true, _) | (_, true) if either => return nan(self.ty),
            (true, false) => return b,
            (false, true) => return a,
            _ => {}
        }
        let a_is_less = x < y || (x == y && a & sign != 0);
        let least = matches!(of, Binary::Min | Binary::MinNan);
        if a_is_less == least { a } else { b }
    }

    /// `a * b + c`, rounded once.
    pub(crate) fn fused(self, a: u64, b: u64, c: u64) -> u64 {
        if self.ty == Ty::F32 && self.is_plain() {
            let float = |bits| f32::from_bits(low32(bits));
            let result = float(a).mul_add(float(b), float(c));
            return if result.is_nan() {
                nan(Ty::F32)
            } else {
                u64::from(result.to_bits())
            };
        }
        let (x, y, z) = (self.value(a), self.value(b), self.value(c));
        if self.ty == Ty::F64 {
            let result = x.mul_add(y, z);
            let error = if self.mode == Mode::Nearest || !result.is_finite() {
                0.0
            } else {
                missing(x, y, z, result)
            };
            return self.done((result, error));
        }
        // The product of two such numbers is exact in `f64`.
        self.done(total(x * y, z))
    }
}

fn total(x: f64, y: f64) -> Sum {
    let (sum, error) = two_sum(x, y);
    let zero = sum == 0.0;
    (sum, if sum.is_finite() && !zero { error } else { 0.0 })
}

fn quotient(x: f64, y: f64) -> Sum {
    let result = x / y;
    if !result.is_finite() || result == 0.0 || !y.is_finite() {
        return (result, 0.0);
    }
    let rest = (-result).mul_add(y, x);
    (result, if y < 0.0 { -rest } else { rest })
}

/// The sign of what `result`, the nearest number, lacks to `x * y + z`.
fn missing(x: f64, y: f64, z: f64, result: f64) -> f64 {
    let product = x * y;
    let low = x.mul_add(y, -product);
    let (inner, rest) = two_sum(z, low);
    let (outer, next) = two_sum(product, inner);
    ((outer - result) + next) + rest
}

/// Whether a comparison of two numbers holds. An unordered one holds for a NaN.
pub(crate) fn compare(how: super::int::Compare, x: f64, y: f64) -> bool {
    use super::int::Compare as C;
    let unordered = x.is_nan() || y.is_nan();
    match how {
        C::Eq => x == y,
        C::Ne => !unordered && x != y,
        C::Lt | C::Lo => x < y,
        C::Le | C::Ls => x <= y,
        C::Gt | C::Hi => x > y,
        C::Ge | C::Hs => x >= y,
        C::Equ => unordered || x == y,
        C::Neu => unordered || x != y,
        C::Ltu => unordered || x < y,
        C::Leu => unordered || x <= y,
        C::Gtu => unordered || x > y,
        C::Geu => unordered || x >= y,
        C::Num => !unordered,
        C::Nan => unordered,
    }
}
