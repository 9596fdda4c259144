//! Supervises the program transparently: signals, job control and the exit status pass through.
//!
//! CMD stays in our process group, so that the terminal's own signals (Ctrl-C, Ctrl-Z, a resize)
//! reach it directly; those are not sent on. A signal that a process sent to us is. Where CMD has
//! made a group of its own (`timeout`), the terminal's foreground group is still ours, and we send
//! its signals on to CMD's; not where it has made a session (`setsid`), which the terminal's keys
//! never reach. When the terminal hangs up, the kernel tells the session's leader alone: where that
//! is us, we send it on. When job control stops CMD we stop likewise, so that a shell sees its job
//! stopped, and wake it when we are woken. A shell that suspends itself as CMD has the terminal,
//! which the shell around us takes then and we hand back to it.

use crate::failure::Failure;
use crate::output;
use gpushare_sys::spawn::{self, Change};
use nix::errno::Errno;
use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io;
use std::process::{Child, Command};

/// Signals that we do not hold back. All others, real-time signals too, are sent on to CMD; but
/// SIGCHLD tells us of CMD.
const OWN: [Signal; 9] = [
    // Faults of ours: held back, they would end us all the same.
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    // Ignored, as every program of Rust does.
    Signal::SIGPIPE,
    // Our own use of the terminal in the background.
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// The signals that the kernel sends the leader of a session whose terminal hangs up.
const HANG_UP: [Signal; 2] = [Signal::SIGHUP, Signal::SIGCONT];

/// Signals that a terminal sends to all of its foreground group, CMD too. A timer that was set
/// before we were started, or a limit of CPU time, sends others to us alone.
const TERMINALS: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
    Signal::SIGHUP,
    Signal::SIGCONT,
];

/// Stops that job control makes and undoes. A plain SIGSTOP was meant for CMD alone, unless CMD has
/// the terminal: no key would reach a program then.
const JOB_CONTROL: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Signals by which `run` ends where CMD was ended by them.
///
/// A shell gives up a loop when the key that interrupts it has ended the program too: it looks
/// whether a signal was the program's end (bash(1), SIGNALS). Of the other signals the exit status
/// tells, 128 and the signal, to callers that do not run a shell too.
const KEYS: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// How CMD ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this status.
    Exited(u8),
    /// The signal of this number ended it.
    Killed(i32),
}

impl End {
    /// As a shell's `$?`: its status, or 128 and the signal.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => low_byte(128 + signal),
        }
    }

    /// Ends this process as CMD ended, if that was by a key of the terminal. Returns where it was
    /// not, or where the kernel does not let us: as the first process of a pid namespace.
    pub(crate) fn share(self) {
        let ended_by = |key: &Signal| self == Self::Killed(*key as i32);
        if let Some(key) = KEYS.into_iter().find(ended_by) {
            spawn::end_by(key);
        }
    }
}

/// Holds signals back from the moment it is made, so that none is lost while CMD starts.
#[derive(Debug)]
pub(crate) struct Supervisor {
    signals: SignalFd,
    inherited: SigSet,
}

impl Supervisor {
    pub(crate) fn new() -> Result<Self, Failure> {
        let held = held();
        let failed = |errno| Failure::ours(format!("cannot take charge of signals: {errno}"));
        let inherited = SigSet::thread_get_mask().map_err(failed)?;
        held.thread_block().map_err(failed)?;
        let signals = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        Ok(Self { signals, inherited })
    }

    /// Starts CMD with the signal mask we were started with. It ignores the signals that we ignore,
    /// and ends when we are killed. Each variable of `of_pid` gets its process id.
    pub(crate) fn start(&self, command: &mut Command, of_pid: &[&str]) -> io::Result<Child> {
        spawn::bound(command, (self.inherited, Signal::SIGKILL), of_pid)
    }

    /// Waits for CMD to end.
    pub(crate) fn wait(&self, child: &Child) -> Result<End, Failure> {
        let failed = |errno| Failure::ours(format!("lost track of the program: {errno}"));
        let child = Pid::from_raw(child.id().try_into().map_err(|_| failed(Errno::ERANGE))?);
        loop {
            if let Some(end) = reap(child).map_err(failed)? {
                return Ok(end);
            }
            let received = match self.signals.read_signal() {
                Ok(Some(received)) => received,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            match whose(&received) {
                Some((number, Whose::Programs)) => forward(child, number),
                Some((number, Whose::Groups)) => {
                    if let Some(group) = own_group(child) {
                        forward(group, number);
                    }
                }
                None => {}
            }
        }
    }
}

fn held() -> SigSet {
    let mut held = SigSet::all();
    OWN.into_iter().for_each(|signal| held.remove(signal));
    held
}

/// For what a signal is meant that has come to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// CMD alone: a process sent it, or the kernel to the session's leader.
    Programs,
    /// The terminal's foreground group, CMD's as it would be without us.
    Groups,
}

