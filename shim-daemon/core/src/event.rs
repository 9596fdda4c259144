//! What happened: everything the core learns. Events may be late, doubled, out of order or lies; each handler says
//! what it believes and how far.

use crate::ids::{AskId, ContainerId, DeviceId, ProcessId, Ticket};
use crate::lease::{Report, Work};
use crate::spec::{ContainerSpec, DeviceSpec};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

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
    /// A device fell off the bus. Its books are dropped and what waits for it is refused.
    DeviceLost {
        /// Which.
        device: DeviceId,
    },
    /// A container wants to run. Answered by `Admitted`, `Queued` or `Refused`.
    Register {
        /// Its id, never used before.
        container: ContainerId,
        /// Its limits.
        spec: ContainerSpec,
        /// Since when it runs under a previous daemon: it is taken as it is, whatever room there is. `None`: it is new.
        running: Option<Nanos>,
    },
    /// Its limits change while it runs. All of the change holds or none of it.
    Set {
        /// Whose.
        container: ContainerId,
        /// All of the new limits.
        spec: ContainerSpec,
    },
    /// The container is over: none of its processes will ask again.
    ContainerGone {
        /// Which.
        container: ContainerId,
    },
    /// A process of a container connected.
    ProcessStarted {
        /// Its id, never used before.
        process: ProcessId,
        /// Whose socket, pidfd and cgroup it came with.
        container: ContainerId,
        /// Whether it maps this daemon's control page. One that lived under the previous daemon does not yet.
        adopted: bool,
        /// Whether its gate can be closed: false for a library older than leases, whose work nothing holds back.
        gated: bool,
    },
    /// A process of the previous daemon tells what it holds. Believed up to the registered limit.
    Presented {
        /// Which process; ignored once it adopted this daemon's page.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// What it has charged.
        charged: Bytes,
        /// What it may charge without asking.
        credit: Bytes,
        /// The container's grant in the previous control page.
        grant: Bytes,
    },
    /// A process now obeys this daemon's control page.
    Adopted {
        /// Which.
        process: ProcessId,
    },
    /// A process's connection ended, or came again. While it is away it can say nothing, and its gate is open: its turns are not
    /// waited for.
    Away {
        /// Which process.
        process: ProcessId,
        /// Whether it is away.
        away: bool,
    },
    /// A process lives and holds nothing on a device any more, as far as can be told: it has become another program. What it held is
    /// limbo until the device shows it no longer.
    Vacated {
        /// Which process.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// What its slot says it had charged there.
        charged: Bytes,
    },
    /// A dead process of the previous daemon may still hold memory.
    Remembered {
        /// Which: an id no living process has.
        process: ProcessId,
        /// Whose it was.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// What it held.
        bytes: Bytes,
        /// The part of that which was charged.
        charged: Bytes,
    },
    /// A process ended, by its pidfd.
    ProcessGone {
        /// Which.
        process: ProcessId,
        /// What its slots said last, per device. A lie is set right by the next sample.
        charged: Vec<(DeviceId, Bytes)>,
    },
    /// A process lives on and is no longer this: it registered anew, as another program perhaps.
    ProcessReplaced {
        /// Which.
        process: ProcessId,
        /// As for `ProcessGone`.
        charged: Vec<(DeviceId, Bytes)>,
    },
    /// What the pages of a shared device's processes say of their work there: claims. Told when
    /// [`World::due_samples`](crate::World::due_samples) asks for it.
    Served {
        /// Where.
        device: DeviceId,
        /// Whose, and what.
        works: Vec<(ProcessId, Work)>,
    },
    /// A process wants a context on a device. Answered under `ask`.
    Open {
        /// Who.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
    },
    /// A process's first context on a device is complete: a look will show what it takes. Nothing
    /// is believed for it.
    ContextMade {
        /// Whose.
        process: ProcessId,
        /// Where.
        device: DeviceId,
    },
    /// A process needs a larger grant. Answered under `ask`.
    Ask {
        /// Who.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
        /// What all processes of the container have charged, as seen under the container's lock.
        held: Bytes,
        /// What it wants to charge now.
        bytes: Bytes,
        /// What is left of its time to wait, if it waited before; the registered timeout is the most.
        patience: Option<Nanos>,
    },
    /// The driver refused an allocation that was within the grant: some fact is wrong. Answered under `ask`.
    DriverRefused {
        /// Who.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// Its number.
        ask: AskId,
        /// What the container has charged, this allocation included.
        held: Bytes,
        /// The size the driver refused.
        bytes: Bytes,
        /// As for `Ask`.
        patience: Option<Nanos>,
    },
    /// A waiting process gave up.
    Cancel {
        /// Who.
        process: ProcessId,
        /// Which ask.
        ask: AskId,
    },
    /// What a container's usage page says it has charged.
    Usage {
        /// Whose page.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// The sum over its processes.
        in_use: Bytes,
    },
    /// A `Reclaim` was carried out: grant stored, fence, page read again.
    Reclaimed {
        /// Which reclaim; an older one is ignored.
        ticket: Ticket,
        /// Whose.
        container: ContainerId,
        /// Where.
        device: DeviceId,
        /// What its processes still hold as credit, after unused credit was taken back.
        held: Bytes,
        /// What NVML shows for its processes, where it can.
        used: Option<Bytes>,
    },
    /// A container's GPU work moved on since it was last looked at.
    Worked {
        /// Whose.
        container: ContainerId,
    },
    /// A process reports of its gate.
    Reported {
        /// Which.
        process: ProcessId,
        /// Where.
        device: DeviceId,
        /// The turn it speaks of; about any other it is old news.
        epoch: u64,
        /// What it says.
        report: Report,
    },
    /// A look at the device itself.
    Sampled {
        /// Which.
        device: DeviceId,
        /// What was seen.
        sample: Sample,
    },
}

/// Device facts, from NVML.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the look began: what happened before it shows in it. One older than the last is ignored.
    pub taken: Nanos,
    /// Memory in use on the device.
    pub used: Bytes,
    /// Memory the driver could still give.
    pub free: Bytes,
    /// The processes of registered containers that hold memory, living or dead. `None` where NVML cannot tell.
    pub processes: Option<Vec<ProcessSample>>,
}

/// One process in a sample.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    /// Which.
    pub process: ProcessId,
    /// What the driver says it holds.
    pub used: Bytes,
    /// What its slot said it had charged, if the slot was the same before and after the sample.
    pub charged: Option<Bytes>,
}
