//! Variables of the design that this release cannot honour yet. They are refused by name, never ignored: a share
//! or a resolver somebody relies on must not silently be absent. Opening one is changing its row in the table.

use super::table::Setting;
use super::{LimitError, Limits, Selector};

const ABSENT: &str = "this release cannot do it yet";

/// No value is accepted.
pub(super) fn refuse(_: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    Err(set.refuse(ABSENT, "nothing yet: unset it"))
}

/// The one value that describes what this release does.
pub(super) fn only(set: &Setting<'_>, value: &'static str) -> Result<(), LimitError> {
    if set.value == value {
        Ok(())
    } else {
        Err(set.refuse(ABSENT, format!("{value}, or unset it")))
    }
}

/// 1 to 100; only 100, which is no cap, can be kept.
pub(super) fn sm_limit(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    match percent(set.value) {
        Some(100) => {
            limits.decided.compute |= set.device == Selector::All;
            Ok(())
        }
        Some(1..100) => Err(set.refuse(ABSENT, "100, or unset it")),
        _ => Err(set.refuse("not understood as a percentage", "100, or unset it")),
    }
}

/// `off` is all that can be kept.
pub(super) fn oversubscribe(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    limits.decided.oversubscribe = true;
    only(set, "off")
}

/// HAMi: empty, 0 and 100 are off. Ours wins, so a cap here does not matter where `GPUSHARE_SM_LIMIT` is set.
pub(super) fn hami_sm_limit(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    match (set.value, percent(set.value)) {
        ("", _) | (_, Some(0 | 100)) => Ok(()),
        (_, Some(_)) if limits.decided.compute => Ok(()),
        (_, Some(_)) => Err(set.refuse(ABSENT, "0 or 100 for no cap, or unset it")),
        _ => Err(set.refuse(
            "not understood as a percentage",
            "0 or 100 for no cap, or unset it",
        )),
    }
}

/// HAMi's switch. Ours wins.
pub(super) fn hami_oversubscribe(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    match set.value {
        "" | "0" | "false" => Ok(()),
        "1" | "true" if limits.decided.oversubscribe => Ok(()),
        "1" | "true" => Err(set.refuse(ABSENT, "false, or unset it")),
        _ => Err(set.refuse("it is a switch", "false, or unset it")),
    }
}

fn percent(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|percent| digits && *percent <= 100)
}
