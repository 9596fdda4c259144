//! The page's table of memory that can move, and the node's room for what is away.

use std::fmt::Write;

use gpushare_protocol::wire::{Place, ResidencyRow};

use super::{Names, Report, bytes, line, or_dash, ordinal, p99, span};

const HEADS: [&str; 9] = [
    "tenant",
    "GPU",
    "off the GPU",
    "in files, of all its GPUs",
    "left",
    "moved out",
    "moved in",
    "out p99",
    "in p99",
];

/// Nothing where no tenant's memory can move.
pub(super) fn moves(out: &mut String, report: &Report, names: &Names) {
    let snapshot = &report.snapshot;
    if snapshot.residency.is_empty() {
        return;
    }
    let heads: String = HEADS
        .iter()
        .map(|head| format!("<th>{head}</th>"))
        .collect();
    let _ = write!(
        out,
        "<h2>Memory that moves</h2>\n<table class=\"moves\"><tr>{heads}<th class=\"l\">now</th></tr>\n"
    );
    let ordinals = snapshot.ordinals();
    for row in &snapshot.residency {
        let moved = snapshot.swap(&row.name, row.device);
        let amount = |bytes_of: Option<u64>| or_dash(bytes_of.map(bytes));
        let cells = [
            ordinal(&ordinals, row.device),
            bytes(row.away),
            amount(moved.map(|one| one.in_files)),
            row.left.to_string(),
            amount(moved.map(|one| one.out_bytes)),
            amount(moved.map(|one| one.in_bytes)),
            p99(moved.and_then(|one| one.out_times.quantile(990))),
            p99(moved.and_then(|one| one.in_times.quantile(990))),
        ];
        out.push_str(&line(names.shown(&row.name), &cells, "", &now(row)));
    }
    out.push_str("</table>\n");
    if let Some(room) = snapshot.room {
        let files = match room.files {
            0 => String::new(),
            files => format!("; {} of {} in files", bytes(room.files_used), bytes(files)),
        };
        let _ = writeln!(
            out,
            "<p class=\"note\">Room for memory off the GPUs: {} of {} of the host are used{files}.</p>",
            bytes(room.host_used),
            bytes(room.host)
        );
    }
}

/// Where its memory is, and since when.
fn now(row: &ResidencyRow) -> String {
    let place = match row.place {
        Place::In => "on the GPU",
        Place::Out if row.suspended => "suspended",
        Place::Sealed | Place::Leaving => "leaves",
        Place::Out => "off the GPU",
        Place::Entering => "comes back",
        _ => "",
    };
    format!("{place} for {}", span(row.for_ms))
}
