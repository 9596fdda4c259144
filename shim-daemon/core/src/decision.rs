//! The core's decisions. The daemon carries them out in the order in which they are polled.

use crate::ids::{AskKey, DeviceId, ProcessId, ReclaimId, TenantId};
use crate::lease::Lease;
use crate::residency::Order;
use crate::resolver::Resolver;
use crate::spec::SpecError;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The tenant may run.
    Admit {
        /// Which.
        tenant: TenantId,
    },
    /// The registration or change is refused; nothing changed.
    Refuse {
        /// The tenant.
        tenant: TenantId,
        /// Why.
        error: SpecError,
    },
    /// Store the tenant's grant in its control page. After a `ProcessGone` this comes before the
    /// dead slot is cleared.
    SetGrant {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The new grant.
        grant: Bytes,
    },
    /// Lower the grant: store it, full fence, take back unused credit, read the page again, tell
    /// `Reclaimed`.
    Reclaim {
        /// Names this reclaim.
        reclaim_id: ReclaimId,
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The new grant.
        to: Bytes,
    },
    /// Store the tenant's lease in its control page and wake its gates. Sent before the `Answer` to
    /// an `Open`, it is the lease that the new context starts with. A tenant without such a
    /// decision has [`Lease::FREE`].
    Lease {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// Its turn.
        lease: Lease,
    },
    /// Store an order about the tenant's memory in its control page, and wake its processes.
    Reside {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// Names the order.
        epoch: u32,
        /// The order to its processes.
        order: Order,
        /// How long what they have begun may take to end once they are sealed; zero: not said.
        drain: Nanos,
    },
    /// Store in the tenant's control page how much of a return stays on the host for now, and wake
    /// its processes. It comes before the order to return. At first nothing is withheld.
    Withhold {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// How much; zero: nothing.
        bytes: Bytes,
    },
    /// An ask waits longer than its own time, because its turn is certain.
    Extend {
        /// Which.
        ask: AskKey,
        /// Until then, unless it is extended again.
        until: Nanos,
    },
    /// The answer to an ask.
    Answer {
        /// The answered ask.
        ask: AskKey,
        /// The answer to the ask.
        answer: Answer,
    },
    /// Take a sample of the device now.
    Resample {
        /// Which.
        device: DeviceId,
    },
    /// Send a signal to every process of the tenant.
    Signal {
        /// Which.
        tenant: TenantId,
        /// The signal.
        signal: Signal,
        /// Why, for its exit message and the event log.
        why: Why,
    },
    /// Information for an operator or a user.
    Notice(Notice),
}

/// How an ask ended. Every ask ends in exactly one of these, unless its process or the asker itself
/// gives up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tenant's grant is now at least the need; after `DriverRefused`, the driver may be asked
    /// again.
    Granted {
        /// The grant of the tenant on that device.
        grant: Bytes,
    },
    /// Out-of-memory.
    Denied(Denial),
}

/// Why an ask was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It would exceed the tenant's limit.
    OverLimit {
        /// The limit.
        limit: Bytes,
    },
    /// No resolver of the tenant made room.
    NoRoom {
        /// The missing bytes.
        short: Bytes,
    },
    /// It waited its time.
    TimedOut {
        /// How long.
        waited: Nanos,
    },
    /// It and other asks waited for each other, and it was the lowest and youngest.
    Cycle,
    /// The tenant has no quota on that device.
    NoQuota,
    /// The tenant is being ended.
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

