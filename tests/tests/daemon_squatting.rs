//! Files, links and locks that other users of a machine can place where daemons and commands look.
//! They stop neither the machine's daemon nor root's commands, and are never used.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use gpushare_tests::machine::{ALICE, BOB, Machine, ROOT};
use gpushare_tests::{GIB, Guest};

const LIMITS: [&str; 4] = ["--name", "one", "--mem-limit", "2GiB"];

/// The kinds of files that another user may create under a name in a shared folder.
const THINGS: [&str; 5] = [
    "mkdir NAME",
    "mkdir NAME && chmod 0777 NAME",
    "touch NAME",
    "mkfifo NAME",
    "ln -s /root NAME",
];

/// A user's process that holds a lock until it is killed; `None` if it could not lock.
fn locks(machine: &Machine, user: u32, path: &str) -> Option<Child> {
    let line = format!("exec 9<{path} && flock -n 9 && echo locked && exec sleep 1000");
    let mut holder = machine.as_user(user, "sh");
    let mut holder = holder
        .args(["-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("nsenter is in util-linux");
    let mut said = String::new();
    let mut lines = BufReader::new(holder.stdout.take().expect("piped"));
    lines.read_line(&mut said).expect("it writes text");
    if said.trim() == "locked" {
        return Some(holder);
    }
    holder.wait().expect("a child can be waited for");
    None
}

fn end(mut child: Child) {
    child.kill().expect("a child can be killed");
    child.wait().expect("a child can be waited for");
}

#[test]
fn no_user_keeps_the_machines_daemon_from_starting_again() {
    let test = "no_user_keeps_the_machines_daemon_from_starting_again";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    machine.kill_daemon();
    let files = machine.sh(ROOT, "find /run/gpushare -not -type s");
    assert!(files.contains("/run/gpushare/lock"), "{files}");
    // While the daemon is stopped, all files and folders that the users can lock.
    let held: Vec<Child> = files
        .lines()
        .filter_map(|path| locks(&machine, ALICE, path))
        .collect();
    let lock = locks(&machine, ALICE, "/run/gpushare/lock");
    assert!(lock.is_none(), "the lock is closed to them");
    machine.start_daemon(&[]);
    let guest = machine.guest(BOB, &LIMITS).started();
    guest.finish().silently();
    held.into_iter().for_each(end);
}

#[test]
fn a_lock_of_an_earlier_version_that_a_user_holds_stops_nothing() {
    let test = "a_lock_of_an_earlier_version_that_a_user_holds_stops_nothing";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(
        ROOT,
        "mkdir -m 0755 /run/gpushare && touch /run/gpushare/lock && chmod 0644 /run/gpushare/lock",
    );
    let held = locks(&machine, ALICE, "/run/gpushare/lock").expect("it is open to them");
    machine.start_daemon(&[]);
    assert_eq!(machine.sh(ROOT, "stat -c %a /run/gpushare/lock"), "600");
    machine.kill_daemon();
    machine.start_daemon(&[]);
    end(held);
}

#[test]
fn users_cannot_put_anything_into_the_machines_folder() {
    let test = "users_cannot_put_anything_into_the_machines_folder";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let guest = machine.guest(ROOT, &LIMITS).started();
    for folder in machine.sh(ROOT, "find /run/gpushare -type d").lines() {
        let tried = format!(
            "touch {folder}/new 2>/dev/null; mv {folder} {folder}2 2>/dev/null; ls {folder}/new 2>/dev/null || echo refused"
        );
        assert_eq!(machine.sh(ALICE, &tried), "refused", "{folder}");
    }
    let read = "cat /run/gpushare/registered/one.json 2>/dev/null || echo refused";
    assert_eq!(machine.sh(ALICE, read), "refused");
    guest.finish().silently();
}

#[test]
fn a_runtime_folder_that_a_user_made_is_refused_by_the_daemon() {
    let test = "a_runtime_folder_that_a_user_made_is_refused_by_the_daemon";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    for thing in THINGS {
        let make = thing.replace("NAME", "/dev/shm/place");
        machine.sh(ALICE, &make);
        let daemon = machine.daemon_command(&["--runtime-dir", "/dev/shm/place"]);
        let told = gpushare_tests::Serving::start(daemon).unwrap_err();
        assert!(told.contains("/dev/shm/place"), "{make}: {told}");
        machine.sh(ROOT, "rm -r /dev/shm/place");
    }
}

#[test]
fn a_name_in_dev_shm_that_a_user_took_stops_none_of_roots_commands() {
    let test = "a_name_in_dev_shm_that_a_user_took_stops_none_of_roots_commands";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    for thing in THINGS {
        machine.sh(ALICE, &thing.replace("NAME", "/dev/shm/gpushare-0"));
        let mut guest = machine.guest(ROOT, &LIMITS).started();
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
        for command in [
            &["ps"][..],
            &["ps", "--json"],
            &["set", "one", "--mem-limit", "3GiB"],
            &["events"],
            &["devices"],
        ] {
            let output = machine.run(ROOT, command);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{thing}: {command:?}: {told}");
            assert!(
                told.lines().count() <= 1,
                "the message appears once: {told}"
            );
        }
        guest.finish().silently();
        machine.sh(ALICE, "rm -r /dev/shm/gpushare-0");
        let left = machine.sh(ROOT, "ls -A /root/c /root/d 2>/dev/null; true");
        assert_eq!(left, "", "nothing was created at the link's target");
    }
}

#[test]
fn roots_programs_without_a_machines_daemon_pass_a_taken_name_over() {
    let test = "roots_programs_without_a_machines_daemon_pass_a_taken_name_over";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ALICE, "mkdir -m 0777 /dev/shm/gpushare-0");
    for flags in [["--daemon", "on"], ["--daemon", "off"]] {
        let mut run = machine.gpushare(ROOT, &["run"]);
        run.args(flags)
            .args(["--mem-limit", "1GiB", "--"])
            .arg(gpushare_tests::clients::compile("quota", &[]));
        let mut guest = Guest::start(run).started();
        guest.answers(&format!("alloc {}", 2 * GIB), "2");
        let ended = guest.finish();
        assert!(ended.status.success(), "{ended:?}");
        let warned = ended
            .stderr
            .matches("/dev/shm/gpushare-0 is another user's")
            .count();
        assert!(warned <= 1, "{ended:?}");
    }
    assert_eq!(machine.sh(ROOT, "ls -A /dev/shm/gpushare-0"), "");
    assert_eq!(machine.sh(ROOT, "stat -c %a /run/gpushare-0"), "700");
}

#[test]
fn a_user_whose_name_was_taken_is_served_by_the_machines_daemon() {
    let test = "a_user_whose_name_was_taken_is_served_by_the_machines_daemon";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    let (taken, run) = (
        format!("/dev/shm/gpushare-{BOB}"),
        ["run", "--mem-limit", "1GiB", "--", "echo", "it ran"],
    );
    for thing in THINGS {
        machine.sh(ALICE, &thing.replace("NAME", &taken));
        // Without a daemon their programs have no place for usage pages, so none is started: the
        // user did not request to run without a limit.
        let mut alone = machine.gpushare(BOB, &["run", "--daemon", "off", "--mem-limit", "1GiB"]);
        alone
            .arg("--")
            .arg(gpushare_tests::clients::compile("quota", &[]));
        let refused = Guest::start(alone).finish();
        assert_eq!(refused.status.code(), Some(125), "{thing}: {refused:?}");
        machine.start_daemon(&[]);
        let output = machine.run(BOB, &run);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "it ran\n",
            "{thing}: {output:?}"
        );
        assert!(machine.run(BOB, &["ps"]).status.success());
        machine.kill_daemon();
        machine.sh(ROOT, &format!("rm -r {taken} /run/gpushare"));
    }
    // A user who has logged in has a place for them.
    machine.sh(ALICE, &format!("mkdir {taken}"));
    machine.sh(
        ROOT,
        &format!(
            "mkdir -p /run/user/{BOB} && chmod 0700 /run/user/{BOB} && chown {BOB} /run/user/{BOB}"
        ),
    );
    let guest = machine.guest(BOB, &LIMITS).started();
    assert!(machine.row(BOB, "one").is_some());
    guest.finish();
}
