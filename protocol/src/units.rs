//! Amounts of memory and parts of time, and how they are written.

mod arithmetic;
mod permille;

use std::fmt;

pub use permille::Permille;

/// One kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;
/// One tebibyte, in bytes.
pub const TIB: u64 = 1 << 40;

/// Most devices a process may see. The usage page has room for this many, and ordinals run below
/// it.
pub const MAX_DEVICES: u32 = 16;

const BINARY: [(&str, u64); 4] = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];

/// A number of bytes.
///
/// `Display` is exact: the largest binary unit that divides the amount, else plain bytes, so that
/// the output parses back to the same amount. [`Bytes::human`] is the rounded form for tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// At most one decimal, rounded down, with its unit: `3.9 GiB`, `512 MiB`, `17 bytes`.
    pub fn human(self) -> String {
        for (unit, size) in BINARY {
            if self.0 >= size {
                let (whole, tenths) = (
                    self.0 / size,
                    u128::from(self.0 % size) * 10 / u128::from(size),
                );
                return match tenths {
                    0 => format!("{whole} {unit}"),
                    _ => format!("{whole}.{tenths} {unit}"),
                };
            }
        }
        format!("{} bytes", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match BINARY
            .into_iter()
            .find(|(_, size)| self.0 != 0 && self.0.is_multiple_of(*size))
        {
            Some((unit, size)) => write!(out, "{}{unit}", self.0 / size),
            None => write!(out, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_print_in_the_largest_unit_that_divides_them() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1000, "1000"),
            (KIB, "1KiB"),
            (512 * MIB, "512MiB"),
            (4 * GIB, "4GiB"),
            (4 * GIB - 1, "4294967295"),
            (1536 * MIB, "1536MiB"),
            (2 * TIB, "2TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn tables_show_one_decimal_rounded_down() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536 * MIB, "1.5 GiB"),
            (4 * GIB - 1, "3.9 GiB"),
            (4 * GIB, "4 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(Bytes(bytes).human(), text);
        }
    }
}
