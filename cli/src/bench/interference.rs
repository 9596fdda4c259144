//! `gpushare bench interference`: what neighbours cost each other where nothing isolates them. Each
//! of four tenants is measured alone and beside each of the four. Every cell of the matrix is its
//! rate beside the neighbour, relative to its rate alone.

mod picture;

use super::crew::{Backend, Crew};
use super::log::Log;
use super::measure::{self, Span};
use super::tenant::{Tenant, ns};
use super::{COOL_DOWN, WARM_UP, clock, files, host};
use crate::args::BenchInterference;
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Name, what it uses, and the tenant.
const TENANTS: [(&str, &str, &str); 4] = [
    ("compute", "multiprocessors", "kernel=500us,mode=queue"),
    (
        "stream",
        "bandwidth of the device's memory (copies of 128 MiB within it)",
        "mode=stream,copy=128MiB",
    ),
    (
        "cache",
        "the L2 cache (copies of 4 MiB within the device)",
        "mode=stream,copy=4MiB",
    ),
    (
        "copy",
        "the link to the host (copies of 64 MiB to the device)",
        "mode=copy,copy=64MiB",
    ),
];
const MANY: usize = TENANTS.len();

/// The outcome.
#[derive(Debug, Serialize)]
struct Matrix {
    device: String,
    host: String,
    /// Whether the GPU is the software GPU, which has no caches and no bandwidth to share.
    software: bool,
    /// Whether the tenants ran without gpushare.
    bare: bool,
    seconds: u64,
    tenants: [&'static str; MANY],
    /// The rate of each tenant alone: of kernels in parts of the time, of copies in bytes a second.
    alone: [f64; MANY],
    /// The rate of each tenant (a row) beside each neighbour (a column), relative to that alone.
    beside: [[f64; MANY]; MANY],
}

/// Measures and shows the matrix.
pub(crate) fn run(arguments: &BenchInterference) -> Result<ExitCode, Failure> {
    let daemon = (!arguments.bare).then_some("on");
    files::check([&arguments.json, &arguments.svg])?;
    let (backend, device) = Backend::new(&arguments.gpu, daemon)?;
    let span = Duration::from_secs(arguments.seconds);
    let mut alone = [0.0; MANY];
    for (at, rate) in alone.iter_mut().enumerate() {
        *rate = rates(&backend, &[tenant(at, "alone")?], span)?[0];
        if *rate <= 0.0 {
            let name = TENANTS[at].0;
            return Err(Failure::ours(format!(
                "tenant {name} completed nothing in {} s alone; give it longer with --seconds",
                arguments.seconds
            )));
        }
    }
    let mut beside = [[0.0; MANY]; MANY];
    for one in 0..MANY {
        for other in one..MANY {
            let pair = [tenant(one, "one")?, tenant(other, "other")?];
            let rates = rates(&backend, &pair, span)?;
            beside[one][other] = rates[0] / alone[one];
            if one == other {
                beside[one][one] = (rates[0] + rates[1]) / 2.0 / alone[one];
            } else {
                beside[other][one] = rates[1] / alone[other];
            }
        }
    }
    let matrix = Matrix {
        device,
        host: host::text(),
        software: backend.soft_name().is_some(),
        bare: arguments.bare,
        seconds: arguments.seconds,
        tenants: TENANTS.map(|(name, ..)| name),
        alone,
        beside,
    };
    output::data(&matrix.text())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&matrix).map_err(Failure::ours)?;
        output::file(path, &format!("{text}\n"))?;
    }
    if let Some(path) = &arguments.svg {
        output::file(path, &picture::svg(&matrix))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tenant(at: usize, name: &str) -> Result<Tenant, Failure> {
    let text = format!("name={name},{}", TENANTS[at].2);
    text.parse().map_err(Failure::ours)
}

/// The rate of each of these tenants while all of them work.
fn rates(backend: &Backend, tenants: &[Tenant], span: Duration) -> Result<Vec<f64>, Failure> {
    let mut crew = Crew::start(backend, tenants)?;
    let from = clock::now() + ns(WARM_UP);
    let to = from + ns(span);
    crew.go(from, to, to + ns(COOL_DOWN))?;
    clock::sleep_until(to);
    let logs = crew.finish(Duration::ZERO)?;
    let span = Span { from, to };
    let of = |at: usize| {
        logs.iter()
            .filter(move |(tenant, _)| *tenant == at)
            .map(|(_, log)| log)
    };
    let all = tenants.iter().enumerate();
    Ok(all.map(|(at, tenant)| rate(tenant, of(at), span)).collect())
}

fn rate<'a>(tenant: &Tenant, logs: impl Iterator<Item = &'a Log>, span: Span) -> f64 {
    match tenant.launch_ns() {
        0 => measure::copied(logs, span) as f64 * 1e9 / span.ns().max(1) as f64,
        _ => measure::device_time(logs, span) as f64 / span.ns().max(1) as f64,
    }
}

