//! `gpushare run` on a terminal: its signals reach the program once, whatever group that is in.

use gpushare_tests::guest::{clean, command};
use gpushare_tests::terminal::Terminal;
use gpushare_tests::{Gpu, Guest};
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};

/// A Python program under `run` on a terminal whose session `run` leads, as sshd and terminal
/// multiplexers start it; and the terminal's other end.
fn on_a_terminal(gpu: &Gpu, program: &str) -> (Guest, PtyMaster) {
    let run = command(gpu, &[]);
    let mut words = vec![run.get_program()];
    words.extend(run.get_args());
    words.extend(["python3", "-c", program].map(OsStr::new));
    leads_a_terminal(&words)
}

/// The same of any command.
fn leads_a_terminal(words: &[&OsStr]) -> (Guest, PtyMaster) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).expect("terminals can be made");
    grantpt(&master).expect("it is ours");
    unlockpt(&master).expect("it is ours");
    let mut leader = clean("sh".as_ref());
    leader
        .args(["-c", "exec setsid --ctty \"$@\" <\"$TERMINAL\"", "sh"])
        .env("TERMINAL", ptsname_r(&master).expect("it has a name"))
        .args(words);
    (Guest::start(leader), master)
}

/// Ends at a hang-up, with 10 and the number of interrupts until then; says that another signal
/// came. Python, because a shell needs a child to wait for, which an interrupt ends too.
const COUNT_INTERRUPTS: &str = "
import signal, sys
wanted = {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print('ready', flush=True)
status = 10
while got := signal.sigtimedwait(wanted, 60):
    if got.si_signo == signal.SIGHUP:
        sys.exit(status + (signal.SIGINT in signal.sigpending()))
    if got.si_signo == signal.SIGUSR1:
        print('told', flush=True)
        continue
    status += 1
    print('interrupted', flush=True)
";

#[test]
fn a_hung_up_terminal_ends_the_program() {
    let gpu = Gpu::new("");
    let (mut guest, terminal) = on_a_terminal(&gpu, COUNT_INTERRUPTS);
    assert_eq!(guest.line(), "ready");
    drop(terminal);
    assert_eq!(guest.finish().status.code(), Some(10));
}

#[test]
fn an_interrupt_of_the_terminal_reaches_the_program_once() {
    let gpu = Gpu::new("");
    let (mut guest, mut terminal) = on_a_terminal(&gpu, COUNT_INTERRUPTS);
    assert_eq!(guest.line(), "ready");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(guest.line(), "interrupted");
    drop(terminal);
    assert_eq!(guest.finish().status.code(), Some(11));
}

/// bash asks of each program that an interrupt came to, too, whether it died of that.
#[test]
fn an_interrupt_ends_a_shells_loop_if_the_program_dies_of_it() {
    let gpu = Gpu::new("");
    let run = command(&gpu, &[]);
    let dies = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)";
    let sees_to_it = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(130))";
    let waits = "print('begun', flush=True); signal.pause()";
    for (program, rounds) in [(dies, 1), (sees_to_it, 2)] {
        let program = format!("{program}\n{waits}");
        let looped = "for round in 1 2; do \"$@\"; done; echo over";
        let mut words = ["bash", "-c", looped, "bash"].map(OsStr::new).to_vec();
        words.push(run.get_program());
        words.extend(run.get_args());
        words.extend(["python3", "-c", &program].map(OsStr::new));
        let (mut guest, mut terminal) = leads_a_terminal(&words);
        for _ in 0..rounds {
            assert_eq!(guest.line(), "begun");
            terminal.write_all(b"\x03").unwrap();
        }
        let ended = guest.finish();
        let over = if rounds == 1 { "" } else { "over\n" };
        assert_eq!(ended.stdout, over, "{ended:?}");
    }
}

/// As `timeout` does. The terminal's foreground group stays that of `run`.
#[test]
fn a_program_in_a_group_of_its_own_hears_the_terminal_once_too() {
    let gpu = Gpu::new("");
    let program = format!("import os; os.setpgid(0, 0)\n{COUNT_INTERRUPTS}");
    let (mut guest, mut terminal) = on_a_terminal(&gpu, &program);
    assert_eq!(guest.line(), "ready");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(guest.line(), "interrupted");
    drop(terminal);
    assert_eq!(guest.finish().status.code(), Some(11));
}

