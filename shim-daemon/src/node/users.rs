//! Which users of the machine may do what: a daemon of the whole machine serves them all, and each commands what is theirs.
//!
//! Root and the daemon's own user may do everything. Anybody else may register containers, join and change their own, and
//! look at all, as `nvidia-smi` shows everybody's processes. What serves one user at another's cost, a priority above the usual, is not theirs
//! to take: as with `nice`, one may only lower oneself.

use std::collections::BTreeMap;

use gpushare_core::ContainerId;
use gpushare_protocol::limits::Policy;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::{ConnId, Node};
use crate::peer::Peer;

/// The users behind commands, without those who may do everything.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<ConnId, u32>);

impl Users {
    /// A command of this user came; `None` may do everything.
    pub(super) fn came(&mut self, connection: ConnId, user: Option<u32>) {
        match user {
            Some(user) => self.0.insert(connection, user),
            None => self.0.remove(&connection),
        };
    }

    /// It has gone.
    pub(super) fn left(&mut self, connection: ConnId) {
        self.0.remove(&connection);
    }

    /// Whose a container is that this command registers: `None` for the machine's.
    pub(super) fn of(&self, connection: ConnId) -> Option<u32> {
        self.0.get(&connection).copied()
    }
}

impl Node {
    /// Refuses a command what is not its user's.
    pub(super) fn may_command(
        &self,
        from: ConnId,
        container: ContainerId,
    ) -> Result<(), WireError> {
        let owner = self.owner(container);
        match self.users.of(from) {
            Some(user) if owner != Some(user) => Err(forbidden(
                "it is not yours; its owner or root can do that, or take another --name",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a process of another user in somebody's container. In the machine's own, users are what its images say.
    pub(super) fn may_join(&self, container: ContainerId, peer: &Peer) -> Result<(), WireError> {
        match self.owner(container) {
            Some(owner) if peer.uid != owner && peer.uid != 0 => {
                Err(forbidden("the container is another user's"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is for root to ask, of variables that are understood.
    pub(super) fn may_ask(
        &self,
        from: ConnId,
        asked: &[(String, String)],
    ) -> Result<(), WireError> {
        let most = Policy::default().priority;
        let priorities = asked.iter().filter(|(name, _)| name == "GPUSHARE_PRIORITY");
        let wanted = priorities.filter_map(|(_, value)| value.parse().ok()).max();
        let wanted: u16 = wanted.unwrap_or(0);
        if wanted > most && self.users.of(from).is_some() {
            let text = format!(
                "GPUSHARE_PRIORITY={wanted}: above {most} is for root to give on this machine; accepted: 0 to {most}"
            );
            return Err(WireError::new(ErrorCode::Forbidden, text));
        }
        Ok(())
    }

    fn owner(&self, container: ContainerId) -> Option<u32> {
        self.containers.get(&container)?.registration.owner
    }
}

fn forbidden(text: &str) -> WireError {
    WireError::new(ErrorCode::Forbidden, text)
}
