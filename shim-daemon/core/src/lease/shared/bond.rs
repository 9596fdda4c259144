//! A tenant's membership of a gang, and why a device would close its gate.

/// Why a device would close a gang's tenant, the weakest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// It has had more than its share.
    Ahead,
    /// A higher class, or a guarantee that is due, is behind.
    Rank,
    /// Its cap is used up now.
    Throttled,
}

/// How the neighbours of a gang with a request are steered for it: its equals that always have
/// work. Kernels that wait for peers do no work beside a neighbour that is open on one device only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// By each device, as for any tenant.
    #[default]
    Apart,
    /// They are open on all its devices.
    Open,
    /// They are held on all its devices, each for as long as it is not behind itself.
    Held,
    /// They are held on all its devices, and on those of gangs beside it, for as long as that
    /// serves all of them.
    Kept,
}

/// What is done on all devices of a gang at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joint {
    /// The gang is closed.
    pub(crate) shut: bool,
    pub(crate) neighbours: Neighbours,
    /// The gang uses less than two of its places, so no kernel waits for a peer: each of its
    /// tenants is steered as any other.
    pub(crate) loose: bool,
    /// Whether the gang uses its places is asked. It is not where it has no cap and no device with
    /// others: nothing is steered there, or looked at.
    pub(crate) asked: bool,
}

impl Joint {
    /// What is done on the devices of a gang that uses less than two of its places.
    pub(crate) const LOOSE: Self = Self {
        shut: false,
        neighbours: Neighbours::Apart,
        loose: true,
        asked: true,
    };
}

/// A tenant's membership of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bond {
    pub(crate) joint: Joint,
    pub(crate) wish: Option<Wish>,
}
