//! Keeps one registration per process, and its current holdings.

use std::os::fd::OwnedFd;

use gpushare_core::{Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Ask, ErrorCode, Refusal, Reply, Request, WireError};

use super::left_behind::Left;
use super::processes::Process;
use super::{Client, Node, Tenant};
use crate::connection::Passed;
use crate::foreign::Foreign;
use crate::peer::Peer;

/// What a registration takes beside memory: the pages to be sent, and a pidfd to be watched.
pub(super) type Taken = (Vec<Passed>, OwnedFd);

impl Node {
    /// The descriptors for a registration in this tenant, with the page that it presents.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        peer: &Peer,
        presented: Option<&Foreign>,
    ) -> Result<Taken, WireError> {
        let Some(tenant) = self.tenants.get(&tenant) else {
            return Err(WireError::new(ErrorCode::NotFound, "the tenant has ended"));
        };
        let pages = tenant.descriptors(presented)?;
        let pidfd = peer.pidfd.try_clone();
        Ok((pages, pidfd.map_err(|error| no_descriptor(&error))?))
    }

    /// A process registers. Its earlier registration, in whatever tenant, ends. The process may
    /// have become another program, whose connection arrives before the daemon notices the end of
    /// the old one.
    ///
    /// Returns the tenants that it has left. They end if nothing keeps them once it is registered,
    /// or refused: it may be in the same tenant again. `shows`: the process shows a page.
    pub(super) fn replace(&mut self, now: Nanos, peer: &Peer, shows: bool) -> Vec<TenantId> {
        let mut left = Vec::new();
        if peer.pid <= 0 {
            // This daemon cannot see the pid, so many processes appear under it.
            return left;
        }
        let known = self.processes.iter();
        let known = known.filter(|(_, known)| known.peer().pid == peer.pid);
        let before: Vec<ProcessId> = known.map(|(process, _)| process).collect();
        for process in before {
            let lives = |known: &Process| known.is_dead() == Some(false);
            if !self.processes.get(process).is_some_and(lives) {
                // Its pid is another's by now.
                self.process_ended(now, process);
                continue;
            }
            left.extend(self.unregister(now, process, shows));
        }
        left
    }

    /// A process registers anew, and perhaps shows a page, or is another program. Returns the
    /// tenant that it has left.
    pub(super) fn unregister(
        &mut self,
        now: Nanos,
        process: ProcessId,
        shows: bool,
    ) -> Option<TenantId> {
        self.sample_last(now, process);
        self.cancel_all(now, process, None);
        let known = self.processes.remove(process)?;
        let charged = self.charged_by(&known);
        self.note_measures(known.tenant());
        self.happened(now, Event::ProcessReplaced { process, charged });
        self.leave(now, process, &known);
        let left = Left {
            tenant: known.tenant(),
            pid: known.peer().pid,
            program: self.away.program(process),
            shows,
        };
        self.away.ended(process);
        self.leaves_behind(process, left);
        Some(known.tenant())
    }

    /// Whether the connection's process has ended, or has another connection since: over that it
    /// has registered anew, or has shown its page.
    pub(crate) fn is_former(&self, client: Client) -> bool {
        client.process.is_some_and(|process| {
            let known = self.processes.get(process);
            known.and_then(Process::connection) != Some(client.connection)
        })
    }

    /// A request over a connection whose process has ended, or has registered anew over another
    /// one. Nothing of it is kept: no end of a process would ever remove it.
    pub(super) fn answer_to_former(&mut self, client: Client, id: u32, request: &Request) {
        let to = client.connection;
        match request {
            Request::HostRange { .. } | Request::HostStore { .. } | Request::HostFetch(_) => {
                self.refuse_host(to, id, Refusal::NoMemory);
            }
            Request::Open { .. }
            | Request::OpenMore { .. }
            | Request::OpenAgain { .. }
            | Request::Ask(_)
            | Request::DriverRefused(_)
            | Request::Cancel { .. }
            | Request::Freed { .. }
            | Request::Adopted { .. }
            | Request::Register(_) => {
                let text = "this process has registered anew, over another connection";
                let error = WireError::new(ErrorCode::OutOfOrder, text);
                self.reply(to, id, Reply::Error(error));
            }
            // Reports, which are not answered.
            _ => (),
        }
    }

    /// An ask with the current holdings. The pidfd alone shows that a process has just died. Its
    /// charges are no longer held, and would make asks of live processes appear to exceed the
    /// limit.
    pub(super) fn as_it_is(&mut self, now: Nanos, tenant: TenantId, wanted: &Ask) -> Ask {
        let device_index = usize::from(wanted.device_index);
        let known = self.tenants.get(&tenant);
        let device = known.and_then(|known| known.device_ids().get(device_index).copied());
        let account = device.and_then(|device| self.world.account(tenant, device));
        let level = Bytes(wanted.held.saturating_add(wanted.bytes));
        if account.is_none_or(|account| level <= account.quota.limit) {
            return *wanted;
        }
        let members = known.into_iter().flat_map(|known| known.members());
        let dead = members.filter(|member| {
            let known = self.processes.get(*member);
            known.is_some_and(|known| known.is_dead() == Some(true))
        });
        for process in dead.collect::<Vec<_>>() {
            self.process_ended(now, process);
        }
        let held = self
            .tenants
            .get(&tenant)
            .map_or(Bytes(wanted.held), |known| known.charged(device_index));
        Ask {
            held: wanted.held.min(held.0),
            ..*wanted
        }
    }
}

impl Tenant {
    /// The control page and the usage page, to be sent. A page that a process presents becomes the
    /// usage page, unless it is refused.
    pub(super) fn descriptors(
        &self,
        presented: Option<&Foreign>,
    ) -> Result<Vec<Passed>, WireError> {
        let usage = match presented {
            Some(page) if !self.usage().is(page.file()) => {
                let copy = page.file().try_clone();
                let copy = copy.map_err(|error| no_descriptor(&error))?;
                Passed::Foreign(Foreign::new(copy.into(), page.lane()))
            }
            _ => self.usage().passed(),
        };
        Ok(vec![self.control().passed(), usage])
    }
}

fn no_descriptor(error: &std::io::Error) -> WireError {
    let text = format!("no descriptor for the process: {error}");
    WireError::retry(ErrorCode::Full, text)
}

#[cfg(test)]
mod tests;
