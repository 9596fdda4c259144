//! The journal: what happened is known after the tenant and the daemon are gone, and `why` says it.

use gpushare_client::Talk;
use gpushare_protocol::wire::Control;
use gpushare_tests::{GIB, Guest, Home, MIB, alloc, clients, schema, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";

/// A name that no other journal of this machine mentions.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `gpushare events --json` with these further arguments.
fn events(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let all = [&["events", "--json"], arguments].concat();
    let lines = text(&home.gpushare(&all));
    let line = |line: &str| serde_json::from_str(line).expect("an object a line");
    let all: Vec<Value> = lines.lines().map(line).collect();
    all.iter()
        .for_each(|event| schema::check("event.json", event));
    all
}

/// A sum over events' facts.
fn sum(events: &[Value], fact: &str) -> u64 {
    let facts = events
        .iter()
        .filter_map(|event| event["facts"][fact].as_u64());
    facts.sum()
}

#[test]
fn events_are_known_when_tenant_and_daemon_are_gone() {
    let (home, web) = (Home::new("mem=16GiB,count=2"), &*own("web"));
    let mut guest = home.guest(web, &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&alloc(GIB / 2)), GRANTED);
    for _ in 0..3 {
        assert_eq!(guest.ask(&alloc(2 * GIB)), REFUSED);
    }
    let pid = home.row(web).expect("it runs")["processes"][0]["pid"].clone();
    guest.finish().silently();
    home.until_no_daemon();

    let all = events(&home, &["--since", "8h", "--tenant", web]);
    let kinds: Vec<&str> = all
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"admitted"), Some(&"gone"))
    );
    let refused = events(&home, &["--tenant", web, "--kind", "refused"]);
    // Each refusal once, however often the charge was tried.
    assert_eq!(sum(&refused, "count"), 3, "{refused:?}");
    assert_eq!(sum(&refused, "over_limit"), 3, "{refused:?}");
    assert_eq!(refused[0]["facts"]["limit_bytes"], GIB);
    // What was asked for, and by which process.
    assert_eq!(refused[0]["facts"]["largest_bytes"], 2 * GIB);
    assert_eq!(refused[0]["facts"]["pid"], pid);
    assert!(
        refused[0]["text"]
            .as_str()
            .unwrap()
            .contains("its own limit of 1 GiB")
    );
    let gone = events(&home, &["--kind", "gone", "--tenant", web]);
    let facts = &gone[0]["facts"];
    assert_eq!(
        (&facts["exit_status"], &facts["refused"]),
        (&0.into(), &3.into())
    );
    let peak = facts["peak_bytes"].as_u64().unwrap();
    assert!((GIB / 2..GIB).contains(&peak), "{facts}");

    // Only on that GPU, of no other tenant, and not from later on.
    let gpu = refused[0]["gpu"].as_u64().unwrap();
    assert_eq!(
        events(
            &home,
            &[
                "--tenant",
                web,
                "--kind",
                "refused",
                "--gpu",
                &gpu.to_string()
            ]
        ),
        refused
    );
    let uuid = refused[0]["device"].as_str().unwrap();
    assert_eq!(
        events(
            &home,
            &["--tenant", web, "--kind", "refused", "--gpu", &uuid[..12]]
        ),
        refused
    );
    let other = (1 - gpu).to_string();
    let nobody = own("other");
    for none in [
        vec!["--tenant", web, "--kind", "refused", "--gpu", &other],
        vec!["--tenant", &nobody, "--since", "8h"],
        vec!["--tenant", web, "--since", "0s"],
    ] {
        assert_eq!(events(&home, &none), [] as [Value; 0], "{none:?}");
    }
    // The output for people.
    let lines = text(&home.gpushare(&["events", "--tenant", web]));
    assert!(lines.lines().all(|line| line.contains(web)), "{lines}");
    assert!(lines.contains("3 allocations were refused"), "{lines}");
    let why = text(&home.gpushare(&["why", web])).replace('\n', " ");
    assert!(
        why.contains("gone since") && why.contains("--mem-limit 2560MiB"),
        "{why}"
    );
}

#[test]
fn the_end_of_a_tenant_is_known_as_soon_as_run_has_returned() {
    let home = Home::new("mem=16GiB");
    for round in 0..20 {
        let name = own(&format!("short{round}"));
        let mut run = home.run(&name, &["--mem-limit", "1GiB"]);
        assert!(run.arg("true").status().unwrap().success());
        let why = text(&home.gpushare(&["why", &name])).replace('\n', " ");
        assert!(why.contains("has been gone since"), "{round}: {why}");
        assert!(why.contains("exit status 0"), "{round}: {why}");
    }
}

