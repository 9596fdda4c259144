//! A real terminal: `tmux` on a server of its own, driven by keys and read as text.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::runnable::not_runnable_here;
use crate::waiting::PATIENCE;

/// See the module's page. The server ends when this is dropped.
#[derive(Debug)]
pub struct Terminal {
    server: String,
}

impl Terminal {
    /// A shell in a terminal of this size, with the variables of `like`. `None`, noted under
    /// `test`, without tmux.
    pub fn open(test: &str, like: &Command, (width, height): (u16, u16)) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            not_runnable_here(test, "tmux is not installed");
            return None;
        }
        let terminal = Self {
            server: format!("gpushare-tests-{}", std::process::id()),
        };
        let mut start = terminal.tmux(&["-f", "/dev/null", "new-session", "-d"]);
        start
            .args(["-x", &width.to_string(), "-y", &height.to_string()])
            .args(["-e", "ENV=", "sh"]);
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        let started = start.output().expect("tmux starts");
        assert!(started.status.success(), "{started:?}");
        terminal.until(|screen| !screen.trim().is_empty());
        terminal.write("PS1='ready$ '; clear");
        terminal.press(&["Enter"]);
        terminal.until(|screen| screen.trim() == "ready$");
        Some(terminal)
    }

    /// Types keys by tmux's names: `q`, `Enter`, `Down`.
    pub fn press(&self, keys: &[&str]) {
        let done = self.run(&[&["send-keys"], keys].concat());
        assert!(done.status.success(), "{done:?}");
    }

    /// Types text as it is.
    pub fn write(&self, text: &str) {
        let done = self.run(&["send-keys", "-l", text]);
        assert!(done.status.success(), "{done:?}");
    }

    /// The screen now.
    pub fn screen(&self) -> String {
        let done = self.run(&["capture-pane", "-p"]);
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Gives the terminal another size.
    pub fn resize(&self, (width, height): (u16, u16)) {
        let (width, height) = (width.to_string(), height.to_string());
        let done = self.run(&["resize-window", "-x", &width, "-y", &height]);
        assert!(done.status.success(), "{done:?}");
    }

    /// Waits until the screen is as wanted, and returns it.
    #[track_caller]
    pub fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "the screen stays so:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.server]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tmux(arguments).output().expect("tmux starts")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}
