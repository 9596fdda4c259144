//! The table of `ps`: a line for each tenant and device, and below it one for each process.

use super::row::{Process, Row};
use crate::output::wrapped;
use crate::when::span;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use gpushare_exporter::{above_limit, without_use};
use gpushare_protocol::units::Bytes;
use nix::unistd::{Uid, User};
use std::collections::{BTreeMap, BTreeSet};

/// Columns that the table fits, where it does not go to a terminal.
const WIDTH: usize = 100;
/// The longest name that is always shown whole.
const SHORT: usize = 14;

const HEADS: [&str; 9] = [
    "TENANT", "USER", "GPU", "REQUEST", "LIMIT", "CHARGED", "OVERHEAD", "AGE", "TIME",
];

/// The order in which columns are left out where the terminal is narrow.
const DROPPED: [&str; 4] = ["OVERHEAD", "USER", "AGE", "REQUEST"];

/// The whole table, in lines of at most `width` characters. Reasons and long lists are wrapped
/// where a terminal has that width, and longer than it without one (`None`).
pub(super) fn of(rows: &[Row], width: Option<usize>) -> String {
    let most = width.unwrap_or(WIDTH);
    let lines = fitting(rows, &users(rows, name_of), most);
    let mut text = lines.first().cloned().unwrap_or_default();
    for (at, (line, row)) in lines.iter().skip(1).zip(rows).enumerate() {
        text.push('\n');
        text.push_str(line);
        for detail in details(row, rows.get(at + 1)) {
            let fits = |width: usize| detail.chars().count() + 2 <= width;
            let parts = match width.filter(|width| !fits(*width)) {
                None => vec![detail],
                Some(width) => wrapped(&detail, width.saturating_sub(4).max(20)),
            };
            for (at, part) in parts.iter().enumerate() {
                text.push_str(if at == 0 { "\n  " } else { "\n    " });
                text.push_str(part);
            }
        }
    }
    text
}

/// The lines of the tenants: with shorter names, then with fewer columns, until they fit.
fn fitting(rows: &[Row], users: &Users, width: usize) -> Vec<String> {
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let longest = longest.unwrap_or(0);
    let excess = |lines: &[String]| {
        let all = lines.iter().map(|line| line.chars().count());
        all.max().unwrap_or(0).saturating_sub(width)
    };
    let mut lines = Vec::new();
    for dropped in 0..=DROPPED.len() {
        let without = &DROPPED[..dropped];
        lines = draw(rows, users, longest, without);
        if excess(&lines) > 0 {
            let name = longest.saturating_sub(excess(&lines)).max(SHORT);
            lines = draw(rows, users, name, without);
        }
        if excess(&lines) == 0 {
            break;
        }
    }
    lines
}

