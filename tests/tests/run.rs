//! `gpushare run` is transparent: statuses, streams, signals, job control, and no files left
//! behind.

use gpushare_tests::gpu::links;
use gpushare_tests::guest::{clean, command, gpushare};
use gpushare_tests::{Gpu, Guest, artefacts, clients};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;

fn shell(gpu: &Gpu, script: &str) -> Guest {
    Guest::program(gpu, &[], &["sh", "-c", script])
}

fn pid(guest: &Guest) -> Pid {
    Pid::from_raw(guest.id().try_into().expect("a pid"))
}

#[test]
fn the_exit_status_is_the_programs() {
    let gpu = Gpu::new("");
    for status in [0, 1, 7, 125, 255] {
        let ended = shell(&gpu, &format!("exit {status}")).finish();
        assert_eq!(ended.status.code(), Some(status), "{ended:?}");
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    let gpu = Gpu::new("");
    // Real-time signals too.
    for signal in [15, 9, 11, 34, 64] {
        let ended = shell(&gpu, &format!("kill -{signal} $$")).finish();
        assert_eq!(ended.status.code(), Some(128 + signal), "{ended:?}");
    }
}

/// What a terminal's keys send. A shell gives a loop up where its program died of one, and a
/// status of 130 says that the program has seen to it.
#[test]
fn death_by_a_key_of_the_terminal_is_runs_death_without_a_core() {
    let gpu = Gpu::new("");
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let number = signal as i32;
        let script = format!("ulimit -c 0; kill -{number} $$");
        let ended = shell(&gpu, &script).finish();
        assert_eq!(ended.status.signal(), Some(number), "{ended:?}");
        assert!(!ended.status.core_dumped() && ended.stderr.is_empty());
        let ended = shell(&gpu, &format!("exit {}", 128 + number)).finish();
        assert_eq!(ended.status.code(), Some(128 + number), "{ended:?}");
    }
}

#[test]
fn a_missing_command_is_127_and_one_that_cannot_start_is_126() {
    let gpu = Gpu::new("");
    for (program, status) in [
        ("no-such-command", 127),
        ("/no/such/file", 127),
        ("/etc/passwd", 126),
        ("/", 126),
    ] {
        let ended = Guest::program(&gpu, &[], &[program]).finish();
        assert_eq!(ended.status.code(), Some(status), "{ended:?}");
        assert!(
            ended.stderr.starts_with(&format!("gpushare: {program}: ")),
            "{ended:?}"
        );
    }
}

#[test]
fn usage_errors_are_2_and_of_run_125_never_a_programs_status() {
    for (arguments, status) in [
        (&["run"][..], 125),
        (&["run", "--no-such-flag", "--", "true"], 125),
        (&["run", "--gpu", "hard", "--", "true"], 125),
        (&[], 2),
        (&["no-such-command"], 2),
        (&["ps", "--no-such-flag"], 2),
        (&["ps", "--gpu", "hard"], 2),
        (&["events", "--since", "soon"], 2),
        (&["events", "--kind", "refuse"], 2),
        (&["bench", "share"], 2),
        (&["env", "--gpu", "soft", "--mem-limit", "12"], 2),
    ] {
        assert_eq!(
            gpushare(arguments).output().unwrap().status.code(),
            Some(status),
            "{arguments:?}"
        );
    }
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        assert_eq!(
            gpushare(arguments).output().unwrap().status.code(),
            Some(0),
            "{arguments:?}"
        );
    }
}

#[test]
fn auto_refuses_where_there_is_no_gpu_and_says_what_to_use() {
    let run = |arguments: &[&str]| {
        // With an empty library path, only the system's driver can be found, if there is one.
        let output = gpushare(&[&["run"], arguments, &["--", "true"]].concat())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, complaint) = run(&[]);
    match status {
        Some(0) => eprintln!("there is a real GPU here, so auto takes it"),
        _ => assert!(
            status == Some(125) && complaint.contains("--gpu soft"),
            "{status:?} {complaint}"
        ),
    }
    let (status, complaint) = run(&["--gpu", "soft:mem=4gigs"]);
    assert!(
        status == Some(125) && complaint.contains("mem=4gigs"),
        "{status:?} {complaint}"
    );
}

#[test]
fn a_gpu_that_the_machine_does_not_have_is_named() {
    let gpu = Gpu::new("count=2");
    let run = |index: &str| {
        let mut run = gpushare(&["run", "--daemon", "off", "--gpu", index, "--", "true"]);
        run.env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", gpu.spec());
        Guest::start(run).finish()
    };
    run("1").silently();
    let ended = run("7");
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("there is no GPU 7;"), "{ended:?}");
    assert!(!ended.stderr.contains("CUDA_VISIBLE_DEVICES"), "{ended:?}");
}

