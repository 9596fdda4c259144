//! Which processes may join a tenant ([ADR
//! 50](../../../docs/adr/0050-other-users-join-from-the-containers-cgroup.md)).
//!
//! A tenant of a user accepts that user's processes and root's. A tenant of the machine accepts
//! processes of root and of the daemon's user, and processes of any user in the tenant's own
//! cgroup, because images choose users. A cgroup is the tenant's own if a container runtime made
//! it, no command came from it, it is not the daemon's, and no other tenant has it. The first
//! process from such a cgroup determines it. A tenant that is a container accepts the container's
//! processes only: [`super::injected`].

use gpushare_core::TenantId;
use gpushare_protocol::wire::WireError;
use nix::unistd::geteuid;

use super::Node;
use super::users::forbidden;
use crate::cgroup;
use crate::peer::Peer;

impl Node {
    /// Refuses a process that does not belong to the tenant.
    pub(super) fn may_join(&self, tenant: TenantId, peer: &Peer) -> Result<(), WireError> {
        if let Some(answer) = self.may_join_container(tenant, peer) {
            return answer;
        }
        if self.is_trusted(tenant, peer.uid) {
            return Ok(());
        }
        if self.owner(tenant).is_some() {
            return Err(forbidden("the tenant is another user's"));
        }
        let Err(why) = self.own_cgroup(tenant, &peer.cgroup) else {
            return Ok(());
        };
        let (uid, group) = (peer.uid, &peer.cgroup);
        let is_containers = cgroup::of_machine(group).is_some() || cgroup::is_below_a_users(group);
        let instead = match is_containers {
            true => "",
            // Of a command of root's that became that user.
            false => "; start the tenant as that user, as in `su USER -c 'gpushare run -- CMD'`",
        };
        let text = format!(
            "a process of user {uid} joins the machine's own tenant only from that tenant's cgroup, and {group} {why}{instead}"
        );
        Err(forbidden(&text))
    }

    /// Whether a process can never belong to the tenant.
    pub(crate) fn bars(&self, tenant: TenantId, peer: &Peer) -> bool {
        self.may_join(tenant, peer).is_err()
    }

    /// Whether the tenant accepts processes of this user from any cgroup.
    pub(crate) fn is_trusted(&self, tenant: TenantId, uid: u32) -> bool {
        uid == 0
            || match self.owner(tenant) {
                Some(owner) => uid == owner,
                None => uid == geteuid().as_raw(),
            }
    }

    /// A process of one of the machine's tenants has joined: its tenant's cgroup is the tenant's
    /// from now on.
    pub(super) fn settle_cgroup(&mut self, tenant: TenantId, cgroup: &str) {
        let known = self.tenants.get(&tenant);
        if known.is_none_or(|known| known.registration().container.is_some()) {
            return;
        }
        if self.owner(tenant).is_some() {
            return;
        }
        let Ok(group) = self.own_cgroup(tenant, cgroup).map(str::to_owned) else {
            return;
        };
        if let Some(known) = self.tenants.get_mut(&tenant)
            && known.registration().cgroup.is_none()
        {
            known.note_cgroup(group);
            self.write_down(tenant);
        }
    }

    /// The part of a process's cgroup that is, or may become, the tenant's own; otherwise the
    /// reason why it is not.
    fn own_cgroup<'a>(&self, tenant: TenantId, cgroup: &'a str) -> Result<&'a str, &'static str> {
        let group = cgroup::of_machine(cgroup).ok_or("is none that a container runtime made")?;
        let known = self.tenants.get(&tenant);
        let registration = known.map(|known| known.registration());
        match registration.and_then(|own| own.cgroup.as_deref()) {
            Some(own) if own == group => return Ok(group),
            Some(_) => return Err("is another's"),
            None => {}
        }
        if registration.is_some_and(|own| own.commands.iter().any(|other| other == group)) {
            return Err("is that of the command which registered it");
        }
        if cgroup::of_machine(self.watch.home()) == Some(group) {
            return Err("is the daemon's");
        }
        let mut others = self.tenants.values().map(|other| other.registration());
        if others.any(|other| other.cgroup.as_deref() == Some(group)) {
            return Err("is another tenant's");
        }
        if cgroup::unified().is_some_and(|mount| !cgroup::is_roots(&mount, group)) {
            return Err("lies in a folder that is not root's");
        }
        Ok(group)
    }
}
