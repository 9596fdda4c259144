//! Which variables a tenant may have: how many, how long together, and of which names.
//!
//! Any user of the machine registers and changes tenants, and the loop works at their variables
//! itself. So all of this is looked at first ([ADR
//! 212](../../../docs/adr/0212-what-a-user-asks-is-bounded-before-it-is-worked-at.md)).

use gpushare_protocol::limits;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::tenant::Tenant;

/// Bytes of the variables of one tenant.
const MOST_TOLD: usize = 64 << 10;
/// The variables of one tenant, and the changes in one request. There are fewer than 200 names
/// that a tenant on 16 devices can use at a time.
const MOST: usize = 512;

impl Node {
    /// Refuses more variables, or longer ones, than any limits need.
    pub(super) fn may_say(&self, environment: &[(String, String)]) -> Result<(), WireError> {
        let refuse = |text: String| Err(WireError::new(ErrorCode::BadLimits, text));
        if environment.len() > MOST {
            let count = environment.len();
            return refuse(format!(
                "{count} of the limits' variables at once are refused; accepted: at most {MOST}"
            ));
        }
        let lengths = environment
            .iter()
            .map(|(name, value)| name.len() + value.len());
        if lengths.sum::<usize>() > MOST_TOLD {
            let text = "the limits' variables are longer than 64 KiB together; give fewer";
            return refuse(text.to_owned());
        }
        Ok(())
    }

    /// Refuses changes of a tenant that are too many, mean nothing, or would have no effect.
    pub(super) fn may_change(
        &self,
        tenant: &Tenant,
        changes: &[(String, String)],
    ) -> Result<(), WireError> {
        self.may_say(changes)?;
        if let Some((name, _)) = changes.iter().find(|(name, _)| limits::means_nothing(name)) {
            let text = format!("{name:?} is refused: no limit of a tenant has that name");
            return Err(WireError::new(ErrorCode::BadLimits, text));
        }
        self.may_change_part(tenant, changes)
    }
}

/// Those that mean something. The others would be kept, stored and copied for nothing.
pub(super) fn meant(environment: &[(String, String)]) -> Vec<(String, String)> {
    let all = environment.iter();
    let meant = all.filter(|(name, _)| !limits::means_nothing(name));
    meant.cloned().collect()
}
