//! The page of a whole node.

use gpushare_exporter::{Report, Snapshot, page};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{Alone, EventRecord, Fact, SeriesRow, ShareState};

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
        grant_mib: vec![mib; 360],
        had: vec![400; 360],
        on_mib: vec![mib; 360],
        away_mib: vec![0; 360],
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
        events_lack: None,
    }
}

#[test]
fn the_page_has_every_tenant_also_one_that_has_ended() {
    let text = page(&report());
    for name in [
        "serve",
        "research/train-0/main",
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

/// The picture of a title, up to its end.
fn figure<'a>(text: &'a str, title: &str) -> &'a str {
    let (_, rest) = text
        .split_once(&format!("<figcaption>{title}</figcaption>"))
        .unwrap_or_else(|| panic!("no {title}"));
    rest.split_once("</figure>").expect("its end").0
}

/// Billed nothing, all the hour. NVML saw kernels in this part of the time, if it tells.
fn alone(had: Option<u32>) -> Report {
    let mut alone = report();
    alone.history.truncate(1);
    alone.history[0].held = vec![0; 360];
    alone.history[0].had = vec![had.unwrap_or(0).try_into().expect("thousandths"); 360];
    let over_ms = 9_000;
    alone.snapshot.shares[0].alone = had.map(|part| Alone { part, over_ms });
    (
        alone.snapshot.shares[0].held,
        alone.snapshot.shares[0].state,
    ) = (0, ShareState::Free);
    alone
}

#[test]
fn a_tenant_alone_is_not_shown_as_one_that_had_nothing() {
    let text = page(&alone(Some(930)));
    let time = figure(&text, "Time had");
    assert!(
        time.contains("<polygon") && time.contains("serve"),
        "{time}"
    );
    assert!(text.contains("<td>93.0 % alone</td>"), "{text}");
    assert!(text.contains("there NVML saw its kernels run"), "{text}");
    // Where NVML does not tell, the page says what is missing.
    let text = page(&alone(None));
    assert!(text.contains("that time is missing"), "{text}");
    assert!(text.contains("<td>alone</td>"), "{text}");
    assert!(!text.contains("<td>0.0 %</td>"), "{text}");
}

#[test]
fn nothing_counted_is_a_dash_and_no_part() {
    let mut new = report();
    (new.snapshot.shares[0].held, new.snapshot.shares[0].over_ms) = (0, 0);
    assert!(!page(&new).contains("<td>0.0 %</td>"));
}

#[test]
fn memory_off_the_gpu_has_its_own_picture_and_hides_no_tenant() {
    let mut swap = report();
    let gib = 1024;
    // Three of 60 GiB on 80 GiB: one is there, and half of another.
    let uses = |name: &str, on: u32, away: u32| SeriesRow {
        name: name.to_owned(),
        on_mib: vec![on; 360],
        away_mib: vec![away; 360],
        ..swap.history[0].clone()
    };
    swap.history = vec![
        uses("serve", 50 * gib, 10 * gib),
        uses("train", 20 * gib, 40 * gib),
        uses("gone", 0, 60 * gib),
    ];
    let text = page(&swap);
    let on = figure(&text, "Memory charged, on the GPU");
    assert!(on.contains(">80 GiB<") && !on.contains("dasharray"), "{on}");
    assert_eq!(on.matches("<polygon").count(), 2, "{on}");
    let off = figure(&text, "Memory charged, off the GPU");
    assert!(off.contains(">110 GiB<"), "{off}");
    assert_eq!(off.matches("<polygon").count(), 3, "{off}");
    for one in &mut swap.history {
        one.away_mib = vec![0; 360];
    }
    assert!(!page(&swap).contains("off the GPU</figcaption>"));
}

