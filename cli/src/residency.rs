//! Where a tenant's memory is, for a person and as data.

use crate::when::span;
use gpushare_client::{Talk, TalkError};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Place, ResidencyRow, Residue, SwapRow, TenantSwaps};
use serde_json::{Value, json};

/// The row of a tenant on a device.
pub(crate) fn of<'a>(
    rows: &'a [ResidencyRow],
    (name, device): (&str, [u8; 16]),
) -> Option<&'a ResidencyRow> {
    let mut rows = rows.iter();
    rows.find(|row| row.name == name && row.device == device)
}

/// Each tenant's moves.
pub(crate) fn swaps(daemon: &mut Talk) -> Result<Vec<TenantSwaps>, TalkError> {
    let rows = daemon.swaps()?.into_iter();
    let tenants = rows.filter_map(|row| match row {
        SwapRow::Tenant(row) => Some(row),
        _ => None,
    });
    Ok(tenants.collect())
}

/// A tenant's moves on a device.
pub(crate) fn swaps_of<'a>(
    rows: &'a [TenantSwaps],
    (name, device): (&str, [u8; 16]),
) -> Option<&'a TenantSwaps> {
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
pub(crate) fn data(row: &ResidencyRow, swaps: Option<&TenantSwaps>) -> Value {
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
        "moved_out": swaps.map(|swaps| swaps.out_bytes),
        "moved_in": swaps.map(|swaps| swaps.in_bytes),
        "in_files": swaps.map(|swaps| swaps.in_files),
    })
}

/// In a line of `ps`. `others`: whether its tenant has memory off other devices, too.
pub(crate) fn text(row: &ResidencyRow, swaps: Option<&TenantSwaps>, others: bool) -> String {
    let for_text = span(row.for_ms);
    let (away, movable) = (human(row.away), human(row.movable));
    let place = match row.place {
        Place::In => format!("memory on the GPU for {for_text}: {movable} can move"),
        Place::Sealed => format!("sealed for {for_text}: its work is being finished"),
        Place::Leaving => format!("memory leaves the GPU, for {for_text}"),
        Place::Out => {
            let by = if row.suspended { " (suspended)" } else { "" };
            let tier = tier(row, swaps, others);
            format!("memory off the GPU for {for_text}{by}: {away} {tier}")
        }
        Place::Entering => format!("memory comes back, for {for_text}"),
        _ => "memory in a place that this version does not know".to_owned(),
    };
    match stays(&row.residue) {
        Some(stays) => format!("{place}; {stays}"),
        None => place,
    }
}

/// Where memory is that is off the device: on the host, in files, or in both. Where its tenant has
/// memory off `others`, too, what is in files is known of all of them together.
pub(crate) fn tier(row: &ResidencyRow, swaps: Option<&TenantSwaps>, others: bool) -> String {
    match swaps.map_or(0, |swaps| swaps.in_files) {
        0 => "on the host".to_owned(),
        bytes if others => format!(
            "on the host or in files ({} in files, of all its GPUs)",
            human(bytes)
        ),
        bytes if bytes >= row.away => "in files".to_owned(),
        bytes => format!("on the host ({} of it in files)", human(bytes)),
    }
}

/// Whether a tenant has memory off another device than that of a row.
pub(crate) fn has_others(rows: &[ResidencyRow], row: &ResidencyRow) -> bool {
    let mut others = rows.iter();
    others.any(|one| one.name == row.name && one.device != row.device && one.away > 0)
}

/// The moves so far and how long they took, if there were any.
pub(crate) fn moved(row: &ResidencyRow, swaps: Option<&TenantSwaps>) -> Option<String> {
    let swaps = swaps.filter(|swaps| swaps.out_bytes + swaps.in_bytes > 0)?;
    let times = match row.left {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "left {times}: {} out{}, {} back{}",
        human(swaps.out_bytes),
        slowest(&swaps.out_times),
        human(swaps.in_bytes),
        slowest(&swaps.in_times)
    ))
}

