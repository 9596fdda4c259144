//! The tenant under which a process runs that never registered: its library was left out, by a
//! variable that was replaced or cleared, or by another linker. For the words of an event; nothing
//! is decided by it.

use std::collections::BTreeMap;
use std::path::Path;

use gpushare_core::{ProcessId, TenantId};

use super::processes::Process;
use super::{ConnId, Node};
use crate::groups::{Groups, below};
use crate::small_file;

/// The most ancestors that are looked at.
const ANCESTORS: usize = 64;

/// What is compared with each of several processes.
pub(super) struct Above {
    containers: Vec<(TenantId, Groups)>,
    by_pid: BTreeMap<u32, ProcessId>,
}

impl Node {
    /// A command sent hello, and this is its process.
    pub fn command_is(&mut self, connection: ConnId, pid: i32) {
        if let Ok(pid) = u32::try_from(pid) {
            self.watch.commands.insert(connection, pid);
        }
    }

    /// The tenant whose own cgroup the process is in, or from whose process or command it descends.
    /// Not that of a process which happens to be in the same cgroup: a user's session has other
    /// programs, too.
    pub(super) fn runs_under(&self, pid: u32, above: &Above) -> Option<TenantId> {
        let of_cgroup = self.of_cgroup(pid, &above.containers);
        of_cgroup.or_else(|| self.of_ancestors(pid, &above.by_pid))
    }

    /// As all is now.
    pub(super) fn above(&self) -> Above {
        Above {
            containers: self.containers_own_groups(),
            by_pid: self.processes.by_pid(),
        }
    }

    fn of_cgroup(&self, pid: u32, containers: &[(TenantId, Groups)]) -> Option<TenantId> {
        let table = std::fs::read_to_string(self.watch.of_process(pid).join("cgroup")).ok()?;
        let groups = Groups::parse(&table);
        let within = containers.iter().filter(|(_, own)| groups.are_within(own));
        // A container may be in another one: it is the inner one's.
        let container = within.max_by_key(|(_, own)| own.depth());
        let home = self.watch.home();
        let made = || {
            let is_in = |group: &str| {
                let mut lines = table.lines();
                !below(home, group) && lines.any(|line| below(path(line), group))
            };
            let mut all = self.tenants.iter();
            let found =
                all.find(|(_, known)| known.registration().cgroup.as_deref().is_some_and(is_in));
            found.map(|(id, _)| *id)
        };
        container.map(|(id, _)| *id).or_else(made)
    }

    fn of_ancestors(&self, pid: u32, by_pid: &BTreeMap<u32, ProcessId>) -> Option<TenantId> {
        let mut next = parent(&self.watch.of_process(pid));
        for _ in 0..ANCESTORS {
            let pid = next.filter(|pid| *pid > 1)?;
            let process = by_pid.get(&pid).and_then(|id| self.processes.get(*id));
            let found = process
                .map(Process::tenant)
                .or_else(|| self.of_command(pid));
            if found.is_some() {
                return found;
            }
            next = parent(&self.watch.of_process(pid));
        }
        None
    }

    fn of_command(&self, pid: u32) -> Option<TenantId> {
        let commands = self.watch.commands.iter();
        let mut its = commands.filter(|(_, known)| **known == pid);
        its.find_map(|(connection, _)| {
            let mut all = self.tenants.iter();
            let kept = all.find(|(_, known)| known.is_kept_by(*connection));
            kept.map(|(id, _)| *id)
        })
    }
}

/// The cgroup of a line of `/proc/PID/cgroup`.
fn path(line: &str) -> &str {
    line.splitn(3, ':').nth(2).unwrap_or("")
}

/// The parent of the process with this folder in `/proc`.
fn parent(folder: &Path) -> Option<u32> {
    let status = small_file::with_a_name(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
