//! The report page: one HTML file with everything in it, no script, no network. Pictures are SVG.

mod moves;
mod picture;

use std::collections::BTreeMap;
use std::fmt::Write;

use gpushare_protocol::histogram::BOUNDS;
use gpushare_protocol::wire::{DeviceRow, EventRecord, ProcessState, SeriesRow, TenantRow};

use crate::names::Names;
use crate::snapshot::{Had, STRANDED, Snapshot, above_limit, device_name, due, without_use};
use picture::{Line, Reach, picture};

/// Events shown, the newest first.
const EVENTS: usize = 200;
/// Figures of a tenant in its table.
const FIGURES: usize = 10;

/// All that the page shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The machine's name.
    pub host: String,
    /// When it was made, as people write it.
    pub made: String,
    /// When it was made, in milliseconds since 1970.
    pub now_ms: u64,
    /// Whether no daemon serves: there is no state, and events are the journal's.
    pub is_unserved: bool,
    /// The state now.
    pub snapshot: Snapshot,
    /// Each tenant's last hour.
    pub history: Vec<SeriesRow>,
    /// The events, oldest first.
    pub events: Vec<EventRecord>,
    /// Why those of before the daemon's start are not among them, where that is so.
    pub events_lack: Option<String>,
}

/// In place of tenants, where no daemon serves.
const UNSERVED: &str = "<p class=\"warn\">No daemon serves: there are no figures of now and of the last hour. \
Below is what the journal has of that hour; the event `gone` says what an ended tenant used.</p>\n";

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1f24;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}\
th,td{text-align:right;padding:.2em .6em;border-bottom:1px solid #d8dee4;vertical-align:top}\
th:first-child,td:first-child,td.l,th.l{text-align:left}svg{width:100%;height:auto}\
.note{color:#57606a}.warn{color:#9a3412;font-weight:600}.events td{text-align:left}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}.note{color:#8b949e}.warn{color:#ffa657}svg text{fill:#e6edf3}}";

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let host = escaped(&report.host);
    let names = Names::of(&report.snapshot.pods, &report.events);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>gpushare on {host}</title><style>{STYLE}</style></head><body>\n\
         <h1>gpushare on {host}</h1>\n<p class=\"note\">{}</p>\n",
        escaped(&made(report))
    );
    for (at, row) in report.snapshot.devices.iter().enumerate() {
        let name = format!("GPU {at}: {} {}", row.name, device_name(row));
        let _ = writeln!(out, "<h2>{}</h2>", escaped(&name));
        let health = report.snapshot.health_text(row.uuid);
        if !health.is_empty() {
            let health = health.replace("  ", ", ");
            note(&mut out, &format!("Now: {health}."));
        }
        memory(&mut out, report, &names, row);
        time(&mut out, report, &names, row.uuid);
    }
    if report.is_unserved {
        out.push_str(UNSERVED);
    } else {
        if report.snapshot.devices.is_empty() {
            out.push_str("<p class=\"warn\">The daemon has no GPU.</p>\n");
        }
        tenants(&mut out, report, &names);
        moves::moves(&mut out, report, &names);
        queued(&mut out, report, &names);
    }
    events(&mut out, report, &names);
    out.push_str("</body></html>\n");
    out
}

fn made(report: &Report) -> String {
    let node = report.snapshot.node.as_ref();
    let daemon = node.map_or_else(String::new, |node| {
        format!(
            ", daemon {} up {}, driver {}",
            node.version,
            span(node.up_ms),
            node.driver
        )
    });
    let hour = if report.is_unserved {
        ""
    } else {
        " The last hour, a value every ten seconds."
    };
    format!("{}{daemon}.{hour}", report.made)
}

/// A device's memory, stacked by tenant, below its capacity; and what is off it.
fn memory(out: &mut String, report: &Report, names: &Names, row: &DeviceRow) {
    let gib = |mib: &[u32]| mib.iter().map(|mib| f64::from(*mib) / 1024.0).collect();
    let most = row.capacity as f64 / f64::from(1 << 30);
    let reach = reach(report);
    let mut show = |title: &str, most: f64, lines: &[Line]| {
        out.push_str(&picture(title, (most, "GiB"), true, reach, lines));
    };
    let of = (names, row.uuid);
    let on = lines(&report.history, of, |one| gib(&one.on_mib));
    show("Memory charged, on the GPU", most, &on);
    let away = lines(&report.history, of, |one| gib(&one.away_mib));
    if away.iter().any(|line| line.values.iter().any(|v| *v > 0.0)) {
        show("Memory charged, off the GPU", 0.0, &away);
    }
    let own = report.snapshot.residency.iter();
    let away = own.filter(|one| one.device == row.uuid).map(|one| one.away);
    let rest = [
        ("of the charged now off the GPU", away.sum()),
        ("kept back", row.reserve),
        ("contexts and modules", row.overhead),
        ("of dead processes", row.limbo),
        ("of no tenant", row.unmanaged),
        (
            "of tenants beyond what they may",
            report.snapshot.excess_on(row.uuid),
        ),
    ];
    let rest = rest.iter().filter(|(_, amount)| *amount > 0);
    let rest: Vec<String> = rest
        .map(|(name, amount)| format!("{} {name}", bytes(*amount)))
        .collect();
    if !rest.is_empty() {
        note(out, &format!("Besides: {}.", rest.join(", ")));
    }
}

