//! All that a daemon tells at one time.

use std::collections::{BTreeMap, BTreeSet};

use crate::metrics::Used;
use gpushare_client::{Talk, TalkError};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    DeviceMetrics, DeviceRow, EndRow, EventCountRow, ExcessRow, HealthRow, Identity, MetricsRow,
    NodeMetrics, PodRow, QueuedTenant, ResidencyRow, ShareRow, ShareState, SharingRow, SwapRoom,
    SwapRow, TenantMetrics, TenantRow, TenantSwaps,
};

/// How many more devices a tenant may use, on which it has used nothing; `None`: there are none.
#[must_use]
pub fn without_use(more: usize) -> Option<String> {
    match more {
        0 => None,
        1 => Some("1 more GPU without use".to_owned()),
        more => Some(format!("{more} more GPUs without use")),
    }
}

/// That a tenant is charged more on a device than its limit, which was lowered; `None`: it is not.
#[must_use]
pub fn above_limit(charged: u64, limit: u64) -> Option<String> {
    let more = charged.checked_sub(limit).filter(|more| *more > 0)?;
    let more = Bytes(more).human();
    Some(format!("over its limit by {more}: it gets no new memory"))
}

/// The part of a device's time that a tenant had lately. A tenant that is alone on a device is
/// billed nothing: then its part is the time in which NVML saw its kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Had {
    /// In thousandths: what it was billed, and what it had alone. `None`: nothing was counted, or
    /// it is alone and NVML does not tell.
    pub part: Option<u32>,
    /// Whether it is alone on the device now.
    pub is_alone: bool,
}

impl Had {
    /// By a tenant's share.
    #[must_use]
    pub fn of(share: &ShareRow) -> Self {
        let is_alone = share.state == ShareState::Free;
        let alone = share.alone.filter(|alone| alone.over_ms > 0);
        let alone = alone.map(|alone| alone.part);
        let is_known = share.over_ms > 0 && (alone.is_some() || !is_alone);
        let part = share.held.saturating_add(alone.unwrap_or(0)).min(1000);
        Self {
            part: is_known.then_some(part),
            is_alone,
        }
    }
}

/// The part of a device's time that a tenant is due, in thousandths; 0 where a higher priority
/// leaves it none. `None`: it has no process there.
#[must_use]
pub fn due(share: &ShareRow) -> Option<u32> {
    // Without a process nothing is counted, and its weight is 0 whatever it requests.
    let is_there = (share.weight, share.over_ms) != (0, 0) || share.state != ShareState::Idle;
    is_there.then_some(share.weight)
}

/// The state of a tenant whose devices are all lost.
pub const STRANDED: &str = "its GPU is lost";

/// See the module's page. Each list is in the daemon's order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The daemon itself; `None` where none serves.
    pub node: Option<NodeMetrics>,
    /// The devices.
    pub devices: Vec<DeviceRow>,
    /// The devices' counts.
    pub counted: Vec<DeviceMetrics>,
    /// How the devices' time is shared.
    pub sharing: Vec<SharingRow>,
    /// The tenants, a row for each of their devices.
    pub tenants: Vec<TenantRow>,
    /// The tenants' parts of the devices' time.
    pub shares: Vec<ShareRow>,
    /// The tenants' counts and measurements.
    pub measures: Vec<TenantMetrics>,
    /// The owner and cgroup of each admitted tenant.
    pub identities: Vec<Identity>,
    /// The pods of those that are containers of one.
    pub pods: Vec<PodRow>,
    /// The devices as NVML shows them.
    pub health: Vec<HealthRow>,
    /// Memory that tenants hold beyond what they may.
    pub excess: Vec<ExcessRow>,
    /// How many events of each kind there were.
    pub event_counts: Vec<EventCountRow>,
    /// Tenants that wait for admission.
    pub queued: Vec<QueuedTenant>,
    /// Where the memory of tenants that can move is.
    pub residency: Vec<ResidencyRow>,
    /// Their moves between the devices and the host.
    pub swaps: Vec<TenantSwaps>,
    /// The node's room for memory that is away, if it has any.
    pub room: Option<SwapRoom>,
    /// Tenants that will be ended in time.
    pub ends: Vec<EndRow>,
    /// Names of tenants that have clients of MPS.
    pub mps: Vec<String>,
}

