//! One daemon per GPU. While the machine's daemon does not serve, `run` waits for it and then
//! refuses. Of two users' own daemons, and of two daemons of one user, the second refuses and names
//! the first. If nothing indicates that the machine has a daemon, a user's own daemon starts at
//! once.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;

use gpushare_tests::machine::{ALICE, BOB, Machine, ROOT};
use gpushare_tests::{Gpu, Guest, Home, artefacts, clients, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The number of daemons other than the machine's, found by their flags. Those of other tests have
/// other mounts.
fn private_daemons(machine: &Machine) -> usize {
    let own = "mounts=$(readlink /proc/self/ns/mnt)
        for one in /proc/[0-9]*; do
            [ \"$(readlink $one/ns/mnt)\" = \"$mounts\" ] && tr '\\0' ' ' <$one/cmdline && echo
        done 2>/dev/null; true";
    let all = machine.sh(ROOT, own);
    all.lines()
        .filter(|line| line.contains("--private"))
        .count()
}

/// The output lines of a `run` of this user until it ends or is killed.
fn said(
    machine: &Machine,
    user: u32,
    arguments: &[&str],
) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut run = machine.gpushare(user, arguments);
    let mut child = run
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter is in util-linux");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    (child, lines.map_while(Result::ok))
}

#[test]
fn while_the_machines_daemon_is_stopped_run_waits_then_refuses() {
    let test = "while_the_machines_daemon_is_stopped_run_waits_then_refuses";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    machine.kill_daemon();
    let refused = |user| {
        let output = machine.run(
            user,
            &["run", "--mem-limit", "1GiB", "--", "echo", "it ran"],
        );
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(output.stdout.is_empty(), "no program ran");
        for words in [
            "the machine's daemon at /run/gpushare is stopped: waiting up to 10 s",
            "systemctl start gpushared",
            "--daemon off",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert_eq!(private_daemons(&machine), 0);
        let ps = machine.run(user, &["ps"]);
        let told = String::from_utf8_lossy(&ps.stderr).into_owned();
        assert!(told.contains("/run/gpushare is stopped"), "{told}");
    };
    // Each waits ten seconds.
    thread::scope(|scope| {
        for user in [ALICE, ROOT] {
            scope.spawn(move || refused(user));
        }
    });
}

/// Its queue may have lasted for hours, and a daemon whose settings are mended is away for minutes.
#[test]
fn a_run_in_the_queue_waits_for_the_machines_next_daemon_in_patience() {
    let test = "a_run_in_the_queue_waits_for_the_machines_next_daemon_in_patience";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    let first = machine.guest(ALICE, &["--mem-limit", "10GiB"]).started();
    let run = ["run", "--mem-limit", "10GiB"];
    let queued = [
        (&[][..], "is stopped: waiting for it"),
        (&["--start-timeout", "1h"], "is stopped: waiting up to 3"),
    ];
    let mut queued = queued.map(|(flags, waits)| {
        let (child, lines) = said(&machine, BOB, &[&run, flags, &["--", "true"]].concat());
        (child, lines, waits)
    });
    let mut until_all_say = |words: Option<&str>| {
        for (_, lines, waits) in &mut queued {
            let words = words.unwrap_or(waits);
            assert!(lines.any(|line| line.contains(words)), "{words}");
        }
    };
    until_all_say(Some("until its request fits"));
    machine.kill_daemon();
    until_all_say(None);
    machine.start_daemon(&[]);
    until_all_say(Some("until its request fits"));
    first.finish().silently();
    for (mut child, ..) in queued {
        assert!(child.wait().expect("a child").success());
    }
}

#[test]
fn a_folder_that_a_removed_package_left_keeps_no_run_waiting() {
    let test = "a_folder_that_a_removed_package_left_keeps_no_run_waiting";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    machine.kill_daemon();
    machine.sh(ROOT, "touch /run/gpushare/removed");
    let ps = machine.run(ALICE, &["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(told.contains("no daemon is running"), "{told}");
    let (mut run, lines) = said(
        &machine,
        ALICE,
        &["run", "--mem-limit", "1GiB", "--", "true"],
    );
    let told: Vec<String> = lines.collect();
    assert!(run.wait().expect("it ends").success(), "{told:?}");
    assert!(
        !told.iter().any(|line| line.contains("waiting")),
        "{told:?}"
    );
    // The package is back: its next stop is a stop.
    machine.start_daemon(&[]);
    assert_eq!(
        machine.sh(ROOT, "ls /run/gpushare | grep -c removed; true"),
        "0"
    );
    machine.kill_daemon();
    let ps = machine.run(ALICE, &["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(told.contains("/run/gpushare is stopped"), "{told}");
}

#[test]
fn a_run_that_waited_is_under_the_machines_daemon() {
    let test = "a_run_that_waited_is_under_the_machines_daemon";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    machine.kill_daemon();
    let flags = [
        "run",
        "--name",
        "waits",
        "--",
        "sh",
        "-c",
        "echo runs >&2; exec cat",
    ];
    let mut run = machine.gpushare(ALICE, &flags);
    run.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("waiting up to"), "{first}");
    machine.start_daemon(&[]);
    assert_eq!(lines.next().unwrap().unwrap(), "runs");
    assert!(machine.row(BOB, "waits").is_some());
    assert_eq!(private_daemons(&machine), 0);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
}

#[test]
fn a_daemon_that_still_looks_for_its_devices_is_waited_for() {
    let test = "a_daemon_that_still_looks_for_its_devices_is_waited_for";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    // It reads its settings before it looks for devices, and the test decides when the settings
    // arrive.
    machine.sh(ROOT, "mkfifo /run/settings");
    let mut daemon = machine.daemon_command(&["--config", "/run/settings"]);
    daemon.stderr(Stdio::null());
    let mut daemon = daemon.spawn().unwrap();
    until("it listens", || {
        machine.sh(ROOT, "test -S /run/gpushare/control.sock; echo $?") == "0"
    });
    let (mut run, mut lines) = said(
        &machine,
        ALICE,
        &["run", "--name", "waits", "--", "sh", "-c", "echo runs >&2"],
    );
    let first = lines.next().unwrap();
    assert!(first.contains("is starting, or does not answer"), "{first}");
    machine.sh(ROOT, "echo 'reserve = \"1GiB\"' > /run/settings");
    assert_eq!(lines.next().unwrap(), "runs");
    assert!(run.wait().unwrap().success());
    assert_eq!(private_daemons(&machine), 0);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_unit_that_is_enabled_and_has_not_started_is_waited_for() {
    let test = "a_unit_that_is_enabled_and_has_not_started_is_waited_for";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(
        ROOT,
        "mkdir -p /run/systemd/system/multi-user.target.wants && \
         ln -s /run/unit /run/systemd/system/multi-user.target.wants/gpushared.service",
    );
    let ps = || {
        let ps = machine.run(BOB, &["ps"]);
        String::from_utf8_lossy(&ps.stderr).into_owned()
    };
    // As a removed package leaves it.
    assert!(ps().contains("no daemon is running"), "{}", ps());
    machine.sh(ROOT, "touch /run/unit");
    let told = ps();
    assert!(
        told.contains("is enabled") && told.contains("has not started"),
        "{told}"
    );
    let (mut run, mut lines) = said(&machine, ALICE, &["run", "--", "sh", "-c", "echo runs >&2"]);
    let first = lines.next().unwrap();
    assert!(first.contains("is enabled"), "{first}");
    machine.start_daemon(&[]);
    assert_eq!(lines.next().unwrap(), "runs");
    assert!(run.wait().unwrap().success());
    assert_eq!(private_daemons(&machine), 0);
}

#[test]
fn a_machine_without_any_sign_of_a_daemon_has_none() {
    let test = "a_machine_without_any_sign_of_a_daemon_has_none";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ROOT, "mkdir -p /run/systemd/system");
    let ps = machine.run(ALICE, &["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(told.contains("no daemon is running"), "{told}");
    let guest = machine.guest(ALICE, &["--name", "own"]).started();
    assert!(machine.row(ALICE, "own").is_some());
    assert_eq!(private_daemons(&machine), 1);
    guest.finish().silently();
}

#[test]
fn a_second_users_own_daemon_refuses_and_names_the_first() {
    let test = "a_second_users_own_daemon_refuses_and_names_the_first";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    let ten = ["--name", "first", "--mem-limit", "10GiB"];
    let first = machine.guest(ALICE, &ten).started();
    let fifteen = ["run", "--mem-limit", "15GiB", "--", "echo", "it ran"];
    let output = machine.run(BOB, &fifteen);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    assert!(
        told.contains(&format!(
            "is served by the daemon of user {ALICE}, process "
        )),
        "{told}"
    );
    first.finish().silently();
    until("the first has let go", || {
        let output = machine.run(BOB, &fifteen);
        String::from_utf8_lossy(&output.stdout).contains("it ran")
    });
}

#[test]
fn a_second_daemon_of_one_user_for_one_gpu_refuses() {
    let (home, other, gpu) = (Home::new(""), Home::new(""), Gpu::new("mem=16GiB"));
    let run = |home: &Home| {
        let gpu = format!("soft:{}", gpu.spec());
        let mut run = home.command(&["run", "--gpu", &gpu, "--mem-limit", "10GiB", "--"]);
        run.arg(clients::compile("quota", &[]));
        Guest::start(run)
    };
    let first = run(&home).started();
    let refused = run(&other).finish();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(
        refused.stderr.contains("another daemon of yours"),
        "{refused:?}"
    );
    let folder = home.folder().display().to_string();
    assert!(refused.stderr.contains(&folder), "{refused:?}");
    first.finish().silently();
    home.until_no_daemon();
    run(&other).started().finish().silently();
}

#[test]
fn software_gpus_of_two_users_are_two() {
    let test = "software_gpus_of_two_users_are_two";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    let gpu = format!("soft:{}", machine.gpu().spec());
    let flags = ["--gpu", &gpu, "--name", "own", "--mem-limit", "10GiB"];
    let guests = [ALICE, BOB].map(|user| machine.guest(user, &flags).started());
    for guest in guests {
        guest.finish().silently();
    }
}

#[test]
fn ps_distinguishes_a_dead_daemon_from_an_exited_one() {
    let home = Home::new("");
    let guest = home.guest("one", &[]);
    let daemon = Pid::from_raw(home.daemons()[0].cast_signed());
    guest.hold();
    kill(daemon, Signal::SIGKILL).unwrap();
    home.until_no_daemon();
    let ps = home.gpushare(&["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(
        told.contains("your own daemon") && told.contains("had 1 tenant:"),
        "{told}"
    );
    drop(guest);
    // The next daemon takes over, and exits with its last program.
    let next = home.guest("two", &[]).finish();
    assert!(next.status.success(), "{next:?}");
    home.until_no_daemon();
    let ps = home.gpushare(&["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(told.contains("no daemon is running"), "{told}");
}

#[test]
fn a_second_machines_daemon_does_not_start_beside_the_first() {
    let test = "a_second_machines_daemon_does_not_start_beside_the_first";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let told = gpushare_tests::Serving::start(machine.daemon_command(&[])).unwrap_err();
    assert!(
        told.contains("another daemon serves /run/gpushare"),
        "{told}"
    );
    let mut ps = machine.gpushare(ALICE, &["devices", "--json"]);
    let mut answer = String::new();
    let mut child = ps.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut answer).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        answer.contains("\"capacity\""),
        "the first serves: {answer}"
    );
    assert!(artefacts::gpushared().exists());
}
