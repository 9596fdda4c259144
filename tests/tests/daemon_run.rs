//! `gpushare run` and its daemon: a daemon that starts and exits with its programs, and tenants
//! that are joined or refused.

use gpushare_tests::gpu::links;
use gpushare_tests::guest::{clean, command};
use gpushare_tests::{GIB, Guest, Home, MIB, artefacts, clients, until, until_some};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

const GRANTED: &str = "alloc 0";

#[test]
fn the_daemon_leaves_with_its_last_program() {
    let home = Home::new("");
    let (one, two) = (home.guest("one", &[]), home.guest("two", &[]));
    let daemons = home.daemons();
    assert_eq!(daemons.len(), 1);
    one.finish().silently();
    assert!(home.row("one").is_none());
    let row = home.row("two").expect("it lives");
    assert_eq!(row["owner"], nix::unistd::geteuid().as_raw());
    assert_eq!(home.daemons(), daemons, "the same one");
    two.finish().silently();
    home.until_no_daemon();
    let output = home.gpushare(&["ps"]);
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("no daemon is running"), "{told}");
}

#[test]
fn programs_started_at_one_instant_end_up_with_one_daemon() {
    let home = Home::new("mem=16GiB");
    let names = ["a", "b", "c", "d"];
    let mut guests: Vec<Guest> = names
        .map(|name| {
            let mut run = home.run(name, &["--mem-limit", "1GiB"]);
            run.arg(clients::compile("quota", &[]));
            run
        })
        .map(Guest::start)
        .into();
    for guest in &mut guests {
        assert_eq!(guest.ask("init"), "init 0");
    }
    until("the others have ended", || home.daemons().len() == 1);
    let mut shown: Vec<String> = home
        .ps()
        .iter()
        .filter_map(|row| row["name"].as_str().map(str::to_owned))
        .collect();
    shown.sort();
    assert_eq!(shown, names);
    for guest in guests {
        guest.finish().silently();
    }
    home.until_no_daemon();
}

#[test]
fn a_daemon_that_cannot_start_is_an_error_in_its_own_words() {
    let home = Home::with_config("", "term_grace = \"soon\"\n");
    let mut run = home.run("one", &[]);
    run.args(["sh", "-c", "echo it ran"]);
    let output = run.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    for word in ["config.toml", "line 1", "term_grace", "\"soon\"", "10s"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(home.daemons().is_empty());
}

#[test]
fn an_equal_name_joins_with_equal_limits_and_else_is_refused() {
    let home = Home::new("mem=16GiB");
    let mut first = home.guest("x", &["--mem-limit", "2GiB"]);
    assert_eq!(first.ask(&format!("alloc {GIB}")), GRANTED);
    let mut second = home.guest("x", &["--mem-limit", "2GiB"]);
    assert_eq!(
        second.ask(&format!("fill {}", 256 * MIB)),
        "fill 4 2",
        "they share one limit"
    );
    assert_eq!(home.ps().len(), 1);
    let mut other = home.run("x", &["--mem-limit", "3GiB"]);
    other.args(["sh", "-c", "echo it ran"]);
    let output = other.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    let words = "to join it give its own, --mem-limit 2GiB --oversubscribe off, or give another";
    assert!(told.contains(words), "{told}");
    let words = "exists with other limits than --mem-limit 3GiB;";
    assert!(told.contains(words), "{told}");
    let output = home.run("x", &[]).arg("true").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    first.finish().silently();
    assert_eq!(second.ask("check"), "check 4", "its tenant is kept");
    second.finish().silently();
}

#[test]
fn a_command_that_is_not_there_does_not_wait_for_memory() {
    let home = Home::new("mem=16GiB");
    let flags = ["--mem-limit", "10GiB", "--start-timeout", "2s"];
    let end = |program: &str| {
        let output = home.run("second", &flags).arg(program).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let found = |program: &str, status: i32, what: &str| {
        let told = format!("gpushare: {program}: {what}\n");
        assert_eq!(end(program), (Some(status), told));
    };
    found("no-such-command", 127, "command not found");
    assert!(home.daemons().is_empty(), "none is started for it");
    let first = home.guest("first", &flags);
    found("no-such-command", 127, "command not found");
    found("/no/such/file", 127, "command not found");
    found("/etc/passwd", 126, "Permission denied (os error 13)");
    let (status, told) = end("true");
    assert_eq!(status, Some(125), "{told}");
    assert!(told.contains("second: waits until"), "{told}");
    first.finish().silently();
}

#[test]
fn a_request_that_does_not_fit_is_reported_and_starts_when_it_fits() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &["--mem-limit", "10GiB"]);
    let mut second = home.queued("second", &["--mem-limit", "10GiB"]);
    first.finish().silently();
    assert_eq!(second.ask("init"), "init 0");
    assert_eq!(second.ask(&format!("alloc {}", 9 * GIB)), GRANTED);
    let ended = second.finish();
    assert!(
        ended
            .stderr
            .contains("second: waits until its request fits beside all others: 10 GiB and ")
            && ended.stderr.contains(" of 16 GiB are promised"),
        "{ended:?}"
    );
}

