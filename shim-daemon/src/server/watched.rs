//! Processes of which the end is to be heard.
//!
//! The kernel bounds what pollers watch by user, and root's programs in containers count with the
//! daemon. A process for which the poller has no place is looked at once a second.

use std::os::fd::{AsFd as _, OwnedFd};

use gpushare_core::ProcessId;

use super::poller::Source;
use super::{Server, clock};
use crate::peer::is_dead;

impl Server {
    /// The end of a process is heard from now on.
    pub(super) fn watch(&mut self, process: ProcessId, pidfd: OwnedFd) {
        match self.poller.add(pidfd.as_fd(), Source::Process(process)) {
            Ok(()) => drop(self.watched.insert(process, pidfd)),
            Err(error) => {
                tracing::error!(%error, "a process cannot be watched; it is looked at once a second");
                self.unwatched.insert(process, pidfd);
            }
        }
    }

    /// It is not, any more.
    pub(super) fn unwatch(&mut self, process: ProcessId) {
        self.unwatched.remove(&process);
        if let Some(pidfd) = self.watched.remove(&process) {
            self.poller.remove(pidfd.as_fd());
        }
    }

    /// Looks at the processes for which the poller has no place, once a second.
    pub(super) fn look_at_unwatched(&mut self) {
        let ended = self.unwatched.iter();
        let ended = ended.filter(|(_, pidfd)| is_dead(pidfd).unwrap_or(false));
        for process in ended.map(|(process, _)| *process).collect::<Vec<_>>() {
            self.unwatched.remove(&process);
            self.node.process_ended(clock::now(), process);
        }
    }
}
