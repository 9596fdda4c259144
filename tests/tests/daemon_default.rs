//! `gpushare run` uses a daemon by default. Also tested: no daemon is available, and a tenant runs
//! without one.

use gpushare_tests::{Ended, GIB, Gpu, Guest, Home, MIB, artefacts, clients};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use tempfile::TempDir;

/// A process that is stopped; it goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn now(home: &Home, pid: u32) -> Self {
        let pid = Pid::from_raw(i32::try_from(pid).expect("a pid"));
        home.gpu().stop(pid);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// `gpushare run --gpu … <flags> -- quota`.
fn run(home: &Home, flags: &[&str]) -> Command {
    let gpu = format!("soft:{}", home.gpu().spec());
    let mut run = home.command(&[&["run", "--gpu", &gpu], flags, &["--"]].concat());
    run.arg(clients::compile("quota", &[]));
    run
}

fn ready(command: Command) -> Guest {
    Guest::start(command).started()
}

/// The output of a command whose program must not start.
fn not_started(command: Command) -> String {
    let ended = Guest::start(command).finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    ended.stderr
}

#[test]
fn a_program_is_under_a_daemon_unless_told_otherwise() {
    let home = Home::new("mem=16GiB");
    let alone = ready(run(&home, &["--daemon", "off", "--name", "alone"]));
    assert!(home.daemons().is_empty());
    let guest = ready(run(&home, &["--name", "plain"]));
    assert_eq!(home.daemons().len(), 1);
    let kept = |name: &str| home.row(name).expect("it is listed")["daemon"].clone();
    assert_eq!((kept("plain"), kept("alone")), (true.into(), false.into()));
    guest.finish().silently();
    alone.finish().silently();
    home.until_no_daemon();
}

/// Runs with a limit, then with options that need a daemon, where no daemon is available; the
/// output gives the reason.
fn without(home: &Home, run: impl Fn(&[&str]) -> Command, why: &str) {
    let mut guest = ready(run(&["--mem-limit", "1GiB"]));
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    let rows = home.ps();
    let daemons: Vec<_> = rows.iter().map(|row| &row["daemon"]).collect();
    assert_eq!(daemons, [&serde_json::Value::from(false)], "`ps` shows it");
    let Ended { status, stderr, .. } = guest.finish();
    assert!(status.success());
    for word in ["note: no daemon can be had here", "--daemon off", why] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    assert!(!stderr.contains("`ps`"), "{stderr}");
    for flags in [["--daemon", "on"], ["--priority", "7"]] {
        let told = not_started(run(&flags));
        assert!(told.contains(why) && !told.contains("note"), "{told}");
    }
    assert!(home.daemons().is_empty());
}

#[test]
fn without_the_daemons_folder_the_library_keeps_limits_and_says_so() {
    let home = Home::new("mem=16GiB");
    ready(run(&home, &["--daemon", "off"])).finish().silently();
    fs::write(home.folder().join("gpushare/d"), "no folder").unwrap();
    without(&home, |flags| run(&home, flags), "gpushare/d/");
}

/// A folder with all of `gpushare` but the daemon.
fn installed() -> TempDir {
    let installed = tempfile::tempdir().expect("a temporary folder");
    let parts = [
        artefacts::gpushare(),
        artefacts::interposer(),
        artefacts::soft_cuda(),
        artefacts::soft_nvml(),
    ];
    for part in &parts {
        let name = part.file_name().expect("a file");
        fs::copy(part, installed.path().join(name)).expect("they are built");
    }
    installed
}

