//! `wait`: stay in the queue of the device. The world keeps the queue's order and timeouts and
//! breaks cycles, because these concern all waiting asks at once. An ask without time to wait is
//! refused at once.

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
