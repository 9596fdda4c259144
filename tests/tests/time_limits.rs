//! Limits of a device's time on the command line: accepted, shown, changed, distinguished, and
//! refused where they cannot be enforced.

use gpushare_tests::{Guest, Home, clients};
use serde_json::json;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_cap_and_a_share_are_shown_by_ps_and_changed_by_set() {
    let home = Home::new("mem=4GiB");
    let flags = ["--sm-limit", "30", "--sm-request", "12.5%"];
    let guest = home.guest("one", &flags);
    let row = home.row("one").unwrap();
    assert_eq!(
        (&row["time"]["cap"], &row["time"]["request"]),
        (&json!(30.0), &json!(12.5)),
        "{row}"
    );
    let table = text(&home.gpushare(&["ps"]).stdout);
    assert!(table.contains("at most 30%"), "{table}");
    let set = home.gpushare(&["set", "one", "--sm-limit", "50"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(home.row("one").unwrap()["time"]["cap"], 50.0);
    let above = home.gpushare(&["set", "one", "--sm-request", "60"]);
    assert!(!above.status.success(), "a request above the limit");
    let said = text(&above.stderr);
    assert!(said.contains("--sm-request=\"60\""), "{said}");
    let row = home.row("one").unwrap();
    assert_eq!(
        (&row["time"]["cap"], &row["time"]["request"]),
        (&json!(50.0), &json!(12.5))
    );
    guest.finish().silently();
}

#[test]
fn the_percentage_of_mps_is_a_cap_where_there_is_no_mps() {
    let home = Home::new("mem=4GiB");
    let percentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
    for (name, flags, cap) in [("one", &[][..], 30.0), ("two", &["--sm-limit", "50"], 50.0)] {
        let mut run = home.run(name, flags);
        run.env(percentage, "30")
            .arg(clients::compile("quota", &[]));
        let guest = Guest::start(run).started();
        assert_eq!(home.row(name).unwrap()["time"]["cap"], json!(cap));
        guest.finish().silently();
    }
    let mut run = home.run("one", &[]);
    let output = run.env(percentage, "half").arg("true").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains(percentage) && told.contains("half"), "{told}");
}

#[test]
fn one_name_with_another_share_of_time_is_refused() {
    let home = Home::new("mem=4GiB");
    let guest = home.guest("one", &["--sm-limit", "30"]);
    let other = home.run("one", &["--sm-limit", "40"]).arg("true").output();
    let other = other.unwrap();
    assert_eq!(other.status.code(), Some(125), "{other:?}");
    let said = text(&other.stderr);
    assert!(said.contains("exists with other limits"), "{said}");
    let same = home.run("one", &["--sm-limit", "30%"]).arg("true").output();
    assert!(same.unwrap().status.success());
    guest.finish().silently();
}

#[test]
fn a_guaranteed_share_takes_a_daemon_and_a_cap_does_not() {
    let home = Home::new("mem=4GiB");
    let run = |flags: &[&str]| {
        let flags = [&["--daemon", "off"], flags].concat();
        home.run("one", &flags).arg("true").output().unwrap()
    };
    let refused = run(&["--sm-request", "30"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains("--sm-request=\"30\"") && said.contains("--daemon off"),
        "{said}"
    );
    let capped = run(&["--sm-limit", "30"]);
    assert!(capped.status.success(), "{capped:?}");
}

#[test]
fn more_than_a_whole_device_is_not_guaranteed() {
    let home = Home::new("mem=4GiB");
    let guest = home.guest("first", &["--sm-request", "70"]);
    let second = home
        .run("second", &["--sm-request", "40"])
        .arg("true")
        .output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(125), "{second:?}");
    let said = text(&second.stderr);
    assert!(said.contains("40%"), "{said}");
    let third = home
        .run("third", &["--sm-request", "30"])
        .arg("true")
        .output();
    assert!(third.unwrap().status.success());
    guest.finish().silently();
}
