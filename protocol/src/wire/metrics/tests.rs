//! The bytes of minor 9.

use crate::histogram::Histogram;
use crate::wire::*;

#[test]
fn the_bytes_of_minor_9_never_change() {
    for (of, variant) in [(Listing::Metrics, 9), (Listing::History, 10)] {
        let from = Cursor::default();
        let bytes = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
        assert_eq!(bytes, [8, variant, 0, 0, 0]);
    }
    let end = Control::End {
        tenant: "a".to_owned(),
        kill: true,
    };
    assert_eq!(
        postcard::to_allocvec(&end).expect("encodes"),
        [14, 1, b'a', 1]
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
        }),
        MetricsRow::Device(DeviceMetrics {
            device,
            handoffs: times,
            idle_capped_ns: 1,
            idle_held_ns: 2,
            unmanaged: 3,
            look_failures: 4,
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
        }),
    ];
    let expected = [
        [
            &[0, 1, b'b', 1, b'c', 172, 2, 1][..],
            &histogram,
            &[2, 3, 4, 5],
        ]
        .concat(),
        [&[1][..], uuid, &histogram, &[1, 2, 3, 4]].concat(),
        vec![2, 1, b'a', 1, 172, 2, 1, 2, 3, 4],
        vec![3, 1, b'a', 0, 1, 1, b'b', 1],
        [
            &[4, 1, b'a'][..],
            uuid,
            &[1, 2, 3, 4, 5],
            &histogram,
            &[6],
            &histogram,
            &[7, 8, 9],
        ]
        .concat(),
    ];
    for (row, bytes) in rows.into_iter().zip(expected) {
        let whole = [&[11, 9, 1][..], &bytes, &[0]].concat();
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
    };
    let bytes = [172, 2, 1, 2, 172, 2, 2, 2, 1, 2, 2, 3, 4];
    let whole = [&[11, 10, 1, 1, b'a'][..], uuid, &bytes, &[0]].concat();
    assert_eq!(page(Rows::History(vec![series])), whole);
}

