//! The page of a whole node.

use gpushare_exporter::{Report, Snapshot, page};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{EventRecord, SeriesRow};

use crate::sample;

fn report() -> Report {
    let series = |name: &str, mib: u32| SeriesRow {
        name: name.to_owned(),
        device: sample::GPU,
        step_ms: 10_000,
        age_ms: 2_000,
        charged_mib: vec![mib; 360],
        held: vec![400; 360],
        waited: vec![20; 360],
    };
    let event = |number: u64, kind: &str, text: &str| EventRecord {
        instance: 1,
        number,
        at_ms: 1_000_000 + number,
        kind: kind.to_owned(),
        tenant: Some("serve".to_owned()),
        device: None,
        text: text.to_owned(),
        facts: Vec::new(),
    };
    Report {
        host: "node<7>".to_owned(),
        made: "2026-11-22 19:00:00".to_owned(),
        now_ms: 1_090_000,
        is_unserved: false,
        snapshot: sample::node(),
        history: vec![series("serve", 28 * 1024), series("gone", 8 * 1024)],
        events: vec![
            event(1, "admitted", "may run"),
            event(2, "refused", "<script>alert(1)</script>"),
        ],
    }
}

#[test]
fn the_page_has_every_tenant_also_one_that_has_ended() {
    let text = page(&report());
    for name in [
        "serve",
        "train",
        "gone",
        "big waits for admission",
        "46 GiB short",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(
        text.contains("2026-11-22 19:00:00, daemon 0.2.0 up 3 d"),
        "{text}"
    );
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let text = page(&report());
    for part in [
        "<script", "http:", "https:", "src=", "href=", "url(", "@import", "onload",
    ] {
        assert!(!text.contains(part), "{part}");
    }
    assert!(text.contains("default-src 'none'"), "{text}");
    assert!(
        text.contains("&lt;script&gt;") && text.contains("node&lt;7&gt;"),
        "{text}"
    );
}

#[test]
fn elements_are_closed_in_their_order() {
    let text = page(&report());
    let (mut open, mut rest) = (Vec::new(), text.as_str());
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag
            .split([' ', '/'])
            .find(|part| !part.is_empty())
            .unwrap_or("");
        let single = ["!DOCTYPE", "meta", "br"].contains(&name) || tag.ends_with('/');
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !single {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_newest_event_comes_first() {
    let text = page(&report());
    let at = |part: &str| text.find(part).expect("it is there");
    assert!(at("&lt;script") < at("may run"));
}

#[test]
fn an_empty_node_has_a_page_too() {
    let text = page(&Report::default());
    assert!(
        text.contains("The daemon has no GPU") && text.ends_with("</html>\n"),
        "{text}"
    );
}

#[test]
fn a_page_without_a_daemon_says_so_and_has_the_events_of_the_journal() {
    let unserved = Report {
        is_unserved: true,
        snapshot: Snapshot::default(),
        history: Vec::new(),
        ..report()
    };
    let text = page(&unserved);
    assert!(text.contains("No daemon serves"), "{text}");
    assert!(text.contains("may run"), "{text}");
    for untrue in ["has no GPU", "There are none", "every ten seconds"] {
        assert!(!text.contains(untrue), "{untrue} in {text}");
    }
    assert!(!page(&report()).contains("No daemon serves"));
}

#[test]
fn a_tenant_over_its_lowered_limit_is_marked_and_others_are_not() {
    let mut over = report();
    let text = "over its limit by 1 GiB: it gets no new memory";
    assert!(!page(&over).contains("over its limit"));
    let row = &mut over.snapshot.tenants[0];
    row.charged = row.limit + GIB;
    assert_eq!(page(&over).matches(text).count(), 1);
}

#[test]
fn memory_that_moves_has_its_table_with_both_directions_and_both_tiers() {
    let text = page(&report());
    let (_, table) = text.split_once("Memory that moves").expect("a table");
    let (table, _) = table.split_once("</table>").expect("its end");
    let (_, row) = table.split_once("<td>serve</td>").expect("a row");
    let cells = [
        "0", "0 bytes", "16 GiB", "3", "81 GiB", "54 GiB", "≤ 3 s", "≤ 1 s",
    ];
    let cells: String = cells
        .iter()
        .map(|cell| format!("<td>{cell}</td>"))
        .collect();
    assert!(row.starts_with(&cells), "{row}");
    assert!(row.contains("on the GPU for 5 s"), "{row}");
    let room = "12 GiB of 64 GiB of the host are used; 16 GiB of 256 GiB in files";
    assert!(text.contains(room), "{text}");
    let mut fixed = report();
    fixed.snapshot.residency.clear();
    assert!(!page(&fixed).contains("Memory that moves"));
}
