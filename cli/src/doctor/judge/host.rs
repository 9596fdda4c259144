//! The checks of what the machine has beside its GPUs: room, a clock.

use super::{Facts, Judged, fail, ok, warn};
use crate::daemon::NODE;
use gpushare_protocol::units::{Bytes, MIB};
use std::path::Path;

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

/// Files that a job loses if it goes on when its user logs out.
pub(super) fn logout(facts: &Facts) -> Judged {
    let Some(removed) = &facts.login.removes else {
        return ok("nothing that gpushare keeps goes with this user's last login");
    };
    let has_machines = facts
        .daemons
        .iter()
        .any(|daemon| daemon.folder == Path::new(NODE));
    match facts.login.is_within || has_machines {
        true => ok("this is part of a login, or the machine's daemon keeps the tenants"),
        false => warn(
            format!(
                "the end of this user's last login removes what is in {}, and this is part of none",
                removed.display()
            ),
            "loginctl enable-linger for the user, or use the machine's daemon: books of tenants without a daemon are lost, and a \
             private daemon is not found any more",
        ),
    }
}
