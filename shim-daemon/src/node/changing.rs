//! Changes of limits that are asked for while processes of the previous daemon may still present
//! their memory: whether there is room for them is known once all had time to.

use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, WireError};

use super::{ConnId, Node};

/// The most changes that wait.
const MOST: usize = 256;
/// The same of one user's commands.
const MOST_OF_A_USER: usize = 16;
/// The same of all users but root together, so that root's have room.
const MOST_OF_USERS: usize = 128;

/// The commands that wait, with what they ask, in their order.
pub(super) type Waiting = Vec<(ConnId, u32, Control)>;

impl Node {
    /// A command changes limits during the recovery. A change that would be refused then as well is
    /// refused at once: of what waits, each has a length that is bounded.
    pub(super) fn wait_to_change(
        &mut self,
        (from, id): (ConnId, u32),
        request: &Control,
    ) -> Result<Option<ControlReply>, WireError> {
        if let Control::Set { tenant, changes } = request {
            self.may_say(changes)?;
            let known = self.named_for(from, tenant)?;
            if let Some(known) = self.tenants.get(&known) {
                self.may_change(known, changes)?;
            }
        }
        let waiting = self.changes.iter().map(|(from, ..)| *from);
        let of_users = self.users.among(from, waiting);
        let is_full =
            of_users.is_some_and(|(theirs, all)| theirs >= MOST_OF_A_USER || all >= MOST_OF_USERS);
        if is_full || self.changes.len() >= MOST {
            let text = "programs of the previous daemon are being counted; try again in a moment";
            return Err(WireError::retry(ErrorCode::Full, text));
        }
        self.changes.push((from, id, request.clone()));
        Ok(None)
    }

    /// A command's connection has ended: nothing is changed for it.
    pub(super) fn changes_no_more(&mut self, connection: ConnId) {
        self.changes.retain(|(from, ..)| *from != connection);
    }

    /// The recovery is over.
    pub(super) fn change_later(&mut self, now: Nanos) {
        for (from, id, request) in std::mem::take(&mut self.changes) {
            self.command(now, from, id, &request);
        }
    }
}