/// The signal's number, and for what it is meant; `None` of what is for us alone.
fn whose(received: &siginfo) -> Option<(i32, Whose)> {
    let number = i32::try_from(received.ssi_signo).ok()?;
    let of = |signals: &[Signal]| signals.iter().any(|signal| *signal as i32 == number);
    if of(&[Signal::SIGCHLD]) {
        return None;
    }
    let is_the_groups = received.ssi_code == SI_KERNEL && of(&TERMINALS);
    Some(match is_the_groups && !(of(&HANG_UP) && leads_session()) {
        true => (number, Whose::Groups),
        false => (number, Whose::Programs),
    })
}

fn leads_session() -> bool {
    getsid(None).is_ok_and(|session| session == getpid())
}

/// CMD's process group, as `kill(2)` takes one, if it is another one of our session. The terminal
/// reaches ours by itself, and none of another session.
fn own_group(child: Pid) -> Option<Pid> {
    let group = getpgid(Some(child)).ok()?;
    let is_in_ours = getsid(Some(child)).ok()? == getsid(None).ok()?;
    (is_in_ours && group != getpgrp()).then(|| Pid::from_raw(-group.as_raw()))
}

/// Collects everything there is to collect: as a tenant's first process we also inherit orphans.
/// CMD's end if it has ended.
fn reap(child: Pid) -> Result<Option<End>, Errno> {
    loop {
        match spawn::next_change() {
            Ok(None) => return Ok(None),
            Ok(Some((pid, change))) if pid == child => match change {
                Change::Exited(status) => return Ok(Some(End::Exited(low_byte(status)))),
                Change::Ended(signal) => return Ok(Some(End::Killed(signal))),
                Change::Stopped(number) => {
                    let mut made = JOB_CONTROL.into_iter();
                    if let Some(signal) = made.find(|signal| *signal as i32 == number) {
                        stop(child, signal)?;
                    } else if number == Signal::SIGSTOP as i32 && has_terminal(child) {
                        stop_beside(child)?;
                    }
                }
            },
            Ok(Some(_)) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// An exit status is eight bits wide.
fn low_byte(status: i32) -> u8 {
    status.to_le_bytes()[0]
}

/// Stops us as CMD was stopped; returns when we are continued, with CMD continued too.
///
/// The terminal has sent us the same signal, which may still be held back. So ours is raised while
/// it is: the stop that follows takes one of the two, and being continued discards the other.
fn stop(child: Pid, signal: Signal) -> Result<(), Errno> {
    let only: SigSet = [signal].into_iter().collect();
    raise(signal)?;
    only.thread_unblock()?;
    if held().contains(signal) {
        only.thread_block()?;
    }
    // A group that no shell looks after is not stopped, so CMD would ask again at once, for ever.
    // Its leader gives a job the terminal that asks for it.
    let asks = [Signal::SIGTTIN, Signal::SIGTTOU].contains(&signal);
    if let Some(group) = own_group(child).filter(|_| asks && leads_session()) {
        give_terminal(group);
    }
    forward(own_group(child).unwrap_or(child), Signal::SIGCONT as i32);
    Ok(())
}

/// Whether CMD's own group has the terminal, and a shell with job control would take it if we
/// stopped: one that has made our group and is in its own.
fn has_terminal(child: Pid) -> bool {
    let around = getppid();
    let is_of_a_shell =
        getsid(Some(around)) == getsid(None) && getpgid(Some(around)) != getpgid(None);
    let Some(group) = own_group(child).filter(|_| is_of_a_shell) else {
        return false;
    };
    let foreground = terminal().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground.is_some_and(|foreground| foreground.as_raw() == -group.as_raw())
}

/// Stops us because CMD, which has the terminal, has stopped; returns when we are continued, with
/// CMD continued, too, and the terminal its own again.
fn stop_beside(child: Pid) -> Result<(), Errno> {
    raise(Signal::SIGSTOP)?;
    let group = own_group(child);
    if let Some(group) = group.filter(|_| is_foreground()) {
        give_terminal(group);
    }
    forward(group.unwrap_or(child), Signal::SIGCONT as i32);
    Ok(())
}

/// The terminal of our session, if it has one.
fn terminal() -> Option<File> {
    let file = File::options().read(true).write(true).open("/dev/tty");
    file.ok()
}

/// Whether our group has the terminal: `bg` continues us without it.
fn is_foreground() -> bool {
    let foreground = terminal().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}

/// Makes a group, as [`own_group`] gives it, that of the terminal. Without a terminal there is
/// nothing to give.
fn give_terminal(group: Pid) {
    // A group in the background that gives the terminal away is stopped for that, unless it blocks
    // this signal.
    let only = SigSet::from(Signal::SIGTTOU);
    if let (Some(terminal), Ok(())) = (terminal(), only.thread_block()) {
        let _ = tcsetpgrp(terminal, Pid::from_raw(-group.as_raw()));
        let _ = only.thread_unblock();
    }
}

fn forward(child: Pid, number: i32) {
    match spawn::send(child, number) {
        // It has just ended; its status is on the way.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => output::note(&format!("cannot send signal {number} to {child}: {errno}")),
    }
}