/// The time that 99 % of moves do not exceed.
fn slowest(times: &Histogram) -> String {
    match times.quantile(990) {
        None => String::new(),
        Some(u64::MAX) => " (p99 > 5 min)".to_owned(),
        Some(ns) if ns < 1_000_000 => format!(" (p99 < {} us)", ns / 1_000),
        Some(ns) => format!(" (p99 < {})", span(ns / 1_000_000)),
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

    fn swaps(in_files: u64, out: &[u64], back: &[u64]) -> TenantSwaps {
        let times = |all: &[u64]| {
            let mut times = Histogram::default();
            all.iter().for_each(|ms| times.record(ms * 1_000_000));
            times
        };
        TenantSwaps {
            name: "job".to_owned(),
            device: [7; 16],
            out_bytes: (out.len() as u64) << 29,
            in_bytes: (back.len() as u64) << 29,
            out_times: times(out),
            in_times: times(back),
            in_files,
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
            text(&row(Place::Out, true, residue), None, false),
            "memory off the GPU for 3 s (suspended): 512 MiB on the host; 3 MiB cannot (small 2 MiB, pools 1 MiB)"
        );
        let plain = Residue::default();
        assert_eq!(
            text(
                &row(Place::In, false, plain),
                Some(&swaps(0, &[], &[])),
                false
            ),
            "memory on the GPU for 3 s: 1 GiB can move"
        );
        assert_eq!(
            text(
                &row(Place::Out, false, plain),
                Some(&swaps(64 << 20, &[9], &[])),
                false
            ),
            "memory off the GPU for 3 s: 512 MiB on the host (64 MiB of it in files)"
        );
        assert_eq!(
            text(
                &row(Place::Out, false, plain),
                Some(&swaps(512 << 20, &[9], &[])),
                false
            ),
            "memory off the GPU for 3 s: 512 MiB in files"
        );
    }

    #[test]
    fn a_line_says_what_has_moved_and_how_long_it_took() {
        let row = row(Place::In, false, Residue::default());
        assert_eq!(
            moved(&row, Some(&swaps(0, &[90, 900], &[200]))).as_deref(),
            Some("left 2 times: 1 GiB out (p99 < 1 s), 512 MiB back (p99 < 300 ms)")
        );
        assert_eq!(
            moved(&row, Some(&swaps(0, &[], &[]))),
            None,
            "nothing moved"
        );
        let mut short = swaps(0, &[0], &[]);
        short.out_times = Histogram::default();
        short.out_times.record(50_000);
        let told = moved(&row, Some(&short)).expect("it moved");
        assert!(told.contains("512 MiB out (p99 < 100 us)"), "{told}");
    }

    #[test]
    fn a_row_is_found_by_tenant_and_device() {
        let rows = [row(Place::In, false, Residue::default())];
        assert!(of(&rows, ("job", [7; 16])).is_some());
        assert!(of(&rows, ("job", [8; 16])).is_none());
        assert!(of(&rows, ("other", [7; 16])).is_none());
    }

    #[test]
    fn of_memory_off_several_gpus_no_line_says_that_its_own_is_in_files() {
        let plain = Residue::default();
        let rows = [1, 2].map(|device| ResidencyRow {
            device: [device; 16],
            ..row(Place::Out, false, plain)
        });
        // That of one GPU is in files, and that of the other one on the host.
        let (none, swaps) = (swaps(0, &[9], &[]), swaps(512 << 20, &[9], &[]));
        for row in &rows {
            let others = has_others(&rows, row);
            assert_eq!(
                text(row, Some(&swaps), others),
                "memory off the GPU for 3 s: 512 MiB on the host or in files (512 MiB in files, of all its GPUs)"
            );
        }
        assert!(!has_others(&rows[..1], &rows[0]));
        let mut all_on = rows.clone();
        all_on[1].away = 0;
        assert!(
            !has_others(&all_on, &all_on[0]),
            "the other's is on its GPU"
        );
        assert!(text(&rows[0], Some(&none), true).ends_with("512 MiB on the host"));
    }
}
