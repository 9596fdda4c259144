//! The answer of `why`, from facts. Pure.

use super::{past, status};
use gpushare_protocol::wire::{
    EndRow, EventRecord, ResidencyRow, ShareRow, TenantRow, TenantStatusRow, TenantSwaps,
};
use std::collections::BTreeMap;

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
    /// Names of devices.
    pub(super) devices: BTreeMap<[u8; 16], String>,
    /// Events of all tenants of that name, oldest first.
    pub(super) past: Vec<EventRecord>,
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
    /// It runs, and nothing holds it up.
    Running,
    /// It has ended.
    Gone,
    /// No daemon has it, and no journal mentions it.
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
    let now = status::now(facts);
    let life = past::life(&facts.past, now.is_some());
    let (state, mut sentences) = now.unwrap_or_else(|| past::gone(facts, life));
    sentences.extend(past::refusals(facts, life));
    sentences.extend(past::overruns(life));
    sentences.extend(past::moves(life));
    if state != State::Gone {
        sentences.extend(past::warned(life));
    }
    Answer { state, sentences }
}

impl Facts {
    /// A device's name.
    pub(super) fn device(&self, uuid: [u8; 16]) -> &str {
        self.devices.get(&uuid).map_or("a device", String::as_str)
    }
}

#[cfg(test)]
mod tests;
