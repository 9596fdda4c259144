//! Processes of the previous daemon that live and have not come back ([ADR
//! 179](../../../docs/adr/0179-a-restarted-daemon-knows-who-was-there.md)).
//!
//! A process that runs comes back within a second. One that is stopped (Ctrl-Z, a suspended job, a
//! frozen cgroup) comes back when it continues, however late that is. Until then its tenant is
//! kept, and no new process of the tenant gets a fresh page: together they could hold twice the
//! limit. Once a page of the previous daemon was presented, the page itself knows all rows: when
//! the recovery is over, a process that has not come is a member by its row, without a connection,
//! so that what it holds and may charge is counted once ([ADR
//! 241](../../../docs/adr/0241-a-process-that-has-not-come-is-counted-by-its-row.md)).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::wire::{ErrorCode, MAJOR, WireError};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::processes::Process;
use super::tenant::Tenant;
use super::vacated::Program;
use super::{Effect, Node, Seen};
use crate::peer::{is_dead, open};

/// A registered process, as the next daemon finds it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// In the daemon's pid namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// The program that it ran, where the kernel tells. One that becomes another program holds
    /// nothing any more, and may never connect again.
    #[serde(default)]
    pub program: Option<Program>,
}

impl Member {
    /// Whether it still is what is seen under its pid now.
    pub(super) fn is(&self, seen: Option<&Seen>) -> bool {
        seen.is_some_and(|seen| {
            let programs = self.program.zip(seen.program());
            seen.start() == self.start && programs.is_none_or(|(before, now)| before == now)
        })
    }
}

/// A member that has not come back.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) member: Member,
    pub(super) pidfd: OwnedFd,
    /// A look at it is under way.
    looked_at: bool,
    /// A look showed that it is what was written down, and not another that has its pid.
    identified: bool,
    /// The signal to send once it is identified.
    due: Option<Signal>,
    /// It came, and was refused.
    refused: bool,
}

impl Awaited {
    pub(super) fn is_identified(&self) -> bool {
        self.identified
    }

    /// Signals it, if this user may end it, whose tenant it is.
    fn signal(&self, user: Option<u32>, signal: Signal) {
        if user.is_none_or(|user| crate::peer::may_end(self.member.pid, user)) {
            // A process that has already exited needs no signal.
            let _ = crate::peer::signal(&self.pidfd, signal);
        }
    }
}

impl Tenant {
    /// The processes that are connected, and those that are awaited: what the next daemon awaits.
    /// Any other without a connection is another program by now, or only looked at the page.
    fn present(&self, of: impl Fn(ProcessId) -> Option<Member>) -> Vec<Member> {
        let awaited = self.awaited().values().map(|awaited| awaited.member);
        let mut all: Vec<Member> = self.members().filter_map(of).chain(awaited).collect();
        all.sort_unstable();
        all
    }
}

