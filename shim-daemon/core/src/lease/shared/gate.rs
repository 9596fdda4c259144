//! The state that a tenant's gates are set to, and for which tenant.

use crate::ids::TenantId;
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

impl Gate {
    /// This gate, for that tenant.
    pub(super) fn of(self, tenant: TenantId) -> Aim {
        Aim {
            gate: self,
            by: Some(tenant),
        }
    }

    /// This gate, for no other tenant's sake.
    pub(super) fn own(self) -> Aim {
        Aim {
            gate: self,
            by: None,
        }
    }
}

/// A gate that a tenant is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    pub(super) gate: Gate,
    /// The tenant for which it is closed or in slices.
    pub(super) by: Option<TenantId>,
}
