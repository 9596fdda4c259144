//! The bytes of rows.

use crate::histogram::Histogram;
use crate::wire::*;

#[test]
fn the_bytes_of_metrics_and_history_never_change() {
    for (of, variant) in [(Listing::Metrics, 9), (Listing::History, 10)] {
        let from = Cursor::default();
        let bytes = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
        assert_eq!(bytes, [4, variant, 0, 0, 0]);
    }
    let end = Control::End {
        tenant: "a".to_owned(),
        kill: true,
    };
    assert_eq!(
        postcard::to_allocvec(&end).expect("encodes"),
        [9, 1, b'a', 1]
    );
    let page = |rows| {
        let reply = ControlReply::Page { rows, next: None };
        postcard::to_allocvec(&reply).expect("encodes")
    };
    let mut times = Histogram::default();
    times.record(300);
    let histogram = [&[1][..], &[0; 16], &[172, 2]].concat();
    let name = "a".to_owned();
    let (device, uuid) = ([7; 16], &[7; 16][..]);
    let rows = [
        MetricsRow::Node(NodeMetrics {
            version: "b".to_owned(),
            driver: "c".to_owned(),
            up_ms: 300,
            queued: 1,
            admissions: times,
            ended_collision: 2,
            ended_idle: 3,
            ended_run_limit: 4,
            ended_unmanaged: 5,
            ended_command: 6,
        }),
        MetricsRow::Device(DeviceMetrics {
            device,
            handoffs: times,
            idle_capped_ns: 1,
            idle_held_ns: 2,
            unmanaged: 3,
            look_failures: 4,
            moving_ns: 5,
            refused: Refusals {
                limit: 6,
                wait_timeout: 7,
                no_room: 300,
                driver: 8,
                host_full: 9,
            },
        }),
        MetricsRow::Queued(QueuedTenant {
            name: name.clone(),
            owner: Some(300),
            for_ms: 1,
            limit: 2,
            request: 3,
            short: 4,
        }),
        MetricsRow::Identity(Identity {
            name: name.clone(),
            owner: None,
            cgroup: Some("b".to_owned()),
            age_ms: 1,
        }),
        MetricsRow::Tenant(TenantMetrics {
            name: name.clone(),
            device,
            peak: 1,
            refused_limit: 2,
            refused_wait_timeout: 3,
            refused_no_room: 4,
            refused_driver: 5,
            allocation_waits: times,
            gpu_ns: 6,
            gate_waits: times,
            waiting_ns: 7,
            turns: 8,
            overruns: 9,
            busy_ns: Some(300),
        }),
    ];
    let expected = [
        [
            &[0, 1, b'b', 1, b'c', 172, 2, 1][..],
            &histogram,
            &[2, 3, 4, 5, 6],
        ]
        .concat(),
        [
            &[1][..],
            uuid,
            &histogram,
            &[1, 2, 3, 4, 5, 6, 7, 172, 2, 8, 9],
        ]
        .concat(),
        vec![2, 1, b'a', 1, 172, 2, 1, 2, 3, 4],
        vec![3, 1, b'a', 0, 1, 1, b'b', 1],
        [
            &[4, 1, b'a'][..],
            uuid,
            &[1, 2, 3, 4, 5],
            &histogram,
            &[6],
            &histogram,
            &[7, 8, 9, 1, 172, 2],
        ]
        .concat(),
    ];
    for (row, bytes) in rows.into_iter().zip(expected) {
        let whole = [&[7, 9, 1][..], &bytes, &[0]].concat();
        assert_eq!(page(Rows::Metrics(vec![row])), whole);
    }
    let series = SeriesRow {
        name,
        device,
        step_ms: 300,
        age_ms: 1,
        charged_mib: vec![300, 2],
        held: vec![1, 2],
        waited: vec![3, 4],
        grant_mib: vec![5],
        had: vec![],
        on_mib: vec![6],
        away_mib: vec![7],
    };
    let bytes = [
        172, 2, 1, 2, 172, 2, 2, 2, 1, 2, 2, 3, 4, 1, 5, 0, 1, 6, 1, 7,
    ];
    let whole = [&[7, 10, 1, 1, b'a'][..], uuid, &bytes, &[0]].concat();
    assert_eq!(page(Rows::History(vec![series])), whole);
}

