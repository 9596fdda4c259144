//! The command line as data.

mod bench;

pub(crate) use bench::{
    Bench, BenchInterference, BenchShare, BenchSwap, BenchSwapper, BenchWorker,
};

use crate::failure::{self, Failure, USAGE};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// One GPU shared by many tenants, each under an exact memory quota.
#[derive(Debug, Parser)]
#[command(version = gpushare_protocol::build!(), max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program under memory limits.
    Run(Run),
    /// Print the environment that `run --daemon off` gives a program: `eval "$(gpushare env …)"`.
    Env(Env),
    /// List the GPUs a program started now would see, and what daemons know of them.
    Devices(Devices),
    /// Show tenants, their processes and their memory, as the daemon knows them.
    Ps(Ps),
    /// Change a running tenant's limits; unset flags keep their values.
    Set(Set),
    /// Move a tenant's memory to the host, to come back by `resume` or when it next uses the GPU.
    Suspend(Suspend),
    /// Bring a tenant's memory back to the GPU.
    Resume(Named),
    /// Show the daemon's decisions and their reasons, also of tenants and daemons that are gone.
    Events(Events),
    /// Check that limits hold on this node, and say what to do where something is wrong.
    Doctor(Doctor),
    /// Say why a tenant waits, was refused, is slowed down, or was ended.
    Why(Why),
    /// Print the node's classes of containers as a CDI specification.
    #[command(subcommand)]
    Cdi(Cdi),
    /// Print what the daemon counts and measures, in Prometheus's text format.
    Metrics(Metrics),
    /// Write the state and the last hour as a page for a browser.
    Report(Report),
    /// Watch GPUs and tenants; change and end tenants.
    Top(Top),
    /// Measure shares of time, the cost of neighbours, and the cost of moves to the host.
    #[command(subcommand)]
    Bench(Bench),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write the manual pages into a folder; for packages.
    #[command(hide = true)]
    Man(Man),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder.
    pub(crate) folder: PathBuf,
}

/// A program's share.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Share {
    #[command(flatten)]
    pub(crate) amounts: Amounts,
    /// The device's memory that the program sees: limit or request. [default: limit]
    #[arg(long, value_name = "VIEW", allow_hyphen_values = true)]
    pub(crate) mem_view: Option<String>,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// The tenant's name: programs started under one name share one quota. [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// auto (every GPU that CUDA_VISIBLE_DEVICES leaves: amounts count on each), one GPU's index
    /// (in nvidia-smi's order) or UUID, or soft[:key=value,…] for one without hardware.
    #[arg(
        long,
        value_name = "GPU",
        default_value = "auto",
        allow_hyphen_values = true
    )]
    pub(crate) gpu: String,
}

/// Amounts of memory and time, each for every device or for one. May be repeated.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Memory and time")]
pub(crate) struct Amounts {
    /// Ceiling of device memory: 4GiB, 512MiB, 4GB, 50%; for one device 0=4GiB or GPU-…=4GiB.
    #[arg(long, value_name = "[DEVICE=]SIZE", allow_hyphen_values = true)]
    pub(crate) mem_limit: Vec<String>,
    /// Guaranteed part of the memory, kept by a daemon; the same forms, or 0 for none. [default:
    /// the limit; 0 where its memory may move]
    #[arg(long, value_name = "[DEVICE=]SIZE", allow_hyphen_values = true)]
    pub(crate) mem_request: Vec<String>,
    /// Most of the device's time, in percent, also when no other tenant wants it: 30, 12.5; for one
    /// device 0=30. [default: 100]
    #[arg(long, value_name = "[DEVICE=]PERCENT", allow_hyphen_values = true)]
    pub(crate) sm_limit: Vec<String>,
    /// Guaranteed part of the device's time while other tenants want it too; needs a daemon.
    /// [default: an equal share]
    #[arg(long, value_name = "[DEVICE=]PERCENT", allow_hyphen_values = true)]
    pub(crate) sm_request: Vec<String>,
}