#[test]
fn standard_streams_are_the_programs_own() {
    let gpu = Gpu::new("");
    let mut cat = Guest::program(&gpu, &[], &["cat"]);
    assert_eq!(cat.ask("a line"), "a line");
    cat.finish().silently();
    let ended = shell(&gpu, "echo out; echo err >&2").finish();
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.as_str()),
        ("out\n", "err\n")
    );
}

/// Waits for signals instead of handling them. Python runs a handler at the next interrupted system
/// call; a signal between two of its checks may find `read` asleep.
const ECHO_SIGNALS: &str = "
import os, signal, sys, threading
wanted = {getattr(signal, name) for name in sys.argv[1:]}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print('ready', flush=True)
while True:
    print(signal.Signals(signal.sigwait(wanted)).name, flush=True)
";

#[test]
fn signals_sent_to_run_reach_the_program() {
    let gpu = Gpu::new("");
    let signals = [
        "SIGTERM",
        "SIGINT",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGWINCH",
        "SIGTSTP",
        "SIGCONT",
        "SIGABRT",
        "SIGXCPU",
        "SIGIO",
        "SIGPWR",
        "SIGVTALRM",
    ];
    let mut guest = Guest::program(
        &gpu,
        &[],
        &[&["python3", "-c", ECHO_SIGNALS, "SIGRTMIN"], &signals[..]].concat(),
    );
    assert_eq!(guest.line(), "ready");
    for name in signals {
        kill(pid(&guest), name.parse::<Signal>().unwrap()).unwrap();
        assert_eq!(guest.line(), name);
    }
    let mut real_time = std::process::Command::new("sh");
    real_time.args(["-c", "kill -34 $0", &guest.id().to_string()]);
    assert!(real_time.status().unwrap().success());
    assert_eq!(guest.line(), "SIGRTMIN");
    assert_eq!(guest.finish().silently(), "");
}

#[test]
fn a_program_that_does_not_handle_a_signal_dies_of_it_and_run_says_so() {
    let gpu = Gpu::new("");
    let mut guest = shell(&gpu, "echo ready; exec cat");
    assert_eq!(guest.line(), "ready");
    kill(pid(&guest), Signal::SIGTERM).unwrap();
    let status = waitpid(pid(&guest), None).unwrap();
    assert_eq!(
        status,
        WaitStatus::Exited(pid(&guest), 128 + Signal::SIGTERM as i32)
    );
}

#[test]
fn a_signal_the_parent_ignores_stays_ignored() {
    let gpu = Gpu::new("");
    let mut run = std::process::Command::new("sh");
    run.args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(artefacts::gpushare());
    run.args(["run", "--gpu", &format!("soft:{}", gpu.spec()), "--", "cat"]);
    let mut guest = Guest::start(run);
    assert_eq!(guest.ask("ready"), "ready");
    kill(pid(&guest), Signal::SIGHUP).unwrap();
    assert_eq!(guest.ask("still here"), "still here");
    guest.finish().silently();
}

/// Starts a program with SIGCHLD ignored, as a shell cannot.
const IGNORING_CHILDREN: &str = "
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
";
/// Whether the program was started so; status 7.
const IS_IGNORING: &str = "
import signal, sys
print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)
sys.exit(7)
";

#[test]
fn run_works_where_its_parent_ignores_sigchld() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &[]);
    run.args(["python3", "-c", IS_IGNORING]);
    let mut ignoring = clean("python3".as_ref());
    ignoring.args(["-c", IGNORING_CHILDREN]);
    ignoring.arg(run.get_program()).args(run.get_args());
    for (command, says) in [(ignoring, "True\n"), (run, "False\n")] {
        let ended = Guest::start(command).finish();
        assert_eq!(
            (ended.status.code(), ended.stdout.as_str()),
            (Some(7), says),
            "{ended:?}"
        );
    }
}

/// The signals that the program was started with as ignored.
const IGNORED: [&str; 3] = ["sed", "-n", "s/^SigIgn:[[:space:]]*//p"];

#[test]
fn a_program_has_sigpipe_as_runs_parent_has_it() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &[]);
    run.args(IGNORED).arg("/proc/self/status");
    // As systemd starts a service.
    let mut ignoring = clean("sh".as_ref());
    ignoring.args(["-c", "trap '' PIPE; exec \"$@\"", "sh"]);
    ignoring.arg(run.get_program()).args(run.get_args());
    for (command, ignored) in [(ignoring, true), (run, false)] {
        let text = Guest::start(command).finish().silently();
        let all = u64::from_str_radix(text.trim(), 16).expect("a mask");
        let pipe = 1 << (Signal::SIGPIPE as u32 - 1);
        assert_eq!(all & pipe != 0, ignored, "{text}");
    }
}

/// Sets a timer, whose signal it holds back, and becomes its arguments.
const TIMED: &str = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 0.001)
os.execvp(sys.argv[1], sys.argv[1:])
";
/// Waits for the timer's signal, which its parent's mask holds back.
const AWAITS_ALARM: &str = "import signal; print(signal.sigwait([signal.SIGALRM]).name)";

