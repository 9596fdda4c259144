//! The command line of `gpushare bench`.

use super::UseDaemon;
use clap::Subcommand;
use std::path::PathBuf;

/// Headings of the help.
const BARE: &str = "Compared with the bare driver";
const OUTPUT: &str = "Files";

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Device time of tenants against their guarantees; caps, latency, idle time.
    Share(BenchShare),
    /// The bandwidth and cache that neighbours cost each other, in pairs of tenants.
    Interference(BenchInterference),
    /// The cost of moves of tenants' memory to the host and back; no byte may be lost.
    Swap(BenchSwap),
    /// One process of a tenant whose memory moves; started by the benchmark.
    #[command(hide = true)]
    Swapper(BenchSwapper),
    /// One process of a tenant; started by the benchmark.
    #[command(hide = true)]
    Worker(BenchWorker),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchShare {
    /// name=a and what it runs: kernel=500us,
    /// mode=queue|sync|burst|graph|decode|copy|stream|memset|gang, gpus=0 (a gang's: 0+1), procs=1,
    /// every=10ms (pauses), arrivals=regular|poisson, depth=N, nodes=20 (of a graph), copy=64MiB
    /// (copies on a second stream), churn=2s (its process comes and goes), job=j (tenants whose
    /// kernels wait for each other); what it is promised: share=70, cap=30, priority=700. May be
    /// repeated.
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(crate) tenant: Vec<String>,
    /// An experiment that comes with gpushare, a group of them (`together`, `gaps`, `serving`,
    /// `curve`, `shares`, …) or `all`; a wrong name lists them. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Vec<String>,
    /// How long each experiment is measured.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// How long each tenant is measured alone first; 0: not at all.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) alone: u64,
    /// As for `run`.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub(crate) gpu: String,
    /// As for `run`. Shares and priorities need one.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "on",
        conflicts_with = "bare"
    )]
    pub(crate) daemon: UseDaemon,
    /// Run the tenants without gpushare, under the driver's own sharing.
    #[arg(long, help_heading = BARE)]
    pub(crate) bare: bool,
    /// Run each experiment without gpushare and then with it, and show both beside each other. Of
    /// several pairs every second one runs with it first.
    #[arg(long, conflicts_with = "bare", help_heading = BARE)]
    pub(crate) compare_bare: bool,
    /// With --compare-bare: run each pair so often, an odd number, and keep the middle one of each
    /// figure; of a tenant's waits the one with the middle p99.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = odd, requires = "compare_bare", help_heading = BARE)]
    pub(crate) pairs: u32,
    /// With --compare-bare: write one table of all experiments to this file, as Markdown.
    #[arg(long, value_name = "FILE", requires = "compare_bare", help_heading = OUTPUT)]
    pub(crate) markdown: Option<PathBuf>,
    /// Write everything that was measured to this file, as JSON.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) json: Option<PathBuf>,
    /// Draw device time second by second to this file, as SVG.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchInterference {
    /// How long each pair is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// As for `run`.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub(crate) gpu: String,
    /// Run the tenants without gpushare, under the driver's own sharing.
    #[arg(long)]
    pub(crate) bare: bool,
    /// Write the matrix to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw the matrix to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchSwap {
    /// The memory of each tenant, more than half of the device; without it three fifths.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// How long the pair works.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// How often an idle tenant of 2 MiB is moved.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) samples: u32,
    /// How often an idle tenant of the size is moved.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) moves: u32,
    /// As for `run`.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub(crate) gpu: String,
    /// Write everything that was measured to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a table to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchSwapper {
    /// The memory that it takes.
    #[arg(long, value_name = "N")]
    pub(crate) bytes: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchWorker {
    /// The tenant's description.
    pub(crate) tenant: String,
    /// On which device.
    #[arg(long, default_value_t = 0)]
    pub(crate) device: u32,
    /// Of a tenant with a job: the file on which its members meet.
    #[arg(long, requires = "place")]
    pub(crate) board: Option<PathBuf>,
    /// Which member it is, and how many there are: 0/2.
    #[arg(long, requires = "board", value_parser = place)]
    pub(crate) place: Option<(usize, usize)>,
}

/// A number of pairs of which one is the middle one.
fn odd(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    let middle = number.filter(|number| (1..=99).contains(number) && number % 2 == 1);
    middle.ok_or_else(|| "accepted: an odd number from 1 to 99".to_owned())
}

/// `0/2`.
fn place(text: &str) -> Result<(usize, usize), String> {
    let (own, all) = text.split_once('/').ok_or("it is written 0/2")?;
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    match (number(own)?, number(all)?) {
        (own, all) if own < all => Ok((own, all)),
        _ => Err("there is no such place".to_owned()),
    }
}
