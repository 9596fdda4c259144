//! The same tenants without and with gpushare, next to each other. Shows whether sharing costs
//! device work or tenants' time.

mod middles;

pub(crate) use middles::middles;

use super::measure::{OF_P99, OF_P999, Percentiles};
use super::report::{TOLD, alone_stolen, time};
use super::result::{Outcome, Row};
use serde::Serialize;

/// One experiment's figures without gpushare and with it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// Useful time of all tenants together, per elapsed time.
    pub(crate) useful: Pair,
    /// Fraction of the time in which the device worked, by the software GPU's counters; `None` for
    /// another GPU.
    pub(crate) used: Option<Pair>,
    /// The sum of rates; `None` if tenants were not measured alone.
    pub(crate) rates: Option<Pair>,
    /// With gpushare, how often the device's mode changed; `None` unless its tenants share it at
    /// the same time.
    pub(crate) mode_changes_a_minute: Option<f64>,
    /// See [`Outcome::stolen`]; where it is small enough not to matter it is `None`.
    pub(crate) stolen: Option<Pair>,
    /// See [`Outcome::alone_stolen`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alone_stolen: Option<f64>,
    pub(crate) tenants: Vec<Tenant>,
}

/// One figure without gpushare and with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) bare: f64,
    pub(crate) shared: f64,
}

/// One tenant without gpushare and with it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// Useful time per elapsed time.
    pub(crate) device: Pair,
    /// Device time that it requests, if it makes requests at its own pace.
    pub(crate) asked: Option<f64>,
    /// With gpushare, its distance from its share, in percentage points; `None` unless weights
    /// alone decide.
    pub(crate) error_pp: Option<f64>,
    /// Time that requests waited beyond their own length (ns), for tenants that wait for each
    /// request. These and all about waits are of one pair of runs.
    pub(crate) wait_p50: Option<Pair>,
    pub(crate) wait_p99: Option<Pair>,
    pub(crate) wait_p999: Option<Pair>,
    /// The number of requests that these are of.
    pub(crate) waits: Option<Pair>,
    /// The median time in the calls that launch a request (ns).
    pub(crate) launching_p50: Option<Pair>,
    /// Cores that its processes used, driver and benchmark included. The software GPU's own threads
    /// are among them.
    pub(crate) cores: Pair,
    /// Periods without a request.
    pub(crate) missed: Option<Pair>,
    /// Requests in line at the end, for a tenant with random arrivals. Waits are at least as long
    /// as given where there are any.
    pub(crate) in_line: Option<Pair>,
    /// Bytes copied to the device a second, for a tenant that copies.
    pub(crate) copied: Option<Pair>,
    /// For a tenant that starts and stops: the served fraction of its processes' demand in their
    /// first 100 ms; the median.
    pub(crate) newcomer: Option<Pair>,
    /// The same of their second 100 ms.
    pub(crate) newcomer_second: Option<Pair>,
    /// The number of processes that these are of; of several pairs of runs the fewest.
    pub(crate) visits: Option<Pair>,
}

impl Pair {
    /// The figure with gpushare divided by the one without; `None` if that is zero.
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.bare > 0.0).then(|| self.shared / self.bare)
    }

    fn most(self) -> f64 {
        self.bare.max(self.shared)
    }

    fn least(self) -> f64 {
        self.bare.min(self.shared)
    }

    /// The parts as processor time that other machines took.
    pub(crate) fn taken(self) -> String {
        let [bare, shared] = [self.bare, self.shared].map(|part| part * 100.0);
        format!("other machines took {bare:.1} % of the processors, with {shared:.1} %")
    }

    fn of(bare: Option<f64>, shared: Option<f64>) -> Option<Self> {
        let (bare, shared) = bare.zip(shared)?;
        Some(Self { bare, shared })
    }
}

