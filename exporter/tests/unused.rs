//! A tenant may use all devices of a node by default, and mostly uses one.

use gpushare_exporter::{Family, Format, Sample, Snapshot, encode, families};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::{ShareState, TenantMetrics, TenantRow};

use crate::sample::{self, GPU};

const DEVICES: u8 = 8;

/// The devices of the node. The first is that of the sample.
fn uuid(device: u8) -> [u8; 16] {
    [device + 1; 16]
}

fn nothing_counted(name: &str, device: [u8; 16]) -> TenantMetrics {
    TenantMetrics {
        name: name.to_owned(),
        device,
        peak: 0,
        refused_limit: 0,
        refused_wait_timeout: 0,
        refused_no_room: 0,
        refused_driver: 0,
        allocation_waits: Histogram::default(),
        gpu_ns: 0,
        gate_waits: Histogram::default(),
        waiting_ns: 0,
        turns: 0,
        overruns: 0,
        busy_ns: None,
    }
}

/// So many tenants, each of which may use eight devices. The processes of each are in the rows of
/// all its devices, as a daemon tells them.
fn may_use_eight(tenants: usize, uses: impl Fn(u8) -> bool) -> Snapshot {
    let mut node = sample::node();
    let kinds = [
        node.tenants[0].clone(),
        TenantRow {
            charged: 0,
            overhead: 0,
            ..node.tenants[0].clone()
        },
    ];
    let device = node.devices[0].clone();
    let measured = node.measures[0].clone();
    let share = node.shares[0].clone();
    let (place, moves) = (node.residency[0].clone(), node.swaps[0].clone());
    node.devices = (0..DEVICES)
        .map(|at| {
            let mut device = device.clone();
            device.uuid = uuid(at);
            device
        })
        .collect();
    node.tenants.clear();
    (node.measures, node.shares, node.identities) = (vec![], vec![], vec![]);
    (node.residency, node.swaps) = (vec![], vec![]);
    for tenant in 0..tenants {
        let name = format!("run-{tenant:012x}");
        for at in 0..DEVICES {
            let (used, device) = (uses(at), uuid(at));
            let row = kinds[usize::from(!used)].clone();
            let name = || name.clone();
            node.tenants.push(TenantRow {
                name: name(),
                device,
                ..row
            });
            node.measures.push(match used {
                true => TenantMetrics {
                    name: name(),
                    device,
                    ..measured.clone()
                },
                false => nothing_counted(&name(), device),
            });
            let (mut share, mut place, mut moves) = (share.clone(), place.clone(), moves.clone());
            (share.name, share.device) = (name(), device);
            (place.name, place.device) = (name(), device);
            (moves.name, moves.device) = (name(), device);
            if !used {
                (place.movable, place.away, place.moved) = (0, 0, 0);
                (share.weight, share.over_ms, share.state) = (0, 0, ShareState::Idle);
            }
            node.shares.push(share);
            node.residency.push(place);
            node.swaps.push(moves);
        }
    }
    node
}

/// Samples of tenants on the device of this place, by the names of their families.
fn on(node: &Snapshot, device: u8) -> Vec<&'static str> {
    let place = device.to_string();
    let is_there = |sample: &Sample| {
        let has = |label: &str| sample.labels.iter().find(|(key, _)| *key == label);
        has("tenant").is_some() && has("gpu").is_some_and(|(_, value)| *value == place)
    };
    let all = families(Some(node)).into_iter();
    let all = all.filter(|family: &Family| family.samples.iter().any(is_there));
    all.map(|family| family.name).collect()
}

#[test]
fn a_device_that_a_tenant_never_used_has_only_what_it_may() {
    let node = may_use_eight(1, |device| device == 3);
    let unused = [
        "gpushare_tenant_memory_limit_bytes",
        "gpushare_tenant_memory_request_bytes",
        "gpushare_tenant_memory_grant_bytes",
        "gpushare_tenant_memory_charged_bytes",
    ];
    for device in [0, 7] {
        assert_eq!(on(&node, device), unused, "{device}");
    }
    assert!(on(&node, 3).len() > 25, "{:?}", on(&node, 3));
}

/// Without a process there it has no part that could be told, and nothing is counted. A higher
/// priority leaves one that has a process a part of 0.
#[test]
fn a_tenant_has_a_share_of_a_device_once_it_has_a_process_there() {
    let name = "gpushare_tenant_share_ratio";
    for (weight, over_ms, state, is_there) in [
        (700, 9_000, ShareState::Idle, true),
        (700, 0, ShareState::Idle, true),
        (0, 9_000, ShareState::Idle, true),
        (0, 0, ShareState::Held { for_us: 1 }, true),
        (0, 0, ShareState::Idle, false),
    ] {
        let mut node = may_use_eight(1, |_| true);
        let share = &mut node.shares[0];
        (share.weight, share.over_ms, share.state) = (weight, over_ms, state);
        let told = on(&node, 0).contains(&name);
        assert_eq!(told, is_there, "{:?}", node.shares[0]);
        assert!(on(&node, 1).contains(&name), "another device");
    }
}

/// One fact says that a device is used.
fn is_used(change: impl FnOnce(&mut Snapshot)) -> bool {
    let mut node = may_use_eight(1, |_| false);
    change(&mut node);
    on(&node, 0).len() > 20
}

#[test]
fn a_device_is_used_once_something_is_held_or_counted_there() {
    assert!(!is_used(|_| {}));
    assert!(is_used(|node| node.tenants[0].overhead = 1));
    assert!(is_used(|node| node.tenants[0].limbo = 1));
    assert!(is_used(|node| node.measures[0].refused_limit = 1));
    assert!(is_used(|node| node.measures[0].gate_waits.record(1)));
    assert!(is_used(|node| node.residency[0].moved = 1));
    assert!(is_used(|node| node.measures[0].busy_ns = Some(1)));
    assert!(!is_used(|node| node.measures[0].busy_ns = Some(0)));
    assert!(!is_used(|node| node.tenants[1].overhead = 1), "another");
}

#[test]
fn what_an_alert_is_for_is_told_of_any_device() {
    let node = |change: fn(&mut Snapshot)| {
        let mut node = may_use_eight(1, |_| false);
        change(&mut node);
        on(&node, 0)
    };
    let excess = node(|node| {
        let row = &mut node.excess[0];
        (row.name, row.device) = ("run-000000000000".to_owned(), GPU);
    });
    assert!(excess.contains(&"gpushare_tenant_memory_excess_bytes"));
    let ungated = node(|node| node.shares[0].ungated = 1);
    assert!(ungated.contains(&"gpushare_tenant_ungated_processes"));
}

/// The exporter's unit has a bound for its memory.
#[test]
fn a_users_tenants_on_eight_devices_are_a_bounded_text() {
    let size = |uses: fn(u8) -> bool| {
        let node = may_use_eight(256, uses);
        encode(families(Some(&node)), Format::Prometheus).len()
    };
    let (one, all) = (size(|device| device == 0), size(|_| true));
    assert!(one < 6 << 20, "{one}");
    assert!(all < 40 << 20, "{all}");
}
