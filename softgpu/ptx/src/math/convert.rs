//! Conversions between types.

use super::float::Form;
use super::int::{bits, number, range};
use super::round::{Exact, Mode, from_f64, nan, rounded, to_f64};
use crate::ty::{Ty, low};

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) from: Ty,
    pub(crate) to: Ty,
    pub(crate) mode: Mode,
    /// To a whole number, also where the result is a floating-point number.
    pub(crate) whole: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
}

impl Conversion {
    /// Converts; the result is as wide as the type.
    pub(crate) fn of(self, value: u64) -> u64 {
        let value = low(value, self.from.bits());
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => {
                let value = number(value, self.from);
                let (least, most) = range(self.to);
                let value = if self.sat {
                    value.clamp(least, most)
                } else {
                    value
                };
                low(bits(value), self.to.bits())
            }
            (false, true) => {
                let form = self.form(self.to);
                form.limited(Exact::whole(number(value, self.from)).round(self.to, self.mode))
            }
            (true, false) => self.to_whole(to_f64(self.form(self.from).flushed(value), self.from)),
            (true, true) => self.between(self.form(self.from).flushed(value)),
        }
    }

    fn form(self, ty: Ty) -> Form {
        Form {
            ty,
            mode: self.mode,
            ftz: self.ftz,
            sat: self.sat,
        }
    }

    fn to_whole(self, value: f64) -> u64 {
        let width = self.to.bits();
        if value.is_nan() {
            return if self.from == Ty::F64 || width == 64 {
                1 << (width - 1)
            } else {
                0
            };
        }
        let (least, most) = range(self.to);
        // A float as a whole number is limited to its range.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the value is whole, and limited beyond the range"
        )]
        let whole = whole(value, self.mode) as i128;
        low(bits(whole.clamp(least, most)), width)
    }

    fn between(self, value: u64) -> u64 {
        let form = self.form(self.to);
        let number = to_f64(value, self.from);
        let result = if number.is_nan() {
            nan(self.to)
        } else if self.whole {
            from_f64(whole(number, self.mode), self.to)
        } else if self.to == Ty::F64 {
            number.to_bits()
        } else {
            rounded(number, 0.0, self.to, self.mode)
        };
        form.limited(form.flushed(result))
    }
}

fn whole(value: f64, mode: Mode) -> f64 {
    match mode {
        Mode::Nearest => value.round_ties_even(),
        Mode::Away => value.round(),
        Mode::Zero => value.trunc(),
        Mode::Down => value.floor(),
        Mode::Up => value.ceil(),
    }
}