#[test]
fn a_timer_that_was_set_before_run_began_reaches_the_program() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &[]);
    run.args(["python3", "-c", AWAITS_ALARM]);
    let mut timed = clean("python3".as_ref());
    timed.args(["-c", TIMED]);
    timed.arg(run.get_program()).args(run.get_args());
    assert_eq!(Guest::start(timed).finish().silently(), "SIGALRM\n");
}

#[test]
fn a_program_ends_when_run_is_killed() {
    let gpu = Gpu::new("");
    let mut guest = shell(&gpu, "echo begins; exec sleep 1000");
    assert_eq!(guest.line(), "begins");
    kill(pid(&guest), Signal::SIGKILL).unwrap();
    // The end of its output is awaited, which the program has too.
    let ended = guest.finish();
    assert_eq!(ended.status.signal(), Some(Signal::SIGKILL as i32));
}

#[test]
fn job_control_stops_and_continues_both() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &[]);
    run.arg("cat").process_group(0);
    let mut guest = Guest::start(run);
    assert_eq!(guest.ask("one"), "one");
    for _ in 0..2 {
        killpg(pid(&guest), Signal::SIGTSTP).unwrap();
        let stopped = waitpid(pid(&guest), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(pid(&guest), Signal::SIGTSTP));
        killpg(pid(&guest), Signal::SIGCONT).unwrap();
        assert_eq!(guest.ask("two"), "two");
    }
    guest.finish().silently();
}

#[test]
fn a_signal_that_stops_only_the_program_does_not_stop_run() {
    let gpu = Gpu::new("");
    let mut guest = shell(&gpu, "echo $$; exec cat");
    let program = Pid::from_raw(guest.line().parse().unwrap());
    kill(program, Signal::SIGSTOP).unwrap();
    kill(program, Signal::SIGKILL).unwrap();
    assert_eq!(
        guest.finish().status.code(),
        Some(128 + Signal::SIGKILL as i32)
    );
}

#[test]
fn the_programs_own_preloads_and_library_path_are_kept() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &[]);
    run.env("LD_LIBRARY_PATH", "/own/one:/own/two")
        .env("LD_PRELOAD", "libm.so.6");
    run.args([
        "sh",
        "-c",
        "echo \"$LD_PRELOAD\"; echo \"$LD_LIBRARY_PATH\"",
    ]);
    let text = Guest::start(run).finish().silently();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("/libgpushare.so:libm.so.6"), "{text}");
    assert!(lines[1].ends_with(":/own/one:/own/two"), "{text}");
}

#[test]
fn a_static_program_runs_and_is_said_to_be_out_of_reach() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
    run.arg(clients::compile("quota", &["-static", "-Wno-error"]));
    let ended = Guest::start(run).finish();
    assert!(
        ended.status.success() && ended.stderr.lines().count() == 1,
        "{ended:?}"
    );
    assert!(ended.stderr.contains("statically linked"), "{ended:?}");
}

#[test]
fn nothing_is_left_behind() {
    let gpu = Gpu::new("");
    let runtime = tempfile::tempdir_in(artefacts::cache()).unwrap();
    let temporary = tempfile::tempdir_in(artefacts::cache()).unwrap();
    fs::set_permissions(
        runtime.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
    run.env("XDG_RUNTIME_DIR", runtime.path())
        .env("TMPDIR", temporary.path())
        .arg(clients::compile("quota", &[]));
    let guest = Guest::start(run).started();
    let tenants = || -> Vec<PathBuf> {
        let entries = fs::read_dir(runtime.path().join("gpushare/c"))
            .into_iter()
            .flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    assert_eq!(tenants().len(), 1, "the run has its own tenant");
    guest.finish().silently();
    assert_eq!(tenants(), Vec::<PathBuf>::new());
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_process_left_behind_keeps_its_tenant() {
    let gpu = Gpu::new("");
    let runtime = tempfile::tempdir_in(artefacts::cache()).unwrap();
    fs::set_permissions(
        runtime.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let fifo = runtime.path().join("in");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let client = clients::compile("quota", &[]);
    // The client outlives its shell; its answers come through the pipe that it keeps open.
    let script = format!("{} <{} & exec cat", client.display(), fifo.display());
    let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
    run.env("XDG_RUNTIME_DIR", runtime.path())
        .args(["sh", "-c", &script]);
    let mut guest = Guest::start(run);
    let mut input = fs::File::options().write(true).open(&fifo).unwrap();
    let mut say = |line: &str| input.write_all(line.as_bytes()).unwrap();
    say("init\n");
    assert_eq!(guest.line(), "init 0");
    guest.hang_up();
    assert!(matches!(
        waitpid(pid(&guest), None).unwrap(),
        WaitStatus::Exited(_, 0)
    ));
    assert_eq!(
        fs::read_dir(runtime.path().join("gpushare/c"))
            .unwrap()
            .count(),
        1
    );
    say("fill 67108864\n");
    assert_eq!(guest.line(), "fill 16 2", "and its quota");
}
