//! Where a tenant's memory is, for a person and as data.

use crate::when::span;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Place, ResidencyRow, Residue};
use serde_json::{Value, json};

/// The row of a tenant on a device.
pub(crate) fn of<'a>(
    rows: &'a [ResidencyRow],
    (name, device): (&str, [u8; 16]),
) -> Option<&'a ResidencyRow> {
    let mut rows = rows.iter();
    rows.find(|row| row.name == name && row.device == device)
}

/// The stable name of a place.
pub(crate) fn place(row: &ResidencyRow) -> &'static str {
    match row.place {
        Place::In => "in",
        Place::Sealed => "sealed",
        Place::Leaving => "leaving",
        Place::Out => "out",
        Place::Entering => "entering",
        _ => "unknown",
    }
}

/// As an object of `ps --json`.
pub(crate) fn data(row: &ResidencyRow) -> Value {
    let residue: serde_json::Map<String, Value> = parts(&row.residue)
        .map(|(reason, bytes)| (reason.to_owned(), json!(bytes)))
        .into_iter()
        .collect();
    json!({
        "place": place(row),
        "for_ms": row.for_ms,
        "suspended": row.suspended,
        "movable": row.movable,
        "away": row.away,
        "host": row.host,
        "residue": residue,
        "left": row.left,
        "moved": row.moved,
    })
}

/// In a line of `ps`.
pub(crate) fn text(row: &ResidencyRow) -> String {
    let for_text = span(row.for_ms);
    let (away, movable) = (human(row.away), human(row.movable));
    let place = match row.place {
        Place::In => format!("memory on the GPU for {for_text}: {movable} can move"),
        Place::Sealed => format!("sealed for {for_text}: its work is being finished"),
        Place::Leaving => format!("memory leaves for the host, for {for_text}"),
        Place::Out => {
            let by = if row.suspended { " (suspended)" } else { "" };
            format!("memory on the host for {for_text}{by}: {away}")
        }
        Place::Entering => format!("memory comes back, for {for_text}"),
        _ => "memory in a place that this version does not know".to_owned(),
    };
    match stays(&row.residue) {
        Some(stays) => format!("{place}; {stays}"),
        None => place,
    }
}

/// The memory that cannot move, with its reasons; `None` if all memory can move.
pub(crate) fn stays(residue: &Residue) -> Option<String> {
    let parts = parts(residue).into_iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<String> = parts
        .map(|(reason, bytes)| format!("{reason} {}", human(bytes)))
        .collect();
    (!parts.is_empty()).then(|| format!("{} cannot ({})", human(residue.total()), parts.join(", ")))
}

fn parts(residue: &Residue) -> [(&'static str, u64); 6] {
    [
        ("small", residue.small),
        ("arrays", residue.arrays),
        ("pools", residue.pools),
        ("handles", residue.handles),
        ("shared", residue.shared),
        ("managed", residue.managed),
    ]
}

fn human(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes => Bytes(bytes).human(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: Place, suspended: bool, residue: Residue) -> ResidencyRow {
        ResidencyRow {
            name: "job".to_owned(),
            device: [7; 16],
            place,
            for_ms: 3_000,
            suspended,
            movable: 1 << 30,
            away: 1 << 29,
            host: 1 << 30,
            residue,
            left: 2,
            moved: 5 << 30,
        }
    }

    #[test]
    fn a_line_says_where_memory_is_and_what_cannot_move_and_why() {
        let residue = Residue {
            small: 2 << 20,
            pools: 1 << 20,
            ..Residue::default()
        };
        assert_eq!(
            text(&row(Place::Out, true, residue)),
            "memory on the host for 3 s (suspended): 512 MiB; 3 MiB cannot (small 2 MiB, pools 1 MiB)"
        );
        assert_eq!(
            text(&row(Place::In, false, Residue::default())),
            "memory on the GPU for 3 s: 1 GiB can move"
        );
    }

    #[test]
    fn a_row_is_found_by_tenant_and_device() {
        let rows = [row(Place::In, false, Residue::default())];
        assert!(of(&rows, ("job", [7; 16])).is_some());
        assert!(of(&rows, ("job", [8; 16])).is_none());
        assert!(of(&rows, ("other", [7; 16])).is_none());
    }
}
