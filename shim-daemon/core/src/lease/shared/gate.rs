//! The state that a tenant's gates are set to.

use crate::time::Nanos;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gate {
    /// Unbound; work is not recorded.
    Free,
    /// Open; submitted work is recorded.
    #[default]
    Noted,
    /// Open, with this much work at a time.
    Slice(Nanos),
    /// Closed.
    Shut,
}
