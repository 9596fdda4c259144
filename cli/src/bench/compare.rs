//! The same tenants without and with gpushare, side by side: whether sharing costs the device work or its tenants time.

use super::measure::Percentiles;
use super::report::time;
use super::result::{Outcome, Row};
use serde::Serialize;

/// One experiment's figures without gpushare and with it.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// Device time of all tenants together, per time, without and with gpushare.
    pub(crate) used: Pair,
    pub(crate) tenants: Vec<Tenant>,
}

/// One figure without gpushare and with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) bare: f64,
    pub(crate) shared: f64,
}

impl Pair {
    /// With gpushare as a part of without; none of nothing.
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.bare > 0.0).then(|| self.shared / self.bare)
    }
}

/// One tenant in both ways.
#[derive(Debug, Serialize)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// Device time per time.
    pub(crate) device: Pair,
    /// Time that requests waited beyond their own length, for tenants that wait for each: without gpushare and with it.
    pub(crate) waited: Option<(Percentiles, Percentiles)>,
    /// Periods without a request: without gpushare and with it.
    pub(crate) missed: Option<(u64, u64)>,
}

impl Comparison {
    /// Of two outcomes of one experiment on one GPU.
    pub(crate) fn of(bare: &Outcome, shared: &Outcome) -> Self {
        let used = |outcome: &Outcome| outcome.tenants.iter().map(|row| row.device).sum();
        let tenants = bare.tenants.iter().zip(&shared.tenants);
        Self {
            name: shared.title(),
            used: Pair {
                bare: used(bare),
                shared: used(shared),
            },
            tenants: tenants.map(|(bare, shared)| tenant(bare, shared)).collect(),
        }
    }

    /// As a table.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            format!("{}: without gpushare against with it", self.name),
            format!(
                "  {:<12} {:>8} {:>8} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
                "TENANT",
                "DEVICE",
                "with",
                "RATIO",
                "WAIT p50",
                "with",
                "WAIT p99",
                "with",
                "p99.9",
                "with",
                "MISSED"
            ),
        ];
        lines.extend(self.tenants.iter().map(Tenant::text));
        lines.push(format!("  {:<12} {}", "all", self.used.text()));
        lines.join("\n")
    }
}

fn tenant(bare: &Row, shared: &Row) -> Tenant {
    Tenant {
        name: shared.tenant.name.clone(),
        device: Pair {
            bare: bare.device,
            shared: shared.device,
        },
        waited: bare.waited.zip(shared.waited),
        missed: bare.missed.zip(shared.missed),
    }
}

impl Pair {
    fn text(self) -> String {
        let ratio = self
            .ratio()
            .map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        format!(
            "{:>7.2}% {:>7.2}% {ratio:>6}",
            self.bare * 100.0,
            self.shared * 100.0
        )
    }
}

impl Tenant {
    fn text(&self) -> String {
        let wait = |choose: fn(Percentiles) -> u64| match self.waited {
            Some((bare, shared)) => {
                format!("{:>9} {:>9}", time(choose(bare)), time(choose(shared)))
            }
            None => format!("{:>19}", ""),
        };
        let missed = self.missed.map_or_else(String::new, |(bare, shared)| {
            format!("{:>11}", format!("{bare} {shared}"))
        });
        let line = format!(
            "  {:<12} {} {} {} {} {missed}",
            self.name,
            self.device.text(),
            wait(|waited| waited.p50_ns),
            wait(|waited| waited.p99_ns),
            wait(|waited| waited.p999_ns),
        );
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_what_is_left_and_nothing_has_none() {
        let pair = |bare, shared| Pair { bare, shared };
        assert_eq!(pair(0.5, 0.25).ratio(), Some(0.5));
        assert_eq!(pair(0.0, 0.25).ratio(), None);
        assert_eq!(pair(0.5, 0.25).text(), "  50.00%   25.00%  0.500");
    }
}
