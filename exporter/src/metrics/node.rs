//! Metrics of the daemon and of its devices.

use gpushare_protocol::wire::{
    DeviceMetrics, DeviceRow, EventCountRow, NodeMetrics, QueuedTenant, Refusals,
};

use super::{Labels, Places, each, one};
use crate::snapshot::Snapshot;
use crate::text::{Family, Kind, Sample, Value};

pub(super) fn families(snapshot: &Snapshot, places: &Places) -> Vec<Family> {
    let node = snapshot.node.as_ref();
    let mut all = node.map_or_else(Vec::new, |node| of_daemon(node, snapshot));
    all.push(events(&snapshot.event_counts));
    all.extend(of_devices(snapshot, places));
    all.extend(counted(&snapshot.counted, places));
    all.push(refused(&snapshot.counted, places));
    all
}

fn of_daemon(node: &NodeMetrics, snapshot: &Snapshot) -> Vec<Family> {
    let build = |node: &NodeMetrics| {
        let labels = vec![
            ("version", node.version.clone()),
            ("driver_version", node.driver.clone()),
        ];
        Some((labels, Value::Count(1)))
    };
    let ended = [
        ("collision", node.ended_collision),
        ("idle_end", node.ended_idle),
        ("run_limit", node.ended_run_limit),
        ("unmanaged", node.ended_unmanaged),
        ("command", node.ended_command),
    ];
    vec![
        each(
            "gpushare_build",
            "The daemon's version and the driver's.",
            Kind::Info,
            [node],
            build,
        ),
        one(
            "gpushare_daemon_uptime_seconds",
            "Time since the daemon started.",
            Kind::Gauge,
            Value::Time(node.up_ms.saturating_mul(1_000_000)),
        ),
        one(
            "gpushare_admission_queued",
            "Tenants that wait for admission, because their request does not fit.",
            Kind::Gauge,
            Value::Count(node.queued.into()),
        ),
        one(
            "gpushare_admission_oldest_wait_seconds",
            "How long the tenant has waited that waits longest for admission; 0: none waits.",
            Kind::Gauge,
            Value::Time(oldest(&snapshot.queued)),
        ),
        one(
            "gpushare_admission_wait_seconds",
            "Time from a tenant's registration to its admission.",
            Kind::Histogram,
            Value::Times(node.admissions),
        ),
        each(
            "gpushare_ended",
            "Tenants that the daemon told to end, and processes of no tenant that it ended, by reason.",
            Kind::Counter,
            &ended,
            |(reason, count)| {
                let labels = vec![("reason", (*reason).to_owned())];
                Some((labels, Value::Count(*count)))
            },
        ),
    ]
}

/// The longest of present waits for admission, in nanoseconds.
fn oldest(queued: &[QueuedTenant]) -> u64 {
    let longest = queued.iter().map(|row| row.for_ms).max();
    longest.unwrap_or(0).saturating_mul(1_000_000)
}

/// All kinds from the beginning: a series that begins above 0 does not increase.
fn events(rows: &[EventCountRow]) -> Family {
    each(
        "gpushare_events",
        "Events of the daemon, by kind, also those that were left out because there were too many.",
        Kind::Counter,
        rows,
        |row| Some((vec![("kind", row.kind.clone())], Value::Count(row.count))),
    )
}

/// A metric of a device in bytes: its name, its help and its field.
type Bytes = (&'static str, &'static str, fn(&DeviceRow) -> u64);

const BYTES: [Bytes; 6] = [
    (
        "gpushare_gpu_memory_capacity_bytes",
        "Memory of the device that processes can use.",
        |row| row.capacity,
    ),
    (
        "gpushare_gpu_memory_reserved_bytes",
        "Memory that is kept back from tenants.",
        |row| row.reserve,
    ),
    (
        "gpushare_gpu_memory_granted_bytes",
        "Memory that tenants may charge without asking, less what of it is off the device.",
        |row| row.granted,
    ),
    (
        "gpushare_gpu_memory_overhead_bytes",
        "Memory of contexts and modules, measured or reserved.",
        |row| row.overhead,
    ),
    (
        "gpushare_gpu_memory_limbo_bytes",
        "Memory of dead processes that the driver has not given back.",
        |row| row.limbo,
    ),
    (
        "gpushare_gpu_memory_unmanaged_bytes",
        "Memory of processes that belong to no tenant.",
        |row| row.unmanaged,
    ),
];

