//! `wait`: stay in the queue of the device. The queue's order, its timeouts and the breaking of cycles are the
//! world's, because they concern all waiters at once. Who has no time to wait is told so at once.

use super::{Case, Resolve, Verdict};
use crate::time::Nanos;

pub(super) struct Wait;

impl Resolve for Wait {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        if case.patience == Nanos::ZERO {
            Verdict::Refuse
        } else {
            Verdict::Wait
        }
    }
}
