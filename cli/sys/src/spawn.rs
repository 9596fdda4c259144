//! Starting programs, with a signal mask that is not our own or without the descriptors that we
//! inherited; and sending them signals.
//!
//! # Safety
//! Three closures run in the child between fork and exec, where only async-signal-safe calls are
//! allowed; they call `pthread_sigmask`, `sigaction`, `prctl`, `getppid`, `getpid`, `fcntl`, the
//! calls of the kernel for CPUs, priority and CPU time, and `execvp`, which is so in glibc, and
//! allocate nothing. One has the environment and the arguments in memory of its own and makes that
//! the child's environment, as the standard library does behind the last closure. An action of a
//! signal is set, always to the default or to ignore. One function runs before `main`: it asks for
//! an action, and stores an atomic. Calls of the C library send a signal by its number, because nix
//! has no names for real-time signals.
#![allow(unsafe_code, reason = "code between fork and exec needs it")]

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::unistd::{Pid, getpid, getppid};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether we were started with SIGCHLD ignored.
static IGNORED: AtomicBool = AtomicBool::new(false);
/// Whether we were started with SIGPIPE ignored, as the services of systemd are.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Rust's runtime ignores SIGPIPE before it calls `main`. The C library calls what this section
/// names before that.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls once each, on the first
// thread, before `main`; its arguments are more than this one takes.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    // SAFETY: zeroes are a valid action, which no call has to accept.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only writes the old one, into a structure of ours.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut before) };
    let ignored = asked == 0 && before.sa_sigaction == libc::SIG_IGN;
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Keeps ended children until we have waited for them, also where our parent ignores SIGCHLD, which
/// we inherit.
///
/// # Errors
/// As `sigaction(2)`.
pub fn keep_children() -> Result<(), Errno> {
    let before = set(Signal::SIGCHLD, SigHandler::SigDfl)?;
    let ignored = matches!(before.handler(), SigHandler::SigIgn);
    IGNORED.store(ignored, Ordering::Relaxed);
    Ok(())
}