#[test]
fn an_end_by_a_command_is_told_with_whose_command_it_was() {
    let (home, web) = (Home::new("mem=16GiB"), &*own("web"));
    let mut guest = home.guest(web, &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&alloc(MIB)), GRANTED);
    let line = fs::read_to_string(format!("/proc/{}/cmdline", home.daemons()[0])).unwrap();
    let mut words = line.split('\0').skip_while(|word| *word != "--runtime-dir");
    let folder = words.nth(1).expect("its folder");
    let end = Control::End {
        tenant: web.to_owned(),
        kill: false,
    };
    // The daemon ends soon after the tenant: it is followed before.
    let mut followed = home.events();
    followed.until("admitted", web);
    Talk::connect(Path::new(folder))
        .unwrap()
        .call(&end)
        .unwrap();
    let ended = followed.until("ended", web);
    schema::check("event.json", &ended);
    let facts = &ended["facts"];
    assert_eq!(
        (&facts["reason"], &facts["by"], &facts["signal"]),
        (
            &"command".into(),
            &format!("user {}", nix::unistd::geteuid()).into(),
            &"SIGTERM".into()
        )
    );
    assert!(!guest.finish().status.success());
}

#[test]
fn the_past_of_a_killed_daemon_is_known_to_the_next() {
    let (home, web, other) = (Home::new("mem=16GiB"), &*own("web"), &*own("next"));
    let mut guest = home.guest(web, &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&alloc(MIB)), GRANTED);
    let admitted = events(
        &home,
        &["--kind", "admitted", "--tenant", web, "--tenant", other],
    );
    assert_eq!(admitted.len(), 1);
    let journal = home.folder().join("state/gpushare/journal.jsonl");
    until("it is written", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains(web))
    });
    guest.hold();
    for pid in home.daemons() {
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    home.until_no_daemon();
    assert_eq!(
        events(
            &home,
            &["--kind", "admitted", "--tenant", web, "--tenant", other]
        ),
        admitted
    );
    // A second daemon of the user writes to the same journal.
    let next = home.guest(other, &["--mem-limit", "1GiB"]);
    guest.go_on();
    let tenants: Vec<Value> = events(
        &home,
        &["--kind", "admitted", "--tenant", web, "--tenant", other],
    )
    .iter()
    .map(|event| event["tenant"].clone())
    .collect();
    assert!(
        tenants.contains(&web.into()) && tenants.contains(&other.into()),
        "{tenants:?}"
    );
    for guest in [next, guest] {
        assert!(guest.finish().status.success());
    }
}

#[test]
fn why_tells_a_waiting_tenant_whose_memory_it_waits_for() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let mut holder = home.guest("holder", &burst);
    assert_eq!(holder.ask(&alloc(10 * GIB)), GRANTED);
    let mut waiter = home.guest("waiter", &[&burst[..], &["--wait-timeout", "1h"]].concat());
    waiter.send(&alloc(10 * GIB));
    home.until("waiter", |row| row["processes"][0]["state"] == "waiting");
    let why = text(&home.gpushare(&["why", "waiter"]));
    for words in [
        "waited",
        "holder 10 GiB (9 GiB above its request)",
        "--wait-timeout",
    ] {
        assert!(why.replace('\n', " ").contains(words), "{words}: {why}");
    }
    let json: Value =
        serde_json::from_str(&text(&home.gpushare(&["why", "waiter", "--json"]))).unwrap();
    assert_eq!(
        (&json["state"], &json["schema"]),
        (&"waiting".into(), &1.into())
    );
    let why = text(&home.gpushare(&["why", "holder"]));
    assert!(why.contains("nothing holds it up"), "{why}");

    assert_eq!(holder.ask("free 1"), "free 0");
    assert_eq!(waiter.line(), GRANTED);
    let served = events(&home, &["--tenant", "waiter", "--kind", "served"]);
    assert!(sum(&served, "waited_ms") > 0, "{served:?}");
    let unknown = home.gpushare(&["why", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    for guest in [holder, waiter] {
        guest.finish().silently();
    }
}

#[test]
fn a_wait_that_timed_out_is_told_as_such() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let mut holder = home.guest("holder", &burst);
    assert_eq!(holder.ask(&alloc(10 * GIB)), GRANTED);
    let mut waiter = home.guest(
        "waiter",
        &[&burst[..], &["--wait-timeout", "500ms"]].concat(),
    );
    assert_eq!(waiter.ask(&alloc(10 * GIB)), REFUSED);
    let mut all = home.events();
    let refused = all.until("refused", "waiter");
    assert_eq!(refused["facts"]["timed_out"], 1, "{refused}");
    assert_eq!(refused["facts"]["count"], 1, "{refused}");
    let why = text(&home.gpushare(&["why", "waiter"])).replace('\n', " ");
    assert!(
        why.contains("--wait-timeout") && !why.contains("own limit"),
        "{why}"
    );
    for guest in [holder, waiter] {
        guest.finish().silently();
    }
}

