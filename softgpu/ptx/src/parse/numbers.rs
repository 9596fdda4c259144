//! Numbers as PTX writes them.

use crate::ty::Ty;

/// A whole number without a sign: decimal, hexadecimal, octal or binary, with or without a `U`.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['U', 'u']);
    let radix = |digits, radix| u64::from_str_radix(digits, radix).ok();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) {
        return radix(digits, 2);
    }
    match text.strip_prefix('0').filter(|digits| !digits.is_empty()) {
        Some(digits) => radix(digits, 8),
        None => radix(text, 10),
    }
}

/// A floating-point number: `0f` and `0d` with the bits in hexadecimal, or decimal.
fn float(text: &str) -> Option<f64> {
    let bits = |digits: &str, count| {
        (digits.len() == count).then(|| u64::from_str_radix(digits, 16).ok())?
    };
    if let Some(digits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return Some(f64::from(f32::from_bits(
            u32::try_from(bits(digits, 8)?).ok()?,
        )));
    }
    if let Some(digits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return bits(digits, 16).map(f64::from_bits);
    }
    text.parse().ok()
}

/// The bits of a number of type `ty`, as wide as the type.
pub(crate) fn bits(negative: bool, text: &str, ty: Ty) -> Option<u64> {
    let is_float = ["0f", "0F", "0d", "0D"]
        .iter()
        .any(|prefix| text.starts_with(prefix))
        || text.contains('.');
    // The bits of a number of the same width: nothing may be lost, also of a NaN.
    if let (Some(digits), Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32) = (
        text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")),
        ty,
    ) {
        let bits = u64::from_str_radix(digits, 16).ok()?;
        return Some(if negative { bits ^ 1 << 31 } else { bits });
    }
    if ty.is_float() || is_float {
        let value = if is_float {
            float(text)?
        } else {
            precise(whole(text)?)
        };
        let value = if negative { -value } else { value };
        return match ty {
            Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32 => Some(u64::from(nearest(value).to_bits())),
            Ty::F64 | Ty::B64 | Ty::U64 | Ty::S64 => Some(value.to_bits()),
            Ty::F16 | Ty::Bf16 => Some(crate::math::from_f64(value, ty)),
            _ => None,
        };
    }
    let value = whole(text)?;
    let value = if negative {
        value.wrapping_neg()
    } else {
        value
    };
    Some(crate::ty::low(value, ty.bits()))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a literal is rounded to the nearest number"
)]
fn precise(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a literal is rounded to the nearest number"
)]
fn nearest(value: f64) -> f32 {
    value as f32
}
