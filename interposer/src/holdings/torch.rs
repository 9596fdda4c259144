//! PyTorch's caching allocator: whether this process has it, and which requests for memory may be
//! its own. Other libraries of the process ask for memory too, and take an out-of-memory for their
//! end. Why so: ADR 58.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::guest::linker;
use crate::holdings::told::Call;

/// Its library, as the dynamic linker names it.
const LIBRARY: &[u8] = b"libc10_cuda.so";
/// The variables of its settings. Which of them comes first depends on the version.
const VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

const MIB: u64 = 1 << 20;
/// The size that it takes for small blocks (`kSmallBuffer` of its sources).
const SMALL: u64 = 2 * MIB;
/// The smallest of which it takes as much as it needs (`kMinLargeAlloc`), in multiples of
/// [`STEP`].
const LARGE: u64 = 10 * MIB;
/// `kRoundLarge`.
const STEP: u64 = 2 * MIB;
/// The size that it takes for blocks in between, unless a setting says otherwise (`kLargeBuffer`).
const SEGMENT: u64 = 20 * MIB;

/// The settings of its that are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    /// Whether it makes physical memory, in pages.
    is_expandable: bool,
    /// The size that it takes for blocks in between, and of its pages for all but small blocks.
    segment: u64,
}

/// Whether it has been found in this process.
static IS_HERE: AtomicBool = AtomicBool::new(false);
/// The settings: the size of a segment, and 1 more where it makes pages.
static SETTINGS: AtomicU64 = AtomicU64::new(SEGMENT);

impl Settings {
    const DEFAULT: Self = Self {
        is_expandable: false,
        segment: SEGMENT,
    };

    /// Of a variable's text: `name:value` with commas in between. A list in brackets has none of
    /// these names.
    fn of(text: &[u8]) -> Self {
        let mut found = Self::DEFAULT;
        for setting in text.split(|byte| *byte == b',') {
            let mut parts = setting.split(|byte| *byte == b':').map(<[u8]>::trim_ascii);
            match (parts.next(), parts.next()) {
                (Some(b"expandable_segments"), Some(value)) => {
                    found.is_expandable = value == b"True";
                }
                (Some(b"large_segment_size_mb"), Some(value)) => {
                    let number = core::str::from_utf8(value).ok();
                    let number = number.and_then(|number| number.parse::<u64>().ok());
                    found.segment = number
                        .and_then(|number| number.checked_mul(MIB))
                        .unwrap_or(0);
                }
                _ => {}
            }
        }
        found
    }

    /// Of both variables. Where they say different things, it is not known which is heard: it makes
    /// no pages then.
    fn of_both(texts: [Option<OsString>; 2]) -> Self {
        let of = |text: OsString| Self::of(text.as_bytes());
        match texts.map(|text| text.map(of)) {
            [Some(one), Some(other)] if one != other => Self::DEFAULT,
            [one, other] => one.or(other).unwrap_or(Self::DEFAULT),
        }
    }

    fn now() -> Self {
        let word = SETTINGS.load(Ordering::Relaxed);
        Self {
            is_expandable: word & 1 != 0,
            segment: word & !1,
        }
    }

    fn set(self) {
        let word = self.segment | u64::from(self.is_expandable);
        SETTINGS.store(word, Ordering::Relaxed);
    }

    /// Whether it may have made a request.
    fn may_make(self, call: Call) -> bool {
        match call {
            Call::Linear(bytes) => {
                let is_large = bytes >= LARGE && bytes.is_multiple_of(STEP);
                bytes == SMALL || is_large || bytes == self.segment
            }
            Call::Physical(bytes) => self.is_expandable && bytes == self.segment,
            Call::Pool(_) | Call::Other => false,
        }
    }
}

/// A context is made: with the first one the settings are read, as PyTorch reads them soon after.
pub(crate) fn read_settings() {
    static ARE_READ: AtomicBool = AtomicBool::new(false);
    if !ARE_READ.swap(true, Ordering::Relaxed) {
        Settings::of_both(VARIABLES.map(std::env::var_os)).set();
    }
}

/// Whether its library is loaded.
fn is_here() -> bool {
    let found = IS_HERE.load(Ordering::Relaxed) || linker::has(LIBRARY);
    if found {
        IS_HERE.store(true, Ordering::Relaxed);
    }
    found
}

