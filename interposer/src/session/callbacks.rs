//! The functions of the layers above that the session calls.

/// The functions of the layers above that the session calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callbacks {
    /// The capabilities that this process reports to the daemon (`Hello::capabilities`).
    pub(crate) capabilities: fn() -> u64,
    /// Calls a function under the tenant lock, or does not call it if the lock cannot be had.
    pub(crate) locked: fn(&mut dyn FnMut()),
    /// Looks at the turns anew: the daemon that gave them has gone, or another one has come.
    pub(crate) turns_change: fn(),
}
