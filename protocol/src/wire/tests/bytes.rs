//! The bytes of further messages.

use super::super::*;

#[test]
fn the_bytes_of_moves_never_change() {
    let bytes = |request| postcard::to_allocvec::<Request>(&request).expect("encodes");
    let (device_index, epoch) = (2, 300);
    let residue = Residue {
        small: 1,
        arrays: 2,
        pools: 3,
        handles: 4,
        shared: 5,
        managed: 6,
    };
    assert_eq!(residue.total(), 21);
    for (place, variant) in [
        (Place::In, 0),
        (Place::Sealed, 1),
        (Place::Leaving, 2),
        (Place::Out, 3),
        (Place::Entering, 4),
    ] {
        let whole = Residency {
            device_index,
            epoch,
            place,
            movable: 7,
            away: 8,
            host: 9,
            residue,
        };
        assert_eq!(
            bytes(Request::Residency(whole)),
            [12, 2, 172, 2, variant, 7, 8, 9, 1, 2, 3, 4, 5, 6]
        );
    }
    assert_eq!(
        bytes(Request::Sealed {
            device_index,
            epoch
        }),
        [13, 2, 172, 2]
    );
    for (why, variant) in [
        (Obstacle::Work, 0),
        (Obstacle::Capture, 1),
        (Obstacle::Call, 2),
        (Obstacle::Driver, 3),
    ] {
        let busy = Request::SealBusy {
            device_index,
            epoch,
            why,
            retry_ms: 300,
        };
        assert_eq!(bytes(busy), [14, 2, 172, 2, variant, 172, 2]);
    }
    let (away, residue) = (300, 4);
    assert_eq!(
        bytes(Request::Moved {
            device_index,
            epoch,
            away
        }),
        [15, 2, 172, 2, 172, 2]
    );
    let left = Request::Away {
        device_index,
        epoch,
        away,
        residue,
    };
    assert_eq!(bytes(left), [16, 2, 172, 2, 172, 2, 4]);
    assert_eq!(
        bytes(Request::Back {
            device_index,
            epoch
        }),
        [17, 2, 172, 2]
    );
    assert_eq!(
        bytes(Request::NoRoom {
            device_index,
            epoch,
            bytes: 300
        }),
        [18, 2, 172, 2, 172, 2]
    );
    assert_eq!(bytes(Request::WantIn { device_index }), [19, 2]);
    assert_eq!(
        bytes(Request::HostRange {
            device_index,
            bytes: 300
        }),
        [20, 2, 172, 2]
    );
    let range = Request::HostDrop {
        offset: 300,
        bytes: 4,
    };
    assert_eq!(bytes(range), [21, 172, 2, 4]);
    let reply = Reply::HostRange {
        offset: 300,
        bytes: 4,
    };
    assert_eq!(
        postcard::to_allocvec(&reply).expect("encodes"),
        [5, 172, 2, 4]
    );
    assert_eq!(Hello::MOVABLE, 4);
}

#[test]
fn the_bytes_of_moves_for_commands_never_change() {
    let bytes = |control| postcard::to_allocvec::<Control>(&control).expect("encodes");
    let tenant = || "a".to_owned();
    assert_eq!(bytes(Control::Suspend { tenant: tenant() }), [5, 1, b'a']);
    assert_eq!(bytes(Control::Resume { tenant: tenant() }), [6, 1, b'a']);
    let ask = Control::Page {
        of: Listing::Residency,
        from: Cursor::default(),
    };
    assert_eq!(bytes(ask), [4, 7, 0, 0, 0]);
    let row = ResidencyRow {
        name: tenant(),
        device: [7; 16],
        place: Place::Out,
        for_ms: 300,
        suspended: true,
        movable: 1,
        away: 2,
        host: 3,
        residue: Residue::default(),
        left: 4,
        moved: 5,
    };
    let mut expected = vec![7, 7, 1, 1, b'a'];
    expected.extend([7; 16]);
    expected.extend([3, 172, 2, 1, 1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5, 0]);
    let rows = Rows::Residency(vec![row]);
    let reply = ControlReply::Page { rows, next: None };
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), expected);
}

#[test]
fn the_bytes_of_containers_never_change() {
    let one = |text: &str| vec![text.to_owned()];
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for (linkage, variant) in [
        (Linkage::Unknown, 0),
        (Linkage::Glibc, 1),
        (Linkage::Musl, 2),
        (Linkage::Static, 3),
    ] {
        let injection = Injection {
            id: "a".to_owned(),
            environment: pair("b", "c"),
            devices: one("d"),
            labels: pair("e", "f"),
            preload: one("g"),
            linkage,
        };
        let mut bytes = vec![7, 1, b'a', 1, 1, b'b', 1, b'c', 1, 1, b'd'];
        bytes.extend([1, 1, b'e', 1, b'f', 1, 1, b'g', variant]);
        let inject = Control::Inject(injection);
        assert_eq!(postcard::to_allocvec(&inject).expect("encodes"), bytes);
    }
}

#[test]
fn a_containers_id_cannot_lead_out_of_a_folder() {
    for id in ["a", "web_1.2+3-4", &"f".repeat(128)] {
        assert!(is_container_id(id), "{id}");
    }
    for id in [
        "",
        ".",
        "..",
        ".a",
        "a/b",
        "a\0",
        "a\n",
        "ä",
        &"f".repeat(129),
    ] {
        assert!(!is_container_id(id), "{id}");
    }
}

