//! The answer to a hook, and to one that asks again.

use gpushare_core::TenantId;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Injection, WireError};

use super::{ConnId, Effect, Node};

impl Node {
    /// A container that is registered already. Its hook asks again if it was told to, or if the
    /// previous daemon ended before its answer: what was not made then is made now.
    pub(super) fn inject_again(
        &mut self,
        tenant: TenantId,
        (to, id): (ConnId, u32),
        injection: &Injection,
    ) -> Result<(), WireError> {
        let name = self.name(tenant);
        let is_same = self.tenants.get(&tenant).is_some_and(|known| {
            let registration = known.registration();
            let named = registration.container.as_ref();
            let is_named = named.is_some_and(|container| container.id == injection.id);
            let is_new = known.contained().is_some() && !known.has_members();
            is_named && is_new && registration.owner == self.users.of(to)
        });
        if !is_same {
            let text = format!(
                "this container is registered already, as tenant {name}: its hook runs twice; remove one of its hooks, or its runtime wrapper"
            );
            return Err(WireError::new(ErrorCode::OutOfOrder, text));
        }
        self.write_down(tenant);
        let folder = String::new();
        let reply = ControlReply::Created { name, folder };
        self.effect_after_listening(tenant, Effect::Command { to, id, reply });
        Ok(())
    }

    /// As [`Node::effect`], before all that waits behind the opening of the tenant's socket.
    pub(super) fn effect_after_listening(&mut self, tenant: TenantId, effect: Effect) {
        let opens =
            |one: &Effect| matches!(one, Effect::Listen { tenant: of, .. } if *of == tenant);
        let at = self.effects.iter().position(opens);
        let at = at.map_or(self.effects.len(), |at| at + 1);
        self.effects.insert(at, effect);
    }
}
