//! Identities: opaque numbers the daemon hands out once and never reuses, so that a late message about something
//! dead can be told from news about its successor.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// A container: the unit of quota, one or more processes.
    ContainerId;
    /// A process of a container; names one life of a pid, not the pid.
    ProcessId;
    /// A device. Outside the core it is keyed by its UUID (MIG: with GPU and compute instance).
    DeviceId;
    /// A request of one process, numbered by that process.
    AskId;
    /// A reclaim the daemon was told to carry out.
    Ticket;
    /// A (GPU model, driver) pair: what a context costs is learned per class.
    CostClass;
}

/// An ask, node-wide: who asked and its number.
pub type AskKey = (ProcessId, AskId);

/// Containers whose kernels wait for each other, on whatever devices. A name of one user's gang is
/// not another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gang {
    /// Whose it is; `None` for the machine's own user.
    pub owner: Option<u32>,
    /// Its name among that user's.
    pub name: String,
}
