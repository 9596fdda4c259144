//! `gpushared` itself, on a C double of NVML (`data/nvml_of_mig.c`) that it loads as it would
//! NVIDIA's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::Wire;
use nix::fcntl::{FcntlArg, fcntl};

/// Killed when dropped.
pub(crate) struct Binary {
    pub child: Child,
    folder: tempfile::TempDir,
}

impl Binary {
    pub(crate) fn start() -> Self {
        Self::with(&[], "")
    }

    /// On the double built with these flags, after this line of a shell.
    pub(crate) fn with(flags: &[&str], before: &str) -> Self {
        Self::configured(flags, before, "")
    }

    /// As [`Self::with`], with this configuration.
    pub(crate) fn configured(flags: &[&str], before: &str, config: &str) -> Self {
        let (daemon, errors) = Self::unread(flags, before, config);
        std::thread::spawn(move || errors.lines().count());
        daemon
    }

    /// As [`Self::configured`]. Its standard error is a pipe of a page that is not read once it
    /// serves.
    pub(crate) fn unread(
        flags: &[&str],
        before: &str,
        config: &str,
    ) -> (Self, BufReader<ChildStderr>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, config).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvml_of_mig.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("libnvidia-ml.so.1"))
            .arg(source)
            .args(flags);
        assert!(cc.status().unwrap().success());
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before}\nexec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_gpushared"))
            // Not private: of private daemons for one GPU, as the double's is in every test, the
            // second would refuse.
            .arg("--runtime-dir")
            .arg(folder.path().join("run"))
            .arg("--config")
            .arg(file)
            .env("LD_LIBRARY_PATH", folder.path())
            .env("STUB_PID", "1")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = child.stderr.take().unwrap();
        fcntl(&errors, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let mut errors = BufReader::new(errors);
        let mut lines = errors.by_ref().lines();
        let serving = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("serving")));
        assert!(serving.is_some(), "it ended before it served");
        (Self { child, folder }, errors)
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("run/control.sock")
    }

    pub(crate) fn of_class(&self, class: &str) -> PathBuf {
        let folder = self.folder.path().join("run/classes").join(class);
        folder.join(gpushared::server::SOCKET)
    }

    /// The size of its journal's file.
    pub(crate) fn journal(&self) -> u64 {
        let file = self.folder.path().join("run/state/journal.jsonl");
        std::fs::metadata(file).unwrap().len()
    }

    pub(crate) fn command(&self) -> Wire {
        Wire::connect(&self.control())
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