impl Matrix {
    fn text(&self) -> String {
        let how = if self.bare {
            "without gpushare"
        } else {
            "under gpushare"
        };
        let mut lines = vec![
            format!("on {}, {}, {how}", self.device, self.host),
            "rate of each tenant (row) beside a neighbour (column), relative to its rate alone"
                .to_owned(),
            String::new(),
            format!(
                "  {:<9}{:>14}{}",
                "",
                "ALONE",
                self.tenants.map(|name| format!("{name:>9}")).concat()
            ),
        ];
        for (at, name) in self.tenants.iter().enumerate() {
            let cells = self.beside[at].map(|part| format!("{part:>9.2}")).concat();
            lines.push(format!("  {name:<9}{:>14}{cells}", self.rate_of(at)));
        }
        lines.push(String::new());
        for (name, uses, _) in TENANTS {
            lines.push(format!("  {name:<9}uses {uses}"));
        }
        lines.push(String::new());
        lines.extend(output::wrapped(self.note(), 100));
        lines.join("\n")
    }

    fn rate_of(&self, at: usize) -> String {
        let alone = self.alone[at];
        match TENANTS[at].2.starts_with("kernel") {
            true => format!("{:.0} % busy", alone * 100.0),
            false => format!("{:.2} GB/s", alone / 1e9),
        }
    }

    /// How to read it.
    fn note(&self) -> &'static str {
        if self.software {
            "The software GPU models no caches, and no bandwidth of memory or of the link: its copies are \
             the host's. This matrix shows that the benchmark runs, and nothing of a real GPU."
        } else {
            "0.50 is what an equal share of one resource leaves of it. gpushare shares memory and time; it \
             does not isolate bandwidth, caches or the link to the host."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(software: bool) -> Matrix {
        let mut beside = [[1.0; MANY]; MANY];
        beside[1][2] = 0.42;
        Matrix {
            device: "D".to_owned(),
            host: "H".to_owned(),
            software,
            bare: false,
            seconds: 3,
            tenants: TENANTS.map(|(name, ..)| name),
            alone: [0.99, 1.5e12, 3e12, 25e9],
            beside,
        }
    }

    #[test]
    fn a_row_is_a_tenant_and_a_column_its_neighbour() {
        let text = matrix(false).text();
        let row = text
            .lines()
            .find(|line| line.starts_with("  stream   ") && line.contains("GB/s"));
        let cells: Vec<&str> = row.expect("a row").split_whitespace().collect();
        assert_eq!(
            cells,
            ["stream", "1500.00", "GB/s", "1.00", "1.00", "0.42", "1.00"]
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(!text.contains("software GPU"), "{text}");
    }

    #[test]
    fn of_a_software_gpu_it_says_that_nothing_is_modelled() {
        let text = matrix(true).text();
        assert!(text.contains("models no caches"), "{text}");
    }

    #[test]
    fn every_tenant_can_be_started() {
        for at in 0..MANY {
            assert!(tenant(at, "one").is_ok(), "{at}");
        }
    }

    #[test]
    fn the_picture_has_a_cell_for_each_pair() {
        let svg = picture::svg(&matrix(true));
        assert_eq!(svg.matches("<rect class=\"cell\"").count(), MANY * MANY);
        assert!(
            svg.contains(">0.42<") && svg.contains("models no caches"),
            "{svg}"
        );
    }
}
