//! The step before a container's own resolvers: within its request it may take back what others borrowed from it,
//! whatever their priority, if they allowed to be ended.

use super::victims::fewest_bytes;
use super::{Case, Resolve, Verdict};

pub(crate) struct Burst;

impl Resolve for Burst {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        fewest_bytes(case.candidates, case.short).map_or(Verdict::Pass, Verdict::End)
    }
}
