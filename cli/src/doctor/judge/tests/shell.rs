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

#[test]
fn a_job_outside_of_a_login_that_takes_its_books_is_warned() {
    let job = |facts: &mut Facts| {
        facts.daemons.clear();
        facts.login.removes = Some("/dev/shm".into());
    };
    let judged = |change: &dyn Fn(&mut Facts)| {
        let mut facts = healthy();
        job(&mut facts);
        change(&mut facts);
        host::logout(&facts)
    };
    let (verdict, found, advice) = judged(&|_| ());
    assert_eq!(verdict, Verdict::Warn);
    assert!(found.contains("removes what is in /dev/shm"), "{found}");
    assert!(advice.is_some_and(|advice| advice.contains("enable-linger")));
    let kept: [&dyn Fn(&mut Facts); 3] = [
        &|facts| facts.login.removes = None,
        &|facts| facts.login.is_within = true,
        &|facts| facts.daemons = healthy().daemons,
    ];
    for change in kept {
        assert_eq!(judged(change).0, Verdict::Ok);
    }
}
