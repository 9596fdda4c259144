//! The reference, the alerts and the dashboard name only metrics that exist.

use std::collections::BTreeSet;

use gpushare_exporter::{Family, Format, Kind, Sample, Snapshot, encode, families};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{DeviceRow, EventRecord, Place};

use crate::sample;

fn all() -> Vec<Family> {
    families(Some(&sample::node()))
}

/// Names of samples, as queries use them.
fn names() -> BTreeSet<String> {
    let name = |family: &Family| {
        let name = family.sample_name();
        match family.kind {
            Kind::Histogram => vec![
                format!("{name}_bucket"),
                format!("{name}_sum"),
                format!("{name}_count"),
                name,
            ],
            _ => vec![name],
        }
    };
    all().iter().flat_map(name).collect()
}

fn read(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words of a text that begin as our metrics do.
fn named(text: &str) -> BTreeSet<String> {
    let word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = text.split(|one| !word(one));
    words
        .filter(|word| word.starts_with("gpushare_"))
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn alerts_and_the_dashboard_name_metrics_that_there_are() {
    let names = names();
    for file in [
        "packaging/prometheus/gpushare.rules.yml",
        "packaging/prometheus/gpushare.rules.test.yml",
        "packaging/grafana/gpushare.json",
    ] {
        let named = named(&read(file));
        assert!(!named.is_empty(), "{file} names none");
        let unknown: Vec<_> = named.difference(&names).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// What is charged includes what is off the GPU; the GPU's capacity is no bound of that.
#[test]
fn what_the_dashboard_stacks_to_capacity_is_on_the_gpu() {
    let board = read("packaging/grafana/gpushare.json");
    let charged = "gpushare_tenant_memory_charged_bytes";
    let less = "- (gpushare_tenant_memory_swapped_bytes";
    for title in ["stacked to their capacity", "stacked to capacity"] {
        let panel = panel(&board, title);
        let query = panel.lines().find(|line| line.contains(charged));
        let query = query.expect("it stacks what is charged");
        assert!(query.contains(less), "{query}");
        assert!(panel.contains("gpushare_gpu_memory_capacity_bytes"));
    }
}

/// The text of the panel whose title has these words.
fn panel<'a>(board: &'a str, title: &str) -> &'a str {
    let mut panels = board.split("\n   \"id\": ").skip(1);
    let has = |panel: &&str| {
        let mut lines = panel.lines();
        lines.any(|line| line.contains("\"title\": ") && line.contains(title))
    };
    panels
        .find(has)
        .unwrap_or_else(|| panic!("no panel {title}"))
}

/// Memory of several GPUs above the line of one says that there is too little.
#[test]
fn memory_is_stacked_to_the_capacity_of_the_same_gpus() {
    let board = read("packaging/grafana/gpushare.json");
    let queries = |panel: &str| -> Vec<String> {
        let lines = panel.lines().filter(|line| line.contains("\"expr\": "));
        lines.map(ToOwned::to_owned).collect()
    };
    let all = panel(&board, "stacked to their capacity");
    assert!(queries(all).iter().all(|line| line.contains("\"sum")));
    let each = panel(&board, "stacked to capacity");
    assert!(each.contains("\"repeat\": \"gpu\""), "a panel for each");
    assert!(queries(each).iter().all(|line| !line.contains("\"sum")));
}

#[test]
fn two_units_of_the_dashboard_have_two_axes() {
    let board = read("packaging/grafana/gpushare.json");
    for (title, units) in [
        ("Activity and power", ["\"percentunit\"", "\"watt\""]),
        ("Handoffs", ["\"s\"", "\"percentunit\""]),
    ] {
        let panel = panel(&board, title);
        assert!(units.iter().all(|unit| panel.contains(unit)), "{title}");
        assert!(panel.contains("\"custom.axisPlacement\""), "{title}");
    }
    let daemon = panel(&board, "Daemon");
    assert!(daemon.contains("\"up\"") && daemon.contains("\"down\""));
}

#[test]
fn the_reference_lists_every_metric_and_no_other() {
    let text = read("docs/OPERATIONS.md");
    let (_, text) = text.split_once("\n### Metrics\n").expect("a chapter");
    let text = text.split("\n### ").next().unwrap_or(text);
    let text = text.split("\n## ").next().unwrap_or(text);
    let listed = named(text);
    let there: BTreeSet<String> = all().iter().map(Family::sample_name).collect();
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    let unknown: Vec<_> = listed.difference(&there).collect();
    assert!(unknown.is_empty(), "listed: {unknown:?}");
}

#[test]
fn no_label_is_one_that_a_scrape_adds_but_of_the_pods_own_row() {
    let mut of_pods = BTreeSet::new();
    for family in all() {
        for sample in &family.samples {
            for (label, _) in &sample.labels {
                if family.name == "gpushare_tenant" && ["pod", "namespace"].contains(label) {
                    of_pods.insert(*label);
                    continue;
                }
                let taken = ["instance", "job", "container", "pod", "namespace", "le"];
                assert!(!taken.contains(label), "{}: {label}", family.name);
            }
        }
    }
    assert_eq!(of_pods.len(), 2, "who a tenant is, is told there");
}

/// Samples of one metric: their labels without the reason, and their texts.
fn values(snapshot: &Snapshot, name: &str) -> Vec<(String, String)> {
    let text = encode(families(Some(snapshot)), Format::Prometheus);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = lines.filter_map(|line| {
        let (labels, value) = line.rsplit_once(' ')?;
        let labels = labels.strip_prefix(name)?;
        Some((labels.to_owned(), value.to_owned()))
    });
    split
        .filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'))
        .collect()
}

#[test]
fn a_lost_device_is_told_and_keeps_the_labels_of_all() {
    let mut snapshot = sample::node();
    let labels = |snapshot: &Snapshot, name: &str| -> Vec<String> {
        let all = values(snapshot, name).into_iter();
        all.map(|(labels, _)| labels).collect()
    };
    let lost = |snapshot: &Snapshot| -> Vec<String> {
        let all = values(snapshot, "gpushare_gpu_lost").into_iter();
        all.map(|(_, value)| value).collect()
    };
    assert_eq!(lost(&snapshot), ["0", "0"]);
    let name = "gpushare_gpu_memory_capacity_bytes";
    let before = labels(&snapshot, name);
    let word = DeviceRow::LOST.to_owned();
    snapshot.devices[0].capabilities.push(word);
    assert_eq!(lost(&snapshot), ["1", "0"]);
    assert_eq!(labels(&snapshot, name), before);
    assert!(snapshot.health_text(sample::GPU).starts_with("lost"));
    assert!(!snapshot.health_text(sample::MIG).contains("lost"));
}

#[test]
fn no_sample_of_a_device_lacks_which_it_is() {
    let whole = sample::node();
    // Without a device, as of a list that has it no more.
    let mut without = whole.clone();
    without.devices.remove(0);
    let of_devices = |family: &Family| {
        let labels = |sample: &Sample| sample.labels.iter().any(|(label, _)| *label == "gpu");
        family.samples.iter().any(labels).then_some(family.name)
    };
    let all: BTreeSet<_> = families(Some(&whole))
        .iter()
        .filter_map(of_devices)
        .collect();
    assert!(
        all.contains("gpushare_tenant_gpu_seconds") && all.len() > 25,
        "{all:?}"
    );
    for snapshot in [whole, without] {
        for family in families(Some(&snapshot)) {
            for sample in family.samples.iter().filter(|_| all.contains(family.name)) {
                let has = |wanted: &str| sample.labels.iter().any(|(label, _)| *label == wanted);
                let name = family.name;
                assert!(has("gpu") && has("gpu_uuid"), "{name}: {:?}", sample.labels);
            }
        }
    }
}

#[test]
fn what_a_tenant_holds_beyond_its_grant_is_told_of_it_and_its_device() {
    let mut snapshot = sample::node();
    let values = |snapshot: &Snapshot, name: &str| -> Vec<u64> {
        let all = values(snapshot, name).into_iter();
        all.map(|(_, value)| value.parse().expect("bytes"))
            .collect()
    };
    let (of_device, of_tenant) = (
        "gpushare_gpu_memory_excess_bytes",
        "gpushare_tenant_memory_excess_bytes",
    );
    assert_eq!(values(&snapshot, of_device), [5 * GIB, 0]);
    assert_eq!(values(&snapshot, of_tenant), [0, 5 * GIB]);
    snapshot.excess.clear();
    assert_eq!(values(&snapshot, of_device), [0, 0]);
}

/// Kinds of events that tell of ordinary work, or that something is as it should be again.
const PLAIN: &str = "queued admitted waiting served set gone idle active ends-soon spared balanced \
     lapsed vacated unmanaged-spared ungated look-works events-left-out leaving left returned silent \
     suspended resumed spilled fetched did-not-leave left-less slow-return unshared settled awaited \
     attached shared fence fence-foreign fence-off";

fn event(kind: &str) -> EventRecord {
    EventRecord {
        instance: 1,
        number: 1,
        at_ms: 1,
        kind: kind.to_owned(),
        tenant: None,
        device: None,
        text: String::new(),
        facts: Vec::new(),
    }
}

#[test]
fn each_kind_of_event_is_notable_or_plain() {
    let text = read("docs/OPERATIONS.md");
    let (_, text) = text
        .split_once("| event | what it says |")
        .expect("a table");
    let rows = text
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| "));
    let mut listed: Vec<&str> = Vec::new();
    for row in rows {
        let first = row.split(" | ").next().unwrap_or(row);
        listed.extend(first.split('`').skip(1).step_by(2));
    }
    assert!(listed.len() > 50, "{listed:?}");
    let plain: BTreeSet<&str> = PLAIN.split_whitespace().collect();
    for kind in &listed {
        let record = event(kind);
        assert_ne!(record.is_notable(), plain.contains(kind), "{kind}");
        assert!(record.is_notable() || !record.is_grave(), "{kind}");
    }
    assert!(plain.iter().all(|kind| listed.contains(kind)), "{plain:?}");
    let grave = |kind: &str| event(kind).is_grave();
    assert!(grave("memory-lost") && grave("unenforced") && !grave("refused"));
}

/// Grave kinds that have an alert of their own, by other metrics than the count of events, and
/// those that are decisions of the node's own policy.
const ALERTED: [(&str, Option<&str>); 8] = [
    ("ended", None),
    ("excess", Some("GpushareTenantExcess")),
    ("look-failed", Some("GpushareLooksFail")),
    ("look-slow", Some("GpushareLooksFail")),
    ("lost", Some("GpushareGpuLost")),
    ("overdrawn", Some("GpushareGpuOverdrawn")),
    ("unmanaged", Some("GpushareUnmanagedProcesses")),
    ("unmanaged-ended", None),
];

/// The kinds that rules name: a word, or several in a pattern.
fn kinds_in(rules: &str) -> BTreeSet<&str> {
    rules
        .split("kind=")
        .skip(1)
        .map(|rest| rest.trim_start_matches('~'))
        .flat_map(|rest| rest.split('"').nth(1).unwrap_or("").split('|'))
        .collect()
}

/// The words that the first cells of a text's tables set as code.
fn symptoms(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let symptoms = rows.filter_map(|row| row.split(" | ").next());
    let words = symptoms.flat_map(|symptom| symptom.split('`').skip(1).step_by(2));
    words.collect()
}

#[test]
fn each_alert_has_a_row_in_the_part_of_the_runbook_that_it_names() {
    let (rules, text) = (
        read("packaging/prometheus/gpushare.rules.yml"),
        read("docs/RUNBOOK.md"),
    );
    let parts: Vec<(String, BTreeSet<&str>)> = text
        .split("\n## ")
        .map(|part| {
            let title = part.lines().next().unwrap_or(part);
            let anchor = title.to_lowercase().replace(' ', "-");
            (anchor, symptoms(part))
        })
        .collect();
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 12, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap_or(alert);
        let named = alert.split_once("runbook: docs/RUNBOOK.md#");
        let (_, named) = named.unwrap_or_else(|| panic!("{name} names no part"));
        let named = named.lines().next().unwrap_or(named);
        let part = parts.iter().find(|(anchor, _)| anchor == named);
        let (_, rows) = part.unwrap_or_else(|| panic!("{name}: no {named}"));
        assert!(rows.contains(name), "{name} has no row in {named}");
    }
}

#[test]
fn the_runbook_has_a_row_for_each_kind_that_a_rule_names() {
    let (rules, text) = (
        read("packaging/prometheus/gpushare.rules.yml"),
        read("docs/RUNBOOK.md"),
    );
    let there = symptoms(&text);
    let named = kinds_in(&rules);
    assert!(named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Each start of a container of a static program tells it, also where all that computes has limits.
#[test]
fn a_static_first_program_is_information_and_a_loss_is_not() {
    let rules = read("packaging/prometheus/gpushare.rules.yml");
    let severities = |kind| -> Vec<&str> {
        let alerts = rules.split("- alert: ").skip(1);
        let its = alerts.filter(|alert| kinds_in(alert).contains(kind));
        its.filter_map(|alert| alert.split("severity: ").nth(1)?.split('}').next())
            .collect()
    };
    assert_eq!(severities("unenforced"), ["info"]);
    assert_eq!(severities("container-refused"), ["info"]);
    assert_eq!(severities("no-return"), ["warning"]);
    assert_eq!(severities("memory-lost"), ["critical"]);
}

#[test]
fn each_grave_kind_of_event_has_an_alert_or_a_reason_for_none() {
    let rules = read("packaging/prometheus/gpushare.rules.yml");
    let named = kinds_in(&rules);
    let unknown: Vec<_> = named
        .iter()
        .filter(|kind| !EventRecord::KINDS.contains(kind))
        .collect();
    assert!(unknown.is_empty(), "no such kinds: {unknown:?}");
    for kind in EventRecord::KINDS {
        let other = ALERTED.iter().find(|(known, _)| *known == kind);
        let grave = event(kind).is_grave();
        assert!(grave || other.is_none(), "{kind} is not grave");
        assert_eq!(named.contains(kind) || other.is_some(), grave, "{kind}");
    }
    for (kind, alert) in ALERTED {
        let named = alert.is_none_or(|alert| rules.contains(&format!("alert: {alert}\n")));
        assert!(named, "{kind}: {alert:?}");
    }
}

#[test]
fn events_are_counted_by_kind() {
    let snapshot = sample::node();
    let counts = values(&snapshot, "gpushare_events_total");
    assert!(counts.contains(&("{kind=\"memory-lost\"}".to_owned(), "1".to_owned())));
    assert!(counts.contains(&("{kind=\"unsaved\"}".to_owned(), "0".to_owned())));
}

#[test]
fn a_tenant_is_suspended_where_its_memory_is_off_the_device() {
    for (place, suspended, told) in [
        (Place::In, true, "0"),
        (Place::Leaving, true, "0"),
        (Place::Out, true, "2"),
        (Place::Out, false, "1"),
        (Place::In, false, "0"),
    ] {
        let mut node = sample::node();
        let row = &mut node.residency[0];
        (row.place, row.suspended) = (place, suspended);
        let values = values(&node, "gpushare_tenant_suspended");
        let [(_, value)] = &values[..] else {
            panic!("{values:?}")
        };
        assert_eq!(value, told, "{place:?} {suspended}");
    }
}

#[test]
fn the_oldest_wait_for_admission_is_told_and_none_is_0() {
    let mut snapshot = sample::node();
    let oldest = |snapshot: &Snapshot| {
        let all = values(snapshot, "gpushare_admission_oldest_wait_seconds");
        all.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
    };
    let mut later = snapshot.queued[0].clone();
    later.for_ms = 7_000;
    snapshot.queued.insert(0, later);
    assert_eq!(oldest(&snapshot), ["180"]);
    snapshot.queued.clear();
    assert_eq!(oldest(&snapshot), ["0"]);
}

#[test]
fn ends_by_command_and_the_time_of_moves_are_told() {
    let snapshot = sample::node();
    let ended = values(&snapshot, "gpushare_ended_total");
    assert!(ended.contains(&("{reason=\"command\"}".to_owned(), "3".to_owned())));
    let moving = values(&snapshot, "gpushare_gpu_moving_seconds_total");
    assert_eq!(moving.len(), 1);
    assert_eq!(moving[0].1, "4.5");
}