/// Why a tenant is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its burst is needed.
    Collision {
        /// Where.
        device: DeviceId,
        /// The tenant that wants the memory.
        wanted_by: TenantId,
        /// Its charges on that device, or the memory that the device shows for it if that is more.
        charged: Bytes,
        /// The driver's memory for its contexts and modules, beside the charges.
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
    /// The tenant waits for admission.
    Queued {
        /// Which.
        tenant: TenantId,
    },
    /// An ask cannot be met now; it waits, and this is what for.
    Waiting {
        /// The waiting ask.
        ask: AskKey,
        /// Where.
        device: DeviceId,
        /// The missing bytes.
        short: Bytes,
        /// When it gives up.
        until: Nanos,
        /// The resolver that decided so: `None` if the bytes are on their way.
        by: Option<Resolver>,
    },
    /// The device's own figures exceed the usable memory. No grants until they fit again.
    Overdrawn {
        /// Where.
        device: DeviceId,
        /// By how much.
        by: Bytes,
        /// Memory of the device used by processes of no tenant.
        unmanaged: Bytes,
    },
    /// The accounts of the device fit again.
    Balanced {
        /// Where.
        device: DeviceId,
    },
    /// The device shows a tenant holding more than it was granted: a bypass, or a forged page.
    Excess {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// How much more.
        bytes: Bytes,
    },
    /// The device never showed a context for which memory was reserved: the reservation is
    /// released.
    Lapsed {
        /// The process.
        process: ProcessId,
        /// The process's tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// How much was set aside.
        bytes: Bytes,
    },
    /// The tenant has done no GPU work for its `idle_after`.
    Idle {
        /// Which.
        tenant: TenantId,
    },
    /// The tenant works again.
    Active {
        /// Which.
        tenant: TenantId,
    },
    /// The tenant will be ended unless something changes.
    EndsSoon {
        /// Which.
        tenant: TenantId,
        /// When.
        at: Nanos,
        /// By what.
        why: Why,
    },
    /// A victim is spared: its memory is no longer needed, or it no longer holds any.
    Spared {
        /// Which.
        tenant: TenantId,
    },
    /// A tenant did not drain within the bound. From now on other tenants run beside it, and time
    /// beyond its share is billed to it. Reported at a limited rate for each tenant and device.
    Overrun {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// How long ago its gate was closed.
        after: Nanos,
    },
    /// A process without a gate works on a device that several tenants share: its work takes no
    /// turns.
    Ungated {
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
    },
    /// A tenant begins to leave the card.
    Leaving {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// Its charges there.
        bytes: Bytes,
        /// The tenant that wants the memory; `None`: a command.
        wanted_by: Option<TenantId>,
    },
    /// It has left.
    Left {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The memory that the device shows gone.
        bytes: Bytes,
        /// The memory that stayed on the card.
        residue: Bytes,
        /// How long it took.
        took: Nanos,
    },
    /// It is back.
    Returned {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The host memory that was reserved for it.
        bytes: Bytes,
        /// How long it took.
        took: Nanos,
    },
    /// It could not be sealed, or did not move on: it runs again.
    DidNotLeave {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// When it may be asked again.
        again: Nanos,
        /// The memory that its processes had moved; it comes back.
        moved: Bytes,
    },
    /// The device shows less memory gone than it reported.
    LeftLess {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The memory that it reported gone.
        told: Bytes,
        /// The memory that the device shows gone.
        seen: Bytes,
    },
    /// Its processes take long to return.
    SlowReturn {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
    },
    /// The driver had too little memory for its return. It is asked again.
    NoReturn {
        /// Which.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The device memory that was missing.
        bytes: Bytes,
    },
    /// No tenant was moved for a collision because the host budget is used up.
    HostFull {
        /// Where.
        device: DeviceId,
        /// The device memory that was wanted.
        wanted: Bytes,
        /// The part of the host budget that a move for it needs, with what is kept for one more.
        needed: Bytes,
        /// The part that is free.
        free: Bytes,
    },
    /// Moves took more than 30 % of the last minute: stays are longer from now on.
    Thrashing {
        /// Where.
        device: DeviceId,
        /// How much they took.
        percent: u64,
    },
    /// Moves take less again, and stays are shorter.
    Settled {
        /// Where.
        device: DeviceId,
    },
    /// A command moves a tenant out.
    Suspended {
        /// Which.
        tenant: TenantId,
    },
    /// A command lets it return.
    Resumed {
        /// Which.
        tenant: TenantId,
    },
    /// A process of the previous daemon has come and does not say where its memory is: its tenant
    /// goes on without it.
    Silent {
        /// Which.
        process: ProcessId,
        /// Its tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
    },
    /// A victim is still there long after SIGKILL.
    WillNotYield {
        /// Which.
        tenant: TenantId,
    },
}
