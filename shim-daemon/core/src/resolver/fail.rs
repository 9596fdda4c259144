//! `fail`: out-of-memory at once.

use super::{Case, Resolve, Verdict};

pub(super) struct Fail;

impl Resolve for Fail {
    fn resolve(&self, _: &Case<'_>) -> Verdict {
        Verdict::Refuse
    }
}
