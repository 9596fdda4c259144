//! Children that ask a driver. It may hang, so that not even a kill ends them, and processes that
//! they leave may hold their pipes: nothing here waits without a bound.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two looks whether a child has ended.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a child that is told to end may take.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The process group of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The one that it leads, with the processes that it starts.
    Own,
    /// That of this process.
    Ours,
}

/// Its status, if it ends in that time. Looks again and again: a handler for SIGCHLD would stay in
/// force and change how CMD is supervised.
pub(crate) fn within(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if started.elapsed() < patience => sleep(PAUSE),
            _ => return None,
        }
    }
}

/// Ends a child that was not waited for: it is asked to end, and killed after `grace`, with its own
/// group. A `run` passes the first signal on to its program, and takes back a request that waits.
pub(crate) fn end(child: &mut Child, group: Group, grace: Duration) {
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else {
        return;
    };
    let _ = kill(pid, Signal::SIGTERM);
    if within(child, grace).is_some() {
        return;
    }
    let _ = match group {
        Group::Own => killpg(pid, Signal::SIGKILL),
        Group::Ours => kill(pid, Signal::SIGKILL),
    };
    let _ = within(child, grace);
}

/// The text that a child has written into a stream until now. It fits a pipe.
pub(crate) fn text(stream: Option<impl Read + AsFd>) -> String {
    let mut text = Vec::new();
    if let Some(mut stream) = stream {
        // At the end of what is there the read fails, where another process has the other end.
        if fcntl(&stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok() {
            let _ = stream.read_to_end(&mut text);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};

    const MINUTE: Duration = Duration::from_secs(60);

    /// A shell that leads a group, with its output in a pipe.
    fn shell(line: &str) -> Child {
        let mut sh = Command::new("sh");
        sh.args(["-c", line]).stdout(Stdio::piped());
        sh.process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_child_that_ignores_the_end_is_killed_with_what_it_started() {
        let mut child = shell("trap '' TERM; (echo $$; exec tail -f /dev/null) & wait");
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        end(&mut child, Group::Own, Duration::ZERO);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        // The pipe's last writer is gone.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn a_stream_is_read_though_another_process_holds_it() {
        let mut child = shell("echo told; tail -f /dev/null & exit 3");
        let status = within(&mut child, MINUTE).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(text(child.stdout.take()), "told\n");
        let group = Pid::from_raw(child.id().try_into().unwrap());
        killpg(group, Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_child_that_ends_when_it_is_told_is_not_killed() {
        let mut child = shell("trap 'kill $!; exit 5' TERM; tail -f /dev/null & echo ready; wait");
        let mut ready = [0; 6];
        let output = child.stdout.as_mut().unwrap();
        output.read_exact(&mut ready).unwrap();
        end(&mut child, Group::Own, MINUTE);
        assert_eq!(child.wait().unwrap().code(), Some(5));
    }
}
