//! The command line as data.

use crate::failure::{Failure, OURS};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// One GPU shared by many containers, each under an exact memory quota.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program under memory limits.
    Run(Run),
    /// Print the environment `run` would give a program, for `eval "$(gpushare env …)"`.
    Env(Env),
    /// List the GPUs a program started now would see.
    Devices(Devices),
}

/// What a program gets.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Share {
    /// Ceiling of device memory: 4GiB, 512MiB, 4GB, 50%; for one device 0=4GiB or GPU-…=4GiB. May be repeated.
    #[arg(long, value_name = "[DEVICE=]SIZE")]
    pub(crate) mem_limit: Vec<String>,
    /// Guaranteed part of the limit; the same forms. [default: the limit]
    #[arg(long, value_name = "[DEVICE=]SIZE")]
    pub(crate) mem_request: Vec<String>,
    /// What the program is told is the device's memory: limit or request. [default: limit]
    #[arg(long, value_name = "VIEW")]
    pub(crate) mem_view: Option<String>,
    /// The container's name: programs started under one name share one quota. [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// auto (a real GPU, or an error), a GPU's index or UUID, or soft[:key=value,…] for one without hardware.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub(crate) gpu: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) share: Share,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Env {
    #[command(flatten)]
    pub(crate) share: Share,
    /// Print {"set": {…}, "unset": […]} instead of shell commands.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Devices {
    /// Print a list of {"ordinal", "uuid", "name", "memory"}, memory in bytes.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Help and the version are answers and succeed; anything else is our own failure, never mistakable for CMD's status.
pub(crate) fn usage(error: &clap::Error) -> Result<ExitCode, Failure> {
    // Standard output or error may be closed; there is nowhere left to say so.
    let _ = error.print();
    Ok(if error.use_stderr() {
        ExitCode::from(OURS)
    } else {
        ExitCode::SUCCESS
    })
}
