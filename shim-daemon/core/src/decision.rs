//! What the core wants done: the daemon carries decisions out in the order they are polled.

use crate::ids::{AskKey, ContainerId, DeviceId, ProcessId, Ticket};
use crate::lease::Lease;
use crate::resolver::Resolver;
use crate::spec::SpecError;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The container may run.
    Admit {
        /// Which.
        container: ContainerId,
    },
    /// The registration or change does not hold; nothing changed.
    Refuse {
        /// Whose.
        container: ContainerId,
        /// Why.
        error: SpecError,
    },
    /// Store the container's grant in its control page. After a `ProcessGone` this comes before the dead slot is cleared.
    SetGrant {
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// The new grant.
        grant: Bytes,
    },
    /// Lower the grant: store it, full fence, take back unused credit, read the page again, tell `Reclaimed`.
    Reclaim {
        /// Names this reclaim.
        ticket: Ticket,
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// The new grant.
        to: Bytes,
    },
    /// Store the container's lease in its control page and wake its gates. Before the `Answer` to an `Open` it says what
    /// the new context starts with; a container of which nothing was said has [`Lease::FREE`].
    Lease {
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// Its turn.
        lease: Lease,
    },
    /// The answer to an ask.
    Answer {
        /// Whose ask, and which.
        ask: AskKey,
        /// What to tell it.
        answer: Answer,
    },
    /// Take a sample of the device now.
    Resample {
        /// Which.
        device: DeviceId,
    },
    /// Send a signal to every process of the container.
    Signal {
        /// Which.
        container: ContainerId,
        /// The signal.
        signal: Signal,
        /// Why, for its exit message and the event log.
        why: Why,
    },
    /// Something an operator or a user may want to know.
    Notice(Notice),
}

/// How an ask ended. Every ask ends in exactly one of these, unless its process or the asker itself gives up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The container's grant is now at least what was needed; after `DriverRefused`, the driver may be asked again.
    Granted {
        /// The grant of the container on that device.
        grant: Bytes,
    },
    /// Out-of-memory.
    Denied(Denial),
}

/// Why an ask was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It would exceed the container's limit.
    OverLimit {
        /// The limit.
        limit: Bytes,
    },
    /// No resolver of the container made room.
    NoRoom {
        /// What was missing.
        short: Bytes,
    },
    /// It waited its time.
    TimedOut {
        /// How long.
        waited: Nanos,
    },
    /// It and others waited on each other, and it was the lowest and youngest.
    Cycle,
    /// The container has no quota on that device.
    NoQuota,
    /// The container is being ended.
    Ending,
    /// The process has too many asks waiting.
    TooMany,
    /// The device is gone.
    DeviceLost,
}

/// A step of the kill ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: it may still save its work.
    Terminate,
    /// SIGKILL, a grace later.
    Kill,
}

/// Why a container is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its burst is needed.
    Collision {
        /// Where.
        device: DeviceId,
        /// By whom.
        wanted_by: ContainerId,
        /// What it has charged on that device, or the device shows it to hold.
        charged: Bytes,
        /// What the driver takes there beside that, for its contexts and modules.
        overhead: Bytes,
    },
    /// It did no GPU work for its idle end.
    Idle,
    /// It ran for its run limit.
    RunLimit,
}

/// News without an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The container waits for admission.
    Queued {
        /// Which.
        container: ContainerId,
    },
    /// An ask cannot be met now; it waits, and this is what for.
    Waiting {
        /// Whose ask.
        ask: AskKey,
        /// Where.
        device: DeviceId,
        /// What is missing.
        short: Bytes,
        /// When it gives up.
        until: Nanos,
        /// Who decided so: `None` if the bytes are on their way.
        by: Option<Resolver>,
    },
    /// Facts alone broke the books: more is taken than may be. No grants until it is mended.
    Overdrawn {
        /// Where.
        device: DeviceId,
        /// By how much.
        by: Bytes,
        /// How much of the device is used by processes that are none of ours.
        unmanaged: Bytes,
    },
    /// The books of the device hold again.
    Balanced {
        /// Where.
        device: DeviceId,
    },
    /// The device shows a container holding more than it was granted: a bypass, or a forged page.
    Excess {
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// How much more.
        bytes: Bytes,
    },
    /// The device never showed a context for which memory was set aside: it is given to others.
    Lapsed {
        /// Whose.
        process: ProcessId,
        /// Whose process.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// How much was set aside.
        bytes: Bytes,
    },
    /// The container has done no GPU work for its `idle_after`.
    Idle {
        /// Which.
        container: ContainerId,
    },
    /// The container works again.
    Active {
        /// Which.
        container: ContainerId,
    },
    /// The container will be ended unless something changes.
    EndsSoon {
        /// Which.
        container: ContainerId,
        /// When.
        at: Nanos,
        /// By what.
        why: Why,
    },
    /// A victim is spared: what it would have given is no longer needed or no longer there.
    Spared {
        /// Which.
        container: ContainerId,
    },
    /// A container did not drain in the bound: from now on others work beside it, and it owes what it takes beyond its
    /// share. Said at most once in a while for each container and device.
    Overrun {
        /// Which.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// How long ago its gate was closed.
        after: Nanos,
    },
    /// A process without a gate works on a device that several containers share: its work takes no turns.
    Ungated {
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
    },
    /// A victim is still there long after SIGKILL.
    WillNotYield {
        /// Which.
        container: ContainerId,
    },
}
