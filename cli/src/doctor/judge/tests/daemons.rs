//! Daemons that serve, and those that do not.

use super::*;
use crate::doctor::judge::daemons::daemon;

#[test]
fn a_daemon_that_is_silent_missing_or_of_another_version_is_named() {
    breaks(
        "daemon",
        Verdict::Fail,
        ("is stopped", "start it: systemctl"),
        |facts| {
            facts.silent = vec![Unserved::of(
                "the machine's daemon is stopped",
                "start it: systemctl",
            )];
        },
    );
    breaks(
        "daemon",
        Verdict::Warn,
        ("your own daemon", "`log` in its folder"),
        |facts| {
            facts.died = vec![Unserved::of(
                "your own daemon does not serve",
                "`log` in its folder",
            )];
        },
    );
    breaks(
        "daemon",
        Verdict::Warn,
        ("no daemon", "gpushare run"),
        |facts| {
            facts.daemons.clear();
        },
    );
    breaks(
        "daemon",
        Verdict::Warn,
        ("2.5, this command 2.8", "restart"),
        |facts| {
            facts.daemons[0].minor = 5;
        },
    );
    breaks(
        "one-daemon-a-gpu",
        Verdict::Fail,
        ("/run/user/1/gpushare", "all but one"),
        |facts| {
            let other = Daemon {
                folder: "/run/user/1/gpushare/d/gpu".into(),
                ..facts.daemons[0].clone()
            };
            facts.daemons.push(other);
        },
    );
}

#[test]
fn a_gpu_that_a_daemon_has_lost_is_named() {
    breaks(
        "daemon",
        Verdict::Fail,
        ("GPU-1 does not answer", "restart the daemon"),
        |facts| facts.daemons[0].lost.push("GPU-1".to_owned()),
    );
}

/// Of a daemon that a `run` of the user's started there is no unit.
#[test]
fn the_advice_about_an_own_daemon_is_not_for_the_machines() {
    let wrong: [fn(&mut Daemon); 3] = [
        |daemon| daemon.lost.push("GPU-1".to_owned()),
        |daemon| daemon.minor = 5,
        |daemon| daemon.build = Some("0.1.0+b".to_owned()),
    ];
    for wrong in wrong {
        let mut facts = healthy();
        let advice = |facts: &Facts| daemon(facts).2.expect("advice");
        wrong(&mut facts.daemons[0]);
        let said = advice(&facts);
        assert!(
            said.contains("restart the daemon") || said.contains("systemctl"),
            "{said}"
        );
        facts.daemons[0].folder = "/run/user/7/gpushare/d/0".into();
        let said = advice(&facts);
        assert!(said.contains("let its programs end"), "{said}");
        assert!(
            !said.contains("restart") && !said.contains("systemctl"),
            "{said}"
        );
    }
}

#[test]
fn settings_that_the_next_start_refuses_are_named() {
    let why = || Some("/etc/gpushare/config.toml: line 3".to_owned());
    breaks(
        "daemon",
        Verdict::Warn,
        ("next start fails: /etc/gpushare", "reload"),
        |facts| facts.refused_settings = why(),
    );
    breaks(
        "daemon",
        Verdict::Fail,
        (
            "is stopped; its settings are refused: /etc",
            "then start it: systemctl",
        ),
        |facts| {
            facts.silent = vec![Unserved::of(
                "the machine's daemon is stopped",
                "start it: systemctl",
            )];
            facts.refused_settings = why();
        },
    );
}

#[test]
fn a_daemon_of_another_build_is_named() {
    breaks(
        "daemon",
        Verdict::Warn,
        ("gpushare 0.1.0+b, this command 0.1.0+a", "systemctl cat"),
        |facts| facts.daemons[0].build = Some("0.1.0+b".to_owned()),
    );
    // An older one does not tell.
    let mut facts = healthy();
    facts.daemons[0].build = None;
    assert_eq!(daemon(&facts).0, Verdict::Ok);
}

#[test]
fn an_own_daemon_that_died_hides_nothing_of_those_that_serve() {
    let left = || vec![Unserved::of("your own daemon does not serve", "its log")];
    for (words, verdict, wrong) in [
        (
            ("GPU-1 does not answer", "restart the daemon"),
            Verdict::Fail,
            (|facts| facts.daemons[0].lost.push("GPU-1".to_owned())) as fn(&mut Facts),
        ),
        (
            ("2.5, this command 2.8", "restart"),
            Verdict::Warn,
            |facts| {
                facts.daemons[0].minor = 5;
            },
        ),
        (("next start fails", "reload"), Verdict::Warn, |facts| {
            facts.refused_settings = Some("line 3".to_owned());
        }),
        // Nothing serves: it is said all the same.
        (("your own", "its log"), Verdict::Warn, |facts| {
            facts.daemons.clear()
        }),
    ] {
        breaks("daemon", verdict, words, |facts| {
            facts.died = left();
            wrong(facts);
        });
    }
}
