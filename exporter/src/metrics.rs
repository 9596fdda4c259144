//! The metrics: their names, labels and meanings. A name that is published stays.
//!
//! Labels are `tenant`, `gpu` (its place in the daemon's list) and `gpu_uuid`, `reason`, `kind`
//! (of events) and `direction`; never `container`, `pod` or `namespace`, which a scrape adds by
//! itself. Only `gpushare_tenant_info` names the pod.

mod node;
mod swap;
mod tenant;
mod used;

pub use used::Used;

use std::collections::BTreeMap;

use crate::snapshot::{Snapshot, device_name};
use crate::text::{Family, Kind, Sample, Value};

/// Labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// All metrics of a daemon, or that there is none.
#[must_use]
pub fn families(snapshot: Option<&Snapshot>) -> Vec<Family> {
    let up = u64::from(snapshot.is_some());
    let mut all = vec![one(
        "gpushare_daemon_up",
        "Whether the daemon answers.",
        Kind::Gauge,
        Value::Count(up),
    )];
    if let Some(snapshot) = snapshot {
        let places = Places::of(snapshot);
        all.extend(node::families(snapshot, &places));
        let used = Used::of(snapshot);
        all.extend(tenant::families(snapshot, &places, &used));
        all.extend(swap::families(snapshot, &places, &used));
    }
    all
}

/// How devices are labelled.
struct Places(BTreeMap<[u8; 16], Labels>);

impl Places {
    fn of(snapshot: &Snapshot) -> Self {
        let all = snapshot.devices.iter().enumerate();
        let labels = |(at, row)| {
            vec![
                ("gpu", usize::to_string(&at)),
                ("gpu_uuid", device_name(row)),
            ]
        };
        Self(all.map(|(at, row)| (row.uuid, labels((at, row)))).collect())
    }

    /// `None` of a device that is not in the daemon's list: a sample without it would be another
    /// series, and that of two such devices the same one.
    fn device(&self, uuid: [u8; 16]) -> Option<Labels> {
        self.0.get(&uuid).cloned()
    }

    fn reason(&self, uuid: [u8; 16], reason: &str) -> Option<Labels> {
        let reason = std::iter::once(("reason", reason.to_owned()));
        Some(self.device(uuid)?.into_iter().chain(reason).collect())
    }

    fn tenant(&self, name: &str, uuid: [u8; 16]) -> Option<Labels> {
        let tenant = std::iter::once(("tenant", name.to_owned()));
        Some(tenant.chain(self.device(uuid)?).collect())
    }
}

/// A family of rows: a sample for each row that has a value.
fn each<'a, R>(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    rows: impl IntoIterator<Item = &'a R>,
    sample: impl Fn(&R) -> Option<(Labels, Value)>,
) -> Family
where
    R: 'a,
{
    let samples = rows.into_iter().filter_map(sample);
    Family {
        name,
        help,
        kind,
        samples: samples
            .map(|(labels, value)| Sample { labels, value })
            .collect(),
    }
}

/// A family of one value.
fn one(name: &'static str, help: &'static str, kind: Kind, value: Value) -> Family {
    each(name, help, kind, [&value], |value| {
        Some((Labels::new(), *value))
    })
}