/// Of the rows of one key the last one: a tenant that ended and is there again was added at the
/// end.
fn last_of_each<T, K: Ord>(rows: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut seen = BTreeSet::new();
    let all = std::mem::take(rows).into_iter().rev();
    let mut kept: Vec<T> = all.filter(|row| seen.insert(key(row))).collect();
    kept.reverse();
    *rows = kept;
}

impl Snapshot {
    /// Asks a daemon.
    ///
    /// # Errors
    /// It hung up, or refused.
    pub fn read(talk: &mut Talk) -> Result<Self, TalkError> {
        // A tenant may be admitted meanwhile. In this order it is in one of the two lists at least.
        let metrics = talk.metrics()?;
        let mut snapshot = Self {
            devices: talk.devices()?,
            sharing: talk.sharing()?,
            tenants: talk.tenants()?,
            shares: talk.shares()?,
            residency: talk.residency()?,
            pods: talk.pods()?,
            health: talk.health()?,
            excess: talk.excess()?,
            event_counts: talk.event_counts()?,
            ends: talk.ends()?,
            mps: talk.mps_clients()?,
            ..Self::default()
        };
        for row in metrics {
            match row {
                MetricsRow::Node(row) => snapshot.node = Some(row),
                MetricsRow::Device(row) => snapshot.counted.push(row),
                MetricsRow::Queued(row) => snapshot.queued.push(row),
                MetricsRow::Identity(row) => snapshot.identities.push(row),
                MetricsRow::Tenant(row) => snapshot.measures.push(row),
                // None: a reply with a row of another kind cannot be read. A new kind needs a list
                // of its own, which an earlier exporter does not ask for.
                _ => {}
            }
        }
        let Self {
            tenants, queued, ..
        } = &mut snapshot;
        queued.retain(|row| tenants.iter().all(|one| one.name != row.name));
        for row in talk.swaps()? {
            match row {
                SwapRow::Room(row) => snapshot.room = Some(row),
                SwapRow::Tenant(row) => snapshot.swaps.push(row),
                // As above.
                _ => {}
            }
        }
        snapshot.has_each_once();
        Ok(snapshot)
    }

    /// Leaves one row of a tenant, or of a tenant on a device, in each list. A list is told page by
    /// page: a tenant that ends and is there again meanwhile is in it twice, and its samples would
    /// be, which no reader of metrics takes.
    pub fn has_each_once(&mut self) {
        macro_rules! on_devices {
            ($($rows:expr),+) => {
                $(last_of_each($rows, |row| (row.name.clone(), row.device));)+
            };
        }
        macro_rules! by_name {
            ($($rows:expr),+) => {
                $(last_of_each($rows, |row| row.name.clone());)+
            };
        }
        on_devices!(&mut self.tenants, &mut self.shares, &mut self.measures);
        on_devices!(&mut self.residency, &mut self.swaps, &mut self.excess);
        by_name!(&mut self.identities, &mut self.pods);
        by_name!(&mut self.queued, &mut self.ends);
        last_of_each(&mut self.mps, String::clone);
    }

    /// Where a tenant's memory of a device is, if it can move.
    #[must_use]
    pub fn place(&self, name: &str, device: [u8; 16]) -> Option<&ResidencyRow> {
        let mut all = self.residency.iter();
        all.find(|row| row.device == device && row.name == name)
    }

