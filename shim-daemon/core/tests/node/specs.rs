//! The terms of tenants that do not move, for scenes.

use super::bare;
use gpushare_core::{Bytes, DeviceId, Preemptible, Quota, Resolver, TenantSpec};

/// `request` and `limit` in GiB on one device; waits, and may not be ended.
pub fn spec(device: DeviceId, request: u64, limit: u64) -> TenantSpec {
    let quota = Quota {
        request: Bytes::gib(request),
        limit: Bytes::gib(limit),
    };
    bare::spec(device, quota)
}

/// The same, and other tenants may end it while it holds more than its request.
pub fn killable(device: DeviceId, request: u64, limit: u64) -> TenantSpec {
    TenantSpec {
        preemptible: Preemptible::Kill,
        ..spec(device, request, limit)
    }
}

/// The same with another priority.
pub fn ranked(priority: u16, spec: TenantSpec) -> TenantSpec {
    TenantSpec { priority, ..spec }
}

/// The same with other resolvers, in order.
pub fn resolving(resolvers: &[Resolver], spec: TenantSpec) -> TenantSpec {
    TenantSpec {
        on_collision: resolvers.to_vec(),
        ..spec
    }
}
