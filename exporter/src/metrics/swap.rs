//! Metrics of memory that moves between the devices and the host.

use std::collections::BTreeSet;

use gpushare_protocol::wire::{Place, ResidencyRow, SwapRoom, TenantSwaps};

use super::used::Used;
use super::{Labels, Places, each};
use crate::snapshot::Snapshot;
use crate::text::{Family, Kind, Sample, Value};

pub(super) fn families(snapshot: &Snapshot, places: &Places, used: &Used<'_>) -> Vec<Family> {
    let mut all = room(snapshot.room.as_ref());
    all.extend(moves(&snapshot.residency, places, used));
    all.push(in_files(&snapshot.swaps));
    all.push(refused(snapshot, places));
    all.extend(moved(&snapshot.swaps, places, used));
    all.push(took(&snapshot.swaps, places, used));
    all
}

/// A metric of the node's room: its name, its help and its field.
type Room = (&'static str, &'static str, fn(&SwapRoom) -> u64);

const ROOM: [Room; 4] = [
    (
        "gpushare_swap_host_capacity_bytes",
        "Host memory that tenants whose memory is away may have together.",
        |row| row.host,
    ),
    (
        "gpushare_swap_host_used_bytes",
        "Host memory that tenants have for memory that is away, or may be.",
        |row| row.host_used,
    ),
    (
        "gpushare_swap_files_capacity_bytes",
        "Bytes that may lie in files of the node's folder.",
        |row| row.files,
    ),
    (
        "gpushare_swap_files_used_bytes",
        "Bytes of files of the node's folder that tenants have, also in advance.",
        |row| row.files_used,
    ),
];

fn room(room: Option<&SwapRoom>) -> Vec<Family> {
    let family = |(name, help, field): Room| {
        each(name, help, Kind::Gauge, room, |row| {
            Some((Labels::new(), Value::Count(field(row))))
        })
    };
    ROOM.into_iter().map(family).collect()
}

/// A metric of a tenant whose memory can move.
type Move = (&'static str, &'static str, Kind, fn(&ResidencyRow) -> u64);

const MOVES: [Move; 7] = [
    (
        "gpushare_tenant_memory_movable_bytes",
        "Memory of the tenant that can move to the host, wherever it is now.",
        Kind::Gauge,
        |row| row.movable,
    ),
    (
        "gpushare_tenant_memory_swapped_bytes",
        "Memory of the tenant that is off the device: on the host or in files.",
        Kind::Gauge,
        |row| row.away,
    ),
    (
        "gpushare_tenant_memory_host_bytes",
        "Host memory that is set aside for the tenant.",
        Kind::Gauge,
        |row| row.host,
    ),
    (
        "gpushare_tenant_memory_fixed_bytes",
        "Memory of the tenant that cannot move; a bound.",
        Kind::Gauge,
        |row| row.residue.total(),
    ),
    (
        "gpushare_tenant_suspended",
        "Whether a command holds the tenant's memory off the device: 2, or it is away for others: 1.",
        Kind::Gauge,
        |row| match (row.suspended, row.place) {
            (true, Place::Out) => 2,
            (false, Place::Out) => 1,
            _ => 0,
        },
    ),
    (
        "gpushare_tenant_swaps",
        "Times that the tenant's memory left the device.",
        Kind::Counter,
        |row| row.left,
    ),
    (
        "gpushare_tenant_swap_bytes",
        "Bytes that moved between the device and the host, both ways.",
        Kind::Counter,
        |row| row.moved,
    ),
];

fn moves(rows: &[ResidencyRow], places: &Places, used: &Used<'_>) -> Vec<Family> {
    let told = || rows.iter().filter(|row| used.has(&row.name, row.device));
    let family = |(name, help, kind, field): Move| {
        each(name, help, kind, told(), |row| {
            let labels = places.tenant(&row.name, row.device)?;
            Some((labels, Value::Count(field(row))))
        })
    };
    MOVES.into_iter().map(family).collect()
}

/// Memory in files. A file holds memory of any of its tenant's devices.
fn in_files(rows: &[TenantSwaps]) -> Family {
    let mut seen = BTreeSet::new();
    let first: Vec<&TenantSwaps> = rows.iter().filter(|row| seen.insert(&row.name)).collect();
    each(
        "gpushare_tenant_memory_spilled_bytes",
        "The part of the tenant's memory off its devices that is in files and not in host memory.",
        Kind::Gauge,
        first,
        |row| {
            let labels = vec![("tenant", row.name.clone())];
            Some((labels, Value::Count(row.in_files)))
        },
    )
}

/// Nothing where no memory moves.
fn refused(snapshot: &Snapshot, places: &Places) -> Family {
    let rows = snapshot.counted.iter().filter(|_| snapshot.room.is_some());
    each(
        "gpushare_swap_host_full",
        "Times that no tenant could be moved off the device because the room for memory off the devices was used up; told at most once a minute.",
        Kind::Counter,
        rows,
        |row| {
            Some((
                places.device(row.device)?,
                Value::Count(row.refused.host_full),
            ))
        },
    )
}

fn moved(rows: &[TenantSwaps], places: &Places, used: &Used<'_>) -> [Family; 2] {
    let told = || rows.iter().filter(|row| used.has(&row.name, row.device));
    let family = |name, help, bytes: fn(&TenantSwaps) -> u64| {
        each(name, help, Kind::Counter, told(), |row| {
            let labels = places.tenant(&row.name, row.device)?;
            Some((labels, Value::Count(bytes(row))))
        })
    };
    [
        family(
            "gpushare_swap_out_bytes",
            "Bytes of the tenant that left the device.",
            |row| row.out_bytes,
        ),
        family(
            "gpushare_swap_in_bytes",
            "Bytes of the tenant that came back to the device.",
            |row| row.in_bytes,
        ),
    ]
}

fn took(rows: &[TenantSwaps], places: &Places, used: &Used<'_>) -> Family {
    let told = rows.iter().filter(|row| used.has(&row.name, row.device));
    let samples = told.flat_map(|row| {
        let times = [("out", row.out_times), ("in", row.in_times)];
        times.into_iter().filter_map(|(direction, times)| {
            let labels = places.tenant(&row.name, row.device)?.into_iter();
            let direction = ("direction", direction.to_owned());
            Some(Sample {
                labels: labels.chain([direction]).collect(),
                value: Value::Times(times),
            })
        })
    });
    Family {
        name: "gpushare_swap_seconds",
        help: "How long moves of the tenant's memory took: out, from the order until the device showed it free; in, until its programs ran.",
        kind: Kind::Histogram,
        samples: samples.collect(),
    }
}
