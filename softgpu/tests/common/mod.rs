//! Guests that answer line by line, on a machine of the test's own.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use softgpu::inspect::{DeviceTruth, Observer};
use softgpu::spec::Spec;

/// A machine of this test's own, watched so that it outlives its processes.
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

    /// A process on it.
    pub(crate) fn guest(&self) -> Guest {
        Guest::start(&self.spec.to_string())
    }

    /// Its first device as it is.
    pub(crate) fn now(&self) -> DeviceTruth {
        self.observer
            .snapshot()
            .expect("the state reads")
            .devices
            .swap_remove(0)
    }

    /// Its first device after `operations` operations.
    pub(crate) fn after(&self, operations: usize) -> DeviceTruth {
        for _ in 0..operations {
            self.observer.step().expect("the state reads");
        }
        self.now()
    }
}

/// A process that does what it is told.
pub(crate) struct Guest {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// What it said to `cuInit`.
    pub(crate) greeting: String,
}

impl Guest {
    pub(crate) fn start(spec: &str) -> Self {
        let mut guest = Self::launch(spec);
        guest.greet();
        guest
    }

    /// Starts it without waiting until it has the machine open.
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

    /// Waits until it has opened the machine, or failed to.
    pub(crate) fn greet(&mut self) {
        self.greeting = self.answer();
    }

    /// Tells it something; its answer.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }

    /// Tells it something that must work; what follows `ok`.
    pub(crate) fn must(&mut self, command: &str) -> String {
        let answer = self.tell(command);
        answer
            .strip_prefix("ok")
            .unwrap_or_else(|| panic!("{command}: {answer}"))
            .trim()
            .to_owned()
    }

    /// Tells it something without waiting.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("the guest reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the guest answers");
        line.trim().to_owned()
    }

    /// Kills it as the kernel does, and waits for its end; its forked children live on.
    pub(crate) fn kill(mut self) -> Option<ChildStdin> {
        self.child.kill().expect("it lived");
        self.child.wait().expect("it ends");
        self.stdin.take()
    }

    /// Lets it end by itself.
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
