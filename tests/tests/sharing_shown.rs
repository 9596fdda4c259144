//! `gpushare ps` and `gpushare devices` show how the time of each device is shared.

use gpushare_tests::Home;
use serde_json::{Value, json};

/// The entry of `devices --json` for the daemon's device.
fn device(home: &Home) -> Value {
    let output = home.gpushare(&["devices", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    let mut known = all.into_iter().filter(|row| !row["node"].is_null());
    known.next().expect("the daemon's device")
}

fn says(home: &Home, regime: &str, table: &str) {
    let guest = home.guest("one", &["--mem-limit", "1GiB"]);
    let shown = device(home)["node"]["sharing"].clone();
    assert_eq!(shown["now"], regime, "{shown}");
    assert_eq!(shown["mode_changes_a_minute"], 0, "{shown}");
    assert_eq!(shown["books_off"], json!(null), "no tenant worked: {shown}");
    assert_eq!(home.row("one").expect("a row")["sharing"], shown);
    let text = home.gpushare(&["devices"]).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(table), "{text}");
    let ps = home.gpushare(&["ps"]);
    let talk = String::from_utf8_lossy(&ps.stderr);
    assert!(!talk.contains("note:"), "no setting is disabled: {talk}");
    guest.finish().silently();
}

#[test]
fn a_shared_device_says_its_mode_and_how_often_that_changed() {
    let home = Home::new("mem=16GiB");
    says(
        &home,
        "together",
        "time: together, 0 mode changes in the last minute",
    );
}

#[test]
fn a_device_that_is_dealt_in_turns_says_so() {
    let home = Home::with_config("mem=16GiB", "[compute]\nsharing = \"turns\"\n");
    says(&home, "turns", "time: turns");
}