/// Options that only a daemon can keep.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Rank, waits and ends (under a daemon)")]
pub(crate) struct Terms {
    /// 0 to 1000, higher first, when memory or time is short. [default: 500]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) priority: Option<String>,
    /// The steps when memory is short, in order: fail, wait, priority, swap. [default: wait;
    /// swap,wait where its own memory may move]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) on_collision: Option<String>,
    /// Longest an allocation waits before it returns out-of-memory: 30s, 500ms, 5m. [default: 30s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) wait_timeout: Option<String>,
    /// No GPU work for this long makes the tenant idle. [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) idle_after: Option<String>,
    /// The worst effect of other tenants' collisions on it: never, swap, kill. [default: never;
    /// swap where its memory may move]
    #[arg(long, value_name = "WORST", allow_hyphen_values = true)]
    pub(crate) preemptible: Option<String>,
    /// How its memory may leave the GPU: off, or swap, to the host and back, or uvm, the same with
    /// managed memory, which may be more than the GPU has. Chosen before the tenant's first program
    /// starts. [default: off; swap where --on-collision or --preemptible has swap]
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    pub(crate) oversubscribe: Option<String>,
    /// Ends it, after a warning, when it has done no GPU work for this long: 2h, or off. [default:
    /// off]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) idle_end: Option<String>,
    /// Ends it, after a warning, this long after its start: 8h, or off. [default: off]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) run_limit: Option<String>,
    /// The job it belongs to, if its kernels wait for kernels of other tenants (collectives):
    /// tenants of one gang are held back and let go together. No effect without a daemon.
    #[arg(long, value_name = "NAME")]
    pub(crate) gang: Option<String>,
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
            (
                "--oversubscribe",
                "GPUSHARE_OVERSUBSCRIBE",
                &self.oversubscribe,
            ),
            ("--idle-end", "GPUSHARE_IDLE_END", &self.idle_end),
            ("--run-limit", "GPUSHARE_RUN_LIMIT", &self.run_limit),
            ("--gang", "GPUSHARE_GANG", &self.gang),
        ]
        .into_iter()
        .filter_map(|(flag, variable, value)| Some((flag, variable, value.as_deref()?)))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    /// Only on this GPU: an index, or the beginning of a UUID.
    #[arg(long, value_name = "GPU", allow_hyphen_values = true)]
    pub(crate) gpu: Option<String>,
    /// Also a line for each GPU that a tenant may use and never used.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print a list, one object a tenant and device, all amounts in bytes (docs/schema/ps.json).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print it again every so many seconds; without a number, every 2.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) watch: Option<std::time::Duration>,
}

// How memory may leave the GPU is chosen before the tenant's first program: the daemon refuses
// every change of it with that reason, so the help does not offer it. A flag that is left out
// changes nothing, so none has a default.
#[derive(Debug, clap::Args)]
#[command(mut_arg("oversubscribe", |flag| flag.hide(true)), mut_args(without_default))]
pub(crate) struct Set {
    /// The tenant's name, as `ps` shows it: of those that have it, yours. Of a container also the
    /// first 12 or more digits of its id, or NAMESPACE/POD.
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) amounts: Amounts,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Print the tenant as it is then, as `ps --json` does (docs/schema/ps.json).
    #[arg(long)]
    pub(crate) json: bool,
}

