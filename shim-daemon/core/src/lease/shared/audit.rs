//! Records a shared device's bills and modes in its audit counters.

use super::Shared;
use super::done::Done;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::time::Nanos;
use std::collections::BTreeMap;

impl Shared {
    /// Compares the bills of the last `span` with the clock. The gates have not changed since the
    /// span.
    pub(super) fn audit(
        &mut self,
        done: &BTreeMap<TenantId, Done>,
        bills: &BTreeMap<TenantId, u64>,
        span: Nanos,
    ) {
        let runs = |id: &TenantId| {
            let tenant = self.roster.get(*id);
            tenant.is_some_and(Tenant::runs)
        };
        let open = done.iter().filter(|(id, _)| runs(id));
        let pending: Vec<u64> = open.map(|(_, done)| done.pending).collect();
        self.books.note(span, &pending, bills.values().sum());
    }

    /// Remembers when the mode changes.
    pub(super) fn note_mode(&mut self) {
        self.books.changed(self.now, self.steering.mode().1);
    }

    /// Changes of the mode in the minute before `now`, and by how many thousandths the bills are
    /// off the clock.
    pub(crate) fn audited(&self, now: Nanos) -> (u32, Option<i32>) {
        (self.books.changes_since(now), self.books.off())
    }
}
