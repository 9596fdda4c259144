//! Children of the doctor: each asks the driver in a process of its own, because a driver may hang
//! or crash.

use crate::artefacts::own_executable;
use crate::child::{GRACE, Group, end, text, within};
use crate::settings::Environment;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How the lines begin that our commands write.
const OURS: &str = "gpushare: ";

/// Starts this program with these arguments in this environment and process group, and reads its
/// answer. The error is a sentence.
pub(super) fn ask<T: DeserializeOwned>(
    arguments: &[OsString],
    environment: &Environment,
    patience: Duration,
    group: Group,
) -> Result<T, String> {
    let executable = own_executable().map_err(|failure| failure.message)?;
    let mut command = Command::new(executable);
    if group == Group::Own {
        command.process_group(0);
    }
    let mut child = command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start myself: {error}"))?;
    let ended = within(&mut child, patience).is_some();
    if !ended {
        end(&mut child, group, GRACE);
    }
    let (answer, complaint) = (text(child.stdout.take()), text(child.stderr.take()));
    let complaint = last_words(&complaint);
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

/// The last that a command of ours said, without its name: notes may stand before it. If it said
/// nothing, all that stands there.
fn last_words(complaint: &str) -> String {
    let mut lines = complaint.trim().lines();
    let last = lines.rfind(|line| line.starts_with(OURS));
    let words = last.map_or(complaint, |line| line.trim_start_matches(OURS));
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_lines_the_last_one_of_ours_is_told() {
        for (complaint, told) in [
            ("gpushare: it waits\ngpushare: it ended\n", "it ended"),
            ("gpushare: it ended\nlib: a warning\n", "it ended"),
            ("lib: one\nlib: two\n", "lib: one\nlib: two"),
            ("\n", ""),
        ] {
            assert_eq!(last_words(complaint), told);
        }
    }
}