/// Whether it is in this process and may have made a request. Not for small pages, which it also
/// makes: NCCL makes nearly all of its memory of that size, and never asks twice.
pub(super) fn may_have_made(call: Call) -> bool {
    Settings::now().may_make(call) && is_here()
}

/// A request was answered with out-of-memory, memory was freed, and it was made again. Whether that
/// is PyTorch's doing, and so tells of no other allocator. Pages that are asked for again although
/// no setting has said so are its own: a program may turn them on by a call.
pub(super) fn explains(call: Call) -> bool {
    let settings = Settings::now();
    match call {
        Call::Physical(SMALL) => is_here(),
        Call::Physical(bytes) if !settings.is_expandable && is_here() => {
            tracing::info!(bytes, "pages of this size are taken for PyTorch's");
            let segment = bytes & !1;
            Settings {
                is_expandable: true,
                segment,
            }
            .set();
            true
        }
        _ => may_have_made(call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPANDABLE: &[u8] = b"expandable_segments:True";
    const PLAIN: Settings = Settings::DEFAULT;

    fn expandable(segment: u64) -> Settings {
        Settings {
            is_expandable: true,
            segment,
        }
    }

    fn of_both(one: Option<&str>, other: Option<&str>) -> Settings {
        Settings::of_both([one, other].map(|text| text.map(OsString::from)))
    }

    #[test]
    fn sizes_of_pytorchs_allocator_are_told_from_others() {
        for bytes in [2, 10, 20, 22, 400] {
            assert!(PLAIN.may_make(Call::Linear(bytes * MIB)), "{bytes}");
        }
        for bytes in [1, 3, 4, 6, 8, 11, 401] {
            assert!(!PLAIN.may_make(Call::Linear(bytes * MIB)), "{bytes}");
        }
        assert!(!PLAIN.may_make(Call::Linear(512)));
        assert!(!PLAIN.may_make(Call::Pool(SMALL)) && !PLAIN.may_make(Call::Other));
    }

    #[test]
    fn only_large_pages_of_expandable_segments_are_pytorchs() {
        let page = |bytes| Call::Physical(bytes * MIB);
        assert!(expandable(SEGMENT).may_make(page(20)));
        for bytes in [2, 12, 400] {
            assert!(!expandable(SEGMENT).may_make(page(bytes)), "{bytes}");
        }
        assert!(!PLAIN.may_make(page(20)));
    }

    #[test]
    fn a_set_segment_size_takes_the_place_of_20_mib() {
        let settings = Settings::of(b"expandable_segments:True, large_segment_size_mb:13");
        assert_eq!(settings, expandable(13 * MIB));
        assert!(settings.may_make(Call::Physical(13 * MIB)));
        assert!(!settings.may_make(Call::Physical(20 * MIB)));
        assert!(settings.may_make(Call::Linear(13 * MIB)));
        assert!(!settings.may_make(Call::Linear(15 * MIB)));
    }

    #[test]
    fn settings_are_found_among_others_and_the_last_one_counts() {
        let text = b"max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4], expandable_segments : True";
        assert_eq!(Settings::of(text), expandable(SEGMENT));
        let twice = b"expandable_segments:True,expandable_segments:False";
        assert_eq!(Settings::of(twice), PLAIN);
        for text in [
            &b""[..],
            b"expandable_segments",
            b"expandable_segments:true",
            b"a:True",
        ] {
            assert_eq!(Settings::of(text), PLAIN, "{text:?}");
        }
    }

    #[test]
    fn a_size_that_is_no_number_makes_no_page_pytorchs() {
        for size in ["x", "-1", "99999999999999999999", "9999999999999999999"] {
            let text = format!("expandable_segments:True,large_segment_size_mb:{size}");
            let settings = Settings::of(text.as_bytes());
            assert!(!settings.may_make(Call::Physical(SEGMENT)), "{size}");
        }
    }

    #[test]
    fn of_two_variables_that_differ_neither_makes_pages() {
        let on = core::str::from_utf8(EXPANDABLE).expect("text");
        assert_eq!(of_both(Some(on), None), expandable(SEGMENT));
        assert_eq!(of_both(None, Some(on)), expandable(SEGMENT));
        assert_eq!(of_both(Some(on), Some(on)), expandable(SEGMENT));
        assert_eq!(of_both(Some(on), Some("")), PLAIN);
        assert_eq!(of_both(None, None), PLAIN);
    }
}