#[test]
fn the_bytes_of_minor_13_never_change() {
    let (of, from) = (Listing::Leases, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 11, 0, 0, 0]);
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
    let whole = [&[11, 11, 1, 1, b'a'][..], &[7; 16], &[5], &changes, &[0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_minor_19_never_change_and_older_commands_get_none() {
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
    let whole = [&[11, 11, 1, 1, b'a'][..], &[7; 16], &changes, &[0]].concat();
    assert_eq!(postcard::to_allocvec(&all).expect("encodes"), whole);
    assert_eq!(all.clone().told(19), all);
    let older = reply(&[LeaseWas::Turn, LeaseWas::Free]);
    assert_eq!(all.told(18), older);
}

#[test]
fn the_bytes_of_minor_15_never_change() {
    let (of, from) = (Listing::Swaps, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 12, 0, 0, 0]);
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
        &[11, 12, 2, 0, 172, 2, 1, 2, 3, 1, 1, b'a'][..],
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
        assert_eq!(ask, [8, variant, 0, 0, 0]);
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
    let bytes = [11, 13, 1, 1, b'a', 1, b'b', 1, b'c', 0, 0];
    assert_eq!(page(Rows::Pods(vec![row])), bytes);
    let row = HealthRow {
        device: [7; 16],
        busy: Some(93),
        watts: Some(300),
        celsius: None,
    };
    let bytes = [&[11, 14, 1][..], &[7; 16], &[1, 93, 1, 172, 2, 0, 0]].concat();
    assert_eq!(page(Rows::Health(vec![row])), bytes);
}

#[test]
fn the_bytes_of_minor_16_never_change() {
    let (of, from) = (Listing::Grants, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 15, 0, 0, 0]);
    let row = GrantsRow {
        name: "a".to_owned(),
        device: [7; 16],
        step_ms: 300,
        age_ms: 1,
        grant_mib: vec![300, 2],
    };
    let reply = ControlReply::Page {
        rows: Rows::Grants(vec![row]),
        next: None,
    };
    let whole = [
        &[11, 15, 1, 1, b'a'][..],
        &[7; 16],
        &[172, 2, 1, 2, 172, 2, 2, 0],
    ]
    .concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_minor_18_never_change() {
    let (of, from) = (Listing::Refused, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 16, 0, 0, 0]);
    let row = RefusedRow {
        device: [7; 16],
        limit: 1,
        wait_timeout: 2,
        no_room: 300,
        driver: 4,
        host_full: 5,
    };
    let reply = ControlReply::Page {
        rows: Rows::Refused(vec![row]),
        next: None,
    };
    let whole = [&[11, 16, 1][..], &[7; 16], &[1, 2, 172, 2, 4, 5, 0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_minor_20_never_change() {
    let (of, from) = (Listing::Excess, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 17, 0, 0, 0]);
    let row = ExcessRow {
        name: "a".to_owned(),
        device: [7; 16],
        bytes: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::Excess(vec![row]),
        next: None,
    };
    let whole = [&[11, 17, 1, 1, b'a'][..], &[7; 16], &[172, 2, 0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_minor_21_never_change() {
    let (of, from) = (Listing::EventCounts, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 18, 0, 0, 0]);
    let row = EventCountRow {
        kind: "k".to_owned(),
        count: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::EventCounts(vec![row]),
        next: None,
    };
    let whole = [11, 18, 1, 1, b'k', 172, 2, 0];
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
    let of = Listing::Busy;
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 19, 0, 0, 0]);
    let row = BusyRow {
        name: "a".to_owned(),
        device: [7; 16],
        busy_ns: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::Busy(vec![row]),
        next: None,
    };
    let whole = [&[11, 19, 1, 1, b'a'][..], &[7; 16], &[172, 2, 0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}

#[test]
fn the_bytes_of_minor_25_never_change() {
    let from = Cursor::default();
    let ask = |of| postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    let page = |rows| {
        let reply = ControlReply::Page { rows, next: None };
        postcard::to_allocvec(&reply).expect("encodes")
    };
    assert_eq!(ask(Listing::Alone), [8, 20, 0, 0, 0]);
    let row = AloneRow {
        name: "a".to_owned(),
        device: [7; 16],
        part: 300,
        over_ms: 4,
    };
    let whole = [&[11, 20, 1, 1, b'a'][..], &[7; 16], &[172, 2, 4, 0]].concat();
    assert_eq!(page(Rows::Alone(vec![row])), whole);
    assert_eq!(ask(Listing::Uses), [8, 21, 0, 0, 0]);
    let row = UseRow {
        name: "a".to_owned(),
        device: [7; 16],
        step_ms: 300,
        age_ms: 1,
        had: vec![300, 2],
        on_mib: vec![4],
        away_mib: vec![5, 300],
    };
    let rest = [172, 2, 1, 2, 172, 2, 2, 1, 4, 2, 5, 172, 2, 0];
    let whole = [&[11, 21, 1, 1, b'a'][..], &[7; 16], &rest].concat();
    assert_eq!(page(Rows::Uses(vec![row])), whole);
}

#[test]
fn the_bytes_of_minor_26_never_change() {
    let (of, from) = (Listing::Further, Cursor::default());
    let ask = postcard::to_allocvec(&Control::Page { of, from }).expect("encodes");
    assert_eq!(ask, [8, 22, 0, 0, 0]);
    let moving = FurtherRow::Moving {
        device: [7; 16],
        ns: 300,
    };
    let reply = ControlReply::Page {
        rows: Rows::Further(vec![FurtherRow::EndedByCommand(2), moving]),
        next: None,
    };
    let whole = [&[11, 22, 2, 0, 2, 1][..], &[7; 16], &[172, 2, 0]].concat();
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), whole);
}
