//! Changes of limits that are asked for while processes of the previous daemon may still present
//! their memory: whether there is room for them is known once all had time to.

use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, WireError};

use super::{ConnId, Node};

/// The most changes that wait.
const MOST: usize = 256;

/// The commands that wait, with what they ask, in their order.
pub(super) type Waiting = Vec<(ConnId, u32, Control)>;

impl Node {
    /// A command changes limits during the recovery.
    pub(super) fn wait_to_change(
        &mut self,
        (from, id): (ConnId, u32),
        request: &Control,
    ) -> Result<Option<ControlReply>, WireError> {
        if self.changes.len() >= MOST {
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