fn set(signal: Signal, how: SigHandler) -> Result<SigAction, Errno> {
    let action = SigAction::new(how, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither action that this file gives runs code of ours.
    unsafe { sigaction(signal, &action) }
}

/// Starts `command` with exactly the signals of `mask` blocked, and SIGCHLD and SIGPIPE ignored if
/// they were when we were started. A child otherwise inherits the mask of the thread that starts
/// it, and has the default for SIGPIPE. The kernel sends it `last` when this thread ends first.
/// Each variable of `of_pid` is the child's process id; the command has the whole environment.
///
/// # Errors
/// As [`Command::spawn`].
pub fn bound(
    command: &mut Command,
    (mask, last): (SigSet, Signal),
    of_pid: &[&str],
) -> io::Result<Child> {
    let started_with = [
        (Signal::SIGCHLD, IGNORED.load(Ordering::Relaxed)),
        (Signal::SIGPIPE, PIPE_IGNORED.load(Ordering::Relaxed)),
    ];
    let parent = getpid();
    let prepare = move || {
        set_pdeathsig(last)?;
        // We were killed before that. A parent outside of the child's pid namespace is 0.
        if ![parent, Pid::from_raw(0)].contains(&getppid()) {
            return Err(io::Error::from(Errno::ESRCH));
        }
        for (signal, ignored) in started_with {
            if ignored {
                set(signal, SigHandler::SigIgn)?;
            }
        }
        mask.thread_set_mask().map_err(io::Error::from)
    };
    // SAFETY: `thread_set_mask` is `pthread_sigmask`, which is async-signal-safe as `sigaction`,
    // `prctl` and `getppid` are; the set is owned by the closure, and turning an errno into an
    // `io::Error` does not allocate.
    unsafe { command.pre_exec(prepare) };
    if !of_pid.is_empty() {
        let mut image = Image::of(command, of_pid)?;
        // SAFETY: see the module's page. The closure owns the image.
        unsafe { command.pre_exec(move || Err(image.exec())) };
    }
    command.spawn()
}

/// Longest number of a process, in digits.
const DIGITS: usize = 10;

/// The arguments and the environment of a child's program, as `execvp(3)` takes them.
struct Image {
    /// Each ends with a zero, as do the lists of pointers into them.
    arguments: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// Those of `variables` that end with room for a number.
    of_pid: Vec<usize>,
}

// SAFETY: the pointers lead into memory that the value itself owns and no other one has.
unsafe impl Send for Image {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Image {}

impl Image {
    fn of(command: &Command, of_pid: &[&str]) -> io::Result<Self> {
        let ended = |parts: &[&[u8]]| {
            let text = parts.concat();
            match text.contains(&0) {
                // As the standard library says of such a command.
                true => Err(io::Error::from(io::ErrorKind::InvalidInput)),
                false => Ok([&text[..], &[0]].concat()),
            }
        };
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words = words.map(|word| ended(&[word.as_bytes()]));
        let arguments: Vec<Vec<u8>> = words.collect::<io::Result<_>>()?;
        let mut image = Self {
            arguments,
            variables: Vec::new(),
            argv: Vec::new(),
            envp: Vec::new(),
            of_pid: Vec::new(),
        };
        for (name, value) in command.get_envs() {
            let Some(value) = value else {
                continue;
            };
            let number = of_pid.iter().any(|of_pid| name == *of_pid);
            let value = if number {
                &[b'0'; DIGITS]
            } else {
                value.as_bytes()
            };
            if number {
                image.of_pid.push(image.variables.len());
            }
            image
                .variables
                .push(ended(&[name.as_bytes(), b"=", value])?);
        }
        let list = |texts: &[Vec<u8>]| {
            let pointers = texts.iter().map(|text| text.as_ptr().cast());
            pointers.chain([std::ptr::null()]).collect()
        };
        image.argv = list(&image.arguments);
        image.envp = list(&image.variables);
        Ok(image)
    }

    /// In the child. Returns only if it fails.
    fn exec(&mut self) -> io::Error {
        let pid = getpid().as_raw();
        for at in &self.of_pid {
            if let Some(text) = self.variables.get_mut(*at) {
                write_number(text, pid);
            }
        }
        // SAFETY: the child has one thread, and nothing has kept the pointer; the lists end with a
        // null pointer, as their texts do with a zero.
        unsafe {
            libc::environ = self.envp.as_mut_ptr().cast();
            libc::execvp(self.argv[0], self.argv.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Writes a number into the room at a text's end, and ends the text there.
fn write_number(text: &mut [u8], number: i32) {
    let Some(start) = text.len().checked_sub(DIGITS + 1) else {
        return;
    };
    let (mut left, mut digits) = (number, 1);
    while left >= 10 {
        left /= 10;
        digits += 1;
    }
    let mut left = number;
    for at in (start..start + digits).rev() {
        text[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
    }
    text[start + digits] = 0;
}

/// Starts `command` as a program that serves others than our caller.
///
/// It has its standard streams and no other open descriptor: those that we inherited are the
/// caller's, which may wait until the last holder of a pipe or of a lock is gone. No signal is
/// blocked in it. It may use all CPUs of its cgroup, with the usual scheduling, at our priority or
/// the usual one if that is higher and may be had, and as much CPU time as may be had.
///
/// # Errors
/// As [`Command::spawn`], or if our descriptors cannot be listed.
pub fn apart(command: &mut Command) -> io::Result<Child> {
    let open = inherited()?;
    let close = move || {
        for fd in &open {
            // SAFETY: it touches no memory. Descriptors that are closed by now refuse it.
            unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        as_usual();
        SigSet::empty().thread_set_mask().map_err(io::Error::from)
    };
    // SAFETY: `fcntl`, `pthread_sigmask` and the calls of the kernel in `as_usual` are
    // async-signal-safe; the list is owned by the closure, and neither reading it nor turning an
    // errno into an `io::Error` allocates.
    unsafe { command.pre_exec(close) }.spawn()
}

/// Undoes `taskset`, `chrt`, `nice` and `ulimit -t` for this process, as far as it may.
fn as_usual() {
    // SAFETY: zeroes are a valid set of CPUs and valid parameters of the usual scheduling, as is a
    // limit of 0. Each call reads or writes these structures of ours, of which the sizes are those
    // that it is told, and nothing else.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        for cpu in 0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
            libc::CPU_SET(cpu, &mut all);
        }
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
        let usual: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const usual);
        if libc::getpriority(libc::PRIO_PROCESS, 0) > 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
        let mut time: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_CPU, &raw mut time) == 0 {
            time.rlim_cur = time.rlim_max;
            libc::setrlimit(libc::RLIMIT_CPU, &raw const time);
        }
    }
}

/// The open descriptors above the standard streams.
fn inherited() -> io::Result<Vec<i32>> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|text| text.parse().ok());
        open.extend(number.filter(|fd: &i32| *fd > 2));
    }
    Ok(open)
}

/// A change of a child's state, with the numbers as the kernel gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it, which may be a real-time one: nix knows no status with such a number.
    Ended(i32),
    /// This signal stopped it.
    Stopped(i32),
}

/// The next change of any child; `None` if there is none now.
///
/// # Errors
/// As `waitpid(2)`.
pub fn next_change() -> Result<Option<(Pid, Change)>, Errno> {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::WUNTRACED;
    // SAFETY: the call writes a number of ours.
    let child = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, flags) })?;
    if child == 0 {
        return Ok(None);
    }
    let change = if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else {
        Change::Ended(libc::WTERMSIG(status))
    };
    Ok(Some((Pid::from_raw(child), change)))
}

/// Ends this process by `signal`, with the signal's default action and without a core. Returns
/// where the kernel passes over that: for the first process of a pid namespace.
pub fn end_by(signal: Signal) {
    // A core of ours would say nothing of the program's, and take its place. A limit of 0 does not
    // hold for the pipe of a collector of cores.
    let _ = set_dumpable(false);
    let _ = set(signal, SigHandler::SigDfl);
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
}

/// Sends a signal, by its number, to a process.
///
/// # Errors
/// As `kill(2)`.
pub fn send(process: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill touches no memory of ours.
    Errno::result(unsafe { libc::kill(process.as_raw(), signal) }).map(drop)
}
