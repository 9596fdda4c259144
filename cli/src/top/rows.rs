//! The tenants as rows: what is shown of them, and in which order. No terminal, no clock.

use super::amounts::{bytes, count, percent, span, within};
use crate::residency;
use gpushare_exporter::{Had, Names, STRANDED, Snapshot, above_limit, due, without_use};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::{
    Identity, Place, ProcessState, ShareRow, ShareState, TenantMetrics, TenantRow,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A tenant on a device; a queued one is on none.
pub(super) type Key = (String, Option<[u8; 16]>);

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Memory,
    Time,
    Wait,
    Refused,
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Memory => Self::Time,
            Self::Time => Self::Wait,
            Self::Wait => Self::Refused,
            Self::Refused => Self::Name,
            Self::Name => Self::Memory,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Wait => "wait",
            Self::Refused => "refusals",
            Self::Name => "name",
        }
    }
}

/// A tenant as shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) key: Key,
    /// Its tenant as it is shown.
    pub(super) name: String,
    pub(super) user: String,
    pub(super) gpu: String,
    pub(super) memory: String,
    pub(super) request: String,
    pub(super) peak: String,
    pub(super) time: String,
    pub(super) wait: String,
    pub(super) refused: String,
    pub(super) state: String,
    /// Lines about its pod and its memory, and one for each process.
    pub(super) details: Vec<String>,
    /// Whether something is wrong or waited for.
    pub(super) alarms: bool,
    /// For sorting: memory, time, wait, refusals.
    order: (u64, u32, u64, u64),
}

/// Everything that rows are made of.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The names by which tenants are shown.
    pub(super) names: &'a Names,
    /// Waits at gates at the beginning of the time that is shown; `None`: it begins now.
    pub(super) waits_before: Option<&'a BTreeMap<Key, Histogram>>,
    /// Names of users.
    pub(super) users: &'a BTreeMap<u32, String>,
    /// Command lines of processes, by pid.
    pub(super) commands: &'a BTreeMap<u32, String>,
}

