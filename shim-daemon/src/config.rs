//! From limits as people write them to what the brain is told.

use gpushare_core::{ContainerSpec, DeviceId, Nanos, Preemptible, Quota, Resolver};
use gpushare_protocol::limits::Limits;

/// The brain's terms of a container's limits.
#[must_use]
pub fn spec_of(limits: &Limits, quotas: Vec<(DeviceId, Quota)>) -> ContainerSpec {
    let _ = limits;
    ContainerSpec {
        quotas,
        priority: 500,
        on_collision: vec![Resolver::Wait],
        wait_timeout: Nanos::secs(30),
        idle_after: Nanos::secs(5),
        preemptible: Preemptible::Never,
        idle_end: None,
        run_limit: None,
    }
}
