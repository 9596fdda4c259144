//! From limits as people write them to what the brain is told.

use std::time::Duration;

use gpushare_core::{ContainerSpec, DeviceId, Nanos, Preemptible, Quota, Resolver};
use gpushare_protocol::limits::{self, Limits};

/// The brain's terms of a container's limits.
#[must_use]
pub fn spec_of(limits: &Limits, quotas: Vec<(DeviceId, Quota)>) -> ContainerSpec {
    let policy = limits.policy();
    ContainerSpec {
        quotas,
        priority: policy.priority,
        on_collision: policy.on_collision.iter().map(resolver).collect(),
        wait_timeout: nanos(policy.wait_timeout),
        idle_after: nanos(policy.idle_after),
        preemptible: match policy.preemptible {
            limits::Preemptible::Never => Preemptible::Never,
            limits::Preemptible::Kill => Preemptible::Kill,
        },
        idle_end: None,
        run_limit: None,
    }
}

fn resolver(wanted: &limits::Resolver) -> Resolver {
    match wanted {
        limits::Resolver::Fail => Resolver::Fail,
        limits::Resolver::Wait => Resolver::Wait,
        limits::Resolver::Priority => Resolver::Priority,
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
