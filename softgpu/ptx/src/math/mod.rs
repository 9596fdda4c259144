//! Arithmetic on the bits of registers, with PTX's rounding and saturation. Everything is pure.

pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod round;

pub(crate) use round::{Mode, from_f64, to_f64};
