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

/// A tenant's membership of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bond {
    /// Its gang is closed.
    pub(super) shut: bool,
    pub(super) wish: Option<Wish>,
}
