//! Comparisons as one Markdown table: a row for each experiment, and a row for each of its tenants.

use super::compare::{Comparison, Pair, Tenant, whole};
use super::report::alone_stolen;

const HEAD: &str = "\
| experiment | tenant | useful bare | useful with | ratio | asked | used bare | used with | ratio \
| wait p99 bare | with | ratio | p99.9 bare | with | missed bare | with | rest |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// The whole text. `what` names the device and the host, followed by the measured seconds and the
/// number of pairs of runs.
pub(crate) fn table(
    what: &str,
    (seconds, pairs): (u64, u32),
    comparisons: &[Comparison],
) -> String {
    let kept = match pairs {
        1 => String::new(),
        _ => format!(
            ", {pairs} pairs of runs, of each figure the middle pair, of waits that of the p99"
        ),
    };
    let rows: String = comparisons.iter().map(rows).collect();
    format!(
        "{what};\n{seconds} s each{kept}.\n*Useful* is what completed kernels take alone, per time; *used* is by the device's own books.\n\n{HEAD}{rows}"
    )
}

fn rows(comparison: &Comparison) -> String {
    let [bare, shared, ratio] = parts(Some(comparison.useful));
    let [used_bare, used_shared, used_ratio] = parts(comparison.used);
    let mut rest = Vec::new();
    if let Some(Pair { bare, shared }) = comparison.rates {
        let alone = alone_stolen(comparison.alone_stolen);
        rest.push(format!("sum of rates {bare:.3}, with {shared:.3}{alone}"));
    }
    if let Some(changes) = comparison.mode_changes_a_minute {
        rest.push(format!("{changes:.0} mode changes a minute"));
    }
    rest.extend(comparison.stolen.map(Pair::taken));
    let all = format!(
        "| {} | all | {bare} | {shared} | {ratio} | | {used_bare} | {used_shared} | {used_ratio} | | | | | | | | {} |\n",
        comparison.name,
        rest.join("; ")
    );
    let tenants = comparison.tenants.iter().map(tenant);
    [all].into_iter().chain(tenants).collect()
}

fn tenant(tenant: &Tenant) -> String {
    let [bare, shared, ratio] = parts(Some(tenant.device));
    let asked = tenant.asked.map_or_else(String::new, percent);
    let [p99_bare, p99_shared, p99_ratio] = waits(tenant.wait_p99);
    let [p999_bare, p999_shared, _] = waits(tenant.wait_p999);
    let [missed_bare, missed_shared] = tenant.missed.map_or_else(Default::default, |missed| {
        [missed.bare, missed.shared].map(|missed| format!("{missed:.0}"))
    });
    let mut rest = vec![format!(
        "{:.3} cores, with {:.3}",
        tenant.cores.bare, tenant.cores.shared
    )];
    if let Some(error) = tenant.error_pp {
        rest.push(format!("{error:+.2} pp from its share"));
    }
    rest.extend(tenant.few());
    rest.extend(tenant.line());
    if let Some(Pair { bare, shared }) = tenant.copied {
        rest.push(format!(
            "{:.2} GB/s copied, with {:.2}",
            bare / 1e9,
            shared / 1e9
        ));
    }
    let newcomers = [
        (tenant.newcomer, "first"),
        (tenant.newcomer_second, "second"),
    ];
    for (newcomer, which) in newcomers {
        if let Some(Pair { bare, shared }) = newcomer {
            let [bare, shared] = [bare, shared].map(percent);
            rest.push(format!("{which} 100 ms {bare} of asked, with {shared}"));
        }
    }
    rest.extend(tenant.newcomers());
    format!(
        "| | {} | {bare} | {shared} | {ratio} | {asked} | | | | {p99_bare} | {p99_shared} | {p99_ratio} | {p999_bare} | {p999_shared} | {missed_bare} | {missed_shared} | {} |\n",
        tenant.name,
        rest.join("; ")
    )
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn ratio(pair: Pair) -> String {
    let ratio = pair.ratio();
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))
}

fn parts(pair: Option<Pair>) -> [String; 3] {
    let pair = pair.map(|pair| [percent(pair.bare), percent(pair.shared), ratio(pair)]);
    pair.unwrap_or_default()
}

fn waits(pair: Option<Pair>) -> [String; 3] {
    let pair = pair.map(|pair| [whole(pair.bare), whole(pair.shared), ratio(pair)]);
    pair.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_cell_for_each_column_and_says_the_ratios() {
        let pair = |bare, shared| Pair { bare, shared };
        let server = Tenant {
            name: "server".to_owned(),
            device: pair(0.2, 0.3),
            asked: Some(0.3),
            error_pp: Some(-0.5),
            wait_p50: None,
            wait_p99: Some(pair(2e6, 1e6)),
            wait_p999: Some(pair(3e6, 3e6)),
            waits: Some(pair(250.0, 200.0)),
            launching_p50: Some(pair(4e3, 5e3)),
            cores: pair(0.05, 0.07),
            missed: Some(pair(7.0, 1.0)),
            in_line: Some(pair(60.0, 0.0)),
            copied: Some(pair(2e9, 1e9)),
            newcomer: Some(pair(0.2, 0.3)),
            newcomer_second: None,
            visits: Some(pair(2.0, 1.0)),
        };
        let comparison = Comparison {
            name: "serving-1".to_owned(),
            useful: pair(0.9, 0.99),
            used: None,
            rates: Some(pair(1.0, 1.1)),
            mode_changes_a_minute: Some(3.6),
            stolen: Some(pair(0.031, 0.2)),
            alone_stolen: Some(0.052),
            tenants: vec![server],
        };
        let text = table("on it", (5, 3), &[comparison]);
        assert!(text.starts_with("on it;\n5 s each, 3 pairs"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let cells = |row: &str| row.matches('|').count();
        assert_eq!(rows.len(), 4);
        assert!(
            rows.iter().all(|row| cells(row) == cells(rows[0])),
            "{text}"
        );
        assert!(rows[2].contains("| serving-1 | all | 90.0 % | 99.0 % | 1.100 |"));
        assert!(rows[2].ends_with("| sum of rates 1.000, with 1.100 (alone: other machines took 5.2 % of the processors); 4 mode changes a minute; other machines took 3.1 % of the processors, with 20.0 % |"));
        assert!(rows[3].contains("| 20.0 % | 30.0 % | 1.500 | 30.0 % |"));
        assert!(rows[3].contains("| 2.00ms | 1.00ms | 0.500 | 3.00ms | 3.00ms | 7 | 1 |"));
        assert!(rows[3].contains("| 0.050 cores, with 0.070; -0.50 pp from its share"));
        assert!(rows[3].contains("60 requests still in line, with 0: waits are at least so long"));
        assert!(rows[3].contains("2.00 GB/s copied, with 1.00"));
        let few = "; 250 waits, with 200: p99.9 of fewer than 1000 is the longest; ";
        assert!(rows[3].contains(few), "{text}");
        let first = "first 100 ms 20.0 % of asked, with 30.0 %; median visit of 2, with 1 |";
        assert!(rows[3].ends_with(first), "{text}");
    }
}
