//! GPU identities as NVIDIA writes them (`GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`).

use std::fmt;

/// The sixteen bytes of a GPU's UUID, in the order `cuDeviceGetUuid` gives them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Hex digits per group, between the dashes.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl Uuid {
    /// Reads a whole UUID, `GPU-` or `MIG-` in front or not. `separator` is `-`, or `_` in the name
    /// of a variable. Hex digits may be of either case. `None` if anything else is in it.
    pub fn parse(text: &str, separator: char) -> Option<Self> {
        let text = ["GPU", "MIG"]
            .iter()
            .find_map(|kind| text.strip_prefix(kind)?.strip_prefix(separator))
            .unwrap_or(text);
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() != GROUPS.len()
            || groups
                .iter()
                .zip(GROUPS)
                .any(|(group, len)| group.len() != len)
        {
            return None;
        }
        let digits = groups.concat();
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let [high, low] = [hex(pair[0])?, hex(pair[1])?];
            *byte = high << 4 | low;
        }
        Some(Self(bytes))
    }

    /// As text: of a MIG instance with `MIG-` in front, as `CUDA_VISIBLE_DEVICES` has to name it.
    pub fn text(self, mig: bool) -> String {
        let text = self.to_string();
        match text.strip_prefix("GPU") {
            Some(bare) if mig => format!("MIG{bare}"),
            _ => text,
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("GPU")?;
        let mut at = 0;
        for digits in GROUPS {
            out.write_str("-")?;
            for byte in &self.0[at..at + digits / 2] {
                write!(out, "{byte:02x}")?;
            }
            at += digits / 2;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bytes: [u8; 16]) {
            let uuid = Uuid(bytes);
            let text = uuid.to_string();
            prop_assert_eq!(Uuid::parse(&text, '-'), Some(uuid));
            prop_assert_eq!(Uuid::parse(&text.replace('-', "_"), '_'), Some(uuid));
            prop_assert_eq!(Uuid::parse(&uuid.text(true), '-'), Some(uuid));
            prop_assert_eq!(Uuid::parse(&text[4..].to_uppercase(), '-'), Some(uuid));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = Uuid::parse(&text, '-');
        }
    }

    #[test]
    fn a_mig_instance_is_named_as_one_and_reads_back_in_a_variables_name() {
        let text = "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6";
        let uuid = Uuid::parse(text, '-').unwrap();
        assert_eq!(uuid.text(true), text);
        assert_eq!(uuid.text(false), text.replace("MIG", "GPU"));
        assert_eq!(Uuid::parse(&text.replace('-', "_"), '_'), Some(uuid));
    }

    #[test]
    fn a_mig_instance_named_by_its_gpu_as_before_r470_is_refused() {
        let old = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7/0";
        assert_eq!(Uuid::parse(old, '-'), None);
        assert_eq!(Uuid::parse(&old.replace('-', "_"), '_'), None);
    }

    #[test]
    fn anything_but_a_whole_uuid_is_refused() {
        for text in [
            "",
            "0",
            "GPU-",
            "GPU-8932f937",
            "GPU_8932f937-d72c-4106-c12f-20bd9faed9f6",
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9f",
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9fg",
            "GPU-8932f937-d72c-4106-c12f20bd9-faed9f6",
            "gpu-8932f937-d72c-4106-c12f-20bd9faed9f6",
            " GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        ] {
            assert_eq!(Uuid::parse(text, '-'), None, "{text:?}");
        }
    }
}