/// A device's time: had, and waited for.
fn time(out: &mut String, report: &Report, names: &Names, device: [u8; 16]) {
    let percent = |parts: &[u16]| parts.iter().map(|part| f64::from(*part) / 10.0).collect();
    let (all, reach) = ((100.0, "%"), reach(report));
    let of = (names, device);
    let had = lines(&report.history, of, |one| percent(&one.had));
    let mut own = report.snapshot.shares.iter();
    let is_unseen = own.any(|row| {
        let had = report.snapshot.had(&row.name, device);
        row.device == device && had.is_some_and(|had| had.is_alone && had.part.is_none())
    });
    let alone = match is_unseen {
        true => {
            "What a tenant was billed. One that is alone on the GPU is billed nothing, and NVML does \
             not say here whose kernels ran: that time is missing."
        }
        false => {
            "What a tenant was billed beside others; and what it had alone, in which time nothing is \
             billed: there NVML saw its kernels run."
        }
    };
    out.push_str(&picture("Time had", all, true, reach, &had));
    note(out, alone);
    let waited = lines(&report.history, of, |one| percent(&one.waited));
    let title = "Time waited at the gate";
    out.push_str(&picture(title, all, false, reach, &waited));
}

fn note(out: &mut String, text: &str) {
    let _ = writeln!(out, "<p class=\"note\">{text}</p>");
}

/// How far back all pictures of a page reach.
fn reach(report: &Report) -> Reach {
    let rows = report
        .history
        .iter()
        .filter(|row| !row.charged_mib.is_empty());
    let oldest = rows.map(|row| row.age_ms + row.step_ms * (row.charged_mib.len() as u64 - 1));
    Reach::of(oldest.max().unwrap_or(0))
}

/// The series of a device, each placed at its age.
fn lines(
    all: &[SeriesRow],
    (names, device): (&Names, [u8; 16]),
    values: impl Fn(&SeriesRow) -> Vec<f64>,
) -> Vec<Line> {
    let line = |row: &SeriesRow| Line {
        name: names.shown(&row.name).to_owned(),
        step_ms: row.step_ms,
        age_ms: row.age_ms,
        values: values(row),
    };
    let own = all.iter().filter(|row| row.device == device);
    own.map(line).collect()
}

fn tenants(out: &mut String, report: &Report, names: &Names) {
    let snapshot = &report.snapshot;
    out.push_str("<h2>Tenants</h2>\n");
    let mut lost = snapshot.stranded().peekable();
    if snapshot.tenants.is_empty() && lost.peek().is_none() {
        out.push_str("<p class=\"note\">There are none.</p>\n");
        return;
    }
    out.push_str(
        "<table class=\"tenants\"><tr><th>tenant</th><th>GPU</th><th>charged</th><th>limit</th><th>request</th>\
         <th>peak</th><th>time now</th><th>due</th><th>cap</th><th>gate waits p99</th>\
         <th>allocation waits</th><th>refused</th><th class=\"l\">processes</th></tr>\n",
    );
    let ordinals = snapshot.ordinals();
    for (row, more) in snapshot.shown() {
        let mut measures = snapshot.measures.iter();
        let measures = measures.find(|one| one.name == row.name && one.device == row.device);
        let share = snapshot.share(&row.name, row.device);
        // Of what MPS shares it is due no part.
        let mps = snapshot.mps.contains(&row.name);
        let had = match mps {
            true => Some("mps".to_owned()),
            false => snapshot.had(&row.name, row.device).and_then(had),
        };
        let part = |part: Option<u32>| {
            or_dash(part.map(|part| format!("{:.1} %", f64::from(part) / 10.0)))
        };
        let refused = measures.map_or(0, |one| {
            one.refused_limit + one.refused_wait_timeout + one.refused_no_room + one.refused_driver
        });
        let warn = if refused > 0 { " class=\"warn\"" } else { "" };
        let cells: [String; FIGURES] = [
            ordinal(&ordinals, row.device),
            bytes(row.charged),
            bytes(row.limit),
            bytes(row.request),
            or_dash(measures.map(|one| bytes(one.peak))),
            or_dash(had),
            part(share.filter(|_| !mps).and_then(due)),
            part(share.and_then(|one| one.cap)),
            or_dash(measures.map(|one| p99(one.gate_waits.quantile(990)))),
            or_dash(measures.map(|one| one.allocation_waits.count().to_string())),
        ];
        let refused = format!("<td{warn}>{refused}</td>");
        let more = without_use(more).map(|text| format!("<br>{text}"));
        let words = processes(row) + &more.unwrap_or_default();
        out.push_str(&line(names.shown(&row.name), &cells, &refused, &words));
    }
    for one in lost {
        let cells = [(); FIGURES].map(|()| or_dash(None));
        let refused = format!("<td>{}</td>", or_dash(None));
        let words = format!("<span class=\"warn\">{STRANDED}</span>");
        out.push_str(&line(names.shown(&one.name), &cells, &refused, &words));
    }
    out.push_str("</table>\n");
    note(
        out,
        "Time is that of the last ten seconds; of a tenant that is alone on the GPU, and billed \
         nothing, by NVML. Peak, waits and refusals are since its registration at this daemon.",
    );
}

