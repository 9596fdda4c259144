//! `gpushare suspend`, `resume`, `why` and `bench swap`, with the real daemon, the real library and
//! tenants whose memory moves.

use gpushare_protocol::wire::Request;
use gpushare_tests::movable::Scene;
use gpushare_tests::{Guest, Home, MIB, clients, process, schema, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::sync::atomic::Ordering;

/// A node with host memory for swapping, and room for one and a half tenants of 64 MiB.
const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
const SWAP: [&str; 4] = ["--on-collision", "swap", "--mem-limit", "96MiB"];

/// A tenant with 64 MiB of this value.
fn filled(home: &Home, name: &str, value: u64) -> Guest {
    let mut command = home.run(name, &SWAP);
    command.arg(clients::compile("swapped", &[]));
    let mut guest = Guest::start(command);
    for (line, answer) in [
        ("init".to_owned(), "init 0"),
        (format!("alloc {}", 64 * MIB), "alloc 0"),
        (format!("fill {value}"), "fill 0"),
    ] {
        assert_eq!(guest.ask(&line), answer);
    }
    guest
}

/// The sentences of a command that succeeds, in one line.
fn said(home: &Home, arguments: &[&str]) -> String {
    let Output { status, stdout, .. } = home.gpushare(arguments);
    assert!(status.success(), "{arguments:?}");
    let text = String::from_utf8(stdout).expect("text");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The message of a refused command.
fn refused(home: &Home, arguments: &[&str]) -> String {
    refused_with(1, home, arguments)
}

/// The same, where the command ends with this status.
fn refused_with(code: i32, home: &Home, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = home.gpushare(arguments);
    assert_eq!(status.code(), Some(code), "{arguments:?}");
    String::from_utf8(stderr).expect("text")
}

fn place(home: &Home, name: &str) -> Value {
    home.row(name).expect("the tenant exists")["residency"]["place"].clone()
}

#[test]
fn suspend_and_resume_return_when_memory_is_there_and_why_says_it() {
    let home = Home::with_config(DEVICE, NODE);
    let mut guest = filled(&home, "one", 7);
    let free = said(&home, &["why", "one"]);
    assert!(free.contains("nothing holds it up now"), "{free}");

    home.suspend("one");
    assert_eq!(place(&home, "one"), "out");
    let why = said(&home, &["why", "one"]);
    for words in [
        "one is suspended: 64 MiB of",
        "have been on the host for",
        "`gpushare resume one` brings them back",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let data = said(&home, &["why", "one", "--json"]);
    let data: Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(data["state"], "out");

    let resumed = home.gpushare(&["resume", "one"]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(resumed.stderr.is_empty(), "served at once: {resumed:?}");
    assert_eq!(place(&home, "one"), "in");
    let back = said(&home, &["why", "one"]);
    assert!(back.contains("nothing holds it up now"), "{back}");
    assert_eq!(guest.ask("check 7"), "check 0");

    home.suspend("one");
    assert_eq!(guest.ask("check 7"), "check 0", "a call wakes it");
    until("it is back for its daemon too", || {
        place(&home, "one") == "in"
    });
    assert!(guest.finish().silently().is_empty());
}

#[test]
fn what_moved_is_in_ps_why_the_metrics_the_page_and_the_trace() {
    let home = Home::with_config(DEVICE, NODE);
    let mut guest = filled(&home, "one", 7);
    home.suspend("one");
    said(&home, &["resume", "one"]);
    let row = home.row("one").expect("the tenant exists");
    schema::check("ps.json", &row);
    let moved = &row["residency"];
    let bytes = |key: &str| moved[key].as_u64().expect("a number");
    assert!(bytes("moved_out") >= 64 * MIB, "{moved}");
    assert!(bytes("moved_in") >= 64 * MIB, "{moved}");
    assert_eq!(bytes("in_files"), 0);
    let (table, why) = (said(&home, &["ps"]), said(&home, &["why", "one"]));
    for text in [&table, &why] {
        assert!(text.contains("left once: 64 MiB out (p99 < "), "{text}");
        assert!(text.contains(", 64 MiB back (p99 < "), "{text}");
    }

    let metrics = home.gpushare(&["metrics"]);
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    let value = |start: &str, direction: &str| {
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with(start) && line.contains(direction));
        let line = line.unwrap_or_else(|| panic!("{start} {direction}: {metrics}"));
        let (_, value) = line.rsplit_once(' ').expect("a value");
        value.parse::<f64>().expect("a number")
    };
    let least = (64 * MIB) as f64;
    assert!(value("gpushare_swap_out_bytes_total{tenant=\"one\"", "") >= least);
    assert!(value("gpushare_swap_in_bytes_total{tenant=\"one\"", "") >= least);
    for direction in ["direction=\"out\"", "direction=\"in\""] {
        let count = value("gpushare_swap_seconds_count{tenant=\"one\"", direction);
        assert!((count - 1.0).abs() < f64::EPSILON, "{direction}: {count}");
    }
    assert!(value("gpushare_swap_host_capacity_bytes", "") >= 1e9);

    let (trace, page) = (home.folder().join("t.json"), home.folder().join("p.html"));
    let paths = [&trace, &page].map(|path| path.display().to_string());
    said(&home, &["events", "--perfetto", &paths[0]]);
    let trace: Value =
        serde_json::from_slice(&fs::read(&trace).expect("it was written")).expect("JSON");
    let all = trace["traceEvents"].as_array().expect("a list");
    for name in ["moves out", "off the GPU", "moves in"] {
        let slice = all.iter().find(|event| event["name"] == name);
        let slice = slice.unwrap_or_else(|| panic!("{name}: {trace}"));
        assert_eq!(slice["ph"], "X");
        if name != "off the GPU" {
            assert!(slice["args"]["bytes"].as_u64() >= Some(64 * MIB), "{slice}");
        }
    }
    said(&home, &["report", "--html", &paths[1]]);
    let page = fs::read_to_string(&page).expect("it was written");
    assert!(page.contains("Memory that moves"), "{page}");
    let events = home.gpushare(&["events", "--json", "--tenant", "one"]);
    let events = String::from_utf8(events.stdout).expect("text");
    for line in events.lines() {
        schema::check("event.json", &serde_json::from_str(line).expect("JSON"));
    }
    let left = events
        .lines()
        .find(|line| line.contains("\"kind\":\"left\""));
    let left: Value = serde_json::from_str(left.expect("it left")).expect("JSON");
    assert_eq!(left["facts"]["bytes"], 64 * MIB, "{left}");
    assert_eq!(guest.ask("check 7"), "check 0");
}

#[test]
fn what_cannot_be_suspended_is_refused_with_the_reason() {
    let home = Home::with_config(DEVICE, NODE);
    let _plain = home.guest("plain", &["--mem-limit", "32MiB"]);
    let fixed = refused(&home, &["suspend", "plain"]);
    let why = "plain cannot be suspended: its memory cannot leave the card";
    assert!(fixed.contains(why), "{fixed}");
    let output = home.gpushare(&["resume", "plain"]);
    assert!(output.status.success(), "it is on its device: {output:?}");
    for command in ["suspend", "resume"] {
        let unknown = refused(&home, &[command, "nobody"]);
        assert!(unknown.contains("no tenant is named"), "{unknown}");
    }
}

#[test]
fn a_suspend_of_a_tenant_that_captures_ends_with_the_reason() {
    let home = Home::with_config(DEVICE, NODE);
    let mut guest = filled(&home, "one", 7);
    assert_eq!(guest.ask("capture"), "capture 0");
    let error = refused(&home, &["suspend", "one"]);
    for words in [
        "one has not left yet: one of its streams captures",
        "`gpushare resume one` ends that",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let why = said(&home, &["why", "one"]);
    assert!(why.contains("one is to leave"), "{why}");
    assert_eq!(guest.ask("end"), "end 0");
    home.suspend("one");
    assert_eq!(place(&home, "one"), "out");
    assert_eq!(guest.ask("check 7"), "check 0");
}

/// Resumes `one`, which waits until this is done: the only line that the command prints meanwhile.
fn resumed_by(home: &Home, ends_the_wait: impl FnOnce()) -> String {
    let mut resume = home.command(&["resume", "one"]);
    let mut resume = resume.stderr(Stdio::piped()).spawn().expect("it starts");
    let stderr = resume.stderr.take().expect("piped");
    let mut told = BufReader::new(stderr).lines();
    let line = told.next().expect("a line").expect("text");
    assert!(resume.try_wait().expect("it was started").is_none());
    ends_the_wait();
    assert!(resume.wait().expect("it was started").success());
    assert!(told.next().is_none(), "one line");
    assert_eq!(place(home, "one"), "in");
    let words = "one is not back yet, and this command waits until it is. ";
    assert!(line.contains(words), "{line}");
    line
}

#[test]
fn a_resume_of_a_stopped_program_says_that_its_return_takes_long() {
    let home = Home::with_config(DEVICE, NODE);
    let mut guest = filled(&home, "one", 7);
    home.suspend("one");
    let row = home.row("one").expect("the tenant exists");
    let pid = row["processes"][0]["pid"].as_i64().expect("a process");
    let process = Pid::from_raw(i32::try_from(pid).expect("a process"));
    home.gpu().stop(process);
    let goes_on = || kill(process, Signal::SIGCONT).expect("it lives");
    let line = resumed_by(&home, goes_on);
    assert!(line.contains(": its return takes long; it"), "{line}");
    assert_eq!(guest.ask("check 7"), "check 0");
}

#[test]
fn a_resume_to_a_device_that_another_tenant_holds_says_so() {
    let home = Home::with_config(DEVICE, NODE);
    let mut guest = filled(&home, "one", 7);
    home.suspend("one");
    let mut holds = home.guest("plain", &["--mem-limit", "64MiB"]);
    assert_eq!(holds.ask(&format!("alloc {}", 56 * MIB)), "alloc 0");
    let line = resumed_by(&home, || drop(holds.finish()));
    let words = "64 MiB of one have been on the host for";
    assert!(
        line.contains(words) && line.contains("take turns"),
        "{line}"
    );
    assert_eq!(guest.ask("check 7"), "check 0");
}

#[test]
fn why_says_that_memory_is_away_for_another_tenants_turn() {
    let home = Home::with_config(DEVICE, NODE);
    let mut one = filled(&home, "one", 3);
    let mut two = filled(&home, "two", 4);
    assert_eq!(place(&home, "one"), "out");
    let why = said(&home, &["why", "one"]);
    let words = "64 MiB of one have been on the host for";
    assert!(
        why.contains(words) && why.contains("take turns. They come back in its turn"),
        "{why}"
    );
    let why = said(&home, &["why", "two"]);
    assert!(why.contains("nothing holds it up now"), "{why}");
    assert_eq!(one.ask("check 3"), "check 0");
    assert_eq!(two.ask("check 4"), "check 0");
}

/// The work that the process of a scene has published.
fn counted(scene: &Scene) -> u64 {
    let line = scene.dealer.usage().line(0, 0).expect("a first line");
    line.submitted.load(Ordering::Relaxed)
}

/// A tenant that only copies would count as idle, and be moved first.
#[test]
fn copies_count_as_work_where_memory_may_move_and_allocations_do_not() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    until("the first copy and its wait are counted", || {
        counted(&scene) >= 2
    });
    let before = counted(&scene);
    scene.does(&["alloc 1 4194304", "free 1", "alloc 2 4194304", "free 2"]);
    scene.does(&["fill 0 2", "fill 0 3"]);
    // Each time the copy, and the wait for it.
    until("the other copies are counted", || {
        counted(&scene) >= before + 4
    });
    assert_eq!(counted(&scene), before + 4);
    let moves = |said: &Request| matches!(said, Request::SealBusy { .. });
    assert!(!scene.dealer.said().iter().any(moves));
    scene.guest.finish().silently();
}

#[test]
fn a_benchmark_of_moves_loses_no_byte_and_names_its_figures() {
    let home = Home::with_config("", NODE);
    let (json, table) = (home.folder().join("o.json"), home.folder().join("o.md"));
    let paths = [&json, &table].map(|path| path.display().to_string());
    let always = ["bench", "swap", "--gpu", "soft:mem=64MiB,ctx=2MiB"];
    let few = ["--seconds", "1", "--samples", "2", "--moves", "1"];
    let files = ["--json", &paths[0], "--markdown", &paths[1]];
    let text = said(&home, &[&always[..], &few, &files].concat());
    for figure in [
        "part of the link",
        "seal of it, the longest of 2",
        "pages lost 0",
    ] {
        assert!(text.contains(figure), "{figure}: {text}");
    }
    let data = fs::read(&json).expect("it was written");
    let data: Value = serde_json::from_slice(&data).expect("JSON");
    assert_eq!(data["idle"]["seal_ns"].as_array().map(Vec::len), Some(2));
    assert_eq!(data["pair"]["wrong_pages"], 0);
    assert_eq!(data["idle"]["wrong_pages"], 0);
    let table = fs::read_to_string(&table).expect("it was written");
    assert!(table.contains("| pages lost | 0 | 0 |"), "{table}");
}

/// The other tenant works for two more minutes, and does not look at its input.
#[test]
fn a_benchmark_of_moves_ends_when_one_of_its_tenants_is_lost() {
    let home = Home::with_config("", NODE);
    let few = ["--seconds", "120", "--samples", "1", "--moves", "1"];
    let mut bench = home.command(&["bench", "swap", "--gpu", "soft:mem=64MiB,ctx=2MiB"]);
    let bench = bench
        .args(few)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut bench = bench.spawn().expect("it starts");
    let [one, two] = ["one", "two"].map(|name| format!("bench-{}-{name}", bench.id()));
    // Each was moved twice by command, and then they take turns by themselves.
    let moves = |kind: &str, name: &str| {
        let flags = ["events", "--json", "--kind", kind, "--tenant", name];
        let events = home.gpushare(&flags).stdout;
        events.iter().filter(|byte| **byte == b'\n').count()
    };
    until("both were moved by command", || moves("resumed", &two) == 2);
    let before = moves("left", &one);
    until("they work", || moves("left", &one) > before);
    let [stays, dies] = [&one, &two].map(|name| {
        let row = home.row(name).expect("it is there");
        let pid = row["processes"][0]["pid"].as_u64().expect("a process");
        u32::try_from(pid).expect("a process")
    });
    let dies = Pid::from_raw(i32::try_from(dies).expect("a process"));
    kill(dies, Signal::SIGKILL).expect("it lives");
    until("it does not wait for the other tenant", || {
        bench.try_wait().expect("it was started").is_some()
    });
    let output = bench.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&two), "{said}");
    until("the other tenant has ended, too", || {
        process::is_dead(stays)
    });
}

#[test]
fn a_benchmark_of_moves_is_refused_where_nothing_can_move() {
    let home = Home::new("");
    let bench = |home: &Home, more: &[&str]| refused(home, &[&["bench", "swap"], more].concat());
    let no_host = bench(&home, &["--gpu", "soft:mem=64MiB,ctx=2MiB"]);
    assert!(no_host.contains("[swap] host"), "{no_host}");
    let no_vmm = bench(&home, &["--gpu", "soft:mem=64MiB,vmm=off"]);
    assert!(no_vmm.contains("virtual memory management"), "{no_vmm}");
}

#[test]
fn a_wrong_size_is_usage_and_its_form_is_judged_without_a_daemon() {
    let gpu = ["bench", "swap", "--gpu", "soft:mem=64MiB,ctx=2MiB"];
    let bench = |home: &Home, size: &str| {
        let arguments = [&gpu[..], &["--size", size]].concat();
        refused_with(2, home, &arguments)
    };
    // Where nothing can move.
    let home = Home::new("");
    for size in ["1x", "60%"] {
        let said = bench(&home, size);
        assert!(said.contains("--size=") && said.contains(size), "{said}");
    }
    let home = Home::with_config("", NODE);
    for size in ["8MiB", "64MiB"] {
        let said = bench(&home, size);
        assert!(said.contains("more than half"), "{said}");
    }
}
