//! Common commands of tests to guests. A guest answers a line with its first word and then numbers:
//! the requested values, or the driver's result, which is 0 for success.

use nix::unistd::Pid;

use crate::Guest;
use crate::waiting::until;

/// The command that takes so many bytes of the device.
pub fn alloc(bytes: u64) -> String {
    format!("alloc {bytes}")
}

impl Guest {
    /// Waits until the guest has created its context.
    #[must_use]
    #[track_caller]
    pub fn started(mut self) -> Self {
        self.does("init");
        self
    }

    /// Sends a command that must succeed.
    #[track_caller]
    pub fn does(&mut self, line: &str) {
        self.answers(line, "0");
    }

    /// Sends a command that must have this result.
    #[track_caller]
    pub fn answers(&mut self, line: &str, result: &str) {
        let word = line.split(' ').next().expect("a command");
        assert_eq!(self.ask(line), format!("{word} {result}"), "{line}");
    }

    /// The first number of the answer.
    #[track_caller]
    pub fn number(&mut self, question: &str) -> u64 {
        let answer = self.ask(question);
        let number = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("{answer}"))
    }

    /// The pid of the program itself, for clients that report it.
    #[track_caller]
    pub fn pid(&mut self) -> Pid {
        Pid::from_raw(self.number("pid").try_into().expect("a pid"))
    }

    /// Waits until its threads have launched `more` times.
    #[track_caller]
    pub fn goes_on(&mut self, more: u64) {
        let before = self.number("count");
        until("the guest continues to launch", || {
            self.number("count") >= before + more
        });
    }

    /// Stops the thread that `work` started, and ends the guest.
    #[track_caller]
    pub fn stops(mut self) {
        self.does("stop");
        self.finish().silently();
    }

    /// Stops the threads that `storm` started, and ends the guest.
    #[track_caller]
    pub fn calms(mut self) {
        self.does("calm");
        self.finish().silently();
    }
}
