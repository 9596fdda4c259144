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
    /// Show containers, their processes and what they hold, as the daemon knows it.
    Ps(Ps),
    /// Change a running container's limits; what is not given stays as it is.
    Set(Set),
    /// Show what the daemon decided and why.
    Events(Events),
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
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// The container's name: programs started under one name share one quota. [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// auto (a real GPU, or an error), a GPU's index or UUID, or soft[:key=value,…] for one without hardware.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub(crate) gpu: String,
}

/// What only a daemon can keep.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Terms {
    /// 0 to 1000, higher first, when memory or time is short. [default: 500]
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<String>,
    /// What happens when memory is short, in order: fail, wait, priority. [default: wait]
    #[arg(long, value_name = "LIST")]
    pub(crate) on_collision: Option<String>,
    /// Longest an allocation waits before it returns out-of-memory: 30s, 500ms, 5m. [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) wait_timeout: Option<String>,
    /// No GPU work for this long makes the container idle. [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_after: Option<String>,
    /// The worst others' collisions may do to it: never, kill. [default: never]
    #[arg(long, value_name = "WORST")]
    pub(crate) preemptible: Option<String>,
}

impl Terms {
    /// (flag, variable, value) of each that was given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        [
            ("--priority", "GPUSHARE_PRIORITY", &self.priority),
            (
                "--on-collision",
                "GPUSHARE_ON_COLLISION",
                &self.on_collision,
            ),
            (
                "--wait-timeout",
                "GPUSHARE_WAIT_TIMEOUT",
                &self.wait_timeout,
            ),
            ("--idle-after", "GPUSHARE_IDLE_AFTER", &self.idle_after),
            ("--preemptible", "GPUSHARE_PREEMPTIBLE", &self.preemptible),
        ]
        .into_iter()
        .filter_map(|(flag, variable, value)| Some((flag, variable, value.as_deref()?)))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    /// Print a list, one object a container and device, all amounts in bytes.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// The container's name, as `ps` shows it.
    pub(crate) container: String,
    /// The new ceiling, as for `run`.
    #[arg(long, value_name = "[DEVICE=]SIZE")]
    pub(crate) mem_limit: Vec<String>,
    /// The new guaranteed part, as for `run`.
    #[arg(long, value_name = "[DEVICE=]SIZE")]
    pub(crate) mem_request: Vec<String>,
    #[command(flatten)]
    pub(crate) terms: Terms,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Go on with what happens from now on.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a program runs under a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UseDaemon {
    /// Where one serves its GPU, or where its limits need one.
    #[default]
    Auto,
    /// Always; one is started if need be.
    On,
    /// Never.
    Off,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Register with the node daemon: where one runs or is needed, always, never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) daemon: UseDaemon,
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