/// Runs both halves of a pair, and returns them in this order. The one without gpushare runs first
/// in the first pair, in the second pair it runs last, and so on: neither side has a machine that
/// is always warmer, or always later.
pub(crate) fn in_order<T, E>(
    pair: u32,
    without: impl FnOnce() -> Result<T, E>,
    with: impl FnOnce() -> Result<T, E>,
) -> Result<(T, T), E> {
    if pair.is_multiple_of(2) {
        let bare = without()?;
        return Ok((bare, with()?));
    }
    let shared = with()?;
    Ok((without()?, shared))
}

impl Comparison {
    /// Compares two outcomes of one experiment on one GPU.
    pub(crate) fn of(bare: &Outcome, shared: &Outcome) -> Self {
        let tenants = bare.tenants.iter().zip(&shared.tenants);
        let used = |outcome: &Outcome| outcome.idle_served.map(|idle| 1.0 - idle);
        Self {
            name: shared.title(),
            useful: Pair {
                bare: bare.useful,
                shared: shared.useful,
            },
            used: Pair::of(used(bare), used(shared)),
            rates: Pair::of(bare.rates, shared.rates),
            mode_changes_a_minute: shared.mode_changes_a_minute,
            stolen: Pair::of(bare.stolen, shared.stolen).filter(|stolen| stolen.most() >= TOLD),
            alone_stolen: shared.alone_stolen,
            tenants: tenants.map(|(bare, shared)| tenant(bare, shared)).collect(),
        }
    }

    /// The comparison as a table.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            format!("{}: without gpushare against with it", self.name),
            format!(
                "  {:<12} {:>8} {:>8} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>6} {:>11}",
                "TENANT",
                "USEFUL",
                "with",
                "RATIO",
                "ASKED",
                "WAIT p50",
                "with",
                "WAIT p99",
                "with",
                "RATIO",
                "p99.9",
                "with",
                "CORES",
                "with",
                "MISSED"
            ),
        ];
        lines.extend(self.tenants.iter().map(Tenant::text));
        lines.push(format!("  {:<12} {}", "all", self.useful.text()));
        if let Some(used) = self.used {
            lines.push(format!("  {:<12} {}", "device used", used.text()));
        }
        if let Some(Pair { bare, shared }) = self.rates {
            let alone = alone_stolen(self.alone_stolen);
            lines.push(format!(
                "  {:<12} {bare:>8.3} {shared:>8.3}{alone}",
                "sum of rates"
            ));
        }
        if let Some(changes) = self.mode_changes_a_minute {
            lines.push(format!("  {changes:.0} mode changes a minute"));
        }
        lines.extend(self.stolen.map(|stolen| format!("  {}", stolen.taken())));
        lines.join("\n")
    }
}

fn tenant(bare: &Row, shared: &Row) -> Tenant {
    let both = |figure: &dyn Fn(&Row) -> Option<f64>| Pair::of(figure(bare), figure(shared));
    let wait = |choose: fn(Percentiles) -> u64| {
        both(&|row| row.waited.map(|waited| choose(waited) as f64))
    };
    Tenant {
        name: shared.tenant.name.clone(),
        device: Pair {
            bare: bare.device,
            shared: shared.device,
        },
        asked: shared.asked,
        error_pp: shared.error_pp,
        wait_p50: wait(|waited| waited.p50_ns),
        wait_p99: wait(|waited| waited.p99_ns),
        wait_p999: wait(|waited| waited.p999_ns),
        waits: both(&|row| row.waited.map(|waited| waited.count as f64)),
        launching_p50: both(&|row| row.launching.map(|calls| calls.p50_ns as f64)),
        cores: Pair {
            bare: bare.cores,
            shared: shared.cores,
        },
        missed: both(&|row| row.missed.map(|missed| missed as f64)),
        in_line: both(&|row| row.in_line.map(|line| line.count as f64)),
        copied: both(&|row| row.copied_per_s),
        newcomer: both(&|row| row.newcomer.map(|newcomer| newcomer.median)),
        newcomer_second: both(&|row| row.newcomer.and_then(|newcomer| newcomer.second_median)),
        visits: both(&|row| row.newcomer.map(|newcomer| newcomer.visits as f64)),
    }
}

