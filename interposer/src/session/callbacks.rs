//! The functions of the layers above that the session calls.

/// The functions of the layers above that the session calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callbacks {
    /// What this process tells the daemon that it can do (`Hello::capabilities`).
    pub(crate) capabilities: fn() -> u64,
    /// Does something under the tenant lock, or not at all if that cannot be had.
    pub(crate) locked: fn(&mut dyn FnMut()),
    /// Looks at the turns anew: the daemon that gave them has gone, or another one has come.
    pub(crate) turns_change: fn(),
}
