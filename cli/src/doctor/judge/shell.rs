//! Checks of what this shell says: its variables, and the runtime folder that it names.

use super::{Facts, Judged, fail, ok, warn};

/// Where no daemon serves that this shell looks for.
pub(super) fn no_daemon(facts: &Facts) -> Judged {
    match &facts.elsewhere {
        Some(other) => warn(
            format!("no daemon serves in the runtime folder of this shell; {other}"),
            "use that runtime folder, or none: a second daemon for the same GPU is refused",
        ),
        None => warn(
            "no daemon serves",
            "nothing to do for yourself: `gpushare run` starts one. For all users: systemctl enable --now gpushared",
        ),
    }
}

pub(super) fn variables(facts: &Facts) -> Judged {
    if let Some(refused) = facts.misspelt.first() {
        return fail(
            refused.clone(),
            "correct it, or unset it: CUDA is refused in every program that has it",
        );
    }
    if let Some(ended) = &facts.ended_outer {
        return fail(
            ended.clone(),
            "tmux, screen, nohup or the server of an editor, started by a job, outlives its tenant",
        );
    }
    if let Some(refused) = &facts.unopened {
        return warn(
            refused.clone(),
            "correct it, or unset it: `gpushare run` refuses it, and in other programs the library logs nothing",
        );
    }
    match facts.disabled {
        true => warn(
            "GPUSHARE_DISABLE=1 is set",
            "programs without a daemon have no limits: unset it",
        ),
        false => ok("all are understood"),
    }
}
