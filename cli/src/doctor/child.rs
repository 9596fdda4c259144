//! Children of the doctor: each asks the driver in a process of its own, because a driver may hang
//! or crash.

use crate::artefacts::own_executable;
use crate::settings::Environment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two looks whether a child has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a child that is told to end may take.
const GRACE: Duration = Duration::from_secs(1);

/// Starts this program with these arguments in this environment, and reads its answer. The error is
/// a sentence.
pub(super) fn ask<T: DeserializeOwned>(
    arguments: &[OsString],
    environment: &Environment,
    patience: Duration,
) -> Result<T, String> {
    let executable = own_executable().map_err(|failure| failure.message)?;
    let mut child = Command::new(executable)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start myself: {error}"))?;
    let ended = within(&mut child, patience);
    if !ended {
        end(&mut child);
    }
    let (answer, complaint) = (text(child.stdout.take()), text(child.stderr.take()));
    let complaint = complaint.trim().trim_start_matches("gpushare: ").to_owned();
    if !ended {
        let told = match complaint.is_empty() {
            true => String::new(),
            false => format!(": {complaint}"),
        };
        return Err(format!("no answer within {} s{told}", patience.as_secs()));
    }
    serde_json::from_str(&answer).map_err(|_| match complaint.is_empty() {
        true => "the driver ended the program that asked".to_owned(),
        false => complaint,
    })
}

fn text(stream: Option<impl Read>) -> String {
    let mut text = Vec::new();
    if let Some(mut stream) = stream {
        let _ = stream.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether it ends in that time. Its answer fits a pipe.
fn within(child: &mut Child, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < end => sleep(PAUSE),
            _ => return false,
        }
    }
}

/// A `run` passes the signal on to its program, and takes back a request that waits.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if !within(child, GRACE) {
        let _ = child.kill();
        let _ = child.wait();
    }
}
