//! Metrics of tenants.

use gpushare_protocol::wire::{PodRow, ProcessState, ShareRow, TenantMetrics, TenantRow};

use super::used::Used;
use super::{Labels, Places, each};
use crate::snapshot::{Snapshot, due};
use crate::text::{Family, Kind, Sample, Value};

pub(super) fn families(snapshot: &Snapshot, places: &Places, used: &Used<'_>) -> Vec<Family> {
    let mut all = vec![info(snapshot)];
    all.extend(memory(&snapshot.tenants, &MAY, |_| true, places));
    let holds = |row: &TenantRow| used.has(&row.name, row.device);
    all.extend(memory(&snapshot.tenants, &HOLDS, holds, places));
    all.push(excess(snapshot, places, used));
    all.extend(measured(&snapshot.measures, places, used));
    all.push(busy(&snapshot.measures, places, used));
    all.extend(shares(snapshot, places, used));
    all
}

fn info(snapshot: &Snapshot) -> Family {
    each(
        "gpushare_tenant",
        "A tenant that may run, its user, its container's cgroup and its pod.",
        Kind::Info,
        &snapshot.identities,
        |row| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let pod = snapshot.pods.iter().find(|pod| pod.name == row.name);
            let of_pod = |field: fn(&PodRow) -> &str| pod.map_or("", field).to_owned();
            let labels = vec![
                ("tenant", row.name.clone()),
                ("uid", text(&row.owner.map(|uid| uid.to_string()))),
                ("namespace", of_pod(|pod| &pod.namespace)),
                ("pod", of_pod(|pod| &pod.pod)),
                ("pod_container", of_pod(|pod| &pod.container)),
                ("cgroup", text(&row.cgroup)),
            ];
            Some((labels, Value::Count(1)))
        },
    )
}

/// A metric of a row: its name, its help, and its value.
type Gauge<R> = (&'static str, &'static str, fn(&R) -> u64);

/// The amounts that a tenant may have, also on a device that it never used.
const MAY: [Gauge<TenantRow>; 4] = [
    (
        "gpushare_tenant_memory_limit_bytes",
        "The most that the tenant may charge.",
        |row| row.limit,
    ),
    (
        "gpushare_tenant_memory_request_bytes",
        "The part of the tenant's memory that is guaranteed.",
        |row| row.request,
    ),
    (
        "gpushare_tenant_memory_grant_bytes",
        "What the tenant may charge without asking.",
        |row| row.grant,
    ),
    (
        "gpushare_tenant_memory_charged_bytes",
        "What the tenant's processes have charged.",
        |row| row.charged,
    ),
];

/// The amounts that a tenant has and uses.
const HOLDS: [Gauge<TenantRow>; 4] = [
    (
        "gpushare_tenant_memory_overhead_bytes",
        "Memory of the tenant's contexts and modules, measured or reserved.",
        |row| row.overhead,
    ),
    (
        "gpushare_tenant_memory_limbo_bytes",
        "Memory of the tenant's dead processes that the driver has not given back.",
        |row| row.limbo,
    ),
    (
        "gpushare_tenant_processes",
        "Processes of the tenant that use the library, the same on each device that it has used.",
        |row| row.processes.len() as u64,
    ),
    (
        "gpushare_tenant_allocations_waiting",
        "Processes of the tenant whose allocation waits for memory.",
        |row| {
            let waits = |state: &ProcessState| matches!(state, ProcessState::Waiting(_));
            let processes = row.processes.iter();
            processes.filter(|process| waits(&process.state)).count() as u64
        },
    ),
];

fn memory(
    rows: &[TenantRow],
    gauges: &[Gauge<TenantRow>],
    is_told: impl Fn(&TenantRow) -> bool,
    places: &Places,
) -> Vec<Family> {
    let gauge = |(name, help, field): &Gauge<TenantRow>| {
        let told = rows.iter().filter(|row| is_told(row));
        each(name, help, Kind::Gauge, told, |row| {
            let labels = places.tenant(&row.name, row.device)?;
            Some((labels, Value::Count(field(row))))
        })
    };
    gauges.iter().map(gauge).collect()
}

fn excess(snapshot: &Snapshot, places: &Places, used: &Used<'_>) -> Family {
    each(
        "gpushare_tenant_memory_excess_bytes",
        "Memory that the tenant holds beyond its grant and its overhead, by ways that are not accounted.",
        Kind::Gauge,
        &snapshot.tenants,
        |row| {
            let labels = places.tenant(&row.name, row.device)?;
            let excess = snapshot.excess_of(&row.name, row.device);
            let is_told = excess > 0 || used.has(&row.name, row.device);
            is_told.then_some((labels, Value::Count(excess)))
        },
    )
}

fn busy(rows: &[TenantMetrics], places: &Places, used: &Used<'_>) -> Family {
    each(
        "gpushare_tenant_busy_seconds",
        "Time in which kernels of the tenant's processes ran, each process's added up, by NVML's samples: also while it is alone and not billed.",
        Kind::Counter,
        rows.iter().filter(|row| used.has(&row.name, row.device)),
        |row| {
            Some((
                places.tenant(&row.name, row.device)?,
                Value::Time(row.busy_ns?),
            ))
        },
    )
}

