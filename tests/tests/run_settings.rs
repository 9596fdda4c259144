//! The flags of `run` beside inherited variables and a node's settings.

use std::process::Output;

use gpushare_tests::{GIB, Guest, Home, clients};

const VIEW: [&str; 2] = ["--mem-view", "request"];

/// `run` refuses to start a program with these words.
#[track_caller]
fn is_refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    for words in words {
        assert!(said.contains(words), "{words} in {said}");
    }
}

#[test]
fn the_view_of_a_request_that_the_nodes_default_makes_can_be_asked_for() {
    let home = Home::with_config("mem=16GiB", "[defaults]\nGPUSHARE_MEM_LIMIT = \"4GiB\"\n");
    let mut guest = home.guest("default", &VIEW);
    assert_eq!(guest.ask("total"), format!("total {} 0", 4 * GIB));
    guest.finish().silently();
}

#[test]
fn the_view_of_a_request_that_nothing_makes_is_refused_by_its_flag() {
    let home = Home::new("mem=16GiB");
    for more in [&[][..], &["--daemon", "off"]] {
        let mut run = home.run("none", &[&VIEW[..], more].concat());
        let output = run.arg("true").output().expect("gpushare starts");
        let why = "--mem-view=\"request\" is refused: there is no request";
        is_refused(&output, &[why, "accepted: request together with"]);
    }
}

#[test]
fn a_flag_for_a_device_by_ordinal_wins_over_the_variable_of_its_uuid() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &[]);
    let uuid = home.row("first").expect("it runs")["device"].clone();
    first.finish().silently();
    let uuid = uuid.as_str().expect("a text");
    let variable = format!("GPUSHARE_MEM_LIMIT_{}", uuid.replace('-', "_"));
    let limit_under = |flags: &[&str]| {
        let mut run = home.run("limited", flags);
        run.env(&variable, "8GiB")
            .arg(clients::compile("quota", &[]));
        let guest = Guest::start(run).started();
        let limit = home.row("limited").expect("it runs")["limit"].as_u64();
        guest.finish().silently();
        limit.map(|bytes| bytes / GIB)
    };
    assert_eq!(limit_under(&["--mem-limit", "0=4GiB"]), Some(4));
    assert_eq!(limit_under(&["--mem-request", "0=4GiB"]), Some(8));
    let named = format!("{uuid}=2GiB");
    let twice = ["--mem-limit", "0=1GiB", "--mem-limit", &named];
    let output = home.run("twice", &twice).arg("true").output();
    let why = "--mem-limit is given twice for the same device";
    is_refused(&output.expect("gpushare starts"), &[why]);
}