impl Pair {
    fn text(self) -> String {
        format!(
            "{:>7.2}% {:>7.2}% {:>6}",
            self.bare * 100.0,
            self.shared * 100.0,
            self.ratio_text()
        )
    }

    fn ratio_text(self) -> String {
        let ratio = self.ratio();
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))
    }
}

impl Tenant {
    /// The requests in line at the end, if there were any.
    pub(crate) fn line(&self) -> Option<String> {
        let Pair { bare, shared } = self.in_line.filter(|line| line.most() > 0.0)?;
        Some(format!(
            "{bare:.0} requests still in line, with {shared:.0}: waits are at least so long"
        ))
    }

    /// The number of requests, where it is too small for one of the percentiles.
    pub(crate) fn few(&self) -> Option<String> {
        let waits = self.waits?;
        let Pair { bare, shared } = waits;
        let longest = match waits.least() {
            few if few < OF_P99 as f64 => format!("p99 of fewer than {OF_P99}, and p99.9,"),
            few if few < OF_P999 as f64 => format!("p99.9 of fewer than {OF_P999}"),
            _ => return None,
        };
        Some(format!(
            "{bare:.0} waits, with {shared:.0}: {longest} is the longest"
        ))
    }

    /// The number of processes that the median of its newcomers is of.
    pub(crate) fn newcomers(&self) -> Option<String> {
        let Pair { bare, shared } = self.visits?;
        Some(format!("median visit of {bare:.0}, with {shared:.0}"))
    }

    fn text(&self) -> String {
        let wait = |pair: Option<Pair>| match pair {
            Some(Pair { bare, shared }) => format!("{:>9} {:>9}", whole(bare), whole(shared)),
            None => format!("{:>19}", ""),
        };
        let asked = self
            .asked
            .map_or_else(String::new, |asked| format!("{:.2}%", asked * 100.0));
        let times = self.wait_p99.map_or_else(String::new, Pair::ratio_text);
        let missed = self.missed.map_or_else(String::new, |missed| {
            format!("{:>11}", format!("{:.0} {:.0}", missed.bare, missed.shared))
        });
        let line = format!(
            "  {:<12} {} {asked:>7} {} {} {times:>6} {} {:>6.3} {:>6.3} {missed}",
            self.name,
            self.device.text(),
            wait(self.wait_p50),
            wait(self.wait_p99),
            wait(self.wait_p999),
            self.cores.bare,
            self.cores.shared,
        );
        let mut lines = vec![line.trim_end().to_owned()];
        if let Some(Pair { bare, shared }) = self.copied {
            let [bare, shared] = [bare, shared].map(|bytes| bytes / 1e9);
            lines.push(format!(
                "  {:<12} {bare:.2} GB copied or set a second, with {shared:.2}",
                ""
            ));
        }
        let said = [self.few(), self.line()].into_iter().flatten();
        lines.extend(said.map(|said| format!("  {:<12} {said}", "")));
        if let Some(error) = self.error_pp {
            lines.push(format!("  {:<12} {error:+.2} pp from its share", ""));
        }
        let newcomers = [(self.newcomer, "first"), (self.newcomer_second, "second")];
        for (newcomer, which) in newcomers {
            if let Some(newcomer) = newcomer {
                let said = format!("of its requested GPU time in the {which} 100 ms");
                lines.push(format!("  {:<12} {} {said}", "", newcomer.text()));
            }
        }
        lines.extend(self.newcomers().map(|said| format!("  {:<12} {said}", "")));
        lines.join("\n")
    }
}

/// Formats nanoseconds for people.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "they came from whole nanoseconds"
)]
pub(crate) fn whole(ns: f64) -> String {
    time(ns as u64)
}

#[cfg(test)]
mod tests;
