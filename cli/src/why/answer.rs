//! The answer of `why`, from facts. Pure.

use super::{past, refused, status};
use crate::daemon::Holder;
use crate::ps;
use gpushare_protocol::wire::{
    DeviceRow, EndRow, EventRecord, ExcessRow, ResidencyRow, ShareRow, TenantRow, TenantStatusRow,
    TenantSwaps,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Everything that is known.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The tenant that is asked about.
    pub(super) name: String,
    /// The time from which on events are known, in milliseconds since 1970.
    pub(super) since_ms: u64,
    /// All tenants' accounts.
    pub(super) tenants: Vec<TenantRow>,
    pub(super) shares: Vec<ShareRow>,
    pub(super) ends: Vec<EndRow>,
    pub(super) status: Vec<TenantStatusRow>,
    pub(super) residency: Vec<ResidencyRow>,
    pub(super) swaps: Vec<TenantSwaps>,
    /// The books of devices.
    pub(super) rows: Vec<DeviceRow>,
    /// The memory that tenants hold beyond their grants.
    pub(super) excess: Vec<ExcessRow>,
    /// Names of devices.
    pub(super) devices: BTreeMap<[u8; 16], String>,
    /// Those that do not answer any more.
    pub(super) lost: BTreeSet<[u8; 16]>,
    /// Its devices, where it has no daemon and its books are files.
    pub(super) in_files: Vec<InFiles>,
    /// Folders of daemons that do not serve and had it, where programs of it live.
    /// With the process of one that does not answer.
    pub(super) unserved: Vec<(PathBuf, Option<Holder>)>,
    /// How many other daemons have a tenant of that name.
    pub(super) others: usize,
    /// The daemon that has it.
    pub(super) instance: u64,
    /// Events of all tenants of that name, in the order in which they happened.
    pub(super) past: Vec<EventRecord>,
}

/// A device of a tenant without a daemon. Bytes.
#[derive(Clone, Debug)]
pub(super) struct InFiles {
    /// The device's UUID, in words.
    pub(super) device: String,
    pub(super) processes: usize,
    pub(super) charged: u64,
    pub(super) limit: Option<u64>,
}

impl InFiles {
    pub(super) fn of(row: &ps::Row) -> Self {
        Self {
            device: row.device.clone(),
            processes: row.processes.len(),
            charged: row.charged,
            limit: row.limit,
        }
    }
}

/// A tenant's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for its admission.
    Queued,
    /// An allocation of it waits.
    Waiting,
    /// Its memory is off the device, or on its way.
    Out,
    /// It is kept from the device for a while.
    Throttled,
    /// Its calls on a device fail, because the device does not answer any more.
    Lost,
    /// It runs, and nothing holds it up.
    Running,
    /// It has ended.
    Gone,
    /// No serving daemon has it, and no journal tells its end.
    Unknown,
}

impl State {
    /// Its stable name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::Out => "out",
            Self::Throttled => "throttled",
            Self::Lost => "lost",
            Self::Running => "running",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// The answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) state: State,
    pub(super) sentences: Vec<String>,
}

/// The tenant's state, and sentences that explain it: the present first, then the past.
pub(super) fn answer(facts: &Facts) -> Answer {
    let lives = facts.has_it() || !facts.in_files.is_empty();
    let life = past::life(&facts.past, lives, facts.instance);
    let now = status::now(facts, &life).or_else(|| status::in_files(facts));
    let (state, mut sentences) = now.unwrap_or_else(|| past::gone(facts, &life));
    sentences.extend(refused::refusals(facts, &life));
    sentences.extend(past::overruns(&life));
    sentences.extend(past::moves(&life));
    if state != State::Gone {
        sentences.extend(past::warned(&life));
    }
    if facts.others > 0 {
        sentences.push(format!(
            "Another daemon has a tenant named {} too. This is about the first of them in `gpushare ps`; what was before its daemon started may be of either.",
            facts.name
        ));
    }
    Answer { state, sentences }
}

impl Facts {
    /// Whether the daemon has the tenant.
    pub(super) fn has_it(&self) -> bool {
        let mut names = self.tenants.iter().map(|row| &row.name);
        let mut queued = self.status.iter().map(|row| &row.name);
        queued.any(|name| *name == self.name) || names.any(|name| *name == self.name)
    }

    /// The daemon that has the tenant, if it admitted it, or was told of it, since `since_ms`: its
    /// events of this life are of the time that is asked for, whatever their label.
    pub(super) fn began_since(&self, now_ms: u64) -> Option<u64> {
        let row = self.status.iter().find(|row| row.name == self.name)?;
        let began = now_ms.saturating_sub(row.for_ms);
        (began >= self.since_ms).then_some(self.instance)
    }

    /// A device's name.
    pub(super) fn device(&self, uuid: [u8; 16]) -> &str {
        self.devices.get(&uuid).map_or("a device", String::as_str)
    }
}

#[cfg(test)]
mod tests;