#[test]
fn containers_are_shown_by_their_pods_also_where_they_have_ended() {
    let (living, ended) = ("a".repeat(64), "b".repeat(64));
    let mut pods = report();
    pods.snapshot.pods[0].name.clone_from(&living);
    pods.snapshot.tenants[1].name.clone_from(&living);
    pods.history[1].name.clone_from(&ended);
    let event = &mut pods.events[1];
    (event.tenant, event.text) = (Some(ended.clone()), format!("ended for {living}"));
    let facts = [("namespace", "lab"), ("pod", "job-7"), ("container", "x")];
    event.facts = facts
        .map(|(name, word)| (name.to_owned(), Fact::Word(word.to_owned())))
        .to_vec();
    let text = page(&pods);
    assert!(!text.contains(&living) && !text.contains(&ended), "{text}");
    for shown in [
        "<td>research/train-0/main</td>",
        "&#9632;</span> lab/job-7/x",
        "<td>lab/job-7/x</td><td>ended for research/train-0/main</td>",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn gpus_that_a_tenant_never_used_have_no_line() {
    let mut many = report();
    let unused = (0..7).map(|at| {
        let mut row = many.snapshot.tenants[0].clone();
        (row.device, row.charged, row.overhead) = ([100 + at; 16], 0, 0);
        row
    });
    let unused: Vec<_> = unused.collect();
    many.snapshot.tenants.splice(1..1, unused);
    let text = page(&many);
    let (_, table) = text.split_once("<h2>Tenants</h2>").expect("a table");
    let (table, _) = table.split_once("</table>").expect("its end");
    assert_eq!(table.matches("<td>serve</td>").count(), 1, "{table}");
    assert_eq!(
        table.matches("7 more GPUs without use").count(),
        1,
        "{table}"
    );
}

/// The table of the tenants.
fn tenants(text: &str) -> &str {
    let (_, table) = text.split_once("<h2>Tenants</h2>").expect("a table");
    table.split_once("<h2>").map_or(table, |(own, _)| own)
}

#[test]
fn tenants_whose_gpus_are_lost_are_on_the_page() {
    let mut lost = report();
    lost.snapshot.residency.clear();
    lost.snapshot.tenants.clear();
    let text = page(&lost);
    assert!(tenants(&text).contains("There are none."), "they have left");
    lost.snapshot.devices[0]
        .capabilities
        .push("lost".to_owned());
    let text = page(&lost);
    let table = tenants(&text);
    assert!(!table.contains("There are none."), "{table}");
    for name in ["serve", "research/train-0/main"] {
        assert!(
            table.contains(&format!("<tr><td>{name}</td><td>–</td>")),
            "{table}"
        );
    }
    assert_eq!(table.matches("its GPU is lost").count(), 2, "{table}");
    // Each row is as wide as the first one.
    let wide = |row: &str| row.matches("<td").count() + row.matches("<th").count();
    let rows: Vec<usize> = table
        .lines()
        .filter(|row| row.contains("<tr>"))
        .map(wide)
        .collect();
    assert!(rows.windows(2).all(|two| two[0] == two[1]), "{rows:?}");
}

#[test]
fn the_page_has_a_due_only_where_a_tenant_has_a_process() {
    let due = |(weight, over_ms): (u32, u64)| {
        let mut one = report();
        let share = &mut one.snapshot.shares[0];
        (share.weight, share.over_ms, share.state) = (weight, over_ms, ShareState::Idle);
        let text = page(&one);
        let (_, row) = text.split_once("<tr><td>serve</td>").expect("a row");
        row.split("<td>").nth(7).expect("a cell").to_owned()
    };
    assert_eq!(due((700, 9_000)), "70.0 %</td>");
    assert_eq!(due((0, 9_000)), "0.0 %</td>");
    assert_eq!(due((0, 0)), "–</td>");
}

#[test]
fn the_page_has_no_time_of_a_tenant_with_mps_clients() {
    let mut one = report();
    let row = |one: &Report| {
        let text = page(one);
        let (_, row) = text
            .split_once("<td>research/train-0/main</td>")
            .expect("a row");
        let cells = row.split("<td>").skip(6).take(3);
        cells
            .map(|cell| cell.trim_end_matches("</td>").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(row(&one), ["mps", "–", "30.0 %"]);
    one.snapshot.mps.clear();
    assert_eq!(row(&one), ["69.0 %", "70.0 %", "30.0 %"]);
}