#[test]
fn the_bytes_of_leases_never_change() {
    let (of, from) = (Listing::Leases, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [4, 11, 0, 0, 0]);
    let all = [
        LeaseWas::Free,
        LeaseWas::Shared,
        LeaseWas::Yielding,
        LeaseWas::Turn,
        LeaseWas::Closed,
    ];
    let change = |was| LeaseChange { ago_us: 300, was };
    let row = LeasesRow {
        name: "a".to_owned(),
        device: [7; 16],
        changes: all.into_iter().map(change).collect(),
    };
    let reply = ControlReply::Page {
        rows: Rows::Leases(vec![row]),
        next: None,
    };
    let changes: Vec<u8> = (0..5).flat_map(|variant| [172, 2, variant]).collect();
    let whole = [&[7, 11, 1, 1, b'a'][..], &[7; 16], &[5], &changes, &[0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_ended_leases_never_change() {
    let reply = |was: &[LeaseWas]| {
        let change = |was: &LeaseWas| LeaseChange {
            ago_us: 300,
            was: *was,
        };
        let row = LeasesRow {
            name: "a".to_owned(),
            device: [7; 16],
            changes: was.iter().map(change).collect(),
        };
        ControlReply::Page {
            rows: Rows::Leases(vec![row]),
            next: None,
        }
    };
    let all = reply(&[LeaseWas::Turn, LeaseWas::Gone, LeaseWas::Free]);
    let changes = [3, 172, 2, 3, 172, 2, 5, 172, 2, 0];
    let whole = [&[7, 11, 1, 1, b'a'][..], &[7; 16], &changes, &[0]].concat();
    assert_eq!(postcard::to_allocvec(&all).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_swaps_pods_and_health_never_change() {
    let (of, from) = (Listing::Swaps, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [4, 12, 0, 0, 0]);
    let mut times = Histogram::default();
    times.record(300);
    let histogram = [&[1][..], &[0; 16], &[172, 2]].concat();
    let room = SwapRow::Room(SwapRoom {
        host: 300,
        host_used: 1,
        files: 2,
        files_used: 3,
    });
    let tenant = SwapRow::Tenant(TenantSwaps {
        name: "a".to_owned(),
        device: [7; 16],
        out_bytes: 300,
        in_bytes: 4,
        out_times: times,
        in_times: times,
        in_files: 5,
    });
    let reply = ControlReply::Page {
        rows: Rows::Swaps(vec![room, tenant]),
        next: None,
    };
    let whole = [
        &[7, 12, 2, 0, 172, 2, 1, 2, 3, 1, 1, b'a'][..],
        &[7; 16],
        &[172, 2, 4],
        &histogram,
        &histogram,
        &[5, 0],
    ]
    .concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
    for (of, variant) in [(Listing::Pods, 13), (Listing::Health, 14)] {
        let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
        assert_eq!(ask, [4, variant, 0, 0, 0]);
    }
    let page = |rows| {
        let reply = ControlReply::Page { rows, next: None };
        postcard::to_allocvec(&reply).expect("encodes")
    };
    let [name, namespace, pod, container] = ["a", "b", "c", ""].map(str::to_owned);
    let row = PodRow {
        name,
        namespace,
        pod,
        container,
    };
    let bytes = [7, 13, 1, 1, b'a', 1, b'b', 1, b'c', 0, 0];
    assert_eq!(page(Rows::Pods(vec![row])), bytes);
    let row = HealthRow {
        device: [7; 16],
        busy: Some(93),
        watts: Some(300),
        celsius: None,
    };
    let bytes = [&[7, 14, 1][..], &[7; 16], &[1, 93, 1, 172, 2, 0, 0]].concat();
    assert_eq!(page(Rows::Health(vec![row])), bytes);
}

#[test]
fn the_bytes_of_excess_never_change() {
    let (of, from) = (Listing::Excess, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [4, 15, 0, 0, 0]);
    let row = ExcessRow {
        name: "a".to_owned(),
        device: [7; 16],
        bytes: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::Excess(vec![row]),
        next: None,
    };
    let whole = [&[7, 15, 1, 1, b'a'][..], &[7; 16], &[172, 2, 0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_event_counts_never_change() {
    let (of, from) = (Listing::EventCounts, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [4, 16, 0, 0, 0]);
    let row = EventCountRow {
        kind: "k".to_owned(),
        count: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::EventCounts(vec![row]),
        next: None,
    };
    let whole = [7, 16, 1, 1, b'k', 172, 2, 0];
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}