/// A tenant's part of the time, in a cell.
fn had(had: Had) -> Option<String> {
    let part = had
        .part
        .map(|part| format!("{:.1} %", f64::from(part) / 10.0));
    match (part, had.is_alone) {
        (Some(part), true) => Some(format!("{part} alone")),
        (None, true) => Some("alone".to_owned()),
        (part, false) => part,
    }
}

/// A device's number, if it is still there.
fn ordinal(all: &BTreeMap<[u8; 16], usize>, device: [u8; 16]) -> String {
    all.get(&device).map_or_else(String::new, usize::to_string)
}

/// A line of a table: a tenant's name, its figures, more cells as they are, and words.
fn line(name: &str, figures: &[String], more: &str, words: &str) -> String {
    let figures = figures.iter().map(|cell| format!("<td>{cell}</td>"));
    format!(
        "<tr><td>{}</td>{}{more}<td class=\"l\">{words}</td></tr>\n",
        escaped(name),
        figures.collect::<String>()
    )
}

/// A figure, or a dash where there is none.
fn or_dash(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "–".to_owned())
}

fn processes(row: &TenantRow) -> String {
    let one = |process: &gpushare_protocol::wire::ProcessRow| {
        let state = match &process.state {
            ProcessState::Running => "running".to_owned(),
            ProcessState::Idle { for_ms } => format!("idle {}", span(*for_ms)),
            ProcessState::Waiting(want) => {
                format!(
                    "waits for {} since {}",
                    bytes(want.bytes),
                    span(want.since_ms)
                )
            }
            _ => String::new(),
        };
        format!("{}: {state}", process.pid)
    };
    let all: Vec<String> = row.processes.iter().take(8).map(one).collect();
    let more = row.processes.len().saturating_sub(8);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let above = above_limit(row.charged, row.limit);
    let above = above.map(|text| format!("<span class=\"warn\">{text}</span><br>"));
    format!("{}{}{more}", above.unwrap_or_default(), all.join("<br>"))
}

fn queued(out: &mut String, report: &Report, names: &Names) {
    for row in &report.snapshot.queued {
        let _ = writeln!(
            out,
            "<p class=\"warn\">{} waits for admission since {}: {} requested, {} short.</p>",
            escaped(names.shown(&row.name)),
            span(row.for_ms),
            bytes(row.request),
            bytes(row.short)
        );
    }
}

fn events(out: &mut String, report: &Report, names: &Names) {
    out.push_str("<h2>Events</h2>\n");
    if let Some(why) = &report.events_lack {
        let text = format!("These are this daemon's alone, since its start: {why}.");
        note(out, &escaped(&text));
    }
    out.push_str("<table class=\"events\">\n");
    for event in report.events.iter().rev().take(EVENTS) {
        let ago = span(report.now_ms.saturating_sub(event.at_ms));
        let tenant = names.shown(event.tenant.as_deref().unwrap_or(""));
        let class = if event.is_notable() {
            " class=\"warn\""
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<tr><td>{ago} ago</td><td{class}>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&event.kind),
            escaped(tenant),
            escaped(&names.in_text(&event.text))
        );
    }
    out.push_str("</table>\n");
}

/// The bound that 99 % of the waits do not exceed.
fn p99(bound: Option<u64>) -> String {
    let last = BOUNDS[BOUNDS.len() - 1];
    match bound {
        None => "–".to_owned(),
        Some(ns) if ns > last => "over 300 s".to_owned(),
        Some(ns) if ns >= 1_000_000_000 => format!("≤ {} s", ns / 1_000_000_000),
        Some(ns) if ns >= 1_000_000 => format!("≤ {} ms", ns / 1_000_000),
        Some(ns) => format!("≤ {} µs", ns / 1_000),
    }
}

fn bytes(amount: u64) -> String {
    gpushare_protocol::units::Bytes(amount).human()
}

fn span(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Text as HTML: nothing in it is markup.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            one => out.push(one),
        }
    }
    out
}
