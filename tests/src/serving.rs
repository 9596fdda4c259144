//! A daemon's program that a test has started.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::Signal;

/// The last lines of its output that are kept.
const KEPT: usize = 40;

/// A daemon that serves. It must do so until a test ends it.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Serving {
    /// Starts a daemon and waits until it serves.
    ///
    /// # Errors
    /// The daemon's output, if it ended before it served.
    pub fn start(mut daemon: Command) -> Result<Self, String> {
        let mut child = daemon
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program exists");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            if line.contains("serving") {
                let said = Arc::default();
                read_on(lines, Arc::clone(&said));
                return Ok(Self { child, said });
            }
            said.push_str(&line);
            said.push('\n');
        }
        let _ = child.wait();
        Err(said)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL. It may have been ended by a test before, and by nothing else.
    ///
    /// # Panics
    /// If it has ended by itself: by a panic, which aborts it in a build for tests, a fault, or an
    /// error.
    #[track_caller]
    pub fn kill(mut self) {
        let ended = self.child.try_wait().expect("a child can be asked");
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
        // A test that fails already says why.
        if std::thread::panicking() || ended.is_none_or(is_ordinary) {
            return;
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.iter().map(String::as_str).collect::<Vec<_>>();
        panic!(
            "the daemon ended by itself, {ended:?}:\n{}",
            said.join("\n")
        );
    }
}

/// As it ends when it is told to, or killed.
fn is_ordinary(status: ExitStatus) -> bool {
    let ends = [Signal::SIGKILL, Signal::SIGTERM].map(|signal| Some(signal as i32));
    status.success() || ends.contains(&status.signal())
}

/// Reads its output to the end, so that it never blocks on the pipe.
fn read_on(lines: Lines<BufReader<ChildStderr>>, said: Arc<Mutex<VecDeque<String>>>) {
    let shows = std::env::var_os("GPUTEST_DAEMON_LOG").is_some();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if shows {
                eprintln!("gpushared: {line}");
            }
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() == KEPT {
                said.pop_front();
            }
            said.push_back(line);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Serving {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo serving >&2; {line}")]);
        Serving::start(command).expect("it serves")
    }

    /// Waits until it has ended, and leaves its status to be asked for.
    fn until_ended(daemon: &Serving) {
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        let id = Id::Pid(nix::unistd::Pid::from_raw(daemon.pid().cast_signed()));
        waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("it is a child");
    }

    #[test]
    fn a_daemon_that_serves_is_killed() {
        sh("exec sleep 1000").kill();
    }

    #[test]
    fn a_daemon_that_was_ended_by_the_test_is_no_failure() {
        for line in ["exit 0", "kill -KILL $$", "kill -TERM $$"] {
            let daemon = sh(line);
            until_ended(&daemon);
            daemon.kill();
        }
    }

    #[test]
    #[should_panic = "the daemon ended by itself"]
    fn a_daemon_that_aborted_fails_its_test() {
        let daemon = sh("kill -ABRT $$");
        until_ended(&daemon);
        daemon.kill();
    }

    #[test]
    #[should_panic = "the daemon ended by itself"]
    fn a_daemon_that_ended_with_an_error_fails_its_test() {
        let daemon = sh("exit 1");
        until_ended(&daemon);
        daemon.kill();
    }
}
