//! Files that `run` leaves behind, however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use gpushare_tests::{Home, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_queued_run_that_is_killed_leaves_no_folder() {
    let home = Home::new("mem=16GiB");
    let temporary = tempfile::tempdir().unwrap();
    let first = home.guest("first", &["--mem-limit", "10GiB"]);
    let mut links = Vec::new();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGKILL,
    ] {
        let mut second = home.run("second", &["--mem-limit", "10GiB"]);
        second
            .arg("true")
            .env("TMPDIR", temporary.path())
            .stderr(Stdio::piped());
        let mut second = second.spawn().unwrap();
        let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
        let waits = said.next().unwrap().unwrap();
        assert!(waits.contains("second: waits until"), "{waits}");
        let pid = i32::try_from(second.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        let ended = second.wait().unwrap();
        assert_eq!(ended.signal(), Some(signal as i32), "{ended}");
        assert_eq!(names(temporary.path()), [""; 0], "{signal}");
        links.push(names(&home.folder().join("gpushare/soft")));
        until("the daemon has forgotten it", || {
            home.row("second").is_none()
        });
    }
    links.dedup();
    assert!(
        matches!(&links[..], [one] if one.len() == 1),
        "one folder of links serves all: {links:?}"
    );
    first.finish().silently();
}

#[test]
fn a_gpu_of_one_run_leaves_no_folder_of_its_daemon() {
    let home = Home::new("");
    let temporary = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mut run = home.command(&["run", "--gpu", "soft:mem=1GiB", "--", "true"]);
        let output = run.env("TMPDIR", temporary.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    home.until_no_daemon();
    assert_eq!(names(&home.folder().join("gpushare/d")), [""; 0]);
    assert_eq!(names(&home.folder().join("gpushare/c")), [""; 0]);
    assert_eq!(names(temporary.path()), [""; 0]);
}

#[test]
fn a_benchmarks_gpu_leaves_no_folder_of_its_daemon() {
    let home = Home::new("");
    let temporary = tempfile::tempdir().unwrap();
    let mut bench = home.command(&["bench", "share", "--gpu", "soft", "--tenant", "name=a"]);
    bench.args(["--seconds", "1", "--alone", "0"]);
    let output = bench.env("TMPDIR", temporary.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    home.until_no_daemon();
    assert_eq!(names(&home.folder().join("gpushare/d")), [""; 0]);
    assert_eq!(names(temporary.path()), [""; 0]);
}

#[test]
fn a_named_gpus_daemon_keeps_its_log_within_bounds() {
    let home = Home::new("");
    let folder = home.folder().join("gpushare/d");
    home.guest("one", &[]).finish().silently();
    home.until_no_daemon();
    let world = folder.join(&names(&folder)[0]);
    let log = world.join("log");
    assert!(fs::read_to_string(&log).unwrap().contains("serving"));
    fs::write(&log, "a line of an earlier daemon\n".repeat(100_000)).unwrap();
    home.guest("one", &[]).finish().silently();
    home.until_no_daemon();
    let size = |name: &str| fs::metadata(world.join(name)).map_or(0, |file| file.len());
    assert!(size("log") < 1 << 20, "{}", size("log"));
    assert!(size("log.1") > 0, "the one before is kept");
    fs::write(&log, "x".repeat(1 << 20)).unwrap();
    home.guest("one", &[]).finish().silently();
    home.until_no_daemon();
    assert!(size("log.1") <= 1 << 20, "and no third file");
    assert_eq!(
        names(&world),
        [
            "control.sock",
            "lock",
            "log",
            "log.1",
            "registered",
            "sockets",
            "starts"
        ]
    );
}
