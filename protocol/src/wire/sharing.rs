//! How the time of devices is shared, since minor 5, and the substitutes for older commands.

use super::control::{ControlReply, ShareRow, ShareState};
use super::metrics::LeaseWas;
use super::page::Rows;
use serde::{Deserialize, Serialize};

/// How a device's time is shared now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingRow {
    /// The device's UUID.
    pub device: [u8; 16],
    /// The state of its tenants now.
    pub regime: Regime,
    /// How often that changed since the device is shared.
    pub changes: u64,
    /// The same in the last minute.
    pub lately: u32,
    /// By how many thousandths of the time the service that all tenants were billed for is above
    /// it, lately and while work was pending all the time; negative if below. `None` while that was
    /// for less than a second.
    pub off: Option<i32>,
}

/// The state of a device's tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Regime {
    /// They have it one after the other.
    Turns,
    /// All work at the same time, unrestricted.
    Together,
    /// Tenants ahead of one that is behind its share submit in slices.
    Yielding,
    /// Those ahead are closed until it has been repaid.
    Held,
}

impl ControlReply {
    /// The same for a command of this minor: states that it does not know as the nearest it does,
    /// and without changes of leases that it does not know.
    #[must_use]
    pub fn told(mut self, minor: u16) -> Self {
        if minor < 5
            && let Self::Shares(rows)
            | Self::Page {
                rows: Rows::Shares(rows),
                ..
            } = &mut self
        {
            rows.iter_mut().for_each(older);
        }
        if minor < 19
            && let Self::Page {
                rows: Rows::Leases(rows),
                ..
            } = &mut self
        {
            for row in rows {
                row.changes.retain(|change| change.was != LeaseWas::Gone);
            }
        }
        self
    }
}

/// States of a shared device as states of turns.
fn older(row: &mut ShareRow) {
    row.state = match row.state {
        ShareState::Sharing { for_us } | ShareState::Yielding { for_us } => {
            ShareState::Holding { for_us }
        }
        ShareState::Held { for_us } => ShareState::Waiting { for_us },
        ref known => known.clone(),
    };
}
