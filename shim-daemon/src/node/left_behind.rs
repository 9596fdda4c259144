//! Host memory and stored bytes of registrations that ended while their processes live on.
//!
//! A process may register anew as often as it likes, and keeps the descriptors of what it was given
//! before. So that counts for its tenant until the process ends, or until the kernel shows that it
//! is another program, to which the bytes are of no use: then they are given back. Where the kernel
//! does not tell, a registration without a page is another program's, for a program that goes on
//! shows its page.

use std::collections::BTreeMap;

use gpushare_core::{ProcessId, TenantId};

use super::vacated::{Program, Seen};
use super::{Effect, Node};

/// Former registrations of one process that count. Of more, the oldest is given back: each keeps a
/// file open.
const MOST: usize = 8;

/// A registration that has ended, though its process has not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) tenant: TenantId,
    pub(super) pid: i32,
    /// What it ran, where the kernel told.
    pub(super) program: Option<Program>,
    /// Whether its process showed a page when it registered anew.
    pub(super) shows: bool,
}

impl Left {
    /// Whether the process runs another program by now.
    fn is_former(&self, now: Option<Program>) -> bool {
        match self.program.zip(now) {
            Some((before, now)) => before != now,
            None => !self.shows,
        }
    }
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(BTreeMap<ProcessId, Left>);

impl LeftBehind {
    /// The former registrations in a tenant.
    pub(super) fn of(&self, tenant: TenantId) -> impl Iterator<Item = ProcessId> {
        self.those(move |left| left.tenant == tenant)
    }

    fn those(&self, are: impl Fn(&Left) -> bool) -> impl Iterator<Item = ProcessId> {
        let all = self.0.iter().filter(move |(_, left)| are(left));
        all.map(|(process, _)| *process)
    }

    /// The tenant of such a registration.
    pub(super) fn tenant(&self, process: ProcessId) -> Option<TenantId> {
        self.0.get(&process).map(|left| left.tenant)
    }
}

impl Node {
    /// A registration has ended, and its process lives on.
    pub(super) fn leaves_behind(&mut self, process: ProcessId, left: Left) {
        let moves = &mut self.residency;
        if !moves.host.has_any(process) && moves.storing.files(process) == 0 {
            self.forget_moves(process, left.tenant);
            return self.effect(Effect::Unwatch { process });
        }
        moves.left.0.insert(process, left);
        moves.storing.leaves(process);
        self.forget_reports(process);
        let same = self.residency.left.those(|other| other.pid == left.pid);
        let same: Vec<ProcessId> = same.collect();
        for oldest in same.iter().take(same.len().saturating_sub(MOST)) {
            self.gives_up(*oldest);
        }
        self.tell_held(left.tenant);
    }

    /// The process of this pid was looked at.
    pub(super) fn left_seen(&mut self, pid: i32, seen: Seen) {
        let program = seen.program();
        let left = &self.residency.left;
        let former = left.those(|left| left.pid == pid && left.is_former(program));
        for process in former.collect::<Vec<_>>() {
            self.gives_up(process);
        }
    }

    /// What former registrations have in a tenant that ends is free.
    pub(super) fn left_tenant_ends(&mut self, tenant: TenantId) {
        for process in self.residency.left.of(tenant).collect::<Vec<_>>() {
            self.gives_up(process);
        }
    }

    /// What a former registration has is free. Whether this is one.
    pub(super) fn gives_up(&mut self, process: ProcessId) -> bool {
        let Some(left) = self.residency.left.0.remove(&process) else {
            return false;
        };
        self.forget_moves(process, left.tenant);
        self.effect(Effect::Unwatch { process });
        true
    }
}