impl Facts<'_> {
    /// The rows whose tenant's name, pod or user contains the filter, in order.
    pub(super) fn rows(&self, filter: &str, sort: Sort) -> Vec<Row> {
        let tenants = self.snapshot.shown().into_iter();
        let tenants = tenants.map(|(row, more)| self.tenant(row, more));
        let queued = self.snapshot.queued.iter().map(|row| self.queued(row));
        let lost = self.snapshot.stranded().map(|one| self.stranded(one));
        let fits = |row: &Row| {
            let words = [&row.key.0, &row.name, &row.user];
            words.into_iter().any(|word| word.contains(filter))
        };
        let mut rows: Vec<Row> = tenants.chain(lost).chain(queued).filter(fits).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        if sort == Sort::Name {
            rows.sort_by(|a, b| a.name.cmp(&b.name));
        }
        rows.sort_by_key(|row| {
            let (memory, time, wait, refused) = row.order;
            Reverse(match sort {
                Sort::Memory => memory,
                Sort::Time => time.into(),
                Sort::Wait => wait,
                Sort::Refused => refused,
                Sort::Name => 0,
            })
        });
        rows
    }

    /// A tenant on a device; it may use so many `more`, and has not.
    fn tenant(&self, row: &TenantRow, more: usize) -> Row {
        let key = (row.name.clone(), Some(row.device));
        let measures = self.measures(row);
        let share = self.snapshot.share(&row.name, row.device);
        // MPS shares the time of its clients: they are billed nothing, and take no turns.
        let mps = self.snapshot.mps.contains(&row.name);
        let had = self.snapshot.had(&row.name, row.device);
        let had = had.filter(|_| !mps);
        let at = self.snapshot.ordinals().get(&row.device).copied();
        let waits = measures.map(|row| row.gate_waits).unwrap_or_default();
        let p99 = self.waits_before.and_then(|all| {
            let before = all.get(&key).copied().unwrap_or_default();
            waits.since(&before).quantile(990)
        });
        let refused = measures.map_or(0, |row| {
            let ours = row.refused_wait_timeout + row.refused_no_room;
            row.refused_limit + ours + row.refused_driver
        });
        let (state, alarms) = self.state(row, share);
        let owner = self.snapshot.identities.iter();
        let owner = owner
            .filter(|one| one.name == row.name)
            .find_map(|one| one.owner);
        Row {
            key,
            name: self.shown(&row.name),
            user: self.user(owner),
            gpu: at.map_or_else(|| "?".to_owned(), |at| at.to_string()),
            memory: format!("{}/{}", bytes(row.charged), bytes(row.limit)),
            request: bytes(row.request),
            peak: measures.map_or_else(dash, |row| bytes(row.peak)),
            time: share.map_or_else(dash, |share| time(share, had)),
            wait: p99.map_or_else(dash, within),
            refused: count(refused),
            state,
            details: self.details(row, had, more),
            alarms,
            order: (
                row.charged,
                had.map_or(0, |had| {
                    had.part.unwrap_or(if had.is_alone { 1000 } else { 0 })
                }),
                p99.unwrap_or(0),
                refused,
            ),
        }
    }

    fn shown(&self, tenant: &str) -> String {
        self.names.shown(tenant).to_owned()
    }

    fn measures(&self, row: &TenantRow) -> Option<&TenantMetrics> {
        let mut all = self.snapshot.measures.iter();
        all.find(|one| one.device == row.device && one.name == row.name)
    }

    fn user(&self, owner: Option<u32>) -> String {
        owner.map_or_else(dash, |uid| {
            let known = self.users.get(&uid).cloned();
            known.unwrap_or_else(|| uid.to_string())
        })
    }

    /// A tenant whose devices are all lost.
    fn stranded(&self, one: &Identity) -> Row {
        Row {
            key: (one.name.clone(), None),
            name: self.shown(&one.name),
            user: self.user(one.owner),
            gpu: dash(),
            memory: dash(),
            request: dash(),
            peak: dash(),
            time: dash(),
            wait: dash(),
            refused: dash(),
            state: STRANDED.to_owned(),
            alarms: true,
            ..Row::default()
        }
    }

    fn queued(&self, row: &gpushare_protocol::wire::QueuedTenant) -> Row {
        let short = match row.short {
            0 => String::new(),
            short => format!(" ({} short)", bytes(short)),
        };
        Row {
            key: (row.name.clone(), None),
            name: self.shown(&row.name),
            user: self.user(row.owner),
            gpu: "-".to_owned(),
            memory: format!("0/{}", bytes(row.limit)),
            request: bytes(row.request),
            peak: dash(),
            time: dash(),
            wait: dash(),
            refused: dash(),
            state: format!("queued {}{short}", span(row.for_ms)),
            details: Vec::new(),
            alarms: true,
            order: (0, 0, row.for_ms.saturating_mul(1_000_000), 0),
        }
    }

    /// A tenant's state in words, and whether it needs attention.
    fn state(&self, row: &TenantRow, share: Option<&ShareRow>) -> (String, bool) {
        let waits = row
            .processes
            .iter()
            .find_map(|process| match &process.state {
                ProcessState::Waiting(want) => Some(want),
                _ => None,
            });
        let mut end = self.snapshot.ends.iter().filter(|end| end.name == row.name);
        let ends = end.next().map(|end| match end.told {
            false => format!(" ends {}", span(end.in_ms)),
            true => " is being ended".to_owned(),
        });
        let ends = ends.unwrap_or_default();
        if let Some(want) = waits {
            let text = format!("waits {} {}{ends}", bytes(want.bytes), span(want.since_ms));
            return (text, true);
        }
        if let Some(text) = self.away(row) {
            return (format!("{text}{ends}"), false);
        }
        let idle = row
            .processes
            .iter()
            .filter_map(|process| match process.state {
                ProcessState::Idle { for_ms } => Some(for_ms),
                _ => None,
            });
        let idle: Vec<u64> = idle.collect();
        let all_idle = !idle.is_empty() && idle.len() == row.processes.len();
        let (what, alarms) = match share.map(|row| &row.state) {
            _ if row.processes.is_empty() => ("no process".to_owned(), false),
            _ if all_idle => {
                let least = idle.into_iter().min().unwrap_or(0);
                (format!("idle {}", span(least)), false)
            }
            Some(ShareState::Capped { .. }) => ("capped".to_owned(), true),
            Some(ShareState::Held { .. }) => ("held".to_owned(), false),
            Some(ShareState::Yielding { .. }) => ("yielding".to_owned(), false),
            Some(ShareState::Waiting { .. }) => ("waits for its turn".to_owned(), false),
            Some(ShareState::Draining { .. }) => ("draining".to_owned(), false),
            Some(ShareState::Free) => ("runs alone".to_owned(), false),
            _ => ("running".to_owned(), false),
        };
        (format!("{what}{ends}"), alarms)
    }

    /// Where its memory is, if that is not on the device.
    fn away(&self, row: &TenantRow) -> Option<String> {
        let own = self.snapshot.place(&row.name, row.device)?;
        let what = match own.place {
            Place::In | Place::Sealed if own.suspended => return Some("is to leave".to_owned()),
            Place::Out if own.suspended => "suspended",
            Place::Leaving => "moves out",
            Place::Out => "swapped out",
            Place::Entering => "moves in",
            _ => return None,
        };
        Some(format!("{what} {} {}", bytes(own.away), span(own.for_ms)))
    }

    fn details(&self, row: &TenantRow, had: Option<Had>, more: usize) -> Vec<String> {
        let place = self.snapshot.place(&row.name, row.device);
        let swaps = self.snapshot.swap(&row.name, row.device);
        let others = |place| residency::has_others(&self.snapshot.residency, place);
        let text = place.map(|place| residency::text(place, swaps, others(place)));
        let moved = place.and_then(|place| residency::moved(place, swaps));
        let pod = self.names.pod(&row.name).map(|pod| format!("pod {pod}"));
        let above = above_limit(row.charged, row.limit);
        let alone = had.filter(|had| had.is_alone).map(|had| {
            let part = match had.part {
                Some(_) => "its time is what NVML saw its kernels run",
                None => "NVML does not say whose kernels run here",
            };
            format!("alone on the GPU: nothing is billed, and {part}")
        });
        let lines = pod.into_iter().chain(above).chain(alone).chain(text);
        let lines = lines.chain(moved).chain(without_use(more));
        let lines = lines.map(|text| format!(" {text}"));
        let processes = row.processes.iter().map(|one| self.process(one));
        lines.chain(processes).collect()
    }

    fn process(&self, process: &gpushare_protocol::wire::ProcessRow) -> String {
        let command = self.commands.get(&process.pid).map_or("", String::as_str);
        format!(
            " pid {}  {}  {command}",
            process.pid,
            bytes(process.charged)
        )
    }
}

/// A tenant's part of the time: what it had, what it is due, and its cap. `had` is `None` of one
/// with MPS clients.
fn time(row: &ShareRow, had: Option<Had>) -> String {
    let cap = row.cap.map_or_else(dash, percent);
    let Some(had) = had else {
        return format!("mps/-/{cap}");
    };
    let due = due(row).map_or_else(dash, percent);
    let got = match (had.part, had.is_alone) {
        (Some(part), _) => percent(part),
        (None, true) => "alone".to_owned(),
        (None, false) => dash(),
    };
    format!("{got}/{due}/{cap}")
}

fn dash() -> String {
    "-".to_owned()
}