/// The lines of the tenants under their heads, without some columns.
fn draw(rows: &[Row], users: &Users, name: usize, without: &[&str]) -> Vec<String> {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADS);
    for row in rows {
        let limit = row.limit.map_or_else(|| "none".to_owned(), human);
        table.add_row([
            shortened(&row.name, name),
            user(row, users),
            row.gpu
                .map_or_else(|| "-".to_owned(), |gpu| gpu.to_string()),
            human(row.request),
            limit,
            human(row.charged),
            human(row.overhead),
            row.age_ms.map_or_else(|| "-".to_owned(), span),
            match row.queued {
                Some(_) => "queued".to_owned(),
                None => row.time_text.clone(),
            },
        ]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if without.contains(&HEADS[at]) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
        column.set_padding((0, 2));
        if (3..=7).contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// A name that fits, with its end left out where it does not.
fn shortened(name: &str, width: usize) -> String {
    match name.chars().count() <= width {
        true => name.to_owned(),
        false => {
            let kept: String = name.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

fn human(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes => Bytes(bytes).human(),
    }
}

/// Users' names.
type Users = BTreeMap<u32, String>;

/// The names of the rows' users, each asked once: where they are kept by a server that does not
/// answer (LDAP), an answer takes seconds, and the lines are drawn several times until they fit.
fn users(rows: &[Row], name_of: impl Fn(u32) -> Option<String>) -> Users {
    let owners: BTreeSet<u32> = rows.iter().filter_map(|row| row.owner).collect();
    let named = owners.into_iter();
    named.filter_map(|uid| Some((uid, name_of(uid)?))).collect()
}

fn name_of(uid: u32) -> Option<String> {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map(|user| user.name)
}

/// Whose it is, by name.
fn user(row: &Row, users: &Users) -> String {
    let Some(uid) = row.owner else {
        return "-".to_owned();
    };
    let known = users.get(&uid).cloned();
    known.unwrap_or_else(|| uid.to_string())
}

/// The lines below a tenant's own line. The reason for which it is queued is printed once for all
/// its devices, below the last of them.
fn details(row: &Row, next: Option<&Row>) -> Vec<String> {
    let pod = row.pod.iter().map(|pod| format!("pod {}", pod.text));
    let processes = row.processes.iter().map(process);
    let mut details: Vec<String> = pod.chain(processes).collect();
    let is_same = |next: &Row| next.name == row.name && next.queued == row.queued;
    if let Some(queued) = row.queued.as_ref().filter(|_| !next.is_some_and(is_same)) {
        details.push(format!(
            "queued for {}: {}",
            span(queued.for_ms),
            queued.why
        ));
    }
    details.extend(row.limit.and_then(|limit| above_limit(row.charged, limit)));
    details.extend(row.residency_text.clone());
    details.extend(without_use(row.more).map(|text| format!("{text} (`ps --all`)")));
    if let Some(ends) = &row.ends {
        details.push(match (ends.told, ends.in_ms) {
            (false, in_ms) => format!("ends in {} ({})", span(in_ms), ends.by),
            (true, 0) => format!("is being ended ({}): SIGKILL was sent", ends.by),
            (true, in_ms) => {
                format!("is being ended ({}): SIGKILL in {}", ends.by, span(in_ms))
            }
        });
    }
    if let Some(gang) = &row.gang {
        details.push(format!("gang {gang}"));
    }
    if !row.daemon {
        details.push("without a daemon: the library alone keeps its limits".to_owned());
    }
    details
}

fn process(process: &Process) -> String {
    let for_text = span(process.for_ms.unwrap_or(0));
    let state = match process.state {
        "idle" => format!("idle for {for_text}"),
        "waiting" => format!(
            "waiting for {} since {for_text}",
            Bytes(process.waits_for.unwrap_or(0)).human()
        ),
        other => other.to_owned(),
    };
    format!(
        "pid {}  {state}  {}",
        process.pid,
        Bytes(process.charged).human()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps::row::{Pod, Queued, SCHEMA};

    fn row(name: &str) -> Row {
        Row {
            schema: SCHEMA,
            name: name.to_owned(),
            device: "GPU-07070707".to_owned(),
            gpu: Some(0),
            owner: Some(60_001),
            daemon: true,
            queued: None,
            age_ms: Some(3 * 86_400_000 + 3_600_000),
            request: 1023 << 20,
            limit: Some(1023 << 30),
            grant: 5,
            charged: 1_034_567_890_123,
            overhead: 700 << 20,
            limbo: 0,
            time: None,
            sharing: None,
            gang: None,
            pod: None,
            residency: None,
            residency_text: Vec::new(),
            ends: None,
            used: true,
            more: 0,
            processes: vec![Process {
                pid: 11_058,
                charged: 1 << 30,
                overhead: None,
                state: "waiting",
                waits_for: Some(3 << 30),
                for_ms: Some(2_000),
            }],
            time_text: "29.8% of 30%, waiting".to_owned(),
        }
    }

    #[test]
    fn the_table_fits_a_hundred_columns_whatever_the_names() {
        let rows = [row("web"), row(&"x".repeat(64)), row("train")];
        let shown = of(&rows, None);
        for line in shown.lines() {
            assert!(
                line.chars().count() <= 100,
                "{}: {line}",
                line.chars().count()
            );
        }
        assert_eq!(shown.matches('…').count(), 1, "{shown}");
        // Each line of a tenant begins in the same columns.
        let at = |line: &str| line.find("29.8%");
        let tenants: Vec<_> = shown.lines().filter_map(at).collect();
        assert_eq!(tenants.len(), 3);
        let wide = of(&rows, Some(200));
        assert!(!wide.contains('…'), "{wide}");
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_wrapped_reasons() {
        let mut queued = row("big");
        queued.queued = Some(Queued {
            for_ms: 180_000,
            why: "waits until its request fits ".repeat(4),
        });
        for width in [60, 72, 90] {
            let shown = of(&[row("web"), queued.clone()], Some(width));
            for line in shown.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(
                shown.contains("CHARGED") && shown.contains("LIMIT"),
                "{shown}"
            );
            assert_eq!(shown.matches("until").count(), 4, "{shown}");
        }
        let narrow = of(&[row("web")], Some(60));
        assert!(
            !narrow.contains("OVERHEAD") && !narrow.contains("700 MiB"),
            "{narrow}"
        );
        assert!(of(&[row("web")], Some(120)).contains("OVERHEAD"));
    }

    #[test]
    fn a_row_says_where_more_is_charged_than_its_limit_and_which_pod_it_is() {
        let with = |charged: u64, limit: Option<u64>| {
            let row = Row {
                charged: charged << 30,
                limit: limit.map(|limit| limit << 30),
                ..row("web")
            };
            of(&[row], None)
        };
        let told = "\n  over its limit by 7 GiB: it gets no new memory";
        assert!(with(9, Some(2)).contains(told), "{}", with(9, Some(2)));
        for (charged, limit) in [(2, Some(2)), (1, Some(2)), (9, None)] {
            let shown = with(charged, limit);
            assert!(!shown.contains("over its limit"), "{shown}");
            assert!(!shown.contains("pod "), "{shown}");
        }
        let pod = Pod {
            namespace: "team".to_owned(),
            name: "web-0".to_owned(),
            container: "main".to_owned(),
            text: "team/web-0 (main)".to_owned(),
        };
        let shown = of(
            &[Row {
                pod: Some(pod),
                ..row("3f9c")
            }],
            None,
        );
        assert!(shown.contains("\n  pod team/web-0 (main)\n"), "{shown}");
    }

    #[test]
    fn processes_and_reasons_are_below_their_tenant() {
        let mut queued = row("big");
        queued.processes.clear();
        queued.queued = Some(Queued {
            for_ms: 180_000,
            why: "waits until 46 GiB fit".to_owned(),
        });
        let alone = Row {
            daemon: false,
            limit: None,
            ..row("alone")
        };
        let shown = of(&[row("web"), queued, alone], None);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("TENANT"), "{shown}");
        assert!(lines[1].starts_with("web"), "{shown}");
        assert_eq!(lines[2], "  pid 11058  waiting for 3 GiB since 2 s  1 GiB");
        assert!(lines[3].starts_with("big") && lines[3].ends_with("queued"));
        assert_eq!(lines[4], "  queued for 3 min: waits until 46 GiB fit");
        assert!(lines[5].starts_with("alone") && lines[5].contains(" none "));
        assert!(lines[7].contains("without a daemon"), "{shown}");
    }

    #[test]
    fn the_reason_of_a_queued_tenant_is_said_once_for_all_its_devices() {
        let queued = |name: &str, gpu: u32, why: &str| Row {
            gpu: Some(gpu),
            queued: Some(Queued {
                for_ms: 180_000,
                why: why.to_owned(),
            }),
            processes: Vec::new(),
            ..row(name)
        };
        let mut rows: Vec<Row> = (0..8).map(|gpu| queued("big", gpu, "waits")).collect();
        rows.push(queued("small", 0, "waits"));
        let shown = of(&rows, None);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 1 + 9 + 2, "{shown}");
        assert_eq!(lines[9], "  queued for 3 min: waits", "{shown}");
        assert_eq!(lines[11], lines[9], "{shown}");
        // Two daemons have a tenant of the name, each for its reason.
        let rows = [queued("big", 0, "waits"), queued("big", 0, "is behind")];
        assert_eq!(of(&rows, None).matches("queued for").count(), 2);
    }

    #[test]
    fn each_user_is_asked_for_once_however_often_the_lines_are_drawn() {
        let of = |name: &str, owner: Option<u32>| Row { owner, ..row(name) };
        let long = "a".repeat(64);
        let rows = [
            of(&long, Some(7)),
            of("b", Some(7)),
            of("c", Some(8)),
            of("d", None),
        ];
        let asked = std::cell::RefCell::new(Vec::new());
        let users = users(&rows, |uid| {
            asked.borrow_mut().push(uid);
            (uid == 7).then(|| "seven".to_owned())
        });
        let lines = fitting(&rows, &users, WIDTH);
        assert_eq!(*asked.borrow(), [7, 8]);
        for (line, user) in [(1, "seven"), (2, "seven"), (3, "8"), (4, "-")] {
            let words: Vec<&str> = lines[line].split_whitespace().collect();
            assert_eq!(words[1], user, "{lines:?}");
        }
    }
}