/// The same command of the `gpushare` there.
fn of(installed: &Path, whole: &Command) -> Command {
    let mut command = Command::new(installed.join("gpushare"));
    command.args(whole.get_args());
    for (name, value) in whole.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[test]
fn without_a_daemon_installed_the_library_keeps_limits_and_says_so() {
    let home = Home::new("mem=16GiB");
    let installed = installed();
    let bare = |flags: &[&str]| of(installed.path(), &run(&home, flags));
    without(&home, bare, "gpushared is neither in");
    let bin = installed.path().display();
    without(
        &home,
        bare,
        &format!("install -D -m 755 target/release/gpushared {bin}/gpushared"),
    );
    let worlds = fs::read_dir(home.folder().join("gpushare/d"));
    assert_eq!(worlds.map_or(0, Iterator::count), 0, "no folder for none");
}

#[test]
fn a_program_inside_a_tenant_without_a_daemon_stays_in_it() {
    let home = Home::new("mem=16GiB");
    let inner = run(&home, &[]);
    let gpu = format!("soft:{}", home.gpu().spec());
    let flags = [
        "run",
        "--daemon",
        "off",
        "--gpu",
        &gpu,
        "--mem-limit",
        "1GiB",
        "--",
    ];
    let mut outer = home.command(&flags);
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut guest = ready(outer);
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    assert!(home.daemons().is_empty());
    guest.finish().silently();
}

#[test]
fn a_name_that_lives_without_a_daemon_is_joined_there_and_never_doubled() {
    let home = Home::new("mem=16GiB");
    let limits = ["--name", "x", "--mem-limit", "1GiB"];
    let mut first = ready(run(&home, &[&limits[..], &["--daemon", "off"]].concat()));
    assert_eq!(first.ask(&format!("alloc {}", GIB / 2)), "alloc 0");
    let mut second = ready(run(&home, &limits));
    assert_eq!(second.ask(&format!("fill {}", 256 * MIB)), "fill 2 2");
    let others = ["--daemon", "off", "--name", "x", "--mem-limit", "2GiB"];
    let told = not_started(run(&home, &others));
    for words in [
        "tenant x runs without a daemon, with other",
        "own, --mem-limit 1GiB",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    for flags in [["--daemon", "on"], ["--wait-timeout", "1s"]] {
        let told = not_started(run(&home, &[&limits[..], &flags].concat()));
        assert!(told.contains("tenant x runs without a daemon"), "{told}");
    }
    first.finish().silently();
    second.finish().silently();
    let guest = ready(run(&home, &limits));
    assert!(home.row("x").is_some(), "its last program has ended");
    guest.finish().silently();
}

/// A frozen cgroup does the same to the daemon of the first program in it.
#[test]
fn a_private_daemon_that_does_not_answer_is_not_done_without() {
    let home = Home::new("mem=16GiB");
    let limits = ["--name", "x", "--mem-limit", "1GiB"];
    let mut first = ready(run(&home, &limits));
    assert_eq!(first.ask(&format!("alloc {}", GIB / 2)), "alloc 0");
    let [daemon] = home.daemons()[..] else {
        panic!("one daemon: {:?}", home.daemons());
    };
    let stopped = Stopped::now(&home, daemon);
    let apart = |name: &'static str| run(&home, &["--daemon", "off", "--name", name]);
    // All three wait for the daemon's greeting.
    let (told, in_files) = thread::scope(|scope| {
        let told = scope.spawn(|| not_started(run(&home, &limits)));
        let in_files = scope.spawn(|| not_started(apart("x")));
        ready(apart("y")).finish().silently();
        (told.join().unwrap(), in_files.join().unwrap())
    });
    for words in ["does not answer", &format!("process {daemon}")] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains("no daemon can be had"), "{told}");
    assert!(!home.folder().join("gpushare/c/x").exists());
    // Its registrations say that the daemon has the tenant.
    assert!(
        in_files.contains("tenant x is kept by your own daemon"),
        "{in_files}"
    );
    drop(stopped);
    let mut second = ready(run(&home, &limits));
    assert_eq!(second.ask(&format!("fill {}", 256 * MIB)), "fill 2 2");
    second.finish().silently();
    first.finish().silently();
}

/// A daemon that listens and never learns which devices it has. It leaves with its starter.
const NEVER_SERVES: &str = "#!/usr/bin/env python3
import os, socket, sys
os.chdir(sys.argv[sys.argv.index('--runtime-dir') + 1])
listener = socket.socket(socket.AF_UNIX)
listener.bind('control.sock')
listener.listen(16)
sys.stdin.read()
os.unlink('control.sock')
";

/// It was made for the question, and has no tenants.
#[test]
fn a_private_daemon_that_a_run_starts_and_that_is_slow_is_done_without() {
    let home = Home::new("mem=16GiB");
    let installed = installed();
    let daemon = installed.path().join("gpushared");
    fs::write(&daemon, NEVER_SERVES).unwrap();
    fs::set_permissions(&daemon, Permissions::from_mode(0o755)).unwrap();
    let limits = run(&home, &["--mem-limit", "1GiB"]);
    let mut guest = ready(of(installed.path(), &limits));
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    let Ended { status, stderr, .. } = guest.finish();
    assert!(status.success());
    for words in ["note: no daemon can be had here", "waited 3"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

/// The mirror of a name that lives without a daemon.
#[test]
fn a_name_that_a_daemon_has_is_never_doubled_without_one() {
    let home = Home::new("mem=16GiB");
    let limits = ["--name", "x", "--mem-limit", "1GiB"];
    let mut first = ready(run(&home, &limits));
    assert_eq!(first.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    let kept = "tenant x is kept by the daemon at ";
    let told = not_started(run(&home, &[&limits[..], &["--daemon", "off"]].concat()));
    assert!(
        told.contains(kept) && told.contains("another --name"),
        "{told}"
    );
    let gpu = format!("soft:{}", home.gpu().spec());
    let env = |name: &str| home.gpushare(&["env", "--gpu", &gpu, "--name", name]);
    let refused = env("x");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && refused.stdout == b"false\n");
    assert!(
        told.contains(kept) && told.contains("`gpushare run`"),
        "{told}"
    );
    // A shell that was prepared before the daemon had it.
    let mut late = run(&home, &limits);
    late.env("GPUSHARE_IN_FILES", "x");
    let told = not_started(late);
    assert!(
        told.contains(kept) && told.contains("--daemon on"),
        "{told}"
    );
    // Its programs live on, and so does what they were granted.
    let [daemon] = home.daemons()[..] else {
        panic!("one daemon: {:?}", home.daemons());
    };
    let daemon = Pid::from_raw(i32::try_from(daemon).expect("a pid"));
    first.hold();
    kill(daemon, Signal::SIGKILL).expect("it lives");
    home.until_no_daemon();
    let told = not_started(run(&home, &[&limits[..], &["--daemon", "off"]].concat()));
    assert!(told.contains("a daemon of yours that has ended"), "{told}");
    // Other names are not the daemon's, also one of another GPU.
    assert!(env("y").status.success());
    for flags in [&["--name", "y"][..], &[]] {
        let guest = run(&home, &[&["--daemon", "off"], flags].concat());
        ready(guest).finish().silently();
    }
    let other = Gpu::new("mem=16GiB");
    let other = format!("soft:{}", other.spec());
    let mut apart = home.command(&["run", "--daemon", "off", "--gpu", &other]);
    apart.args(["--name", "x", "--", "true"]);
    let ended = Guest::start(apart).finish();
    assert!(ended.status.success(), "{ended:?}");
    first.go_on();
    first.finish();
}

/// A tenant has a limit on each GPU, so nothing is doubled.
#[test]
fn a_name_that_a_daemon_has_on_another_gpu_may_be_without_one_here() {
    let home = Home::new("count=2,mem=16GiB");
    let limits = ["--name", "x", "--mem-limit", "1GiB"];
    let on = |devices: &str, flags: &[&str]| {
        let mut run = run(&home, &[&limits[..], flags].concat());
        run.env("CUDA_VISIBLE_DEVICES", devices);
        run
    };
    let off = ["--daemon", "off"];
    let mut first = ready(on("0", &[]));
    assert_eq!(first.ask(&format!("alloc {}", GIB / 2)), "alloc 0");
    let refused = |keeper: &str| {
        for devices in ["0", "1,0"] {
            let told = not_started(on(devices, &off));
            assert!(told.contains(keeper), "{devices}: {told}");
        }
    };
    refused("tenant x is kept by the daemon at ");
    ready(on("1", &off)).finish().silently();
    let [daemon] = home.daemons()[..] else {
        panic!("one daemon: {:?}", home.daemons());
    };
    let daemon = Pid::from_raw(i32::try_from(daemon).expect("a pid"));
    first.hold();
    kill(daemon, Signal::SIGKILL).expect("it lives");
    home.until_no_daemon();
    refused("a daemon of yours that has ended");
    ready(on("1", &off)).finish().silently();
    first.go_on();
    first.finish();
}

#[test]
fn the_longest_name_has_a_socket_too() {
    let home = Home::new("mem=16GiB");
    let name = "n".repeat(64);
    let mut guest = home.guest(&name, &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 4 2");
    assert_eq!(home.row(&name).unwrap()["charged"], GIB);
    guest.finish().silently();
}

/// `ps` lists it, so no command may say that there is none of that name.
#[test]
fn orders_for_a_tenant_without_a_daemon_say_why_they_are_refused() {
    let home = Home::new("mem=16GiB");
    let mut alone = ready(run(&home, &["--daemon", "off", "--name", "alone"]));
    assert_eq!(alone.ask(&format!("alloc {MIB}")), "alloc 0");
    let row = home.row("alone").expect("it is listed");
    let measured = |value: &serde_json::Value| value.as_u64() != Some(1);
    assert!(measured(&row["overhead"]), "{row}");
    assert!(measured(&row["processes"][0]["overhead"]), "{row}");
    let orders: [&[&str]; 3] = [
        &["set", "alone", "--mem-limit", "2GiB"],
        &["suspend", "alone"],
        &["resume", "alone"],
    ];
    let are_told = |status| {
        for order in orders {
            let output = home.gpushare(order);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{output:?}");
            assert!(told.contains("alone runs without a daemon"), "{told}");
        }
    };
    are_told(3);
    let guest = ready(run(&home, &["--name", "plain"]));
    are_told(1);
    guest.finish().silently();
    alone.finish().silently();
    home.until_no_daemon();
}