#[test]
fn a_run_that_waits_for_room_gives_up_when_it_was_told_to() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &["--mem-limit", "10GiB"]);
    let flags = ["--mem-limit", "10GiB", "--start-timeout", "100ms"];
    let mut second = home.run("second", &flags);
    let output = second.args(["sh", "-c", "echo it ran"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    assert!(told.contains("--start-timeout of 100ms is over"), "{told}");
    assert!(told.contains("10 GiB"), "{told}");
    until("it waits no longer", || home.row("second").is_none());
    // Without a wait it bounds nothing, and later words of the daemon are waited for.
    let third = home.guest(
        "third",
        &["--mem-limit", "2GiB", "--start-timeout", "100ms"],
    );
    third.finish().silently();
    first.finish().silently();
}

#[test]
fn a_gpu_that_is_hidden_is_named_with_the_variable_that_hides_it() {
    let home = Home::new("");
    let mut run = home.run("one", &[]);
    run.env("CUDA_VISIBLE_DEVICES", "").arg("true");
    let told = String::from_utf8_lossy(&run.output().unwrap().stderr).into_owned();
    assert!(told.contains("CUDA_ERROR_NO_DEVICE"), "{told}");
    assert!(told.contains("CUDA_VISIBLE_DEVICES=\"\""), "{told}");
}

#[test]
fn without_a_daemon_options_that_need_one_are_refused_by_name() {
    let home = Home::new("");
    for flags in [
        ["--on-collision", "wait"],
        ["--preemptible", "kill"],
        ["--priority", "7"],
        ["--wait-timeout", "3s"],
        ["--idle-end", "2h"],
        ["--run-limit", "8h"],
    ] {
        let mut run = command(home.gpu(), &flags);
        run.env("XDG_RUNTIME_DIR", home.folder())
            .args(["sh", "-c", "echo it ran"]);
        let output = run.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(output.stdout.is_empty(), "no program ran");
        assert!(
            told.contains(&format!("{}={:?}", flags[0], flags[1])),
            "{told}"
        );
        assert!(told.contains("--daemon off"), "{told}");
    }
    assert!(home.daemons().is_empty());
}

#[test]
fn a_run_inside_a_registered_tenant_stays_in_it() {
    let home = Home::new("mem=16GiB");
    let mut outer = home.run("outer", &["--mem-limit", "2GiB"]);
    outer
        .arg(artefacts::gpushare())
        .args(["run", "--mem-limit", "8GiB", "--gpu"])
        .arg(format!("soft:{}", home.gpu().spec()))
        .arg("--")
        .arg(clients::compile("quota", &[]));
    let mut guest = Guest::start(outer).started();
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 8 2");
    let rows = home.ps();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (&rows[0]["name"], &rows[0]["charged"]),
        (&"outer".into(), &(2 * GIB).into())
    );
    guest.finish().silently();
}

#[test]
fn a_private_daemon_keeps_no_descriptor_of_its_starter() {
    let home = Home::new("");
    let lock = home.folder().join("lock");
    let mut run = home.run("one", &[]);
    run.args(["sh", "-c", "echo held >&9; echo ready; exec cat"]);
    let mut shell = clean("sh".as_ref());
    shell
        .args(["-c", "exec \"$@\" 9>\"$LOCK\"", "sh"])
        .arg(run.get_program())
        .args(run.get_args())
        .env("LOCK", &lock);
    shell.envs(
        run.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut guest = Guest::start(shell);
    assert_eq!(guest.line(), "ready");
    assert_eq!(fs::read(&lock).unwrap(), b"held\n", "the program has it");
    let daemons = home.daemons();
    assert_eq!(daemons.len(), 1);
    let open = fs::read_dir(format!("/proc/{}/fd", daemons[0])).unwrap();
    let mut open = open.map(|entry| fs::read_link(entry.unwrap().path()).unwrap_or_default());
    assert!(!open.any(|file| file == lock), "the daemon has it");
    guest.finish().silently();
}

/// What a program of `run` finds in its environment: whether it has a daemon, and its tenant.
const PLACE: &str = "echo ${GPUSHARE_SOCKET:+under a daemon} $GPUSHARE_TENANT";

#[test]
fn a_tenant_named_by_variable_is_under_the_daemon() {
    let home = Home::new("");
    let gpu = format!("soft:{}", home.gpu().spec());
    let mut run = home.command(&["run", "--gpu", &gpu, "--", "sh", "-c", PLACE]);
    let output = run.env("GPUSHARE_TENANT", "named").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told, "under a daemon named\n", "{output:?}");
}

