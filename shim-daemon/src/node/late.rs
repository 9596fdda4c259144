//! Processes of the previous daemon that have not come, once a page of it shows their rows ([ADR
//! 241](../../../docs/adr/0241-a-process-that-has-not-come-is-counted-by-its-row.md)).
//!
//! The library adds up all rows of the page. So the daemon counts them too: such a process is a
//! member of its tenant, without a connection and by the previous daemon's control page, until it
//! comes or ends. What it holds is its tenant's then, and no other tenant is granted what it may
//! charge without a question.

use gpushare_core::{Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::page::residency::Movability;

use super::awaited::{Awaited, Member};
use super::processes::Process;
use super::tenant::Tenant;
use super::{Client, Node};
use crate::peer::{Peer, inspect};

impl Node {
    /// Makes the awaited processes of a tenant members, whose rows a page of the previous daemon
    /// shows: without a connection, and by the old page. Not before a look has shown that they are
    /// what was written down: another process may have the pid. Not while they are just coming; nor
    /// where memory moves: only a process itself says where its own is.
    pub(super) fn seat_late(&mut self, now: Nanos, tenant: TenantId) {
        let known = self.tenants.get(&tenant).filter(|_| !self.is_recovering());
        let fixed = |known: &&Tenant| known.control().view().movability() == Movability::Fixed;
        let Some(known) = known.filter(fixed) else {
            return;
        };
        let awaited = known.awaited().iter();
        let identified = awaited.filter(|(_, awaited)| awaited.is_identified());
        let rows = identified.filter_map(|(process, awaited)| {
            let Member { pid, start, .. } = awaited.member;
            Some((known.late_slot(pid, start)?, *process, pid))
        });
        for (slot, process, pid) in rows.collect::<Vec<_>>() {
            // Of a process that the kernel does not show nothing changes.
            let Ok(seen) = inspect(pid) else { continue };
            let Some(known) = self.tenants.get_mut(&tenant) else {
                return;
            };
            if known.seated(slot).is_some() {
                // Two rows cannot be one process's.
                continue;
            }
            let awaited = known.awaited_mut().remove(&process);
            let Some(Awaited { member, pidfd, .. }) = awaited else {
                continue;
            };
            let peer = Peer {
                pid: pid.cast_signed(),
                uid: seen.uids.get(1).copied().unwrap_or_default(),
                pidfd,
                cgroup: seen.cgroup,
                groups: seen.groups,
            };
            known.seat(slot, process);
            let late = Process::late((tenant, slot), peer, member.start);
            self.processes.add(process, late);
            self.away.awaited(process, member.program);
            let (adopted, gated) = (false, true);
            self.happened(
                now,
                Event::ProcessStarted {
                    process,
                    tenant,
                    adopted,
                    gated,
                },
            );
            self.happened(now, Event::Late { process });
            self.present(now, process);
            self.went_away(now, process);
        }
    }

    /// Such a member that is another program holds nothing, and may never come: it is none any
    /// more. Whether it was one.
    pub(super) fn late_is_another(&mut self, now: Nanos, process: ProcessId) -> bool {
        let known = self.processes.get(process);
        let is = known.is_some_and(Process::is_late) && self.away.is_another(process);
        if is && let Some(tenant) = self.unregister(now, process, false) {
            self.end_if_unused(now, tenant);
        }
        is
    }

    /// Such a member has come.
    pub(super) fn comes_late(&mut self, now: Nanos, process: ProcessId, client: Client) {
        let (tenant, gated) = (client.tenant, client.gated);
        let Some(known) = self.processes.get(process) else {
            return;
        };
        let (pid, cgroup) = (known.pid(), known.peer().cgroup.clone());
        let started = Event::ProcessStarted {
            process,
            tenant,
            adopted: false,
            gated,
        };
        self.happened(now, started);
        self.present(now, process);
        self.entered(tenant, &cgroup);
        self.settle_cgroup(tenant, &cgroup);
        self.read_counters(process);
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        known.accepted(pid);
        for device_index in 0..known.device_ids().len() {
            self.read_usage(now, tenant, device_index);
        }
    }
}
