//! What a process reports to the daemon about its gate on one device.

/// A process's report on its gate on one device. A report names its turn. A report about any other
/// turn is outdated or a lie, and ignored.
///
/// The possible effects of a lie: the tenant's own turn is cut short, it pays for unused turns, or
/// it does not drain. Other tenants wait for an undrained turn once, and no longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A call waits at its closed gate; reported once per closed epoch.
    Wanted,
    /// Its gate is closed and all it submitted before is complete. Also when it closed by itself at
    /// its deadline: then it does not open again under that epoch.
    Drained,
    /// Its gate is open, no work is in flight, and none was submitted for the idle threshold.
    Idle,
    /// After `Idle` it submitted work again. Believed for any turn, because it only costs its own
    /// tenant.
    Busy,
}
