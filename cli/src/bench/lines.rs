//! A process of the benchmark, as its starter has it: lines to it and from it, each waited for no
//! longer than the caller says, and its end.

use crate::child::{self, Group};
use gpushare_sys::spawn;
use nix::sys::signal::{SigSet, Signal};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest time until a process is ready: the first start of a driver and of the daemon.
pub(super) const START: Duration = Duration::from_secs(60);
/// The longest time from the end of its work until a process reports it, and from then until it
/// ends; what it has submitted by then takes its time besides.
pub(super) const END: Duration = Duration::from_secs(60);
/// The longest that a process takes to end that is told to.
const GRACE: Duration = Duration::from_secs(10);

/// One process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it. If this thread ends without it, the kernel tells it to end: a `gpushare run` ends
    /// its program with itself, and leaves nothing.
    pub(super) fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mask = SigSet::thread_get_mask().map_err(|error| error.to_string())?;
        let mut child = spawn::bound(&mut command, (mask, Signal::SIGTERM), &[])
            .map_err(|error| error.to_string())?;
        let (told, lines) = channel();
        let output = child.stdout.take().map(BufReader::new);
        std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(BufRead::lines);
            for line in lines.map_while(Result::ok) {
                if told.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits until it says that it is ready, at most until `end`.
    pub(super) fn is_ready(&self, end: Instant) -> Result<(), String> {
        match self.line(end)?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("it said {other:?}")),
        }
    }

    /// Tells it a line.
    pub(super) fn say(&mut self, line: &str) -> Result<(), String> {
        let told = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => Ok(()),
        };
        told.map_err(|error| error.to_string())
    }

    /// Its next line, waited for at most until `end`.
    pub(super) fn line(&self, end: Instant) -> Result<String, String> {
        let rest = end.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(rest).map_err(|error| match error {
            RecvTimeoutError::Timeout => "it does not answer".to_owned(),
            RecvTimeoutError::Disconnected => "it ended; why is said above".to_owned(),
        })
    }

    /// Closes the input of a process that does not work, and waits for its end, at most for the
    /// grace period.
    pub(super) fn leaves(&mut self) {
        drop(self.child.stdin.take());
        let _ = child::within(&mut self.child, GRACE);
    }

    /// Waits for its end, at most until `end`: a driver may hang in it.
    pub(super) fn ended(&mut self, end: Instant) -> Result<ExitStatus, String> {
        let rest = end.saturating_duration_since(Instant::now());
        child::within(&mut self.child, rest).ok_or_else(|| "it does not end".to_owned())
    }
}

/// A remaining process has no reader any more. Closing its input ends it unless it works; the
/// signal ends it all the same, and `gpushare run` passes it on to its program.
impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            child::end(&mut self.child, Group::Ours, GRACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    fn within(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    #[test]
    fn a_process_that_does_not_answer_is_waited_for_until_the_limit() {
        let mut echo = shell("echo ready; read line; echo \"$line\"; read line");
        assert_eq!(echo.is_ready(within(20_000)), Ok(()));
        echo.say("one").unwrap();
        assert_eq!(echo.line(within(20_000)), Ok("one".to_owned()));
        let silent = echo.line(within(10));
        assert_eq!(silent, Err("it does not answer".to_owned()));
        echo.say("two").unwrap();
        let gone = echo.line(within(20_000));
        assert_eq!(gone, Err("it ended; why is said above".to_owned()));
        let ended = echo.ended(within(20_000));
        assert!(ended.is_ok_and(|status| status.success()));
    }

    #[test]
    fn the_end_of_a_process_that_has_answered_is_waited_for_until_the_limit() {
        let mut hangs = shell("echo x; exec sleep 600");
        assert_eq!(hangs.line(within(20_000)), Ok("x".to_owned()));
        let never = hangs.ended(within(10));
        assert_eq!(never.unwrap_err(), "it does not end");
    }

    #[test]
    fn a_process_that_does_not_work_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ended");
        let mut idle = shell(&format!("echo ready; cat; echo > {}", file.display()));
        assert_eq!(idle.is_ready(within(20_000)), Ok(()));
        idle.leaves();
        assert!(file.exists(), "no signal ended it");
    }

    #[test]
    fn a_process_that_works_is_ended_and_not_waited_for() {
        let busy = shell("echo ready; exec sleep 600");
        assert_eq!(busy.is_ready(within(20_000)), Ok(()));
        let began = Instant::now();
        drop(busy);
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_process_that_says_something_else_is_not_ready() {
        let other = shell("echo no");
        assert_eq!(
            other.is_ready(within(20_000)),
            Err("it said \"no\"".to_owned())
        );
    }
}
