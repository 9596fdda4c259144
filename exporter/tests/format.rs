//! The two text formats of a whole node, against the files beside this, and what both formats ask
//! of any text.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_exporter::{Format, Snapshot, encode, families};
use gpushare_protocol::wire::TenantMetrics;

use crate::sample;

fn text(format: Format) -> String {
    encode(families(Some(&sample::node())), format)
}

/// `GPUTEST_RENEW=1` writes the file anew, to be read before it is committed.
fn is_kept(file: &str, text: &str) {
    let path = format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GPUTEST_RENEW").is_some() {
        std::fs::write(&path, text).expect("the tree is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the file is in the tree");
    assert!(kept == text, "{file} differs from:\n{text}");
}

#[test]
fn a_node_is_told_as_prometheus_text() {
    is_kept("node.prom", &text(Format::Prometheus));
}

#[test]
fn a_node_is_told_as_openmetrics() {
    is_kept("node.openmetrics", &text(Format::OpenMetrics));
}

#[test]
fn without_a_daemon_the_text_says_so_and_nothing_else() {
    let text = encode(families(None), Format::Prometheus);
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, ["gpushare_daemon_up 0"]);
}

/// The family of a sample, by the endings that its kind allows.
fn belongs(sample: &str, family: &str, kind: &str, format: Format) -> bool {
    let endings: &[&str] = match (kind, format) {
        ("histogram", _) => &["_bucket", "_sum", "_count"],
        ("counter", Format::OpenMetrics) => &["_total"],
        ("info", _) => &["_info"],
        _ => &[""],
    };
    endings
        .iter()
        .any(|ending| sample == format!("{family}{ending}"))
}

#[test]
fn every_sample_follows_the_head_of_its_family_and_is_unique() {
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = text(format);
        let (mut families, mut series) = (BTreeMap::new(), BTreeSet::new());
        let mut current = ("", "");
        for line in text.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("#"), Some("TYPE")) => {
                    let name = words.next().expect("a name");
                    current = (name, words.next().expect("a kind"));
                    assert!(families.insert(name, current.1).is_none(), "{name} twice");
                }
                (Some("#"), Some("HELP" | "UNIT" | "EOF")) => {}
                (Some(sample), Some(_)) => {
                    assert!(series.insert(sample.to_owned()), "{sample} twice");
                    let name = sample.split('{').next().expect("a name");
                    let fits = belongs(name, current.0, current.1, format);
                    assert!(fits, "{name} after {current:?}");
                    let (_, value) = line.rsplit_once(' ').expect("a value");
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
                other => panic!("{line:?}: {other:?}"),
            }
        }
        assert!(families.len() > 35, "{families:?}");
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
    }
}

#[test]
fn counters_rise_with_what_goes_on_now() {
    let node = text(Format::Prometheus);
    // 19.2 ms are over and 0.8 ms go on.
    let line = "gpushare_tenant_gate_wait_seconds_total{tenant=\"train\",gpu=\"0\"";
    let line = node.lines().find(|text| text.starts_with(line));
    assert!(line.is_some_and(|line| line.ends_with(" 0.02")), "{line:?}");
}

/// A list is told page by page, and a tenant may end and be there again meanwhile.
#[test]
fn a_tenant_that_a_list_has_twice_has_its_last_row_alone() {
    let mut snapshot = sample::node();
    let series = |snapshot: &Snapshot| {
        let text = encode(families(Some(snapshot)), Format::Prometheus);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.rsplit_once(' '));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let once = series(&snapshot);
    let mut again = snapshot.measures[0].clone();
    again.peak = 7;
    snapshot.measures.push(again);
    snapshot.tenants.extend_from_within(..1);
    snapshot.shares.extend_from_within(..1);
    snapshot.residency.extend_from_within(..1);
    snapshot.swaps.extend_from_within(..1);
    snapshot.identities.extend_from_within(..1);
    snapshot.pods.extend_from_within(..1);
    snapshot.ends.extend_from_within(..1);
    snapshot.mps.extend_from_within(..1);
    snapshot.excess.extend_from_within(..1);
    assert!(series(&snapshot).len() > once.len());
    snapshot.has_each_once();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(series(&snapshot)), sorted(once));
    let of_first = |row: &&TenantMetrics| row.name == "serve";
    let kept = snapshot.measures.iter().find(of_first);
    assert_eq!(kept.map(|row| row.peak), Some(7));
}