#[test]
fn a_refusal_for_want_of_room_says_how_much_was_missing() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let mut holder = home.guest("holder", &burst);
    assert_eq!(holder.ask(&alloc(10 * GIB)), GRANTED);
    let fails = [&burst[..], &["--on-collision", "fail"]].concat();
    let mut refused = home.guest("refused", &fails);
    assert_eq!(refused.ask(&alloc(10 * GIB)), REFUSED);
    let told = home.events().until("refused", "refused");
    assert_eq!(told["facts"]["no_room"], 1, "{told}");
    // 4 GiB, and the contexts of both: 512 MiB each until they are measured.
    let missing = told["facts"]["short_bytes"].as_u64().unwrap_or_default();
    assert!((4 * GIB..=5 * GIB).contains(&missing), "{told}");
    let text = told["text"].as_str().unwrap_or_default();
    assert!(
        text.contains("were missing, and it was not to wait"),
        "{told}"
    );
    for guest in [holder, refused] {
        guest.finish().silently();
    }
}

#[test]
fn a_wrong_choice_of_events_is_named_with_what_is_accepted() {
    let home = Home::new("mem=16GiB");
    for (arguments, words) in [
        (["--since", "tomorrow"], ["tomorrow", "8h"]),
        (["--gpu", "first"], ["first", "index"]),
    ] {
        let output = home.gpushare(&[&["events"], &arguments[..]].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    }
}

#[test]
fn a_tenant_that_nothing_knows_is_named_and_a_pod_or_an_id_is_refused() {
    let home = Home::new("mem=16GiB");
    let web = own("web");
    let guest = home.guest(&web, &["--mem-limit", "1GiB"]);
    for (word, status, known) in [
        (&*web, 0, true),
        ("nobody", 0, false),
        ("lab/none", 1, false),
        ("lab/none/main", 1, false),
        ("0123456789ab", 1, false),
    ] {
        let output = home.gpushare(&["events", "--tenant", word]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{word}: {told}");
        let says = told.contains(&format!("no daemon has a tenant {word}, and no event"));
        assert_eq!(says, !known, "{word}: {told}");
        assert_eq!(output.stdout.is_empty(), !known, "{word}");
    }
    guest.finish().silently();
}

#[test]
fn a_program_that_replaces_the_preload_is_told_of_under_its_tenant() {
    let home = Home::new("mem=16GiB");
    let (web, beside) = (own("web"), own("beside"));
    let other = home.guest(&beside, &["--mem-limit", "1GiB"]);
    let mut command = home.run(&web, &["--mem-limit", "1GiB"]);
    // As launchers do that bring an allocator of their own.
    command.args(["sh", "-c", "LD_PRELOAD=libm.so.6 exec \"$0\""]);
    command.arg(clients::compile("quota", &[]));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&alloc(4 * GIB)), GRANTED, "no limit holds");
    let unmanaged = |name: &str| events(&home, &["--kind", "unmanaged", "--tenant", name]);
    until("it is told", || !unmanaged(&web).is_empty());
    let told = unmanaged(&web)[0]["text"].to_string();
    assert!(told.contains("LD_PRELOAD") && told.contains(&web), "{told}");
    assert!(
        unmanaged(&beside).is_empty(),
        "that of its neighbour is not"
    );
    let why = text(&home.gpushare(&["why", &web]));
    assert!(why.contains("LD_PRELOAD"), "{why}");
    guest.finish().silently();
    other.finish().silently();
}

