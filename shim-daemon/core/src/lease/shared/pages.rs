//! The work of each tenant, according to its processes' pages.

use super::Shared;
use super::done::Done;
use crate::ids::ProcessId;
use crate::lease::work::Work;
use crate::time::Nanos;

impl Shared {
    /// Notes the work of each tenant in the last `span`, according to its processes' pages.
    pub(super) fn read(&mut self, works: &[(ProcessId, Work)], span: Nanos) {
        let now = self.now;
        let active = self.roster.tenants().filter(|one| one.is_active());
        let deep = self.rules.deep(active.count().saturating_sub(1));
        for tenant in self.roster.tenants_mut() {
            (tenant.own.told, tenant.own.lively) = (None, Done::default());
            let members = &tenant.members;
            tenant.own.still.keep(|process| members.is_steered(process));
        }
        for (process, work) in works {
            let Some(tenant) = self.roster.of(*process) else {
                continue;
            };
            let Some(seen) = tenant.members.saw(*process, *work) else {
                continue;
            };
            let pending = pending(&seen, work, (now, span));
            let served = work.service.saturating_sub(seen.service);
            let done = Done {
                service: served,
                // A process that did nothing says nothing of the tenant's service.
                guessed: work.guessed && (served > 0 || pending > 0),
                works: work.since.is_some(),
                deep: work.since.is_some_and(|since| now - since > deep),
                pending,
                contexts: pending,
            };
            tenant.own.told.get_or_insert_default().add(done);
            if !tenant.own.still.note(*process, pending, served > 0) {
                tenant.own.lively.add(done);
            }
        }
    }
}

/// For how much of the last `span` a process had work pending, in thousandths.
fn pending(seen: &Work, work: &Work, (now, span): (Nanos, Nanos)) -> u64 {
    let began = now - span;
    // The count since then, less the part known at that time.
    let counted = seen.since.map_or(0, |since| (began - since).0);
    let ended = work.busy.saturating_sub(seen.busy);
    let ended = if ended > 0 {
        ended.saturating_sub(counted)
    } else {
        0
    };
    let runs = work.since.map_or(0, |since| (now - since.max(began)).0);
    ended.saturating_add(runs).min(span.0) * 1000 / span.0.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::lease::terms::{Compute, LeasePolicy};

    const TENANT: TenantId = TenantId(1);
    const PROCESS: ProcessId = ProcessId(1);

    /// Whether a process that is so was found to complete nothing, at the last of some looks.
    fn is_still(set: fn(&mut Shared)) -> bool {
        let mut shared = Shared::new(LeasePolicy::default());
        shared.joined((TENANT, PROCESS, true), (500, Compute::default()));
        let pending = Work {
            since: Some(Nanos(1)),
            ..Work::default()
        };
        let look = |shared: &mut Shared, at: u64| {
            shared.now = Nanos::millis(2 * at);
            shared.read(&[(PROCESS, pending)], Nanos::millis(2));
        };
        look(&mut shared, 1);
        look(&mut shared, 2);
        set(&mut shared);
        look(&mut shared, 3);
        let tenant = shared.roster.get(TENANT);
        tenant.is_some_and(|one| one.own.still.may_complete())
    }

    #[test]
    fn a_process_that_is_not_steered_is_not_found_to_complete_nothing() {
        assert!(is_still(|_| {}));
        assert!(!is_still(|shared| {
            shared.set_there(PROCESS, |members| members.set_away(PROCESS, true));
        }));
        assert!(!is_still(|shared| {
            shared.set_there(PROCESS, |members| members.set_sealed(PROCESS, true));
        }));
    }
}
