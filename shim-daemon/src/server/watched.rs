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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use gpushare_protocol::wire::{ControlReply, Listing, Register, Rows};

    use super::*;
    use crate::groups::Groups;
    use crate::node::{Client, ConnId, Effect, Settings};
    use crate::peer::{Peer, inspect};
    use crate::server::still::{server, tenant};

    /// How many processes the tenant has.
    fn members(server: &mut Server) -> usize {
        let list = Listing::Tenants.first();
        server.node.command(clock::now(), ConnId(8), 1, &list);
        while let Some(effect) = server.node.poll_effect() {
            if let Effect::Command { reply, .. } = effect
                && let ControlReply::Page { rows, .. } = reply
                && let Rows::Tenants(rows) = rows
            {
                return rows.iter().map(|row| row.processes.len()).sum();
            }
        }
        panic!("no answer")
    }

    #[test]
    fn the_end_of_a_process_that_cannot_be_watched_is_seen_by_a_tick() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let client = Client {
            connection: ConnId(7),
            tenant: tenant(&mut server),
            process: None,
            gated: false,
            moves: false,
        };
        let register = Register {
            pid: child.id(),
            presents_page: false,
            slot: None,
        };
        let peer = Peer {
            pid: child.id().cast_signed(),
            uid: 0,
            pidfd: inspect(child.id()).unwrap().pidfd,
            cgroup: "/session".to_owned(),
            groups: Groups::default(),
        };
        let node = &mut server.node;
        let process = node.register(clock::now(), client, (1, &register), peer, None);
        let watch = std::iter::from_fn(|| node.poll_effect()).find_map(|effect| match effect {
            Effect::Watch { process, pidfd } => Some((process, pidfd)),
            _ => None,
        });
        let (of, pidfd) = watch.unwrap();
        assert_eq!(Some(of), process);
        // epoll refuses a descriptor that it has already, as it does one beyond the kernel's bound.
        let taken = server.poller.add(pidfd.as_fd(), Source::Process(of));
        taken.unwrap();
        server.watch(of, pidfd);
        let mut tick = || {
            server.next_tick = clock::now();
            server.pass_time().unwrap();
            members(&mut server)
        };
        assert_eq!(tick(), 1, "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tick(), 0);
    }
}
