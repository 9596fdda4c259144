//! The wire as bytes: released encodings stay, hostile lengths cost nothing.

use super::*;
use proptest::prelude::*;

fn frame_of(id: u32, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode(id, request, &mut out).expect("a request fits a frame");
    out
}

#[test]
fn the_bytes_of_released_messages_never_change() {
    let ask = Request::Ask(Ask {
        device_index: 1,
        held: 3,
        bytes: 512,
        patience_ms: None,
    });
    assert_eq!(
        frame_of(7, &ask),
        [6, 0, 0, 0, 7, 0, 0, 0, 2, 1, 3, 128, 4, 0]
    );
    let hello = Hello::of_this_build(5);
    assert_eq!(
        postcard::to_allocvec(&hello).expect("encodes"),
        [231, 224, 205, 195, 6, 1, 9, 0, 5]
    );
    assert_eq!(
        postcard::to_allocvec(&Reply::Granted { grant: 300 }).expect("encodes"),
        [1, 172, 2]
    );
    assert_eq!(postcard::to_allocvec(&Control::List).expect("encodes"), [1]);
}

#[test]
fn the_bytes_of_minor_3_never_change() {
    let from = Cursor {
        tenant: 300,
        device: 2,
        process: 1,
    };
    for (of, variant) in [
        (Listing::Tenants, 0),
        (Listing::Devices, 1),
        (Listing::Shares, 2),
        (Listing::Ends, 3),
    ] {
        assert_eq!(
            postcard::to_allocvec(&Control::Page { of, from }).expect("encodes"),
            [8, variant, 172, 2, 2, 1]
        );
    }
    for (rows, variant) in [
        (Rows::Tenants(vec![]), 0),
        (Rows::Devices(vec![]), 1),
        (Rows::Shares(vec![]), 2),
        (Rows::Ends(vec![]), 3),
    ] {
        let page = ControlReply::Page {
            rows,
            next: Some(from),
        };
        assert_eq!(page.since(), 3);
        assert_eq!(
            postcard::to_allocvec(&page).expect("encodes"),
            [11, variant, 0, 1, 172, 2, 2, 1]
        );
    }
    let made = Request::ContextMade { device_index: 2 };
    assert_eq!(postcard::to_allocvec(&made).expect("encodes"), [12, 2]);
}

#[test]
fn the_bytes_of_minor_2_never_change() {
    let ending = Request::Ending {
        device_index: 2,
        epoch: 300,
        left: 300,
    };
    assert_eq!(
        postcard::to_allocvec(&ending).expect("encodes"),
        [11, 2, 172, 2, 172, 2]
    );
}

#[test]
fn the_bytes_of_minor_1_never_change() {
    let (device_index, epoch) = (2, 300);
    for (request, variant) in [
        (
            Request::Wanted {
                device_index,
                epoch,
            },
            7,
        ),
        (
            Request::Drained {
                device_index,
                epoch,
            },
            8,
        ),
        (
            Request::Idle {
                device_index,
                epoch,
            },
            9,
        ),
        (
            Request::Busy {
                device_index,
                epoch,
            },
            10,
        ),
    ] {
        assert_eq!(
            postcard::to_allocvec(&request).expect("encodes"),
            [variant, 2, 172, 2]
        );
    }
    assert_eq!(
        postcard::to_allocvec(&Control::Shares).expect("encodes"),
        [5]
    );
    let attach = Control::Attach {
        tenant: "a".to_owned(),
    };
    assert_eq!(
        postcard::to_allocvec(&attach).expect("encodes"),
        [6, 1, b'a']
    );
    assert_eq!(postcard::to_allocvec(&Control::Ends).expect("encodes"), [7]);
    let ends = ControlReply::Ends(vec![EndRow {
        name: "a".to_owned(),
        in_ms: 300,
        by: EndsBy::RunLimit,
    }]);
    assert_eq!(
        postcard::to_allocvec(&ends).expect("encodes"),
        [9, 1, 1, b'a', 172, 2, 1]
    );
    let soon = ControlReply::EndsSoon {
        why: "a".to_owned(),
    };
    assert_eq!(
        postcard::to_allocvec(&soon).expect("encodes"),
        [10, 1, b'a']
    );
    let row = ShareRow {
        name: "a".to_owned(),
        device: [7; 16],
        weight: 500,
        request: Some(300),
        cap: None,
        held: 1,
        over_ms: 2,
        state: ShareState::Capped { for_us: 3 },
        turns: 4,
        overruns: 5,
        ungated: 6,
    };
    let mut bytes = vec![8, 1, 1, b'a'];
    bytes.extend([7; 16]);
    bytes.extend([244, 3, 1, 172, 2, 0, 1, 2, 5, 3, 4, 5, 6]);
    let reply = ControlReply::Shares(vec![row]);
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
}

