//! All that a daemon tells at one time.

use std::collections::BTreeMap;

use gpushare_client::{Talk, TalkError};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    DeviceMetrics, DeviceRow, EndRow, Identity, MetricsRow, NodeMetrics, QueuedTenant,
    ResidencyRow, ShareRow, SharingRow, TenantMetrics, TenantRow,
};

/// See the module's page. Each list is in the daemon's order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The daemon itself; `None` of a daemon before minor 9.
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
    /// Tenants that wait for admission.
    pub queued: Vec<QueuedTenant>,
    /// Where the memory of tenants that can move is.
    pub residency: Vec<ResidencyRow>,
    /// Tenants that will be ended in time.
    pub ends: Vec<EndRow>,
}

impl Snapshot {
    /// Asks a daemon.
    ///
    /// # Errors
    /// It hung up, or refused.
    pub fn read(talk: &mut Talk) -> Result<Self, TalkError> {
        let mut snapshot = Self {
            devices: talk.devices()?,
            sharing: talk.sharing()?,
            tenants: talk.tenants()?,
            shares: talk.shares()?,
            residency: talk.residency()?,
            ends: talk.ends()?,
            ..Self::default()
        };
        for row in talk.metrics()? {
            match row {
                MetricsRow::Node(row) => snapshot.node = Some(row),
                MetricsRow::Device(row) => snapshot.counted.push(row),
                MetricsRow::Queued(row) => snapshot.queued.push(row),
                MetricsRow::Identity(row) => snapshot.identities.push(row),
                MetricsRow::Tenant(row) => snapshot.measures.push(row),
                // Of a later daemon.
                _ => {}
            }
        }
        Ok(snapshot)
    }

    /// Where each device is in the list, by its UUID.
    #[must_use]
    pub fn ordinals(&self) -> BTreeMap<[u8; 16], usize> {
        let all = self.devices.iter().enumerate();
        all.map(|(at, row)| (row.uuid, at)).collect()
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
