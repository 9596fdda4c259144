//! `gpushare cdi`: the node's classes as a CDI specification. The daemon's program knows them, and
//! prints them.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::args::Generate;
use crate::artefacts;
use crate::failure::Failure;

/// Becomes the daemon's program, which prints the specification.
pub(crate) fn generate(generate: &Generate) -> Result<ExitCode, Failure> {
    let mut command = Command::new(artefacts::find(artefacts::DAEMON)?);
    command.arg("--print-cdi");
    if let Some(config) = &generate.config {
        command.arg("--config").arg(config);
    }
    Err(Failure::ours(format!(
        "cannot start gpushared: {}",
        command.exec()
    )))
}