#[test]
fn gone_tells_the_gpu_time_of_a_tenant_that_was_alone() {
    let home = Home::new("");
    let gone = |name: &str| events(&home, &["--kind", "gone", "--tenant", name])[0].clone();
    let (busy, idle) = (own("busy"), own("idle"));
    let guest = |name: &str| {
        let mut command = home.run(name, &["--mem-limit", "1GiB"]);
        command.arg(clients::compile("turns", &[]));
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        guest
    };
    let (mut worker, sleeper) = (guest(&busy), guest(&idle));
    // NVML samples at least once a second: three seconds of kernels are in a whole sample.
    assert_eq!(worker.ask("launch 60 50000000"), "launch 0");
    assert_eq!(worker.ask("sync 1"), "sync 0");
    worker.finish().silently();
    sleeper.finish().silently();
    home.until_no_daemon();
    let told = gone(&busy);
    let busy = told["facts"]["busy_ms"].as_u64().expect("a time");
    assert!(busy > 0, "{told}");
    assert!(
        told["text"]
            .as_str()
            .unwrap()
            .contains("its kernels ran for about"),
        "{told}"
    );
    let told = gone(&idle);
    // On a busy machine its start may be seen.
    let start = told["facts"]["busy_ms"].as_u64().expect("a time");
    assert!(start * 20 <= busy, "{told}");
    let text = told["text"].as_str().expect("a text");
    assert_eq!(text.contains("kernels"), start > 0, "{told}");
}

#[test]
fn a_journal_that_cannot_be_read_takes_no_other_events_away() {
    let (home, web) = (Home::new("mem=16GiB"), &*own("web"));
    let guest = home.guest(web, &["--mem-limit", "1GiB"]);
    // Root reads every folder. A file that is a folder is read by no user.
    let other = home.folder().join("other");
    fs::create_dir_all(other.join("gpushare/journal.jsonl")).expect("the home is writable");
    let listed = || {
        let mut command = home.command(&["events", "--tenant", web]);
        command.env("XDG_STATE_HOME", &other);
        command.output().expect("gpushare runs")
    };
    let output = listed();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text(&output).contains("admitted"), "{output:?}");
    assert!(told.contains("note: cannot read the journal"), "{told}");
    let mut command = home.command(&["events", "--follow", "--since", "1h", "--tenant", web]);
    command.env("XDG_STATE_HOME", &other);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follower = command.spawn().expect("gpushare runs");
    let told = follower.stdout.as_mut().expect("piped");
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line).expect("text");
    assert!(line.contains("admitted"), "{line}");
    // It would keep the daemon from leaving.
    follower.kill().expect("it follows");
    let followed = follower.wait_with_output().expect("it ended");
    let told = String::from_utf8_lossy(&followed.stderr).into_owned();
    assert!(told.contains("note: cannot read the journal"), "{told}");
    guest.finish().silently();
    home.until_no_daemon();
    // Nothing else is known now.
    let output = listed();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(told.contains("cannot read the journal"), "{told}");
}

#[test]
fn why_knows_a_tenant_without_a_daemon_while_it_runs() {
    let home = Home::new("mem=16GiB");
    let gpu = format!("soft:{}", home.gpu().spec());
    let name = &*own("alone");
    let flags = ["run", "--gpu", &gpu, "--daemon", "off", "--name", name];
    let limit = ["--mem-limit", "2GiB", "--"];
    let mut run = home.command(&[&flags[..], &limit].concat());
    run.arg(clients::compile("quota", &[]));
    let mut guest = Guest::start(run).started();
    assert_eq!(guest.ask(&alloc(GIB)), GRANTED);
    let told = || {
        let output = home.gpushare(&["why", name, "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), json)
    };
    let (status, json) = told();
    schema::check("why.json", &json);
    assert_eq!((status, &json["state"]), (Some(0), &"running".into()));
    let said = json["sentences"].to_string();
    for words in ["without a daemon", "1 GiB", "2 GiB"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // The library does not know one that a daemon has.
    let other = home.guest("kept", &["--mem-limit", "1GiB"]);
    let why = text(&home.gpushare(&["why", "kept"]));
    assert!(!why.contains("without a daemon"), "{why}");
    guest.finish().silently();
    assert_eq!(told().0, Some(1));
    other.finish().silently();
}

#[test]
fn a_journal_that_cannot_be_written_is_told_when_its_daemon_starts() {
    let home = Home::new("");
    let told = |state: &str, arguments: &[&str]| {
        let mut command = home.command(arguments);
        let output = command.env("XDG_STATE_HOME", state).output();
        let output = output.expect("gpushare starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let gpu = format!("soft:{}", home.gpu().spec());
    let run = ["run", "--gpu", &*gpu, "--", "true"];
    let said = told("/proc", &run);
    let words = ["daemons, in /proc/gpushare", "cannot be written"];
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
    home.until_no_daemon();
    let said = told("/proc", &["why", "one"]);
    assert!(said.contains("no journal in /proc/gpushare"), "{said}");
    let state = home.folder().join("other").display().to_string();
    let said = told(&state, &run);
    assert!(!said.contains("journal"), "{said}");
}
