//! Guests: processes that execute commands line by line, on a machine of the test's own.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use softgpu::inspect::{DeviceTruth, Observer};
use softgpu::spec::Spec;

/// A machine of this test's own. The observer keeps it alive after its processes have exited.
pub(crate) struct Machine {
    pub(crate) spec: Spec,
    pub(crate) observer: Observer,
}

impl Machine {
    /// `values` are further keys of SPEC.
    pub(crate) fn new(test: &str, values: &str) -> Self {
        let spec: Spec = format!("name=test-{test}-{},{values}", std::process::id())
            .parse()
            .expect("SPEC");
        let observer = Observer::open(&spec).expect("the machine opens");
        Self { spec, observer }
    }

    /// Starts a process on it.
    pub(crate) fn guest(&self) -> Guest {
        Guest::start(&self.spec.to_string())
    }

    /// The current state of its first device.
    pub(crate) fn now(&self) -> DeviceTruth {
        self.observer
            .snapshot()
            .expect("the state reads")
            .devices
            .swap_remove(0)
    }

    /// The state of its first device after `operations` operations.
    pub(crate) fn after(&self, operations: usize) -> DeviceTruth {
        for _ in 0..operations {
            self.observer.step().expect("the state reads");
        }
        self.now()
    }
}

/// A process that executes commands.
pub(crate) struct Guest {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Its result of `cuInit`.
    pub(crate) greeting: String,
}

impl Guest {
    pub(crate) fn start(spec: &str) -> Self {
        let mut guest = Self::launch(spec);
        guest.greet();
        guest
    }

    /// Starts it without waiting until it has opened the machine.
    pub(crate) fn launch(spec: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softgpu-guest"));
        command
            .env("SOFTGPU", spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the guest starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            stdin,
            stdout,
            greeting: String::new(),
        }
    }

    /// Waits until it has opened the machine or failed to.
    pub(crate) fn greet(&mut self) {
        self.greeting = self.answer();
    }

    /// Sends a command; returns the answer.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }

    /// Sends a command that must succeed; returns the text after `ok`.
    pub(crate) fn must(&mut self, command: &str) -> String {
        let answer = self.tell(command);
        answer
            .strip_prefix("ok")
            .unwrap_or_else(|| panic!("{command}: {answer}"))
            .trim()
            .to_owned()
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("the guest reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the guest answers");
        line.trim().to_owned()
    }

    /// Kills the process with SIGKILL and waits for its end. Its forked children live on.
    pub(crate) fn kill(mut self) -> Option<ChildStdin> {
        self.child.kill().expect("it lived");
        self.child.wait().expect("it ends");
        self.stdin.take()
    }

    /// Closes its stdin and waits for its exit.
    pub(crate) fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