#[test]
fn a_run_inside_a_tenant_without_a_daemon_stays_there() {
    let home = Home::new("");
    let inner = |flags: &[&str]| {
        let mut outer = command(home.gpu(), &["--name", "outer"]);
        outer.env("XDG_RUNTIME_DIR", home.folder());
        outer.arg(artefacts::gpushare()).args(["run", "--gpu"]);
        outer.arg(format!("soft:{}", home.gpu().spec()));
        outer.args(flags).args(["--", "sh", "-c", PLACE]);
        let output = outer.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(inner(&[]), "outer\n");
    assert_eq!(inner(&["--name", "outer"]), "outer\n");
    assert!(home.daemons().is_empty());
    assert_eq!(inner(&["--name", "other"]), "under a daemon other\n");
}

#[test]
fn a_run_inside_a_registered_tenant_refuses_other_settings() {
    let home = Home::new("mem=16GiB");
    for flags in [
        ["--name", "mine"],
        ["--priority", "7"],
        ["--daemon", "off"],
        ["--sm-limit", "30"],
        ["--sm-request", "10"],
        ["--mem-request", "1GiB"],
    ] {
        let (status, silent, told) = inside(&home, &[], &flags);
        assert_eq!((status, silent), (Some(125), true), "{told}");
        assert!(
            told.contains(&flags.join(" ")) && told.contains("inside tenant outer"),
            "{told}"
        );
    }
    for flags in [["--name", "outer"], ["--mem-limit", "1GiB"]] {
        let (status, silent, told) = inside(&home, &[], &flags);
        assert_eq!((status, silent, told.as_str()), (Some(0), false, ""));
    }
}

#[test]
fn a_run_inside_a_tenant_refuses_variables_that_are_the_tenants() {
    let home = Home::new("mem=16GiB");
    for variable in ["GPUSHARE_SM_LIMIT=10", "CUDA_TASK_PRIORITY=1"] {
        let (status, silent, told) = inside(&home, &[variable], &[]);
        assert_eq!((status, silent), (Some(125), true), "{told}");
        assert!(
            told.contains(variable) && told.contains("inside tenant outer"),
            "{told}"
        );
    }
    let kept = ["GPUSHARE_MEM_LIMIT=1GiB", "CUDA_TASK_PRIORITY=0"];
    let (status, silent, told) = inside(&home, &kept, &[]);
    assert_eq!((status, silent, told.as_str()), (Some(0), false, ""));
}

/// A `run` with these variables and flags inside tenant `outer`: its status, whether no program
/// ran, and what it said.
fn inside(home: &Home, variables: &[&str], flags: &[&str]) -> (Option<i32>, bool, String) {
    let mut outer = home.run("outer", &["--mem-limit", "2GiB", "--sm-limit", "50"]);
    outer.arg("env").args(variables);
    outer.arg(artefacts::gpushare()).args(["run", "--gpu"]);
    outer.arg(format!("soft:{}", home.gpu().spec()));
    outer.args(flags).args(["--", "sh", "-c", "echo it ran"]);
    let output = outer.output().expect("gpushare starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), output.stdout.is_empty(), told)
}

#[test]
fn a_daemon_whose_starter_dies_before_it_connects_leaves() {
    let home = Home::new("");
    let start = || {
        let mut daemon = clean(&artefacts::gpushared());
        daemon
            .args(["--private", "--transient", "--runtime-dir"])
            .arg(home.folder().join("d"))
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", home.gpu().spec())
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        daemon.spawn().unwrap()
    };
    let mut abandoned = start();
    drop(abandoned.stdin.take());
    assert!(
        abandoned.wait().unwrap().success(),
        "no client will connect"
    );

    let mut expected = start();
    let control = home.folder().join("d/control.sock");
    let caller = until_some("its socket appears", || UnixStream::connect(&control).ok());
    drop(expected.stdin.take());
    assert_eq!(expected.try_wait().unwrap(), None, "a client is connected");
    drop(caller);
    assert!(expected.wait().unwrap().success());
}

#[test]
fn a_program_that_was_taken_over_is_told_why_it_is_ended() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let low = ["--preemptible", "kill", "--priority", "100"];
    let mut first = home.guest("first", &[&burst[..], &low].concat());
    assert_eq!(first.ask(&format!("alloc {}", 10 * GIB)), GRANTED);
    let pid = home.daemons()[0];
    first.hold();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    home.until_no_daemon();
    first.go_on();
    let high = [&burst[..], &["--on-collision", "priority,wait"]].concat();
    let mut second = home.guest("second", &high);
    let mut events = home.events();
    events.until("attached", "first");
    assert_eq!(second.ask(&format!("alloc {}", 10 * GIB)), GRANTED);
    let ended = first.finish();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("the program is ended: tenant second needs memory"),
        "{ended:?}"
    );
    second.finish();
}

