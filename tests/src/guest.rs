//! Programs under test, started with `gpushare run`.

use crate::gpu::{Gpu, links};
use crate::{artefacts, clients};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The longest wait for a line of a guest: below the time after which `.config/nextest.toml` ends a
/// test without a word.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program under `gpushare run` whose standard streams are pipes of the test.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// The result of a guest that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The status of `gpushare run`.
    pub status: ExitStatus,
    /// The unread standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

/// `gpushare run --daemon off --gpu soft:… <flags> --`, ready for a program: the library enforces
/// the limits by itself. (With a daemon: [`crate::Home`].) The environment is the test's without
/// gpushare's variables, so that a developer's settings do not change a test.
pub fn command(gpu: &Gpu, flags: &[&str]) -> Command {
    let gpu = format!("soft:{}", gpu.spec());
    let mut command = gpushare(&["run", "--daemon", "off", "--gpu", &gpu]);
    command.args(flags).arg("--");
    command
}

/// `gpushare` with these arguments in the clean environment.
pub fn gpushare(arguments: &[&str]) -> Command {
    let mut command = clean(&artefacts::gpushare());
    command.args(arguments);
    command
}

/// A program on `gpu` without gpushare: no library, no limit.
pub fn plain(gpu: &Gpu, program: &Path) -> Command {
    let mut command = clean(program);
    command
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU", gpu.spec());
    command
}

/// A program in the clean environment.
pub fn clean(program: &Path) -> Command {
    artefacts::folder();
    let mut command = Command::new(program);
    let ours = [
        "GPUSHARE_",
        "SOFTGPU",
        "CUDA_",
        "NVIDIA_",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
    ];
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| ours.iter().any(|prefix| name.starts_with(prefix)))
        {
            command.env_remove(name);
        }
    }
    // A test does not write into the developer's own journal.
    command.env("XDG_STATE_HOME", artefacts::cache().join("state"));
    command
}

impl Guest {
    /// Starts the C client `name` on `gpu` under `flags`.
    pub fn client(gpu: &Gpu, flags: &[&str], name: &str) -> Self {
        let mut command = command(gpu, flags);
        command.arg(clients::compile(name, &[]));
        Self::start(command)
    }

    /// Starts any program on `gpu` under `flags`.
    pub fn program<S: AsRef<OsStr>>(gpu: &Gpu, flags: &[&str], program: &[S]) -> Self {
        let mut command = command(gpu, flags);
        command.args(program);
        Self::start(command)
    }

    /// Starts a prepared command.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gpushare starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        }
    }

    /// Sends one line and returns the line that answers it.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// Stops `gpushare run`, not its program: it starts no daemon in the place of one that dies.
    pub fn hold(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Continues it.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let run = i32::try_from(self.id()).expect("a pid");
        kill(Pid::from_raw(run), signal).expect("it is ours");
    }

    /// Kills it and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Sends one line.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let stdin = self
            .stdin
            .as_mut()
            .expect("a finished guest accepts no command");
        // In one write: a guest may end at the first byte.
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdin.flush())
            .unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    /// Whether it says something within this time that was not read yet, or has ended.
    fn says_within(&self, patience: PollTimeout) -> bool {
        let stdout = self.stdout.get_ref().as_fd();
        let mut ready = [PollFd::new(stdout, PollFlags::POLLIN)];
        !self.stdout.buffer().is_empty() || poll(&mut ready, patience).expect("a pipe") > 0
    }

    /// Whether [`line`](Self::line) need not wait for the guest.
    pub fn has_said(&self) -> bool {
        self.says_within(PollTimeout::ZERO)
    }

    /// The next line of standard output, without its end. A call that waits for ever fails the test
    /// where it waits.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let patience = PollTimeout::try_from(PATIENCE).expect("a short time");
        let says = self.says_within(patience);
        assert!(says, "the guest says nothing for {PATIENCE:?}");
        self.stdout.read_line(&mut line).expect("guests print text");
        if !line.ends_with('\n') {
            let mut stderr = String::new();
            if let Some(mut stream) = self.child.stderr.take() {
                stream
                    .read_to_string(&mut stderr)
                    .expect("guests print text");
            }
            panic!("the guest ended after {line:?}; standard error: {stderr}");
        }
        line.truncate(line.len() - 1);
        line
    }

    /// The process id of `gpushare run`, which is the program's parent.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Closes its standard input.
    pub fn hang_up(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes its standard input and waits for its end.
    pub fn finish(mut self) -> Ended {
        self.hang_up();
        let mut stderr = self.child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let mut stdout = String::new();
        self.stdout
            .read_to_string(&mut stdout)
            .expect("guests print text");
        let stderr = errors
            .join()
            .expect("reading does not panic")
            .expect("guests print text");
        let status = self.child.wait().expect("a child can be waited for");
        Ended {
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Guest {
    /// A failed test leaves no guest behind: the program sees the end of its input, and `run` ends
    /// with it.
    fn drop(&mut self) {
        self.hang_up();
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Asserts success with nothing on standard error, and returns standard output.
    #[track_caller]
    pub fn silently(self) -> String {
        assert!(self.status.success() && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }
}
