//! The step before a tenant's own resolvers. Within its request a tenant may take back borrowed
//! memory from tenants of any priority, if they allowed to be ended.

use super::victims::fewest_bytes;
use super::{Case, Resolve, Verdict};

pub(crate) struct Burst;

impl Resolve for Burst {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        fewest_bytes(case.candidates, case.short).map_or(Verdict::Pass, Verdict::End)
    }
}
