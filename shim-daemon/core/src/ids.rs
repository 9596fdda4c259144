//! Identifiers: opaque numbers that the daemon issues once and never reuses. So a late message
//! about a dead object is never taken for one about its successor.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// A tenant: the unit of quota, one or more processes.
    TenantId;
    /// A process of a tenant; names one life of a pid, not the pid.
    ProcessId;
    /// A device. Outside the core it is keyed by its UUID (MIG: with GPU and compute instance).
    DeviceId;
    /// A request of one process, numbered by that process.
    AskId;
    /// A reclaim that the daemon was ordered to carry out.
    ReclaimId;
    /// A (GPU model, driver) pair. The cost of a context is measured per class.
    CostClass;
}

/// An ask, node-wide: the asking process and its number.
pub type AskKey = (ProcessId, AskId);

/// Tenants whose kernels wait for each other, on any devices. Equal gang names of different users
/// are different gangs, and so are those of pods of different namespaces: all containers of a
/// runtime that runs as root are the machine's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gang {
    /// The owner; `None` for the machine's own user.
    pub owner: Option<u32>,
    /// The namespace of the tenant's pod, where it is a container of one.
    pub namespace: Option<String>,
    /// Its name among theirs.
    pub name: String,
}