fn of_devices(snapshot: &Snapshot, places: &Places) -> Vec<Family> {
    let driver = snapshot.node.as_ref().map(|node| node.driver.clone());
    let driver = driver.unwrap_or_default();
    let info = each(
        "gpushare_gpu",
        "A device that the daemon divides.",
        Kind::Info,
        &snapshot.devices,
        |row| {
            let more = [
                ("model", row.name.clone()),
                ("driver_version", driver.clone()),
            ];
            let labels = places.device(row.uuid)?.into_iter().chain(more);
            Some((labels.collect(), Value::Count(1)))
        },
    );
    let bytes = BYTES.map(|(name, help, field)| {
        each(name, help, Kind::Gauge, &snapshot.devices, |row| {
            Some((places.device(row.uuid)?, Value::Count(field(row))))
        })
    });
    let lost = each(
        "gpushare_gpu_lost",
        "Whether the device does not answer any more: nothing can run there until the daemon is started again with it.",
        Kind::Gauge,
        &snapshot.devices,
        |row| Some((places.device(row.uuid)?, Value::Count(row.is_lost().into()))),
    );
    let mut all = vec![info, lost];
    all.extend(bytes);
    all.push(each(
        "gpushare_gpu_memory_excess_bytes",
        "Memory that tenants hold beyond what they may, by ways that are not accounted.",
        Kind::Gauge,
        &snapshot.devices,
        |row| {
            let excess = snapshot.excess_on(row.uuid);
            Some((places.device(row.uuid)?, Value::Count(excess)))
        },
    ));
    all
}

fn counted(rows: &[DeviceMetrics], places: &Places) -> Vec<Family> {
    let sample = |of: fn(&DeviceMetrics) -> Value| {
        move |row: &DeviceMetrics| Some((places.device(row.device)?, of(row)))
    };
    let with =
        |row: &DeviceMetrics, reason: &str| -> Option<Labels> { places.reason(row.device, reason) };
    let mut idle = each(
        "gpushare_gpu_idle_while_wanted_seconds",
        "Time in which no tenant had work on the device although one waited at its gate: for its hard cap (cap), or held for another (hold).",
        Kind::Counter,
        rows,
        |row| Some((with(row, "cap")?, Value::Time(row.idle_capped_ns))),
    );
    let held = rows.iter().filter_map(|row| {
        Some(Sample {
            labels: with(row, "hold")?,
            value: Value::Time(row.idle_held_ns),
        })
    });
    idle.samples.extend(held);
    vec![
        idle,
        each(
            "gpushare_gpu_handoff_seconds",
            "In exclusive turns: time from the end of a turn, or the order to stop, to the next tenant's turn.",
            Kind::Histogram,
            rows,
            sample(|row| Value::Times(row.handoffs)),
        ),
        each(
            "gpushare_unmanaged_processes",
            "Processes that compute on the device, belong to no tenant, and are neither spared nor allowed.",
            Kind::Gauge,
            rows,
            sample(|row| Value::Count(row.unmanaged.into())),
        ),
        each(
            "gpushare_nvml_errors",
            "Looks at the device that failed, and seconds in which one did not end that took longer than 10 s.",
            Kind::Counter,
            rows,
            sample(|row| Value::Count(row.look_failures)),
        ),
        each(
            "gpushare_gpu_moving_seconds",
            "Time in which memory of tenants was on its way to or from the device; moves at the same time count once.",
            Kind::Counter,
            rows,
            sample(|row| Value::Time(row.moving_ns)),
        ),
    ]
}

/// Why an allocation was refused, and how often.
type Reason = (&'static str, fn(&Refusals) -> u64);

const REASONS: [Reason; 4] = [
    ("limit", |row| row.limit),
    ("wait_timeout", |row| row.wait_timeout),
    ("no_room", |row| row.no_room),
    ("driver", |row| row.driver),
];

fn refused(rows: &[DeviceMetrics], places: &Places) -> Family {
    let samples = rows.iter().flat_map(|row| {
        REASONS.into_iter().filter_map(|(reason, count)| {
            Some(Sample {
                labels: places.reason(row.device, reason)?,
                value: Value::Count(count(&row.refused)),
            })
        })
    });
    Family {
        name: "gpushare_gpu_allocations_refused",
        help: "Allocations that were refused on the device, also to tenants that have ended.",
        kind: Kind::Counter,
        samples: samples.collect(),
    }
}
