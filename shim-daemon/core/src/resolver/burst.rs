//! The step before a tenant's own resolvers. Within its request a tenant may take back borrowed
//! memory from tenants of any priority, if they allowed to be moved or ended. No tenant is ended
//! where moves are enough.

use super::swap;
use super::victims::fewest_bytes;
use super::{Case, Resolve, Verdict};

pub(crate) struct Burst;

impl Resolve for Burst {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        let moves = swap::choose(case);
        let some = !case.short.is_zero();
        if some
            && matches!(
                moves,
                Verdict::Move(_) | Verdict::Turn { certain: true, .. }
            )
        {
            return moves;
        }
        fewest_bytes(case.candidates, case.short).map_or(Verdict::Pass, Verdict::End)
    }
}
