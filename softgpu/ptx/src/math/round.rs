//! Rounding to a floating-point format of 16, 32 or 64 bits, in each direction, exactly.

use crate::ty::Ty;

/// The direction of a rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// To the nearest number, to the even one of two.
    #[default]
    Nearest,
    /// As nearest, away from zero where two are equally near.
    Away,
    Zero,
    Down,
    Up,
}

/// The width of the fraction and of the exponent of a format (bits).
const fn format(ty: Ty) -> (u32, u32) {
    match ty {
        Ty::F16 => (10, 5),
        Ty::Bf16 => (7, 8),
        Ty::F64 => (52, 11),
        _ => (23, 8),
    }
}

/// The quiet NaN that arithmetic returns.
pub(crate) const fn nan(ty: Ty) -> u64 {
    match ty {
        Ty::F16 | Ty::Bf16 => 0x7fff,
        Ty::F64 => 0x7ff8_0000_0000_0000,
        _ => 0x7fff_ffff,
    }
}

/// A number: sign, and `mantissa * 2^exponent`, and less than one more unit if `more`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    pub(crate) negative: bool,
    pub(crate) mantissa: u128,
    pub(crate) exponent: i32,
    pub(crate) more: bool,
}

impl Exact {
    /// The finite `value`, and an error beyond it of the sign of `error`, which is smaller than the
    /// distance to the next number.
    pub(crate) fn of(value: f64, error: f64) -> Self {
        let bits = value.to_bits();
        let fraction = u128::from(bits & ((1 << 52) - 1));
        let biased = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0);
        let (mantissa, exponent) = if biased == 0 {
            (fraction, -1074)
        } else {
            (fraction | 1 << 52, biased - 1075)
        };
        let zero = mantissa == 0;
        let negative = if zero && error != 0.0 {
            error < 0.0
        } else {
            value.is_sign_negative()
        };
        let outward = error != 0.0 && (error < 0.0) == negative;
        let (mantissa, exponent) = (mantissa << 2, exponent - 2);
        if error == 0.0 || outward {
            Self {
                negative,
                mantissa,
                exponent,
                more: error != 0.0,
            }
        } else {
            Self {
                negative,
                mantissa: mantissa - 1,
                exponent,
                more: true,
            }
        }
    }

    /// A whole number.
    pub(crate) fn whole(value: i128) -> Self {
        Self {
            negative: value < 0,
            mantissa: value.unsigned_abs(),
            exponent: 0,
            more: false,
        }
    }

    /// Its bits in the format of `ty`.
    pub(crate) fn round(self, ty: Ty, mode: Mode) -> u64 {
        let (fraction, width) = format(ty);
        let sign = u64::from(self.negative) << (fraction + width);
        let bias = (1_i32 << (width - 1)) - 1;
        let least = 1 - bias - fraction.cast_signed();
        let top = 127 - self.mantissa.leading_zeros().min(127).cast_signed();
        let unit = (self.exponent + top - fraction.cast_signed()).max(least);
        let shift = unit - self.exponent;
        let (kept, guard, rest) = match shift {
            ..=0 => (self.mantissa << shift.unsigned_abs(), false, self.more),
            1..=127 => {
                let below = self.mantissa & ((1 << (shift - 1)) - 1);
                (
                    self.mantissa >> shift,
                    self.mantissa >> (shift - 1) & 1 == 1,
                    below != 0 || self.more,
                )
            }
            _ => (0, false, self.mantissa != 0 || self.more),
        };
        let away = match mode {
            Mode::Nearest => guard && (rest || kept & 1 == 1),
            Mode::Away => guard,
            Mode::Zero => false,
            Mode::Down => self.negative && (guard || rest),
            Mode::Up => !self.negative && (guard || rest),
        };
        let kept = u64::try_from(kept).unwrap_or(0) + u64::from(away);
        let hidden = 1_u64 << fraction;
        if kept < hidden {
            return sign | kept;
        }
        let biased = u64::try_from(unit + fraction.cast_signed() + bias).unwrap_or(0);
        let infinity = ((1_u64 << width) - 1) << fraction;
        // A mantissa that grew by one digit carries into the exponent.
        let bits = (biased << fraction) + (kept - hidden);
        if bits < infinity {
            return sign | bits;
        }
        let bounded = match mode {
            Mode::Nearest | Mode::Away => false,
            Mode::Zero => true,
            Mode::Down => !self.negative,
            Mode::Up => self.negative,
        };
        sign | if bounded { infinity - 1 } else { infinity }
    }
}

/// The value of the bits of a type of 16, 32 or 64 bits, exactly.
pub(crate) fn to_f64(bits: u64, ty: Ty) -> f64 {
    match ty {
        Ty::F64 => f64::from_bits(bits),
        Ty::F16 => half(bits),
        Ty::Bf16 => f64::from(f32::from_bits(low32(bits) << 16)),
        _ => f64::from(f32::from_bits(low32(bits))),
    }
}

fn half(bits: u64) -> f64 {
    let (fraction, biased) = (bits & 0x3ff, bits >> 10 & 0x1f);
    let whole = |value: u64| f64::from(low32(value));
    let size = match biased {
        0 => whole(fraction) / f64::from(1_u32 << 24),
        0x1f if fraction == 0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => whole(fraction | 0x400) * f64::from(1_u32 << biased) / f64::from(1_u32 << 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

/// The lowest 32 bits.
pub(crate) const fn low32(bits: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "these are the lowest bits")]
    let low = bits as u32;
    low
}

/// The bits of the number of type `ty` that is nearest to `value`.
pub(crate) fn from_f64(value: f64, ty: Ty) -> u64 {
    rounded(value, 0.0, ty, Mode::Nearest)
}

/// The bits of `value`, and an error of the sign of `error` beyond it, rounded to type `ty`, which
/// is narrower than `f64`.
pub(crate) fn rounded(value: f64, error: f64, ty: Ty, mode: Mode) -> u64 {
    if value.is_nan() {
        return nan(ty);
    }
    if value.is_infinite() {
        let (fraction, width) = format(ty);
        return (u64::from(value < 0.0) << width | ((1 << width) - 1)) << fraction;
    }
    Exact::of(value, error).round(ty, mode)
}

/// `value` is the nearest number to a result that differs from it by the sign of `error`; the
/// result rounded in direction `mode`.
pub(crate) fn directed(value: f64, error: f64, mode: Mode) -> f64 {
    let exact = error == 0.0 || error.is_nan() || value.is_nan();
    if exact || (value.is_infinite() && error.is_infinite()) {
        return value;
    }
    let down = match mode {
        Mode::Nearest | Mode::Away => return value,
        Mode::Down => true,
        Mode::Up => false,
        Mode::Zero => value > 0.0 || (value == 0.0 && error > 0.0),
    };
    match down {
        true if error < 0.0 => value.next_down(),
        false if error > 0.0 => value.next_up(),
        _ => value,
    }
}