#[test]
fn a_daemon_that_dies_is_followed_by_one_that_takes_its_programs_over() {
    let home = Home::new("mem=16GiB");
    let mut first = home.guest("first", &["--mem-limit", "4GiB"]);
    assert_eq!(first.ask(&format!("alloc {GIB}")), GRANTED);
    let pid = home.daemons()[0];
    first.hold();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    home.until_no_daemon();
    assert_eq!(first.ask("check"), "check 1", "the program still runs");
    let second = home.guest("second", &["--mem-limit", "1GiB"]);
    // It is there at once, its process when that has come back.
    home.until("first", |row| row["charged"] == GIB);
    first.go_on();
    assert_eq!(first.ask(&format!("fill {}", 256 * MIB)), "fill 12 2");
    first.finish().silently();
    assert!(second.finish().status.success());
    home.until_no_daemon();
}

#[test]
fn a_daemon_that_was_killed_is_told_of_while_its_programs_live() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("one", &["--mem-limit", "1GiB"]);
    let told = || String::from_utf8_lossy(&home.gpushare(&["ps"]).stderr).into_owned();
    let pid = Pid::from_raw(home.daemons()[0].cast_signed());
    guest.hold();
    kill(pid, Signal::SIGTERM).unwrap();
    home.until_no_daemon();
    let said = told();
    assert!(
        said.contains("does not serve") && said.contains("had 1 tenant:"),
        "{said}"
    );
    guest.kill();
    until("its program has ended", || {
        told().contains("no daemon is running")
    });
}

#[test]
fn a_listing_of_a_gpu_that_there_is_not_is_refused_with_those_there_are() {
    let home = Home::new("mem=16GiB,count=2");
    let guest = home.guest("one", &["--mem-limit", "1GiB"]);
    for command in ["ps", "events"] {
        let output = home.gpushare(&[command, "--gpu", "7"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let words = ["there is no GPU 7; accepted: 0 (GPU-", "1 (GPU-"];
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert!(home.gpushare(&[command, "--gpu", "1"]).status.success());
    }
    guest.finish().silently();
}

#[test]
fn a_missing_file_of_settings_is_refused_by_its_variable() {
    let home = Home::new("mem=16GiB");
    let mut run = home.run("one", &[]);
    run.env("GPUSHARE_DAEMON_CONFIG", "/nonexistent")
        .arg("true");
    let ended = Guest::start(run).finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let words = "GPUSHARE_DAEMON_CONFIG=/nonexistent is refused: it cannot be read";
    assert!(ended.stderr.contains(words), "{ended:?}");
}

#[test]
fn settings_that_no_device_can_serve_are_no_reason_to_run_without() {
    let text = "reserve = \"100GiB\"\n[defaults]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n";
    let home = Home::with_config("mem=16GiB", text);
    let run = |name: &str, more: &[&str]| {
        let mut run = home.run(name, more);
        run.arg("true");
        Guest::start(run).finish()
    };
    let refused = run("one", &[]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let words = "reserve = 100 GiB leaves nothing of the";
    assert!(refused.stderr.contains(words), "{refused:?}");
    let meant = run("two", &["--daemon", "off"]);
    assert!(meant.status.success(), "{meant:?}");
}
