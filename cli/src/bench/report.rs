//! An outcome as text: a table, and a line of blocks for each tenant's device time per second.

use super::measure::{Newcomer, OF_P99, Percentiles};
use super::result::{Outcome, Row};
use super::turns::Turns;

/// The smallest part of the processor time taken by other machines that is told.
pub(crate) const TOLD: f64 = 0.005;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole text of one outcome.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut lines = vec![
        format!(
            "{}: {} ({:.0} s)",
            outcome.title(),
            outcome.about,
            outcome.seconds
        ),
        format!(
            "  {:<12} {:>6} {:>9} {:>6} {:>4} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7}  EACH SECOND",
            "TENANT",
            "MODE",
            "KERNEL",
            "SHARE",
            "CAP",
            "DEVICE",
            "SERVED",
            "GOT",
            "ERROR",
            "WAIT p50",
            "WAIT p99",
            "CORES"
        ),
    ];
    lines.extend(outcome.tenants.iter().map(row));
    lines.push(format!("  {}", notes(outcome).join("; ")));
    lines.extend(outcome.handoffs.iter().map(|handoff| {
        let Percentiles {
            count,
            p50_ns,
            p99_ns,
            max_ns,
            ..
        } = handoff.gap;
        format!(
            "  device idle from {} to {}: p50 {}, p99 {}, max {} ({count} times)",
            handoff.from,
            handoff.to,
            time(p50_ns),
            time(p99_ns),
            time(max_ns)
        )
    }));
    lines.join("\n")
}

fn row(row: &Row) -> String {
    let tenant = &row.tenant;
    let percent =
        |part: Option<f64>| part.map_or_else(String::new, |part| format!("{:.2}%", part * 100.0));
    let whole =
        |percent: Option<u32>| percent.map_or_else(String::new, |percent| format!("{percent}%"));
    let error = row
        .error_pp
        .map_or_else(String::new, |error| format!("{error:+.2}pp"));
    let wait = |choose: fn(Percentiles) -> u64| {
        row.waited
            .map_or_else(String::new, |waited| time(choose(waited)))
    };
    let mode = format!("{:?}", tenant.mode).to_lowercase();
    format!(
        "  {:<12} {mode:>6} {:>9} {:>6} {:>4} {:>8} {:>8} {:>8} {error:>8} {:>9} {:>9} {:>7.3}  {}",
        if tenant.procs > 1 {
            format!("{} x{}", tenant.name, tenant.procs)
        } else {
            tenant.name.clone()
        },
        time(tenant.launch_ns()),
        whole(tenant.share),
        whole(tenant.cap),
        percent(Some(row.device)),
        percent(row.served),
        percent(Some(row.share)),
        wait(|waited| waited.p50_ns),
        wait(|waited| waited.p99_ns),
        row.cores,
        row.seconds
            .iter()
            .map(|part| block(*part))
            .collect::<String>(),
    )
}

fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes = vec![format!("useful time {:.2} %", outcome.useful * 100.0)];
    if let Some(rates) = outcome.rates {
        let alone = alone_stolen(outcome.alone_stolen);
        notes.push(format!("sum of rates {rates:.3}{alone}"));
    }
    for row in &outcome.tenants {
        if let Some(asked) = row.asked {
            let (name, got) = (&row.tenant.name, row.device * 100.0);
            notes.push(format!("{name}: {got:.2} of {:.2} % asked", asked * 100.0));
        }
        if let Some(copied) = row.copied_per_s {
            let name = &row.tenant.name;
            notes.push(format!(
                "{name}: {:.2} GB copied or set a second",
                copied / 1e9
            ));
        }
        if let Some(Newcomer {
            visits,
            median,
            worst,
            second_median,
        }) = row.newcomer
        {
            let second = second_median.map_or_else(String::new, |second| {
                format!("; in the second: median {:.1} %", second * 100.0)
            });
            notes.push(format!(
                "{}: {visits} visits; share of its requested GPU time in the first 100 ms: median {:.1} %, worst {:.1} %{second}",
                row.tenant.name,
                median * 100.0,
                worst * 100.0
            ));
        }
    }
    if let Some(idle) = outcome.idle {
        let own = outcome.idle_own.map_or_else(String::new, |own| {
            format!(
                ", {:.2} % of the time as its tenants leave it alone",
                own * 100.0
            )
        });
        notes.push(format!("device idle {:.2} %{own}", idle * 100.0));
    }
    if let Some(idle) = outcome.idle_served {
        notes.push(format!(
            "idle by the device's own books {:.2} %",
            idle * 100.0
        ));
    }
    if let Some(stolen) = outcome.stolen.filter(|stolen| *stolen >= TOLD) {
        let stolen = stolen * 100.0;
        notes.push(format!(
            "other machines took {stolen:.1} % of the processors"
        ));
    }
    if let Some(overhead) = outcome.overhead {
        notes.push(format!("cost of sharing {:.2} %", overhead * 100.0));
    }
    for row in &outcome.tenants {
        if let Some(worst) = row.cap_error_pp {
            let side = if worst < 0.0 { "below" } else { "above" };
            let (name, worst) = (&row.tenant.name, worst.abs());
            notes.push(format!("{name}: worst second {worst:.2} pp {side} its cap"));
        }
    }
    for row in &outcome.tenants {
        if let Some(rate) = row.collectives_per_s {
            notes.push(format!(
                "{}: {rate:.0} collectives a second",
                row.tenant.name
            ));
        }
    }
    for row in &outcome.tenants {
        if let Some(missed) = row.missed {
            notes.push(format!(
                "{}: {missed} periods without a request",
                row.tenant.name
            ));
        }
    }
    for row in &outcome.tenants {
        if let Some(waited) = row.waited.filter(|waited| waited.count < OF_P99) {
            notes.push(format!(
                "{}: {} waits, p99 of fewer than {OF_P99} is the longest",
                row.tenant.name, waited.count
            ));
        }
    }
    for row in &outcome.tenants {
        if let Some(line) = row.in_line.filter(|line| line.count > 0) {
            notes.push(format!(
                "{}: {} requests still in line, the oldest for {}: its waits are at least so long",
                row.tenant.name,
                line.count,
                time(line.oldest_ns)
            ));
        }
    }
    let overruns = outcome.tenants.iter().filter_map(|row| {
        let Turns { turns, overruns } = row.turns?;
        Some(format!("{} {overruns} of {turns} turns", row.tenant.name))
    });
    let overruns: Vec<String> = overruns.collect();
    if !overruns.is_empty() {
        notes.push(format!("overruns: {}", overruns.join(", ")));
    }
    let holds: Vec<String> = outcome
        .tenants
        .iter()
        .filter_map(|row| Some(format!("{} {}", row.tenant.name, row.holds?)))
        .collect();
    if !holds.is_empty() {
        notes.push(format!("holds: {}", holds.join(", ")));
    }
    if let Some(changes) = outcome.mode_changes_a_minute {
        notes.push(format!("mode changes a minute {changes:.0}"));
    }
    let own: f64 = outcome.tenants.iter().map(|row| row.own_cores).sum();
    notes.push(format!("gpushare's threads in the tenants {own:.4} cores"));
    if outcome.tenants.iter().any(|row| row.by == "alone") {
        notes.push("GOT is relative to the same tenant running alone".to_owned());
    }
    if outcome.tenants.iter().any(|row| row.by == "served") {
        notes.push("GOT is by the software GPU's books: what a gang occupies is its".to_owned());
    }
    notes
}

/// Behind a sum of rates: the part that other machines took of the processors while its tenants
/// were measured alone, where that matters.
pub(crate) fn alone_stolen(stolen: Option<f64>) -> String {
    let told = stolen.filter(|stolen| *stolen >= TOLD);
    told.map_or_else(String::new, |stolen| {
        let stolen = stolen * 100.0;
        format!(" (alone: other machines took {stolen:.1} % of the processors)")
    })
}

/// A fraction as a block of eighths.
fn block(part: f64) -> char {
    let eighths = part.clamp(0.0, 1.0) * 8.0;
    let reached = (0_u8..)
        .zip(BLOCKS)
        .filter(|(eighth, _)| f64::from(*eighth) <= eighths + 0.5);
    reached.last().map_or(' ', |(_, block)| block)
}

/// Formats nanoseconds for people.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{:.1}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", ns as f64 / 1e6),
        _ => format!("{:.2}s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_parts_are_short() {
        assert_eq!(
            [900, 50_000, 2_500_000, 1_500_000_000].map(time),
            ["900ns", "50.0us", "2.50ms", "1.50s"]
        );
        assert_eq!([0.0, 0.5, 1.0, 1.2].map(block), [' ', '▄', '█', '█']);
    }
}