#[test]
fn the_bytes_of_minor_4_never_change() {
    let ask = Control::Page {
        of: Listing::MpsClients,
        from: Cursor::default(),
    };
    assert_eq!(
        postcard::to_allocvec(&ask).expect("encodes"),
        [8, 4, 0, 0, 0]
    );
    let reply = ControlReply::Page {
        rows: Rows::MpsClients(vec!["a".to_owned()]),
        next: None,
    };
    let bytes = postcard::to_allocvec(&reply).expect("encodes");
    assert_eq!(bytes[1..], [4, 1, 1, b'a', 0]);
    let ask = Control::Page {
        of: Listing::Gangs,
        from: Cursor::default(),
    };
    assert_eq!(
        postcard::to_allocvec(&ask).expect("encodes"),
        [8, 5, 0, 0, 0]
    );
    let row = GangRow {
        name: "a".to_owned(),
        gang: "b".to_owned(),
    };
    let reply = ControlReply::Page {
        rows: Rows::Gangs(vec![row]),
        next: None,
    };
    let bytes = postcard::to_allocvec(&reply).expect("encodes");
    assert_eq!(bytes[1..], [5, 1, 1, b'a', 1, b'b', 0]);
    assert_eq!((Hello::GATED, Hello::MPS), (1, 2));
}

#[test]
fn the_bytes_of_minor_5_never_change() {
    let ask = Control::Page {
        of: Listing::Sharing,
        from: Cursor::default(),
    };
    let bytes = postcard::to_allocvec(&ask).expect("encodes");
    assert_eq!(bytes, [8, 6, 0, 0, 0]);
    for (regime, variant) in [
        (Regime::Turns, 0),
        (Regime::Together, 1),
        (Regime::Yielding, 2),
        (Regime::Held, 3),
    ] {
        let row = SharingRow {
            device: [7; 16],
            regime,
            changes: 300,
            lately: 2,
            off: Some(-3),
        };
        let mut bytes = vec![11, 6, 1];
        bytes.extend([7; 16]);
        bytes.extend([variant, 172, 2, 2, 1, 5, 0]);
        let rows = Rows::Sharing(vec![row]);
        let reply = ControlReply::Page { rows, next: None };
        assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
    }
    let for_us = 3;
    for (state, variant) in [
        (ShareState::Sharing { for_us }, 6),
        (ShareState::Yielding { for_us }, 7),
        (ShareState::Held { for_us }, 8),
    ] {
        let bytes = postcard::to_allocvec(&state).expect("encodes");
        assert_eq!(bytes, [variant, 3]);
    }
}

#[test]
fn the_bytes_of_minor_6_never_change() {
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
            [13, 2, 172, 2, variant, 7, 8, 9, 1, 2, 3, 4, 5, 6]
        );
    }
    assert_eq!(
        bytes(Request::Sealed {
            device_index,
            epoch
        }),
        [14, 2, 172, 2]
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
        assert_eq!(bytes(busy), [15, 2, 172, 2, variant, 172, 2]);
    }
    let (away, residue) = (300, 4);
    assert_eq!(
        bytes(Request::Moved {
            device_index,
            epoch,
            away
        }),
        [16, 2, 172, 2, 172, 2]
    );
    let left = Request::Away {
        device_index,
        epoch,
        away,
        residue,
    };
    assert_eq!(bytes(left), [17, 2, 172, 2, 172, 2, 4]);
    assert_eq!(
        bytes(Request::Back {
            device_index,
            epoch
        }),
        [18, 2, 172, 2]
    );
    assert_eq!(
        bytes(Request::NoRoom {
            device_index,
            epoch,
            bytes: 300
        }),
        [19, 2, 172, 2, 172, 2]
    );
    assert_eq!(bytes(Request::WantIn { device_index }), [20, 2]);
    assert_eq!(
        bytes(Request::HostRange {
            device_index,
            bytes: 300
        }),
        [21, 2, 172, 2]
    );
    let range = Request::HostDrop {
        offset: 300,
        bytes: 4,
    };
    assert_eq!(bytes(range), [22, 172, 2, 4]);
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
fn the_bytes_of_minor_6_for_commands_never_change() {
    let bytes = |control| postcard::to_allocvec::<Control>(&control).expect("encodes");
    let tenant = || "a".to_owned();
    assert_eq!(bytes(Control::Suspend { tenant: tenant() }), [9, 1, b'a']);
    assert_eq!(bytes(Control::Resume { tenant: tenant() }), [10, 1, b'a']);
    let ask = Control::Page {
        of: Listing::Residency,
        from: Cursor::default(),
    };
    assert_eq!(bytes(ask), [8, 7, 0, 0, 0]);
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
    let mut expected = vec![11, 7, 1, 1, b'a'];
    expected.extend([7; 16]);
    expected.extend([3, 172, 2, 1, 1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5, 0]);
    let rows = Rows::Residency(vec![row]);
    let reply = ControlReply::Page { rows, next: None };
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), expected);
}

