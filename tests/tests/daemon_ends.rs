//! Idle ends and run limits: a warning, then the end, sent to all followers; changed and removed
//! while the program runs.

use gpushare_tests::home::Events;
use gpushare_tests::{Home, MIB, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The text of the next event of this kind about a tenant.
fn told(events: &mut Events, kind: &str, name: &str) -> String {
    let event = events.until(kind, name);
    event["text"].as_str().expect("a text").to_owned()
}

#[test]
fn a_run_limit_warns_and_ends_and_an_idle_end_spares_working_tenants() {
    let home = Home::new("mem=16GiB");
    let limited = home.guest("limited", &["--run-limit", "10s"]);
    let row = home.row("limited").expect("it runs");
    assert_eq!(row["ends"]["by"], "run limit");
    assert!(row["ends"]["in_ms"].as_u64().expect("a span") <= 10_000);
    let mut works = home.guest("works", &["--idle-end", "6s"]);
    assert_eq!(works.ask(&format!("alloc {MIB}")), "alloc 0");
    let idle = home.guest("idle", &["--idle-end", "6s", "--run-limit", "1h"]);
    assert_eq!(home.row("idle").expect("it runs")["ends"]["by"], "idle end");
    let table = home.gpushare(&["ps"]).stdout;
    let table = String::from_utf8_lossy(&table).into_owned();
    assert!(table.contains(" s (run limit)"), "{table}");

    let mut events = home.events();
    let soon = told(&mut events, "ends-soon", "limited");
    assert!(soon.starts_with("will be ended in "), "{soon}");
    // Its memory grows, so that each look of the daemon finds it active.
    until("the run limit has ended it", || {
        assert_eq!(works.ask(&format!("alloc {MIB}")), "alloc 0");
        home.row("limited").is_none()
    });
    assert!(works.finish().status.success(), "it is warned at most");
    until("the idle end has ended it", || home.row("idle").is_none());
    for (guest, name, why) in [
        (limited, "limited", "its run limit of 10 s"),
        (idle, "idle", "no GPU work for its idle end of 6 s"),
    ] {
        let ended = guest.finish();
        assert_eq!(ended.status.code(), Some(143), "{ended:?}");
        for words in [
            "the program will be ended in ",
            &format!("the program is ended: {why}"),
        ] {
            assert!(ended.stderr.contains(words), "{name}: {ended:?}");
        }
    }
}

#[test]
fn an_end_is_an_event_and_set_gives_changes_and_takes_it_away() {
    let home = Home::new("mem=16GiB");
    let _keeps_the_daemon = home.guest("other", &[]);
    let guest = home.guest("one", &["--run-limit", "1h"]);
    let ends = || home.row("one").expect("it runs")["ends"].clone();
    let set = |flag: &str, value: &str| home.gpushare(&["set", "one", flag, value]);
    assert!(set("--run-limit", "off").status.success());
    assert!(ends().is_null());
    assert!(set("--idle-end", "2h").status.success());
    assert_eq!(ends()["by"], "idle end");
    assert!(set("--idle-end", "off").status.success());
    assert!(ends().is_null());
    let wrong = set("--run-limit", "soon");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    for word in ["--run-limit", "soon", "off", "2h"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(set("--run-limit", "1ms").status.success());
    // It has run for longer already, so there is no time for a warning.
    let end = told(&mut home.events(), "ended", "one");
    assert_eq!(end, "SIGTERM: its run limit of 1 ms");
    assert_eq!(guest.finish().status.code(), Some(143));
    assert!(home.row("other").is_some(), "no other tenant ends");
}

/// A stopped process acts on SIGTERM once it goes on.
#[test]
fn ps_and_why_say_that_a_tenant_is_being_ended() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("stopped-end", &["--run-limit", "1h"]);
    assert_eq!(guest.ask(&format!("alloc {MIB}")), "alloc 0");
    let row = home.until("stopped-end", |row| row["processes"][0]["pid"].is_u64());
    assert_eq!(row["ends"]["told"], false);
    let pid = row["processes"][0]["pid"].as_i64().expect("a number");
    let signal = |signal| {
        let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
        kill(pid, signal).expect("it lives");
    };
    signal(Signal::SIGSTOP);
    let set = home.gpushare(&["set", "stopped-end", "--run-limit", "1ms"]);
    assert!(set.status.success(), "{set:?}");
    home.until("stopped-end", |row| row["ends"]["told"] == true);
    let said = |arguments: &[&str]| {
        let output = home.gpushare(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Lines are broken to the terminal's width.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (table, why) = (said(&["ps"]), said(&["why", "stopped-end"]));
    signal(Signal::SIGCONT);
    assert!(table.contains("is being ended (run limit)"), "{table}");
    assert!(why.contains("is being ended"), "{why}");
    assert!(why.contains("SIGTERM: its run limit of 1 ms"), "{why}");
    assert_eq!(guest.finish().status.code(), Some(143));
}

#[test]
fn the_nodes_default_end_applies_without_a_setting() {
    let home = Home::with_config("", "[defaults]\nGPUSHARE_RUN_LIMIT = \"1h\"\n");
    let silent = home.guest("silent", &[]);
    let says = home.guest("says", &["--run-limit", "off", "--idle-end", "3h"]);
    assert_eq!(
        home.row("silent").expect("it runs")["ends"]["by"],
        "run limit"
    );
    assert_eq!(home.row("says").expect("it runs")["ends"]["by"], "idle end");
    silent.finish().silently();
    says.finish().silently();
}