/// A metric of what is counted: its name, its help, its kind and its value.
type Measure = (
    &'static str,
    &'static str,
    Kind,
    fn(&TenantMetrics) -> Value,
);

const MEASURES: [Measure; 7] = [
    (
        "gpushare_tenant_memory_peak_bytes",
        "The most that was charged at once, as granted and as read every second.",
        Kind::Gauge,
        |row| Value::Count(row.peak),
    ),
    (
        "gpushare_tenant_allocation_wait_seconds",
        "How long allocations waited for memory, of those that had to.",
        Kind::Histogram,
        |row| Value::Times(row.allocation_waits),
    ),
    (
        "gpushare_tenant_gpu_seconds",
        "Device time that the tenant was billed for. A tenant alone on a device without a cap is not billed.",
        Kind::Counter,
        |row| Value::Time(row.gpu_ns),
    ),
    (
        "gpushare_tenant_gate_wait_seconds",
        "Time in which the tenant's gate was closed while it wanted the device.",
        Kind::Counter,
        |row| Value::Time(row.gate_waits.sum_ns.saturating_add(row.waiting_ns)),
    ),
    (
        "gpushare_tenant_gate_closed_seconds",
        "How long the tenant's gate was closed while it wanted the device, each time.",
        Kind::Histogram,
        |row| Value::Times(row.gate_waits),
    ),
    (
        "gpushare_tenant_turns",
        "Turns that the tenant was given; on a shared device, times it was held.",
        Kind::Counter,
        |row| Value::Count(row.turns),
    ),
    (
        "gpushare_tenant_overruns",
        "Times that the tenant had not drained when it should have.",
        Kind::Counter,
        |row| Value::Count(row.overruns),
    ),
];

/// Why an allocation was refused, and how often.
type Reason = (&'static str, fn(&TenantMetrics) -> u64);

const REASONS: [Reason; 4] = [
    ("limit", |row| row.refused_limit),
    ("wait_timeout", |row| row.refused_wait_timeout),
    ("no_room", |row| row.refused_no_room),
    ("driver", |row| row.refused_driver),
];

fn measured(rows: &[TenantMetrics], places: &Places, used: &Used<'_>) -> Vec<Family> {
    let told = || rows.iter().filter(|row| used.has(&row.name, row.device));
    let refused = told().flat_map(|row| {
        REASONS.into_iter().filter_map(|(reason, count)| {
            let labels = places.tenant(&row.name, row.device)?.into_iter();
            Some(Sample {
                labels: labels.chain([("reason", reason.to_owned())]).collect(),
                value: Value::Count(count(row)),
            })
        })
    });
    let refused = Family {
        name: "gpushare_tenant_allocations_refused",
        help: "Allocations that were refused: for the tenant's limit, after a wait, without room, or by the driver.",
        kind: Kind::Counter,
        samples: refused.collect(),
    };
    let rest = MEASURES.into_iter().map(|(name, help, kind, field)| {
        each(name, help, kind, told(), |row| {
            Some((places.tenant(&row.name, row.device)?, field(row)))
        })
    });
    std::iter::once(refused).chain(rest).collect()
}

fn shares(snapshot: &Snapshot, places: &Places, used: &Used<'_>) -> Vec<Family> {
    let told = snapshot.shares.iter();
    let ungated = told.filter(|row| used.has(&row.name, row.device) || row.ungated > 0);
    let labels = |row: &ShareRow| -> Option<Labels> { places.tenant(&row.name, row.device) };
    let part = |part: u32| Value::Permille(part.into());
    vec![
        each(
            "gpushare_tenant_share_ratio",
            "The part of the device's time that the tenant is due while all of its priority or a higher one want it, 0 where a higher one leaves it nothing; none while it has no process there.",
            Kind::Gauge,
            &snapshot.shares,
            |row| Some((labels(row)?, part(due(row)?))),
        ),
        each(
            "gpushare_tenant_cap_ratio",
            "The tenant's hard cap of the device's time, if it has one.",
            Kind::Gauge,
            &snapshot.shares,
            |row| Some((labels(row)?, part(row.cap?))),
        ),
        each(
            "gpushare_tenant_ungated_processes",
            "Processes of the tenant whose work on the device cannot be held back.",
            Kind::Gauge,
            ungated,
            |row| Some((labels(row)?, Value::Count(row.ungated.into()))),
        ),
        each(
            "gpushare_tenant_mps",
            "1 for a tenant that has clients of MPS, which shares their time: they count as ungated, too.",
            Kind::Gauge,
            &snapshot.mps,
            |name| Some((vec![("tenant", name.clone())], Value::Count(1))),
        ),
        each(
            "gpushare_tenant_ends_in_seconds",
            "Time until the tenant is ended by its idle end or run limit, unless something changes; of one that is being ended, until SIGKILL.",
            Kind::Gauge,
            &snapshot.ends,
            |row| {
                let labels = vec![("tenant", row.name.clone())];
                Some((labels, Value::Time(row.in_ms.saturating_mul(1_000_000))))
            },
        ),
    ]
}