#[test]
fn the_bytes_of_minor_7_never_change() {
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
        let mut bytes = vec![11, 1, b'a', 1, 1, b'b', 1, b'c', 1, 1, b'd'];
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
fn the_bytes_of_minor_8_never_change() {
    let follow = Control::FollowRecords { past: 300 };
    assert_eq!(
        postcard::to_allocvec(&follow).expect("encodes"),
        [12, 172, 2]
    );
    let ended = Control::Ended { status: 137 };
    assert_eq!(postcard::to_allocvec(&ended).expect("encodes"), [13, 137]);
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
    let mut bytes = vec![12, 172, 2, 1, 2, 1, b'k', 1, 1, b'a', 1];
    bytes.extend([7; 16]);
    bytes.extend([3, 1, b't', 2, 1, b'n', 0, 172, 2, 1, b'w', 1, 1, b'v']);
    let reply = ControlReply::Record(record);
    assert_eq!(reply.since(), 8);
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
    let ask = Control::Page {
        of: Listing::Standing,
        from: Cursor::default(),
    };
    assert_eq!(
        postcard::to_allocvec(&ask).expect("encodes"),
        [8, 8, 0, 0, 0]
    );
    let row = StandingRow {
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
        rows: Rows::Standing(vec![row]),
        next: None,
    };
    let mut bytes = vec![11, 8, 1, 1, b'a', 1, 172, 2, 4, 1, 1, b'w', 1];
    bytes.extend([7; 16]);
    bytes.extend([5, 172, 2, 0]);
    assert_eq!(postcard::to_allocvec(&reply).expect("encodes"), bytes);
}

#[test]
fn an_older_command_is_told_states_that_it_knows() {
    let (for_us, next) = (3, None);
    let row = |state| ShareRow {
        name: "a".to_owned(),
        device: [7; 16],
        weight: 500,
        request: None,
        cap: None,
        held: 1,
        over_ms: 2,
        state,
        turns: 4,
        overruns: 5,
        ungated: 6,
    };
    let rows = |states: [ShareState; 4]| states.map(row).to_vec();
    let new = rows([
        ShareState::Sharing { for_us },
        ShareState::Yielding { for_us },
        ShareState::Held { for_us },
        ShareState::Idle,
    ]);
    let old = rows([
        ShareState::Holding { for_us },
        ShareState::Holding { for_us },
        ShareState::Waiting { for_us },
        ShareState::Idle,
    ]);
    let page = |rows| ControlReply::Page {
        rows: Rows::Shares(rows),
        next,
    };
    assert_eq!(page(new.clone()).told(4), page(old.clone()));
    assert_eq!(page(new.clone()).told(5), page(new.clone()));
    assert_eq!(ControlReply::Shares(new).told(1), ControlReply::Shares(old));
}

#[test]
fn a_frame_too_long_is_refused_before_its_body_arrives() {
    let mut decoder = Decoder::default();
    decoder.push(&u32::MAX.to_le_bytes());
    assert_eq!(
        decoder.next_frame(),
        Err(FrameError::TooLong {
            claimed: u32::MAX as usize
        })
    );
}

#[test]
fn an_unknown_variant_names_the_request_it_came_with() {
    assert_eq!(
        decode::<Request>(9, &[250]),
        Err(FrameError::Unknown { id: 9 })
    );
}

#[test]
fn a_message_larger_than_a_frame_leaves_the_buffer_as_it_was() {
    let mut out = vec![1, 2, 3];
    let huge = Control::Create {
        name: Some("x".repeat(MAX_FRAME)),
        environment: vec![],
        devices: vec![],
    };
    assert_eq!(encode(1, &huge, &mut out), Err(FrameError::TooLarge));
    assert_eq!(out, [1, 2, 3]);
}

proptest! {
    #[test]
    fn frames_survive_any_cutting(bytes in proptest::collection::vec(0u64..u64::MAX, 1..20), cut in 1usize..50) {
        let mut stream = Vec::new();
        for (id, &bytes) in (0u32..).zip(&bytes) {
            encode(id, &Request::DriverRefused(Ask { device_index: 3, held: 0, bytes, patience_ms: Some(1) }), &mut stream).expect("fits");
        }
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        for piece in stream.chunks(cut) {
            decoder.push(piece);
            while let Some((id, body)) = decoder.next_frame().expect("well formed") {
                seen.push((id, decode::<Request>(id, &body).expect("known")));
            }
        }
        prop_assert!(decoder.is_between_frames());
        let sent: Vec<_> = (0u32..).zip(bytes.iter().map(|&bytes| Request::DriverRefused(Ask { device_index: 3, held: 0, bytes, patience_ms: Some(1) }))).collect();
        prop_assert_eq!(seen, sent);
    }

    #[test]
    fn garbage_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = Decoder::default();
        decoder.push(&garbage);
        while let Ok(Some((id, body))) = decoder.next_frame() {
            let _ = decode::<Request>(id, &body);
            let _ = decode::<Control>(id, &body);
        }
    }
}