    /// The rows of tenants that are worth a line: those of devices that a tenant has used, or its
    /// first one; with the first of each tenant, how many more devices it may use. By default that
    /// are all of the node, and it mostly uses one.
    #[must_use]
    pub fn shown(&self) -> Vec<(&TenantRow, usize)> {
        let used = Used::of(self);
        let is_used = |row: &&TenantRow| used.has(&row.name, row.device);
        let mut all = Vec::new();
        for own in self.tenants.chunk_by(|a, b| a.name == b.name) {
            let mut rows: Vec<&TenantRow> = own.iter().filter(is_used).collect();
            if rows.is_empty() {
                rows.extend(own.first());
            }
            let mut more = own.len() - rows.len();
            all.extend(rows.into_iter().map(|row| (row, std::mem::take(&mut more))));
        }
        all
    }

    /// Tenants that are admitted and have no account, because their devices are lost. One that
    /// ended between two answers has none either.
    pub fn stranded(&self) -> impl Iterator<Item = &Identity> {
        let all = self.identities.iter();
        let all = all.filter(|one| self.tenants.iter().all(|row| row.name != one.name));
        all.filter(|one| {
            let mut own = self.measures.iter().filter(|row| row.name == one.name);
            own.any(|row| self.is_lost(row.device))
        })
    }

    /// Whether a device is lost.
    fn is_lost(&self, device: [u8; 16]) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|row| row.uuid == device && row.is_lost())
    }

    /// The moves of a tenant's memory on a device.
    #[must_use]
    pub fn swap(&self, name: &str, device: [u8; 16]) -> Option<&TenantSwaps> {
        let mut all = self.swaps.iter();
        all.find(|row| row.device == device && row.name == name)
    }

    /// Memory that a tenant holds on a device beyond its grant.
    #[must_use]
    pub fn excess_of(&self, name: &str, device: [u8; 16]) -> u64 {
        self.sum_excess(|row| row.device == device && row.name == name)
    }

    /// What all tenants hold on a device beyond what they may.
    #[must_use]
    pub fn excess_on(&self, device: [u8; 16]) -> u64 {
        self.sum_excess(|row| row.device == device)
    }

    fn sum_excess(&self, of: impl Fn(&ExcessRow) -> bool) -> u64 {
        let all = self.excess.iter();
        all.filter(|row| of(row)).map(|row| row.bytes).sum()
    }

    /// Where each device is in the list, by its UUID.
    #[must_use]
    pub fn ordinals(&self) -> BTreeMap<[u8; 16], usize> {
        let all = self.devices.iter().enumerate();
        all.map(|(at, row)| (row.uuid, at)).collect()
    }

    /// A device as NVML shows it, in words: `util 93%  412W  61C`, or `lost`. Empty where it says
    /// nothing.
    #[must_use]
    pub fn health_text(&self, device: [u8; 16]) -> String {
        let row = self.health.iter().find(|row| row.device == device);
        let lost = self.is_lost(device);
        let parts = [
            lost.then(|| DeviceRow::LOST.to_owned()),
            row.and_then(|row| row.busy.map(|part| format!("util {part}%"))),
            row.and_then(|row| row.watts.map(|watts| format!("{watts}W"))),
            row.and_then(|row| row.celsius.map(|degrees| format!("{degrees}C"))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }

    /// The part of a device's time that a tenant had lately; `None` where it has no share there.
    #[must_use]
    pub fn had(&self, name: &str, device: [u8; 16]) -> Option<Had> {
        Some(Had::of(self.share(name, device)?))
    }

    /// A tenant's share of a device.
    #[must_use]
    pub fn share(&self, name: &str, device: [u8; 16]) -> Option<&ShareRow> {
        let mut all = self.shares.iter();
        all.find(|row| row.device == device && row.name == name)
    }
}

/// A device as the driver and `CUDA_VISIBLE_DEVICES` name it.
#[must_use]
pub fn device_name(row: &DeviceRow) -> String {
    let mig = row.capabilities.iter().any(|word| word == "mig");
    Uuid(row.uuid).text(mig)
}