#[test]
fn the_bytes_of_events_and_status_never_change() {
    let follow = Control::Follow { past: 300 };
    assert_eq!(
        postcard::to_allocvec(&follow).expect("encodes"),
        [2, 172, 2]
    );
    let ended = Control::Ended { status: 137 };
    assert_eq!(postcard::to_allocvec(&ended).expect("encodes"), [8, 137]);
    let record = EventRecord {
        instance: 300,
        number: 1,
        at_ms: 2,
        kind: "k".to_owned(),
        tenant: Some("a".to_owned()),
        device: Some(EventDevice {
            uuid: [7; 16],
            index: 3,
        }),
        text: "t".to_owned(),
        facts: vec![
            ("n".to_owned(), Fact::Number(300)),
            ("w".to_owned(), Fact::Word("v".to_owned())),
        ],
    };
    let mut bytes = vec![3, 172, 2, 1, 2, 1, b'k', 1, 1, b'a', 1];
    bytes.extend([7; 16]);
    bytes.extend([3, 1, b't', 2, 1, b'n', 0, 172, 2, 1, b'w', 1, 1, b'v']);
    let reply = ControlReply::Event(record);
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
    let ask = Control::Page {
        of: Listing::TenantStatus,
        from: Cursor::default(),
    };
    assert_eq!(
        postcard::to_allocvec(&ask).expect("encodes"),
        [4, 8, 0, 0, 0]
    );
    let row = TenantStatusRow {
        name: "a".to_owned(),
        owner: Some(300),
        for_ms: 4,
        queued: Some("w".to_owned()),
        asks: vec![AskedRow {
            device: [7; 16],
            request: 5,
            limit: 300,
        }],
    };
    let reply = ControlReply::Page {
        rows: Rows::TenantStatus(vec![row]),
        next: None,
    };
    let mut bytes = vec![7, 8, 1, 1, b'a', 1, 172, 2, 4, 1, 1, b'w', 1];
    bytes.extend([7; 16]);
    bytes.extend([5, 172, 2, 0]);
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
}

#[test]
fn the_bytes_of_stored_ranges_never_change() {
    let bytes = |request| postcard::to_allocvec::<Request>(&request).expect("encodes");
    let (offset, of) = (300, 4);
    assert_eq!(
        bytes(Request::HostStore { offset, bytes: of }),
        [22, 172, 2, 4]
    );
    let stored = Stored {
        file: 300,
        at: 1,
        bytes: 2,
        sum: 3,
    };
    assert_eq!(bytes(Request::HostFetch(stored)), [23, 172, 2, 1, 2, 3]);
    assert_eq!(bytes(Request::HostForget(stored)), [24, 172, 2, 1, 2, 3]);
    assert_eq!(bytes(Request::HostFile { file: 300 }), [25, 172, 2]);
    assert_eq!(bytes(Request::HostMemory), [26]);
    let tenant = "a".to_owned();
    let control = postcard::to_allocvec(&Control::SuspendTo { tenant }).expect("encodes");
    assert_eq!(control, [10, 1, b'a']);
    let reply = |reply: Reply| postcard::to_allocvec(&reply).expect("encodes");
    assert_eq!(reply(Reply::HostStored(stored)), [6, 172, 2, 1, 2, 3]);
    assert_eq!(reply(Reply::Refused(Refusal::DataLost)), [2, 9]);
}

#[test]
fn the_bytes_of_unshared_memory_never_change() {
    let unshared = Request::Unshared { device_index: 2 };
    assert_eq!(postcard::to_allocvec(&unshared).expect("encodes"), [27, 2]);
}

#[test]
fn the_bytes_of_spots_never_change() {
    let has = Request::Has {
        from: Spot::FIRST,
        until: Spot { file: 1, at: 300 },
        spots: vec![Spot::memory(2), Spot { file: 0, at: 3 }],
    };
    let bytes = postcard::to_allocvec(&has).expect("encodes");
    assert_eq!(bytes, [28, 0, 0, 1, 172, 2, 2, 0, 2, 0, 3]);
}

#[test]
fn the_bytes_of_containers_without_limits_never_change() {
    let ask = Control::Unlimited {
        id: "a".to_owned(),
        devices: vec!["d".to_owned()],
        labels: vec![("e".to_owned(), "f".to_owned())],
    };
    let expected = vec![11, 1, b'a', 1, 1, b'd', 1, 1, b'e', 1, b'f'];
    assert_eq!(postcard::to_allocvec(&ask).expect("encodes"), expected);
    let reply = ControlReply::Unlimited { takes_maxima: true };
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), [8, 1]);
}

#[test]
fn the_bytes_of_contexts_never_change() {
    let bytes = |request| postcard::to_allocvec::<Request>(&request).expect("encodes");
    let (device_index, ask) = (2, 300);
    for (patience_ms, rest) in [
        (None, &[0][..]),
        (Some(0), &[1, 0]),
        (Some(300), &[1, 172, 2]),
    ] {
        let more = Request::OpenMore {
            device_index,
            patience_ms,
        };
        assert_eq!(bytes(more), [&[29, 2], rest].concat());
    }
    let done = Request::OpenDone { device_index, ask };
    assert_eq!(bytes(done), [30, 2, 172, 2]);
    assert_eq!(bytes(Request::NoContext { device_index }), [31, 2]);
}

#[test]
fn the_bytes_of_contexts_begun_never_change() {
    let again = Request::OpenAgain { device_index: 2 };
    assert_eq!(postcard::to_allocvec(&again).expect("encodes"), [32, 2]);
}
