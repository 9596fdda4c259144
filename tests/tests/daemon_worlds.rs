//! Several daemons of one user, one for each set of GPUs. The commands show and change the tenants
//! of all of them.

use gpushare_tests::waiting::until;
use gpushare_tests::{GIB, Gpu, Guest, Home, clients, schema};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The quota client in a tenant of this name on this GPU.
fn guest(home: &Home, gpu: &Gpu, name: &str) -> Guest {
    limited(home, gpu, name, &[])
}

fn limited(home: &Home, gpu: &Gpu, name: &str, more: &[&str]) -> Guest {
    let gpu = format!("soft:{}", gpu.spec());
    let flags = ["run", "--gpu", &gpu, "--name", name, "--mem-limit", "4GiB"];
    let mut run = home.command(&[&flags[..], more, &["--"]].concat());
    run.arg(clients::compile("quota", &[]));
    Guest::start(run).started()
}

#[test]
fn ps_set_and_events_reach_the_tenants_of_all_daemons() {
    let home = Home::new("mem=16GiB");
    let (one, other) = (home.gpu(), Gpu::new("mem=8GiB"));
    let mut a = guest(&home, one, "a");
    let mut b = guest(&home, &other, "b");
    assert_eq!(home.daemons().len(), 2, "a daemon for each world");
    for (guest, gib) in [(&mut a, 1), (&mut b, 2)] {
        assert_eq!(guest.ask(&format!("alloc {}", gib * GIB)), "alloc 0");
    }
    let mut shown: Vec<_> = home
        .ps()
        .iter()
        .map(|row| (row["name"].to_string(), row["charged"].as_u64()))
        .collect();
    shown.sort();
    let charged = |name: &str, gib: u64| (format!("\"{name}\""), Some(gib * GIB));
    assert_eq!(shown, [charged("a", 1), charged("b", 2)]);

    for name in ["a", "b"] {
        let output = home.gpushare(&["set", name, "--mem-limit", "3GiB"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(home.row(name).expect("it runs")["limit"], 3 * GIB);
    }
    let output = home.gpushare(&["set", "c", "--mem-limit", "3GiB"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("no tenant is named c"), "{told}");

    let output = home.gpushare(&["events"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["a", "b"] {
        let of = |line: &&str| line.contains(" set ") && line.contains(&format!(" {name} "));
        assert!(told.lines().any(|line| of(&line)), "{name}: {told}");
    }
    b.finish().silently();
    assert!(home.row("b").is_none() && home.row("a").is_some());
    a.finish().silently();
    home.until_no_daemon();
}

#[test]
fn a_follower_ends_without_an_event_when_its_reader_goes() {
    let home = Home::new("mem=16GiB");
    let a = home.guest("a", &[]);
    let mut command = home.command(&["events", "--follow"]);
    let mut follower = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut reader = BufReader::new(follower.stdout.take().expect("piped"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("an event");
    assert!(follower.try_wait().expect("its state").is_none(), "{line}");
    drop(reader);
    let mut ended = None;
    until("it ends", || {
        ended = follower.try_wait().expect("its state");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
    a.finish().silently();
}

#[test]
fn a_follower_sees_the_events_of_every_daemon() {
    let home = Home::new("mem=16GiB");
    let (one, other) = (home.gpu(), Gpu::new("mem=8GiB"));
    let a = guest(&home, one, "a");
    let b = guest(&home, &other, "b");
    let mut events = home.events();
    let set = |name: &str| {
        let output = home.gpushare(&["set", name, "--mem-limit", "3GiB"]);
        assert!(output.status.success(), "{output:?}");
    };
    // In both orders, so that no daemon's events wait behind the other daemon's.
    for (first, second) in [("a", "b"), ("b", "a")] {
        for name in [first, second] {
            set(name);
            let text = events.until("set", name)["text"].to_string();
            assert!(text.contains("GPUSHARE_MEM_LIMIT=3GiB"), "{text}");
        }
    }
    a.finish().silently();
    events.until("gone", "a");
    set("b");
    events.until("set", "b");
    b.finish().silently();
    events.until("gone", "b");
    assert_eq!(home.daemons().len(), 2, "they stay for followers");
    drop(events);
    home.until_no_daemon();
}

#[test]
fn an_order_for_a_name_that_two_daemons_have_changes_neither() {
    let home = Home::new("mem=16GiB");
    let (one, other) = (home.gpu(), Gpu::new("mem=8GiB"));
    let a = guest(&home, one, "web");
    let b = guest(&home, &other, "web");
    let limits = |home: &Home| -> Vec<Value> {
        let rows = home.ps().into_iter();
        rows.map(|row| row["limit"].clone()).collect()
    };
    let orders: [&[&str]; 3] = [
        &["set", "web", "--mem-limit", "2GiB"],
        &["suspend", "web"],
        &["resume", "web"],
    ];
    for order in orders {
        let output = home.gpushare(order);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("several tenants are named web"), "{told}");
        for gpu in [one, &other] {
            let name = gpu.spec().trim_start_matches("name=").split(',').next();
            let folder = format!("d/soft-{}", name.expect("a word"));
            assert!(told.contains(&folder), "{folder}: {told}");
        }
    }
    assert_eq!(limits(&home), [4 * GIB, 4 * GIB]);
    a.finish().silently();
    until("the daemon of the first leaves", || {
        home.daemons().len() == 1
    });
    let output = home.gpushare(orders[0]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(limits(&home), [2 * GIB]);
    b.finish().silently();
    home.until_no_daemon();
}

#[test]
fn tenants_of_one_name_keep_their_daemons_facts_apart() {
    let home = Home::new("mem=16GiB");
    let (one, other) = (home.gpu(), Gpu::new("mem=8GiB"));
    let ends = ["--run-limit", "1h", "--gang", "g"];
    let said = |json: &str| home.gpushare(&["why", "web", json]).stdout;
    for (first, second) in [(&ends[..], &[][..]), (&[], &ends)] {
        let a = limited(&home, one, "web", first);
        assert!(!String::from_utf8_lossy(&said("--json")).contains("Another daemon"));
        let b = limited(&home, &other, "web", second);
        let rows = home.ps();
        assert_eq!(rows.len(), 2, "{rows:?}");
        let limited = |row: &Value| !row["ends"].is_null() || !row["gang"].is_null();
        let both = rows.iter().filter(|row| limited(row)).count();
        assert_eq!(both, 1, "{rows:?}");
        // It is about one of them, and says so.
        let why: Value = serde_json::from_slice(&said("--json")).expect("an object");
        schema::check("why.json", &why);
        let told = why["sentences"].to_string();
        assert!(told.contains("Another daemon"), "{told}");
        // The end of one is not that of the other.
        a.finish().silently();
        let rows = home.ps();
        assert_eq!(rows.len(), 1, "{rows:?}");
        let told = String::from_utf8_lossy(&said("--json")).into_owned();
        let ends = told.contains("--run-limit");
        assert_eq!(ends, !second.is_empty(), "{told}");
        assert!(!told.contains("Another daemon"), "{told}");
        b.finish().silently();
        home.until_no_daemon();
    }
}