impl Node {
    /// Stores the processes of all tenants whose set changed: in the tick, and when the daemon
    /// leaves.
    pub(super) fn write_down_members(&mut self) {
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            let of = |process| {
                let known = self.processes.get(process)?;
                if !known.is_late() {
                    known.connection()?;
                }
                Some(Member {
                    pid: known.pid(),
                    start: known.started()?,
                    program: self.away.program(process),
                })
            };
            let now = self.tenants.get(&tenant).map(|known| known.present(of));
            let Some(known) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            if known.note_members(now.unwrap_or_default()) && known.is_admitted() {
                self.write_down(tenant);
            }
        }
    }

    /// Awaits those of a restored tenant's processes that live.
    pub(super) fn await_members(&mut self, tenant: TenantId, members: &[Member]) {
        for member in members {
            let pidfd = i32::try_from(member.pid)
                .ok()
                .and_then(|pid| open(pid).ok());
            let Some(pidfd) = pidfd else { continue };
            let process = ProcessId(self.fresh_id());
            match pidfd.try_clone() {
                Ok(pidfd) => self.effect(Effect::Watch { process, pidfd }),
                // The next look at it tells.
                Err(error) => tracing::error!(%error, "a process cannot be watched"),
            }
            let awaited = Awaited {
                member: *member,
                pidfd,
                looked_at: false,
                identified: false,
                due: None,
                refused: false,
            };
            if let Some(known) = self.tenants.get_mut(&tenant) {
                known.awaited_mut().insert(process, awaited);
            }
        }
        self.look_at_awaited(tenant);
    }

    /// Has the awaited processes of a tenant looked at: whether they still are what they were.
    pub(super) fn look_at_awaited(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let all = known.awaited_mut().iter_mut();
        let idle = all.filter_map(|(process, awaited)| {
            let is_idle = !std::mem::replace(&mut awaited.looked_at, true);
            Some((*process, i32::try_from(awaited.member.pid).ok()?)).filter(|_| is_idle)
        });
        for (process, pid) in idle.collect::<Vec<_>>() {
            self.identify(tenant, process, pid);
        }
    }

    /// An awaited process was looked at. `false`: it is none.
    pub(super) fn awaited_seen(
        &mut self,
        now: Nanos,
        process: ProcessId,
        seen: Option<&Seen>,
    ) -> bool {
        let mut all = self.tenants.iter_mut();
        let found = all.find_map(|(tenant, known)| {
            let user = known.registration().owner;
            Some((*tenant, known.awaited_mut().get_mut(&process)?, user))
        });
        let Some((tenant, awaited, user)) = found else {
            return false;
        };
        awaited.looked_at = false;
        if !awaited.member.is(seen) {
            self.await_no_longer(now, |of, _| of == process);
            return true;
        }
        awaited.identified = true;
        if let Some(signal) = awaited.due.take() {
            awaited.signal(user, signal);
        }
        self.seat_late(now, tenant);
        true
    }

    /// Signals the awaited processes of a tenant: those that were not looked at yet once they are
    /// identified.
    pub(super) fn signal_awaited(&mut self, tenant: TenantId, signal: Signal) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let user = known.registration().owner;
        for awaited in known.awaited_mut().values_mut() {
            match awaited.identified {
                true => awaited.signal(user, signal),
                false if awaited.due == Some(Signal::SIGKILL) => {}
                false => awaited.due = Some(signal),
            }
        }
    }

    /// An awaited process has ended, by its pidfd.
    pub(super) fn awaited_ended(&mut self, now: Nanos, process: ProcessId) {
        self.await_no_longer(now, |of, _| of == process);
    }

    /// A process has registered, in whatever tenant.
    pub(super) fn has_come(&mut self, now: Nanos, pid: i32) {
        let pid = pid.unsigned_abs();
        self.await_no_longer(now, |_, member| member.pid == pid);
    }

    fn await_no_longer(&mut self, now: Nanos, is: impl Fn(ProcessId, &Member) -> bool) {
        let mut unwatched = Vec::new();
        let mut tenants = Vec::new();
        for (tenant, known) in &mut self.tenants {
            let gone = known
                .awaited_mut()
                .extract_if(.., |process, awaited| is(*process, &awaited.member));
            let before = unwatched.len();
            unwatched.extend(gone.map(|(process, _)| process));
            if unwatched.len() > before {
                tenants.push(*tenant);
            }
        }
        for process in unwatched {
            self.effect(Effect::Unwatch { process });
        }
        // Until then a command or a process that starts may claim the tenant.
        if self.claimed {
            for tenant in tenants {
                self.end_if_unused(now, tenant);
            }
        }
    }

    /// Has a process without a page try again while the tenant's page may still come.
    pub(super) fn awaits_page(&self, tenant: TenantId, pid: i32) -> Result<(), WireError> {
        let known = self.tenants.get(&tenant).filter(|known| !known.has_page());
        let mut awaited = known.into_iter().flat_map(|known| known.awaited().values());
        let other = awaited.find(|awaited| awaited.member.pid != pid.unsigned_abs());
        let Some(other) = other else {
            return Ok(());
        };
        let pid = other.member.pid;
        let text = if other.refused {
            format!(
                "process {pid} was here before the daemon's restart and is not registered again (its event says why); end it"
            )
        } else {
            format!(
                "process {pid} was here before the daemon's restart and is stopped; continue or end it"
            )
        };
        Err(WireError::retry(ErrorCode::Full, text))
    }

    /// A process came whose library speaks another major version. It never comes back. `by`: the
    /// tenant whose socket it came by. At a class's socket (`None`) it is a process of the tenants
    /// that await it.
    pub fn speaks_otherwise(&mut self, by: Option<TenantId>, pid: i32, theirs: u16) {
        let tenants = by.map_or_else(|| self.awaited_by(pid.unsigned_abs()), |by| vec![by]);
        for tenant in tenants {
            let text = format!("it speaks protocol {theirs}, this daemon {MAJOR}");
            self.not_again(tenant, pid, &WireError::new(ErrorCode::OutOfOrder, text));
        }
    }

    /// The tenants to which a process belongs that has not come back.
    fn awaited_by(&self, pid: u32) -> Vec<TenantId> {
        let late = |known: &Tenant| {
            let mut members = known.members().filter_map(|one| self.processes.get(one));
            members.any(|one| one.is_late() && one.pid() == pid)
        };
        let awaited = |known: &Tenant| {
            let mut all = known.awaited().values();
            all.any(|one| one.member.pid == pid)
        };
        let all = self.tenants.iter();
        let all = all.filter(|(_, known)| awaited(known) || late(known));
        all.map(|(tenant, _)| *tenant).collect()
    }

    /// A process came back with its page and is refused: said once for each. Of those that are not
    /// awaited only a wrong page is news: any process may try.
    pub(super) fn not_again(&mut self, tenant: TenantId, pid: i32, error: &WireError) {
        let pid = pid.unsigned_abs();
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let mut is_news = error.code == ErrorCode::BadPage;
        for awaited in known.awaited_mut().values_mut() {
            if awaited.member.pid == pid {
                (awaited.refused, is_news) = (true, true);
            }
        }
        let late = |one: &Process| one.is_late() && one.tenant() == tenant && one.pid() == pid;
        is_news |= self.processes.iter().any(|(_, one)| late(one));
        if is_news && known.note_refused(pid) {
            let text = format!(
                "process {pid} is not registered again: {}; it keeps what it holds and gets no more; end it",
                error.message
            );
            self.event("not-registered", Some(tenant), None, text);
        }
    }

    /// Tells which tenants are kept for processes that have not come back.
    pub(super) fn tell_awaited(&mut self) {
        let mut told = BTreeMap::new();
        for (tenant, known) in &self.tenants {
            let members = known.members().filter_map(|one| self.processes.get(one));
            let late = members.filter(|one| one.is_late()).map(Process::pid);
            let pids = known.awaited().values().map(|one| one.member.pid);
            let pids: Vec<String> = pids.chain(late).map(|pid| pid.to_string()).collect();
            if !pids.is_empty() {
                told.insert(*tenant, pids.join(", "));
            }
        }
        for (tenant, pids) in told {
            let text = format!(
                "is kept for processes that were here before the daemon's restart and have not come back: {pids}; continue or end them"
            );
            self.event("awaited", Some(tenant), None, text);
        }
    }

    /// Whether a process that a device lists is one that is awaited.
    pub(super) fn is_awaited(&self, pid: u32) -> bool {
        let mut all = self
            .tenants
            .values()
            .flat_map(|known| known.awaited().values());
        all.any(|awaited| {
            awaited.member.pid == pid && is_dead(&awaited.pidfd).is_ok_and(|dead| !dead)
        })
    }
}
