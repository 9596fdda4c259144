//! A real file system whose server stops to answer when the test says so (`data/silent_fuse.py`).
//! Its server is a process of its own, so that a daemon that waits for it cannot keep it alive.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// `scripts/test.sh` sets it to a file, and counts the file's lines.
const LIST: &str = "GPUTEST_NOT_RUNNABLE";

/// The file system, which is unmounted when this is dropped.
pub struct Silent {
    server: Child,
    told: Option<ChildStdin>,
    says: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
}

impl Silent {
    /// Mounts it; where that is not possible, notes that `test` cannot run.
    pub fn mount(test: &str, folder: &Path) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/silent_fuse.py");
        let mut server = Command::new("python3")
            .arg(program)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(server.stdout.take().unwrap()).lines();
        if says.next().is_none_or(|line| line.unwrap() != "ready") {
            let output = server.wait_with_output().unwrap();
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.trim().lines().last().unwrap_or("no file system");
            not_runnable_here(test, why);
            return None;
        }
        Some(Self {
            told: server.stdin.take(),
            server,
            says,
            folder: folder.to_owned(),
        })
    }

    /// Its file, open to read and write.
    pub fn file(&self) -> File {
        let path = self.folder.join("file");
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// It answers nothing from now on.
    pub fn is_silent(&mut self) {
        self.tell("silent", "silent");
    }

    /// It answers all that it was asked, and goes on to answer.
    pub fn answers(&mut self) {
        self.tell("answer", "answers");
    }

    /// Waits until it was asked for something that it does not answer.
    pub fn is_asked(&mut self) {
        let line = self.says.next().unwrap().unwrap();
        assert!(line.starts_with("asked "), "{line}");
    }

    fn tell(&mut self, word: &str, answer: &str) {
        let told = self.told.as_mut().unwrap();
        told.write_all(format!("{word}\n").as_bytes()).unwrap();
        let said = |line: std::io::Result<String>| line.unwrap() == answer;
        assert!(self.says.any(said), "the server of the files has ended");
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // It unmounts, and all that waits for it goes on.
        self.told = None;
        let _ = self.server.wait();
    }
}

pub(crate) fn not_runnable_here(test: &str, why: &str) {
    eprintln!("{test}: not runnable here: {why}");
    if let Some(list) = std::env::var_os(LIST) {
        let list = File::options().append(true).create(true).open(list);
        writeln!(list.unwrap(), "{test}: {why}").unwrap();
    }
}
