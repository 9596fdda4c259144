//! Variables of the design that this release does not support yet. They are refused by name, never
//! ignored: a share or a resolver that a tenant relies on must not be silently absent. To support
//! one, change its row in the table.

use super::error::LimitError;
use super::setting::Setting;

const ABSENT: &str = "this release cannot do it yet";

/// The one value that describes this release's behaviour.
pub(super) fn only(set: &Setting<'_>, value: &'static str) -> Result<(), LimitError> {
    if set.value == value {
        Ok(())
    } else {
        Err(set.refuse(ABSENT, format!("{value}, or unset it")))
    }
}

/// `off` is all that can be kept. Notes that ours was `decided`: its alias then no longer counts.
pub(super) fn oversubscribe(decided: &mut bool, set: &Setting<'_>) -> Result<(), LimitError> {
    *decided = true;
    only(set, "off")
}

/// HAMi's switch. Ours wins.
pub(super) fn hami_oversubscribe(decided: &mut bool, set: &Setting<'_>) -> Result<(), LimitError> {
    match set.value {
        "" | "0" | "false" => Ok(()),
        "1" | "true" if *decided => Ok(()),
        "1" | "true" => Err(set.refuse(ABSENT, "false, or unset it")),
        _ => Err(set.refuse("it is a switch", "false, or unset it")),
    }
}
