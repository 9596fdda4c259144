//! The machine's own daemon, as root at `/run/gpushare`, and real programs of other users. `/run` is the test's own: a mount
//! namespace with an empty one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use gpushare_tests::guest::clean;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, Gpu, Guest, artefacts, clients, gpu::links};
use nix::unistd::geteuid;
use serde_json::Value;

const ALICE: u32 = 65_534;
const BOB: u32 = 65_533;
const ROOT: u32 = 0;

/// A machine with a daemon for all its users; killed when dropped.
struct Machine {
    gpu: Gpu,
    daemon: Child,
}

impl Machine {
    /// `None`, noted under `test`, where one cannot be made.
    fn start(test: &str) -> Option<Self> {
        if !geteuid().is_root() {
            not_runnable_here(test, "only root can be several users");
            return None;
        }
        let gpu = Gpu::new("mem=16GiB");
        let mut command = clean("unshare".as_ref());
        let own_run = "mount -t tmpfs none /run && exec \"$0\"";
        command
            .args(["--mount", "sh", "-c", own_run])
            .arg(artefacts::gpushared())
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", gpu.spec())
            .stderr(Stdio::piped());
        let mut daemon = command.spawn().expect("unshare is in util-linux");
        let mut lines = BufReader::new(daemon.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        let serves = lines.by_ref().map_while(Result::ok).any(|line| {
            said = line;
            said.contains("serving")
        });
        let mut machine = Self { gpu, daemon };
        if !serves {
            let ended = machine.daemon.wait().expect("a child can be waited for");
            let refused = said.contains("unshare") || said.contains("mount");
            assert!(refused, "gpushared ended before it served, {ended}: {said}");
            not_runnable_here(test, &said);
            return None;
        }
        // The rest is read and dropped, so that it never waits for us.
        std::thread::spawn(move || lines.count());
        let sees = machine.as_user(ALICE, "test");
        let reads = { sees }
            .arg("-x")
            .arg(artefacts::gpushare())
            .status()
            .expect("setpriv is in util-linux");
        if !reads.success() {
            not_runnable_here(test, "other users cannot read the build");
            return None;
        }
        Some(machine)
    }

    /// A program on this machine as a user types it.
    fn as_user(&self, user: u32, program: &str) -> Command {
        let mut command = clean("nsenter".as_ref());
        command
            .args(["--mount", "--target", &self.daemon.id().to_string()])
            .args([
                "setpriv",
                &format!("--reuid={user}"),
                &format!("--regid={user}"),
            ])
            .args(["--clear-groups", program])
            .env_remove("XDG_RUNTIME_DIR")
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", self.gpu.spec());
        command
    }

    fn gpushare(&self, user: u32, arguments: &[&str]) -> Command {
        let program = artefacts::gpushare();
        let mut command = self.as_user(user, &program.to_string_lossy());
        command.args(arguments);
        command
    }

    fn run(&self, user: u32, arguments: &[&str]) -> Output {
        let done = self.gpushare(user, arguments).output();
        done.expect("nsenter is in util-linux")
    }

    /// The quota client under `gpushare run`.
    fn guest(&self, user: u32, flags: &[&str]) -> Guest {
        let mut command = self.gpushare(user, &["run", "--daemon", "on"]);
        command.args(flags).arg("--").arg(quota());
        Guest::start(command)
    }

    fn row(&self, user: u32, name: &str) -> Option<Value> {
        let output = self.run(user, &["ps", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
        rows.into_iter().find(|row| row["name"] == name)
    }
}

fn quota() -> std::path::PathBuf {
    clients::compile("quota", &[])
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn a_users_program_runs_under_the_machines_daemon_within_its_limit() {
    let test = "a_users_program_runs_under_the_machines_daemon_within_its_limit";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut guest = machine
        .guest(ALICE, &["--name", "mine", "--mem-limit", "2GiB"])
        .started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    for user in [ALICE, BOB, ROOT] {
        let row = machine.row(user, "mine").expect("everybody sees it");
        assert_eq!(
            (&row["limit"], &row["charged"]),
            (&(2 * GIB).into(), &GIB.into()),
            "as {user} sees it"
        );
    }
    let set = machine.run(ALICE, &["set", "mine", "--mem-limit", "3GiB"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 0");
    guest.finish().silently();
    assert!(machine.row(ALICE, "mine").is_none());
}

#[test]
fn another_user_neither_joins_nor_changes_nor_reaches_it_and_root_does() {
    let test = "another_user_neither_joins_nor_changes_nor_reaches_it_and_root_does";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut guest = machine
        .guest(ALICE, &["--name", "mine", "--mem-limit", "2GiB"])
        .started();

    let set = machine.run(BOB, &["set", "mine", "--mem-limit", "4GiB"]);
    let told = String::from_utf8_lossy(&set.stderr).into_owned();
    assert!(
        !set.status.success() && told.contains("not yours"),
        "{told}"
    );

    let ended = machine
        .guest(BOB, &["--name", "mine", "--mem-limit", "2GiB"])
        .finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("not yours"), "{ended:?}");

    let socket = "/run/gpushare/sockets/mine";
    let into_it = |user| {
        let mut command = machine.as_user(user, &quota().to_string_lossy());
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("GPUSHARE_SOCKET", socket);
        Guest::start(command)
    };
    let mut intruder = into_it(BOB);
    let answer = intruder.ask("init");
    assert_ne!(answer, "init 0", "it has no CUDA");
    let row = machine.row(ALICE, "mine").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
    drop(intruder);

    assert_eq!(into_it(ALICE).ask("init"), "init 0", "its owner does");
    let set = machine.run(ROOT, &["set", "mine", "--mem-limit", "4GiB"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    guest.finish().silently();
}

#[test]
fn no_environment_of_a_user_gets_more_than_the_daemon_registered() {
    let test = "no_environment_of_a_user_gets_more_than_the_daemon_registered";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut command = machine.gpushare(
        ALICE,
        &[
            "run",
            "--daemon",
            "on",
            "--name",
            "mine",
            "--mem-limit",
            "2GiB",
            "--",
        ],
    );
    command
        .args([
            "env",
            "GPUSHARE_MEM_LIMIT=8GiB",
            "CUDA_DEVICE_MEMORY_LIMIT=8g",
        ])
        .args(["GPUSHARE_DISABLE=1"])
        .arg(quota());
    let mut guest = Guest::start(command);
    let started = guest.ask("init");
    let got = guest.ask(&format!("alloc {}", 3 * GIB));
    assert_eq!((started.as_str(), got.as_str()), ("init 0", "alloc 2"));
    drop(guest);
    let high = machine.guest(ALICE, &["--priority", "501"]).finish();
    assert_eq!(high.status.code(), Some(125), "{high:?}");
    assert!(high.stderr.contains("for root to give"), "{high:?}");
}
