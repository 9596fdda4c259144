//! A tenant's share of a device, for people to look at.

use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::histogram::Histogram;

/// A tenant's share of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareView {
    /// Its share while all tenants of its priority or a higher one on the device want it, in
    /// thousandths.
    pub weight: u32,
    /// The time it was billed for since it came to the device, the running turn included.
    pub held: Nanos,
    /// Its state.
    pub state: ShareState,
    /// Since when. For [`ShareState::Free`] and [`ShareState::Idle`], when its last turn began.
    pub since: Nanos,
    /// Turns it was given; on a shared device, times it was held.
    pub turns: u64,
    /// Times it had not drained when it should have.
    pub overruns: u64,
    /// Its processes without a gate.
    pub ungated: u32,
    /// How long its gate was closed while it wanted the device, each time.
    pub waits: Histogram,
    /// Since when that is so now.
    pub waiting: Option<Nanos>,
    /// Of one that is [`ShareState::Yielding`] or [`ShareState::Held`].
    pub steered: Option<Steered>,
}

/// Why a tenant yields or is held, and for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// Why.
    pub cause: Cause,
    /// For which. `None`: it left a moment ago, or the tenant's gang is closed as a whole.
    pub tenant: Option<TenantId>,
}

/// Why a tenant yields to another or is held for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The other is behind its share, and this one ahead of its own.
    Share,
    /// The request of the other is due.
    Request,
    /// The other is of a higher priority.
    Priority,
    /// They take turns, and it is the other's.
    Turn,
    /// Its gang is closed, for a tenant on any of the gang's devices.
    Gang,
}

/// The counters of a device since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTally {
    /// From the end of a turn, or the order to stop, to the next tenant's turn.
    pub handoffs: Histogram,
    /// Time in which no tenant could work although one wanted to, because of hard caps.
    pub capped: Nanos,
    /// The same, because tenants were held for another that had no work.
    pub held: Nanos,
}

/// How a shared device is shared now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// All gates are open.
    #[default]
    Together,
    /// Those ahead submit in slices.
    Yield,
    /// Those ahead are closed until their debt is repaid.
    Hold,
}

/// How a device's time is shared. The default is a device in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingView {
    /// The steering mode of the tenants ahead. `None`: the device is in turns.
    pub mode: Option<Mode>,
    /// How often that changed since the device is shared.
    pub changes: u64,
    /// The same in the last minute.
    pub lately: u32,
    /// By how many thousandths all bills together exceed the elapsed time, lately, while some
    /// tenant always had work pending; negative if below. `None` while there was too little such
    /// time.
    pub off: Option<i32>,
}

/// A tenant's state on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareState {
    /// Alone and without a cap: no time is counted.
    Free,
    /// It neither has nor wants the device.
    Idle,
    /// It shares the device unrestricted.
    Sharing,
    /// It shares the device and submits in slices, because another is behind.
    Yielding,
    /// It is closed until another that is behind has been repaid.
    Held,
    /// It has the device.
    Holding,
    /// It was ordered to stop and has not drained.
    Draining,
    /// It waits for its turn.
    Waiting,
    /// It waits until its cap allows it a turn.
    Capped,
}
