//! Launches pass the gate from everywhere: short-lived threads, destructors, signal handlers,
//! during forks; with the gate free, with a daemon, and with a cap that keeps closing it.

use gpushare_protocol::wire::{ControlReply, Listing, Rows};
use gpushare_tests::guest::{clean, command, plain};
use gpushare_tests::{Alone, Daemon, Gpu, Guest, artefacts, clients};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts that softgpu can serve. (Its locks do not allow calls in signal handlers.)
const PARTS: [&str; 3] = ["churn", "destructors", "forks"];

/// Runs the client and returns launches made, for each part; none may be refused.
fn launches(mut command: Command, parts: &[&str]) -> Vec<u64> {
    command.args(parts);
    let text = Guest::start(command).finish().silently();
    assert_eq!(text.lines().count(), parts.len(), "{text}");
    let lines = text.lines().zip(parts);
    lines.map(|(line, part)| passed(part, line)).collect()
}

/// The launches of a part; none of them may be refused.
#[track_caller]
fn passed(part: &str, line: &str) -> u64 {
    let made = line.strip_prefix(&format!("{part} "));
    let made = made.and_then(|rest| rest.strip_suffix(" made 0 refused"));
    let made = made.and_then(|made| made.parse().ok());
    made.unwrap_or_else(|| panic!("{line}"))
}

/// The number of launches of a part with a fixed number.
const CHURN: u64 = 40 * 16 * 50;
const DESTRUCTORS: u64 = 100 * 3;

#[track_caller]
fn all_pass(command: Command) {
    let made = launches(command, &PARTS);
    assert_eq!(made[..2], [CHURN, DESTRUCTORS]);
    assert!(made[2] > 0);
}

#[test]
fn launches_from_everywhere_pass_a_free_gate_or_none() {
    let client = clients::compile("gate", &[]);
    let gpu = Gpu::new("");
    all_pass(plain(&gpu, &client));
    let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
    run.arg(&client);
    all_pass(run);
}

#[test]
fn launches_from_everywhere_pass_with_a_daemon() {
    let daemon = Daemon::start(&Gpu::new(""));
    let tenant = daemon.tenant("gate", &[]);
    all_pass(tenant.command(&clients::compile("gate", &[])));
}

/// All launches pass while the cap closes the gate again and again. `first` runs before the parts.
#[track_caller]
fn all_pass_while_the_gate_closes(first: &[&str]) {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let mut run = alone.command(&["--sm-limit", "40"], &clients::compile("gate", &[]));
    run.env("GATE_SPIN", "5");
    run.args(first).args(PARTS).arg("wait");
    let mut guest = Guest::start(run);
    let lines = PARTS.map(|part| (part, guest.line()));
    let closes = alone.closes();
    eprintln!("{lines:?}, {closes} closes");
    guest.send("end");
    guest.finish().silently();
    let made = lines.map(|(part, line)| passed(part, &line));
    assert_eq!(made[..2], [CHURN, DESTRUCTORS]);
    assert!(made[2] > 0);
    assert!(
        closes >= 10,
        "a gate that closed {closes} times shows little"
    );
}

#[test]
fn launches_from_everywhere_pass_a_gate_that_a_cap_keeps_closing() {
    all_pass_while_the_gate_closes(&[]);
}

/// A cap that keeps closing the gate, with other ways to launch.
fn capped(parts: &[&str]) -> String {
    let mut run = command(&Gpu::new(""), &["--sm-limit", "40"]);
    run.arg(clients::compile("gate", &[])).args(parts);
    Guest::start(run).finish().silently()
}

#[test]
fn a_launch_in_a_host_callback_does_not_wait_and_is_refused() {
    let expected = "callbacks 50 made 50 refused\n";
    let mut bare = plain(&Gpu::new(""), &clients::compile("gate", &[]));
    bare.arg("callbacks");
    assert_eq!(Guest::start(bare).finish().silently(), expected);
    assert_eq!(capped(&["callbacks"]), expected);
}

/// Runs parts of the client in one tenant while another tenant wants the device too. Returns the
/// output and the number of turns.
fn contended(parts: &[&str], microseconds: &str) -> (String, u64) {
    let client = clients::compile("gate", &[]);
    let daemon = Daemon::in_turns(&Gpu::new(""));
    let (other, mine) = (daemon.tenant("other", &[]), daemon.tenant("mine", &[]));
    let mut neighbour = other.command(&client);
    neighbour.arg("forever").env("GATE_SPIN", "200");
    let mut neighbour = Guest::start(neighbour);
    assert_eq!(neighbour.line(), "launching");
    let mut command = mine.command(&client);
    command
        .args(parts)
        .arg("wait")
        .env("GATE_SPIN", microseconds);
    let mut guest = Guest::start(command);
    let lines: Vec<String> = parts.iter().map(|_| guest.line()).collect();
    let turns = match daemon.commands().ask(&Listing::Shares.first()) {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => rows
            .iter()
            .find(|row| row.name == "mine")
            .map(|row| row.turns),
        other => panic!("{other:?}"),
    };
    guest.send("end");
    guest.finish().silently();
    neighbour.kill();
    (lines.join("\n"), turns.expect("it is on the device"))
}

#[track_caller]
fn nothing_is_refused_in_turns(parts: &[&str], microseconds: &str) {
    let (text, turns) = contended(parts, microseconds);
    eprintln!("{text}\n{turns} turns");
    assert_eq!(
        text.matches(" made 0 refused").count(),
        parts.len(),
        "{text}"
    );
    assert!(turns > 1, "a gate that never closed shows nothing");
}

#[test]
fn streams_and_contexts_come_and_go_while_the_device_goes_round() {
    nothing_is_refused_in_turns(&["streams", "contexts"], "50");
}

#[test]
fn captures_of_every_mode_stay_whole_while_the_device_goes_round() {
    nothing_is_refused_in_turns(&["captures"], "100");
}

#[test]
fn launches_from_everywhere_pass_while_the_device_goes_round() {
    nothing_is_refused_in_turns(&["churn", "destructors"], "20");
}

#[test]
fn a_gate_without_membarrier_closes_too() {
    all_pass_while_the_gate_closes(&["unbarred"]);
}

/// A driver whose functions may be called in signal handlers, in a folder for the library path.
fn stub() -> PathBuf {
    let folder = artefacts::cache().join("stub");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let fresh = tempfile::NamedTempFile::new_in(&folder).expect("a writable folder");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC"]);
    cc.args(["-Wl,-soname,libcuda.so.1", "-o"])
        .arg(fresh.path())
        .arg(artefacts::repository().join("tests/bench/stub_driver.c"));
    assert!(cc.status().expect("cc is installed").success());
    let path = folder.join("libcuda.so.1");
    fresh.into_temp_path().persist(path).expect("a rename");
    folder
}

fn on_stub(client: &Path) -> Command {
    let mut command = clean(client);
    command
        .env("LD_LIBRARY_PATH", stub())
        .env("LD_PRELOAD", artefacts::interposer());
    command
}

#[test]
fn a_signal_handler_may_launch_wherever_it_interrupts_a_launch() {
    let client = clients::compile("gate", &[]);
    let made = launches(on_stub(&client), &["signals", "churn"]);
    assert!(made[0] >= 1000, "{made:?}");
    assert_eq!(made[1], CHURN);
}
