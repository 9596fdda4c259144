//! `gpushare-runtime` refuses a container: the engine finds the reason in the runtime's log.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A folder with a bundle whose container asks by this annotation, and a runtime that tells its
/// arguments.
fn place(annotation: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let config = format!("{{\"annotations\":{{\"gpushare.io/{annotation}\":\"4GiB\"}}}}");
    fs::write(place.path().join("config.json"), config).unwrap();
    let runtime = place.path().join("runc");
    fs::write(&runtime, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
    place
}

fn create(place: &Path, log: &Path, format: &str) -> Output {
    let options = ["--log", &log.to_string_lossy(), "--log-format", format].map(str::to_owned);
    called(place, &options, "create")
}

/// The wrapper, called with these options for this subcommand and the bundle.
fn called(place: &Path, options: &[String], subcommand: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpushare-runtime"))
        .arg(format!("--gpushare-runtime={}/runc", place.display()))
        .args(options)
        .args([subcommand, "--bundle"])
        .arg(place)
        .arg("id")
        .output()
        .unwrap()
}

/// Its status is the one of a refusal, and its standard error has the reason.
#[track_caller]
fn refused(output: &Output) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("gpushare: "), "{told}");
    assert!(told.contains("mem-limt"), "{told}");
}

#[test]
fn a_refusal_is_a_line_of_the_engines_log_in_the_form_it_asks_for() {
    let place = place("mem-limt");
    let log = place.path().join("log.json");
    refused(&create(place.path(), &log, "json"));
    refused(&create(place.path(), &log, "text"));
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [json, plain] = lines[..] else {
        panic!("two lines: {text}");
    };
    let entry: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(entry["level"], "error");
    let told = entry["msg"].as_str().unwrap();
    assert!(told.starts_with("gpushare: "), "{told}");
    assert!(told.contains("mem-limt"), "{told}");
    let time = entry["time"].as_str().unwrap();
    // As Go's time.RFC3339, which the engines read.
    let digits = time.replace(|letter: char| letter.is_ascii_digit(), "0");
    assert_eq!(digits, "0000-00-00T00:00:00Z", "{time}");
    let quoted = told.replace('"', "\\\"");
    let end = format!(" level=error msg=\"{quoted}\"");
    assert!(plain.starts_with("time=\"20"), "{plain}");
    assert!(plain.ends_with(&end), "{plain}");
}

#[test]
fn a_container_that_is_not_refused_leaves_the_log_to_the_runtime() {
    let place = place("mem-limit");
    let log = place.path().join("log.json");
    let output = create(place.path(), &log, "json");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("--log-format json create"), "{told}");
    assert!(!log.exists());
}

#[test]
fn a_log_that_cannot_be_written_changes_nothing_of_a_refusal() {
    let place = place("mem-limt");
    let pipe = place.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // The pipe has no reader: opening it must not wait for one.
    for log in [
        pipe.as_path(),
        place.path(),
        &place.path().join("no/such/folder"),
    ] {
        refused(&create(place.path(), log, "json"));
    }
}

#[test]
fn a_path_that_a_file_of_hooks_gives_wrongly_is_named() {
    let refused = |arguments: &[&str]| {
        let mut hook = Command::new(env!("CARGO_BIN_EXE_gpushare-oci-hook"));
        let output = hook.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (name, given) in [("--library", "lib"), ("--daemon", "run/control.sock")] {
        let told = refused(&[name, given, "createRuntime"]);
        let words = format!("gpushare: the hook's argument {name} {given} is refused");
        assert!(told.starts_with(&words), "{told}");
        assert!(told.contains("accepted: an absolute path"), "{told}");
    }
    let told = refused(&["--library"]);
    assert!(told.contains("argument --library is refused"), "{told}");
    // Of what is no argument of its own it tells those.
    assert!(refused(&["--librry", "/lib"]).starts_with("gpushare: usage: "));
}

#[test]
fn a_container_that_concerns_the_daemon_is_not_restored_from_a_checkpoint() {
    let place = place("mem-limit");
    let put = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    let socket = place.path().join("control.sock");
    let options = [format!(
        "--gpushare-hook-args=--daemon,{}",
        socket.display()
    )];
    let told = || {
        let output = called(place.path(), &options, "restore");
        let (said, why) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        assert_eq!(said.is_empty(), !why.is_empty(), "{why}");
        why
    };
    let refusal = "gpushare: a container that has limits";
    assert!(told().starts_with(refusal), "{}", told());
    assert_eq!(told().lines().count(), 1);
    // One that has a GPU and asks for nothing is the daemon's matter where limits are mandatory.
    put(
        "config.json",
        "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}",
    );
    assert_eq!(told(), "");
    put("mandatory", "");
    assert!(told().starts_with(refusal), "{}", told());
    put("config.json", "{\"process\":{\"env\":[\"A=1\"]}}");
    assert_eq!(told(), "");
}

#[test]
fn a_runtime_that_calls_the_wrapper_again_is_refused_and_does_not_loop() {
    let place = place("mem-limit");
    let runtime = place.path().join("runc");
    let own = env!("CARGO_BIN_EXE_gpushare-runtime");
    let again = |times: &str| {
        let text = format!("#!/bin/sh\n{times}\nexec {own} --gpushare-runtime=\"$0\" \"$@\"\n");
        fs::write(&runtime, text).unwrap();
        called(place.path(), &[], "state")
    };
    let output = again("");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("again and again"), "{told}");
    assert!(told.contains("--gpushare-runtime=PATH"), "{told}");
    // NVIDIA's runtime between two wrappers is no loop.
    let output = again("[ \"$TWICE\" ] && exec echo \"$@\"; export TWICE=1");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("state --bundle"));
}
