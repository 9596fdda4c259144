//! Events: everything the core learns. An event may be late, repeated, out of order or a lie; each
//! handler says which part it believes.

use crate::ids::{AskId, DeviceId, ProcessId, ReclaimId, TenantId};
use crate::lease::{Report, Work};
use crate::residency::{Held, Shown, Told};
use crate::spec::{DeviceSpec, TenantSpec};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// What a previous daemon knew of a tenant that runs, beside its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Since when it runs.
    pub since: Nanos,
    /// Its grant on each device where that was above its limit, in bytes: the limit was lowered
    /// below what it held.
    pub above: Vec<(DeviceId, Bytes)>,
    /// Whether a command has moved it out, or was to, and no call or command has woken it since.
    pub suspended: bool,
}

impl From<Nanos> for Running {
    /// It runs since then, within its limits.
    fn from(since: Nanos) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }
}

/// A fact or a wish.
#[derive(Clone, Debug)]
pub enum Event {
    /// A device exists.
    DeviceAdded {
        /// Its id.
        device: DeviceId,
        /// Its memory.
        spec: DeviceSpec,
    },
    /// A device fell off the bus. Its accounts are dropped and its waiting asks are refused.
    DeviceLost {
        /// Which.
        device: DeviceId,
    },
    /// A tenant wants to run. Answered by `Admitted`, `Queued` or `Refused`.
    Register {
        /// Its id, never used before.
        tenant: TenantId,
        /// Its limits.
        spec: TenantSpec,
        /// What a previous daemon knew of it, under which it ran: it is admitted unchanged, however
        /// little room there is. `None`: it is new.
        running: Option<Running>,
    },
    /// The limits of a running tenant change. All of the change applies or none of it.
    Set {
        /// The tenant.
        tenant: TenantId,
        /// All of the new limits.
        spec: TenantSpec,
    },
    /// The tenant has ended: none of its processes will ask again.
    TenantGone {
        /// Which.
        tenant: TenantId,
    },
    /// A process of a tenant connected; or one of the previous daemon is counted that has not, and
    /// once more when it has.
    ProcessStarted {
        /// Its id, never used before but by itself.
        process: ProcessId,
        /// The tenant of its socket, pidfd and cgroup.
        tenant: TenantId,
        /// Whether it maps this daemon's control page. A process from the previous daemon does not
        /// yet.
        adopted: bool,
        /// Whether its gate can be closed. `false` for a library older than leases: nothing holds
        /// back its work.
        gated: bool,
    },
    /// A process of the previous daemon presents its holdings. Believed up to the registered limit,
    /// or to its grant above that ([`Running`]).
    Presented {
        /// Which process; ignored once it adopted this daemon's page.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its charges.
        charged: Bytes,
        /// Bytes that it may charge without asking.
        credit: Bytes,
        /// The tenant's grant in the previous control page, as far as it is credit or charged.
        grant: Bytes,
    },
    /// A process now obeys this daemon's control page.
    Adopted {
        /// Which.
        process: ProcessId,
    },
    /// A process of the previous daemon that has just started, in these events, has not come: it is
    /// taken for a stopped one, which may charge what it presents and asks for nothing. It comes by
    /// another [`Event::ProcessStarted`].
    Late {
        /// Which process.
        process: ProcessId,
    },
    /// A process's connection ended or was restored. While disconnected it cannot report, and its
    /// gate is open: its turns are not waited for.
    Away {
        /// Which process.
        process: ProcessId,
        /// Whether it is away.
        away: bool,
    },
    /// A live process holds no memory on a device any more, as far as can be told: it has become
    /// another program. Its former memory is limbo until the device no longer shows it.
    Vacated {
        /// Which process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The charges in its slot there.
        charged: Bytes,
    },
    /// A dead process of the previous daemon may still hold memory.
    Remembered {
        /// Which: an id no living process has.
        process: ProcessId,
        /// Its tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The bytes it held.
        bytes: Bytes,
        /// The part of that which was charged.
        charged: Bytes,
    },
    /// A process ended while there was no daemon, and its row is left. The row is the tenant's to
    /// write: what it says is believed as far as the tenant could have held it.
    Unseen {
        /// Which: an id no living process has.
        process: ProcessId,
        /// Its tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The charges in its row.
        charged: Bytes,
    },
    /// A process ended, by its pidfd.
    ProcessGone {
        /// Which.
        process: ProcessId,
        /// The last charges in its slots, per device. The next sample corrects a lie.
        charged: Vec<(DeviceId, Bytes)>,
    },
    /// All memory of a suspended tenant lies in a file of its own: it takes no part of the node's
    /// room for memory that is away.
    Elsewhere {
        /// Which.
        tenant: TenantId,
    },
    /// What the host store has given a tenant has changed: it gave, freed or stored. Ignored for
    /// tenants that are not registered.
    Held {
        /// Which.
        tenant: TenantId,
        /// All that the tenant has now.
        held: Held,
    },
    /// A process lives on under a new registration, perhaps as another program.
    ProcessReplaced {
        /// Which.
        process: ProcessId,
        /// As for `ProcessGone`.
        charged: Vec<(DeviceId, Bytes)>,
    },
    /// Claims in the pages of a shared device's processes about their work there. Sent when
    /// [`World::due_samples`](crate::World::due_samples) requests it.
    Served {
        /// Where.
        device: DeviceId,
        /// The processes and their work.
        works: Vec<(ProcessId, Work)>,
    },
    /// Processes ran on a device, as the driver's samples say it: no process can forge that.
    Ran {
        /// Where.
        device: DeviceId,
        /// The time of which this is.
        span: Nanos,
        /// For how long of it the kernels of each process ran. `None`: it is not registered, or has
        /// said that it stands aside.
        ran: Vec<(Option<ProcessId>, Nanos)>,
    },
    /// A process wants a context on a device. Answered under `ask`.
    Open {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
    },
    /// A process's first context on a device is complete: a look will show its cost. The report
    /// itself changes no account.
    ContextMade {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
    },
    /// A process wants a context beside those that it has, or has had, on a device. Answered under
    /// `ask`, which also names the call from then on.
    OpenMore {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
        /// As for `Ask`.
        patience: Option<Nanos>,
    },
    /// A call is under way for which an `OpenMore` of this number was granted, by this daemon or by
    /// the previous one. Answered under `ask`.
    OpenAgain {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The ask's number.
        ask: AskId,
    },
    /// A call for which an `OpenMore` was asked has returned, with a context or without one: a look
    /// will show which. The report itself changes no account.
    OpenDone {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The ask's number.
        ask: AskId,
    },
    /// A process has no context on a device, and makes none. The report itself changes no account.
    NoContext {
        /// The process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
    },
    /// A process needs a larger grant. Answered under `ask`.
    Ask {
        /// The asking process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
        /// The charges of all processes of the tenant together, as seen under the tenant's lock.
        held: Bytes,
        /// The bytes that it wants to charge now.
        bytes: Bytes,
        /// The rest of its time to wait, if it waited before; at most the registered timeout.
        patience: Option<Nanos>,
    },
    /// The driver refused an allocation that was within the grant: some fact is wrong. Answered
    /// under `ask`.
    DriverRefused {
        /// The asking process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
        /// The tenant's charges, including this allocation.
        held: Bytes,
        /// The size the driver refused.
        bytes: Bytes,
        /// As for `Ask`.
        patience: Option<Nanos>,
    },
    /// A waiting process gave up.
    Cancel {
        /// The asking process.
        process: ProcessId,
        /// Which ask.
        ask: AskId,
    },
    /// A tenant's charges, according to its usage page.
    Usage {
        /// The page's tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The sum over its processes.
        in_use: Bytes,
    },
    /// A `Reclaim` was carried out: grant stored, fence, page read again.
    Reclaimed {
        /// Which reclaim; an older one is ignored.
        reclaim_id: ReclaimId,
        /// The tenant.
        tenant: TenantId,
        /// Where.
        device: DeviceId,
        /// The credit that its processes still hold, after unused credit was taken back.
        held: Bytes,
        /// The memory that NVML shows for its processes, where it can.
        used: Option<Bytes>,
    },
    /// A process's library can seal it and move its memory to the host and back.
    Movable {
        /// Which.
        process: ProcessId,
    },
    /// A process reports on an order to move.
    Moved {
        /// Which.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The order it answers. A report on any other order is ignored.
        epoch: u32,
        /// The report.
        told: Told,
    },
    /// A process says how much of its memory on a device cannot move. It says so again once that
    /// has changed by 64 MiB and an eighth, or to or from nothing. Ignored where it has no context,
    /// and of tenants that do not move.
    Stays {
        /// Which.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its charges there that cannot move, in bytes.
        bytes: Bytes,
    },
    /// A call of a process waits because its tenant is out.
    WantsIn {
        /// Which.
        process: ProcessId,
        /// Where.
        device: DeviceId,
    },
    /// A process of the previous daemon shows where its memory is.
    Shown {
        /// Which; ignored for tenants that this daemon admitted.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Where its memory is.
        shown: Shown,
    },
    /// A command wants a tenant off all its devices until it calls, or until `Resume`.
    Suspend {
        /// Which.
        tenant: TenantId,
    },
    /// A command wants a tenant back that is out.
    Resume {
        /// Which.
        tenant: TenantId,
    },
    /// A tenant's GPU work moved on since it was last looked at.
    Worked {
        /// The tenant.
        tenant: TenantId,
    },
    /// A process reports of its gate.
    Reported {
        /// Which.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The turn it reports on. A report on any other turn is outdated.
        epoch: u64,
        /// The report.
        report: Report,
    },
    /// A look at the device itself.
    Sampled {
        /// Which.
        device: DeviceId,
        /// The sample.
        sample: Sample,
    },
}

/// Device facts, from NVML.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the look began: what happened before it shows in it. One older than the last is
    /// ignored.
    pub taken: Nanos,
    /// Memory in use on the device.
    pub used: Bytes,
    /// Memory the driver could still give.
    pub free: Bytes,
    /// Processes of registered tenants that hold memory, live or dead. `None` where NVML cannot
    /// list them.
    pub processes: Option<Vec<ProcessSample>>,
    /// The memory that it lists for all other processes, together.
    pub strangers: Bytes,
    /// The memory that the processes of each tenant had charged throughout the look: the smaller of
    /// their charges before and after it.
    pub charged: BTreeMap<TenantId, Bytes>,
}

/// One process in a sample.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    /// Which.
    pub process: ProcessId,
    /// The memory that the driver shows for it.
    pub used: Bytes,
    /// The charges in its slot, if the slot was the same before and after the sample.
    pub charged: Option<Bytes>,
}
