//! `wait`: stay in the queue of the device. The queue's order, its timeouts and the breaking of cycles are the
//! world's, because they concern all waiters at once.

use super::{Case, Resolve, Verdict};

pub(super) struct Wait;

impl Resolve for Wait {
    fn resolve(&self, _: &Case<'_>) -> Verdict {
        Verdict::Wait
    }
}
