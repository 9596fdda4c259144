//! A node of two devices with every kind of row.

use gpushare_exporter::Snapshot;
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;

pub(crate) const GPU: [u8; 16] = [1; 16];
pub(crate) const MIG: [u8; 16] = [2; 16];

fn times(ns: &[u64]) -> Histogram {
    let mut times = Histogram::default();
    ns.iter().for_each(|ns| times.record(*ns));
    times
}

fn device(uuid: [u8; 16], name: &str, words: &[&str]) -> DeviceRow {
    DeviceRow {
        uuid,
        name: name.to_owned(),
        capacity: 80 * GIB,
        reserve: GIB,
        granted: 60 * GIB,
        overhead: 2 * GIB,
        limbo: 3,
        unmanaged: 4,
        capabilities: words.iter().map(ToString::to_string).collect(),
    }
}

fn process(pid: u32, state: ProcessState) -> ProcessRow {
    ProcessRow {
        pid,
        charged: GIB,
        overhead: 0,
        state,
    }
}

fn tenant(name: &str, processes: Vec<ProcessRow>) -> TenantRow {
    TenantRow {
        name: name.to_owned(),
        device: GPU,
        request: 8 * GIB,
        limit: 40 * GIB,
        grant: 30 * GIB,
        charged: 28 * GIB,
        overhead: GIB,
        limbo: 0,
        processes,
    }
}

fn share(name: &str, cap: Option<u32>, state: ShareState) -> ShareRow {
    ShareRow {
        name: name.to_owned(),
        device: GPU,
        weight: 700,
        request: Some(700),
        cap,
        held: 690,
        over_ms: 10_000,
        state,
        turns: 12,
        overruns: 1,
        ungated: 0,
        alone: None,
        steered: None,
    }
}

fn measures(name: &str) -> TenantMetrics {
    TenantMetrics {
        name: name.to_owned(),
        device: GPU,
        peak: 39 * GIB,
        refused_limit: 3,
        refused_wait_timeout: 2,
        refused_no_room: 1,
        refused_driver: 0,
        allocation_waits: times(&[2_000_000, 4_000_000_000]),
        gpu_ns: 123_456_789_012,
        gate_waits: times(&[1_200_000, 18_000_000]),
        waiting_ns: 800_000,
        turns: 12,
        overruns: 1,
        busy_ns: None,
    }
}

/// The node.
pub(crate) fn node() -> Snapshot {
    let want = Want {
        bytes: 3 * GIB,
        since_ms: 2_000,
    };
    Snapshot {
        node: Some(NodeMetrics {
            version: "0.2.0".to_owned(),
            driver: "610.18".to_owned(),
            up_ms: 259_200_000,
            queued: 1,
            admissions: times(&[0, 0, 61_000_000_000]),
            ended_collision: 1,
            ended_idle: 2,
            ended_run_limit: 0,
            ended_unmanaged: 0,
            ended_command: 3,
        }),
        devices: vec![
            device(GPU, "H100 80GB", &["process-memory"]),
            device(MIG, "H100 \"1g\"", &["mig"]),
        ],
        counted: vec![DeviceMetrics {
            device: GPU,
            handoffs: times(&[210_000, 190_000]),
            idle_capped_ns: 5_000_000,
            idle_held_ns: 250_000_000,
            unmanaged: 1,
            look_failures: 0,
            moving_ns: 4_500_000_000,
            refused: Refusals {
                limit: 7,
                wait_timeout: 5,
                no_room: 2,
                driver: 1,
                host_full: 4,
            },
        }],
        excess: vec![ExcessRow {
            name: "train".to_owned(),
            device: GPU,
            bytes: 5 * GIB,
        }],
        event_counts: [("memory-lost", 1), ("set", 5), ("unsaved", 0)]
            .map(|(kind, count)| EventCountRow {
                kind: kind.to_owned(),
                count,
            })
            .to_vec(),
        sharing: vec![],
        tenants: vec![
            tenant("serve", vec![process(11_000, ProcessState::Running)]),
            tenant(
                "train",
                vec![
                    process(11_058, ProcessState::Waiting(want)),
                    process(11_059, ProcessState::Idle { for_ms: 14 }),
                ],
            ),
        ],
        shares: vec![
            share("serve", None, ShareState::Holding { for_us: 14_000 }),
            share("train", Some(300), ShareState::Waiting { for_us: 800 }),
        ],
        measures: vec![
            TenantMetrics {
                busy_ns: Some(7_500_000_000),
                ..measures("serve")
            },
            measures("train"),
        ],
        identities: vec![
            Identity {
                name: "serve".to_owned(),
                owner: Some(1000),
                cgroup: None,
                age_ms: 60_000,
            },
            Identity {
                name: "train".to_owned(),
                owner: None,
                cgroup: Some("/kubepods/pod1/c".to_owned()),
                age_ms: 3_600_000,
            },
        ],
        pods: vec![PodRow {
            name: "train".to_owned(),
            namespace: "research".to_owned(),
            pod: "train-0".to_owned(),
            container: "main".to_owned(),
        }],
        health: vec![HealthRow {
            device: GPU,
            busy: Some(93),
            watts: Some(412),
            celsius: Some(61),
        }],
        queued: vec![QueuedTenant {
            name: "big".to_owned(),
            owner: Some(1001),
            for_ms: 180_000,
            limit: 60 * GIB,
            request: 60 * GIB,
            short: 46 * GIB,
        }],
        residency: vec![ResidencyRow {
            name: "serve".to_owned(),
            device: GPU,
            place: Place::In,
            for_ms: 5_000,
            suspended: false,
            movable: 27 * GIB,
            away: 0,
            host: 28 * GIB,
            residue: Residue {
                small: GIB,
                ..Residue::default()
            },
            left: 3,
            moved: 162 * GIB,
        }],
        swaps: vec![TenantSwaps {
            name: "serve".to_owned(),
            device: GPU,
            out_bytes: 81 * GIB,
            in_bytes: 54 * GIB,
            out_times: times(&[210_000_000, 1_900_000_000, 2_000_000_000]),
            in_times: times(&[260_000_000, 700_000_000]),
            in_files: 16 * GIB,
        }],
        room: Some(SwapRoom {
            host: 64 * GIB,
            host_used: 12 * GIB,
            files: 256 * GIB,
            files_used: 16 * GIB,
        }),
        ends: vec![EndRow {
            name: "train".to_owned(),
            in_ms: 2_760_000,
            by: EndsBy::IdleEnd,
            told: false,
        }],
        mps: vec!["train".to_owned()],
    }
}
