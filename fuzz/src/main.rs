//! The program that libFuzzer drives: `GPUTEST_PARSER` names one of [`targets::ALL`], or
//! `planted`, whose defect a working fuzzer finds.

#![no_main]

mod targets;

use std::sync::OnceLock;

use gpushare_protocol::size::Size;
use libfuzzer_sys::fuzz_target;
use targets::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    TARGET.get_or_init(chosen)(bytes);
});

#[expect(clippy::panic, reason = "libFuzzer has no other way to be told")]
fn chosen() -> Target {
    let name = std::env::var("GPUTEST_PARSER").unwrap_or_default();
    let mut all = targets::ALL
        .into_iter()
        .chain([("planted", planted as Target)]);
    let found = all.find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("GPUTEST_PARSER={name} is no target"))
        .1
}

/// A defect behind a valid size and four letters. Random bytes do not come here in a lifetime; a
/// fuzzer that sees which branches were taken does in seconds.
#[expect(clippy::panic, reason = "the planted defect")]
fn planted(bytes: &[u8]) -> bool {
    let Some((letters, size)) = bytes.split_first_chunk::<4>() else {
        return false;
    };
    let follows = |at: usize| letters[at] == b"gpsh"[at];
    if follows(0)
        && follows(1)
        && follows(2)
        && follows(3)
        && let Ok(text) = str::from_utf8(size)
        && let Ok(Size::Percent(part)) = Size::parse(text)
        && part > 42_000_000
    {
        panic!("the planted defect was found");
    }
    false
}