/// The flag without the words that tell its default.
fn without_default(flag: clap::Arg) -> clap::Arg {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default: ") {
        Some((before, _)) => flag.help(before.trim_end_matches('.').to_owned()),
        None => flag,
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Suspend {
    /// The tenant's name, as `ps` shows it: of those that have it, yours. Of a container also the
    /// first 12 or more digits of its id, or NAMESPACE/POD.
    pub(crate) tenant: String,
    /// Store the memory in a file without a name in this folder, and free the host's: on a disk
    /// with room for all of it, with ext2 to ext4, xfs, btrfs, f2fs, bcachefs or zfs (root also
    /// tmpfs), or what the node's own folder is on ([swap] spill); not overlayfs, NFS or FUSE. You
    /// must be allowed to write there.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Print the tenant as it is then, as `ps --json` does (docs/schema/ps.json).
    #[arg(long)]
    pub(crate) json: bool,
}

/// One tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The tenant's name, as `ps` shows it: of those that have it, yours. Of a container also the
    /// first 12 or more digits of its id, or NAMESPACE/POD.
    pub(crate) tenant: String,
    /// Print the tenant as it is then, as `ps --json` does (docs/schema/ps.json).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Go on with what happens from now on.
    #[arg(long)]
    pub(crate) follow: bool,
    /// From then on: an age (90s, 30m, 8h, 2d) or a local time (08:00, "2026-11-22 08:00").
    /// [default: the last 1024 events]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
    /// Of this tenant; of a container also the first 12 or more digits of its id, or
    /// NAMESPACE/POD, or NAMESPACE/POD/CONTAINER. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Vec<String>,
    /// On this GPU: an index, or the beginning of a UUID.
    #[arg(long, value_name = "GPU", allow_hyphen_values = true)]
    pub(crate) gpu: Option<String>,
    /// Of this kind, such as refused or ended (docs/OPERATIONS.md has all). May be repeated.
    #[arg(long, value_name = "KIND", value_parser = crate::events::Kind, hide_possible_values = true)]
    pub(crate) kind: Vec<String>,
    /// Print one JSON object a line (docs/schema/event.json).
    #[arg(long)]
    pub(crate) json: bool,
    /// Write them, and the daemons' last hour, as a trace for https://ui.perfetto.dev.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "follow"])]
    pub(crate) perfetto: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// As for `run`.
    #[arg(
        long,
        value_name = "GPU",
        default_value = "auto",
        allow_hyphen_values = true
    )]
    pub(crate) gpu: String,
    /// Print an object with all checks (docs/schema/doctor.json).
    #[arg(long)]
    pub(crate) json: bool,
    /// The trial: take more than the limit by every way.
    #[arg(long, hide = true)]
    pub(crate) proof: bool,
    /// The trial's second process.
    #[arg(long, hide = true)]
    pub(crate) second: bool,
    /// Ask the driver and NVML.
    #[arg(long, hide = true)]
    pub(crate) driver: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// The tenant's name, as `ps` or `events` shows it. Of a container also the first 12 or more
    /// digits of its id, or NAMESPACE/POD.
    pub(crate) tenant: String,
    /// How far to look back, as for `events`.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "1d",
        allow_hyphen_values = true
    )]
    pub(crate) since: String,
    /// Print an object with the state and the sentences (docs/schema/why.json).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cdi {
    /// Print the CDI specification of the classes; a daemon keeps it current by itself where
    /// [containers] cdi says where. Status 78: the configuration is wrong or not there.
    Generate(Generate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Generate {
    /// The node's configuration [default: /etc/gpushare/config.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// The file. It needs no network and no script.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// How often to look, in seconds: 1, 0.5.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) every: std::time::Duration,
    /// Print one screen as text and end; needs no terminal.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Metrics {
    /// As OpenMetrics 1.0, not as Prometheus text 0.0.4.
    #[arg(long)]
    pub(crate) openmetrics: bool,
}

/// Whether a program runs under a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UseDaemon {
    /// Under the machine's or its user's, which is started if need be; without one only where none
    /// can be had.
    #[default]
    Auto,
    /// Always, or the program does not start.
    On,
    /// Never.
    Off,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Run under a daemon: where one can be had, always, never. A tenant that a daemon has is not
    /// run without one.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) daemon: UseDaemon,
    /// Longest wait for room for the request before the program starts: 30s, 5m. [default: as long
    /// as it takes]
    #[arg(long, value_name = "TIME", value_parser = crate::when::span_of, allow_hyphen_values = true)]
    pub(crate) start_timeout: Option<std::time::Duration>,
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
    /// Only this GPU: an index, or the beginning of a UUID.
    #[arg(long, value_name = "GPU", allow_hyphen_values = true)]
    pub(crate) gpu: Option<String>,
    /// Print a list, one object a device, amounts in bytes (docs/schema/devices.json).
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask only the driver, as `run` does before it starts a program.
    #[arg(long, hide = true)]
    pub(crate) driver_only: bool,
}

/// A tenth of a second to an hour.
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => {
            Ok(std::time::Duration::from_secs_f64(seconds))
        }
        _ => Err("seconds from 0.1 to 3600".to_owned()),
    }
}

/// Help and the version are answers and succeed.
pub(crate) fn usage(error: &clap::Error) -> Result<ExitCode, Failure> {
    if error.use_stderr() && asks_for_json() {
        return Err(Failure::usage(error.render().to_string().trim_end()));
    }
    // Standard output or error may be closed; there is nowhere left to say so.
    let _ = error.print();
    if error.use_stderr() {
        crate::environment::fail_shell();
    }
    Ok(if error.use_stderr() {
        ExitCode::from(failure::status(USAGE, is_run()))
    } else {
        ExitCode::SUCCESS
    })
}

/// Whether the command is `run`, also where the rest is not understood.
pub(crate) fn is_run() -> bool {
    std::env::args_os().nth(1).is_some_and(|name| name == "run")
}

/// Whether failures are to be JSON, too. `run` has no such flag: it may be its program's. That of
/// `bench` names a file.
pub(crate) fn asks_for_json() -> bool {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    let mut arguments = std::env::args_os().skip(2);
    command != "run" && command != "bench" && arguments.any(|argument| argument == "--json")
}