/// As `setsid` and servers make one, to be left alone by the terminal: a bare one is.
#[test]
fn a_program_in_a_session_of_its_own_is_not_interrupted() {
    let gpu = Gpu::new("");
    let apart = "import os; os.setsid(); print(os.getppid(), flush=True)";
    let program = format!("{apart}\n{COUNT_INTERRUPTS}");
    let (mut guest, mut terminal) = on_a_terminal(&gpu, &program);
    let run = Pid::from_raw(guest.line().parse().expect("a pid"));
    assert_eq!(guest.line(), "ready");
    terminal.write_all(b"\x03").unwrap();
    // The terminal shows the key once it has sent the signal.
    let mut shown = [0; 2];
    terminal.read_exact(&mut shown).unwrap();
    assert_eq!(&shown, b"^C");
    // `run` sends them on in this order.
    kill(run, Signal::SIGUSR1).expect("it lives");
    assert_eq!(guest.line(), "told");
    drop(terminal);
    assert_eq!(guest.finish().status.code(), Some(10));
}

/// Starts no process, so that all of it stops at once. A shell that has just begun to start one
/// stops only when that one has begun.
const WAIT: &str = "
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print('begun', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print('continued', flush=True)
signal.pause()
";

/// `timeout` makes a group of its own, and so do launchers of ranks.
#[test]
fn the_keys_of_job_control_reach_a_program_in_any_group() {
    let test = "the_keys_of_job_control_reach_a_program_in_any_group";
    let gpu = Gpu::new("");
    let run = command(&gpu, &[]);
    let folder = tempfile::tempdir().unwrap();
    let [program, go_on] = ["program", "go-on"].map(|name| folder.path().join(name));
    fs::write(&program, WAIT).unwrap();
    let Some(terminal) = Terminal::open(test, &run, (200, 30)) else {
        return;
    };
    let words = run.get_args().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    let run = format!("{} {}", run.get_program().display(), words.join(" "));
    let waits = format!("python3 {} {}", program.display(), go_on.display());
    for around in ["timeout 600 ", ""] {
        terminal.write(&format!("clear; {run} {around}{waits}"));
        terminal.press(&["Enter"]);
        terminal.until(|screen| screen.contains("begun"));
        terminal.press(&["C-z"]);
        terminal.until(|screen| screen.contains("Stopped"));
        fs::write(&go_on, "").unwrap();
        terminal.write("clear; fg");
        terminal.press(&["Enter"]);
        terminal.until(|screen| screen.contains("continued"));
        terminal.press(&["C-c"]);
        // The shell reads the next line once the job has ended.
        terminal.write("echo status $?");
        terminal.press(&["Enter"]);
        terminal.until(|screen| screen.contains("status 130"));
        fs::remove_file(&go_on).unwrap();
    }
}

/// As a program under `timeout` that asks for a password, in a window of `tmux`.
#[test]
fn a_program_in_a_group_of_its_own_reads_the_terminal_that_run_leads() {
    let gpu = Gpu::new("");
    let program = "import os; os.setpgid(0, 0); print('asks', flush=True); print(input())";
    let (mut guest, mut terminal) = on_a_terminal(&gpu, program);
    assert_eq!(guest.line(), "asks");
    terminal.write_all(b"said\n").unwrap();
    assert_eq!(guest.line(), "said");
    assert!(guest.finish().status.success());
}

/// Takes the terminal, as a shell does, and suspends itself by a signal that cannot be held.
const TAKES: &str = "
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.setpgid(0, 0)
os.tcsetpgrp(0, os.getpid())
print('has it', flush=True)
os.kill(0, signal.SIGSTOP)
print(input('continued '), flush=True)
";

#[test]
fn a_shell_that_suspends_itself_leaves_the_terminal_to_the_one_around() {
    let test = "a_shell_that_suspends_itself_leaves_the_terminal_to_the_one_around";
    let gpu = Gpu::new("");
    let run = command(&gpu, &[]);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, TAKES).unwrap();
    let Some(terminal) = Terminal::open(test, &run, (200, 30)) else {
        return;
    };
    let words = run.get_args().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    let run = format!("{} {}", run.get_program().display(), words.join(" "));
    terminal.write(&format!("clear; {run} python3 {}", program.display()));
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains("has it") && screen.contains("Stopped"));
    terminal.write("clear; fg");
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains("continued"));
    terminal.write("to-the-program");
    terminal.press(&["Enter"]);
    // Once as it is typed, once as the program says it.
    terminal.until(|screen| screen.matches("to-the-program").count() == 2);
    terminal.until(|screen| screen.lines().any(|line| line.starts_with("ready$")));
}
