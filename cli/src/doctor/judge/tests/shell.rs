//! The checks of the shell's variables and folders.

use super::*;

#[test]
fn a_log_or_journal_that_cannot_be_had_and_a_daemon_elsewhere_are_told() {
    breaks(
        "variables",
        Verdict::Warn,
        ("cannot be opened", "unset it"),
        |facts| {
            facts.unopened = Some("GPUSHARE_LOG cannot be opened".to_owned());
        },
    );
    breaks(
        "variables",
        Verdict::Warn,
        ("GPUSHARE_DISABLE", "unset"),
        |facts| {
            facts.disabled = true;
        },
    );
    breaks(
        "variables",
        Verdict::Fail,
        ("tenant outer has ended", "outlives its tenant"),
        |facts| {
            facts.ended_outer = Some("tenant outer has ended".to_owned());
        },
    );
    breaks(
        "folders-and-clock",
        Verdict::Warn,
        ("cannot be written", "XDG_STATE_HOME"),
        |facts| {
            facts.no_journal = Some("the journal cannot be written".to_owned());
        },
    );
    breaks(
        "daemon",
        Verdict::Warn,
        ("serves at /x/d/gpu", "use that runtime folder"),
        |facts| {
            facts.daemons.clear();
            facts.elsewhere = Some("another one serves at /x/d/gpu".to_owned());
        },
    );
}
