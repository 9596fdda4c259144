//! The checks of what the machine has beside its GPUs: room, a clock.

use super::{Facts, Judged, fail, ok, warn};
use gpushare_protocol::units::{Bytes, MIB};

/// Less space than this in a folder is too little for what gpushare writes.
const TIGHT: u64 = 16 * MIB;
/// 2024-01-01: a clock before that was never set.
const SET: u64 = 1_704_067_200;

pub(super) fn folders(facts: &Facts) -> Judged {
    if let Some(full) = facts.folders.iter().find(|folder| folder.free < TIGHT) {
        return fail(
            format!(
                "{} has {} left",
                full.path.display(),
                Bytes(full.free).human()
            ),
            "make room: registrations, books of tenants without a daemon and the journal are written there",
        );
    }
    if let Some(why) = &facts.no_journal {
        return warn(
            why.clone(),
            "events of your own daemons are lost with them: set XDG_STATE_HOME to a folder that you can write to",
        );
    }
    match facts.clock < SET {
        true => warn(
            "the machine's clock was never set",
            "events have wrong times and `events --since` finds the wrong ones: set the clock",
        ),
        false => ok("there is room, and the clock is set"),
    }
}
