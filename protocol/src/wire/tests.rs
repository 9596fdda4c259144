//! The wire as bytes: released encodings stay, hostile lengths cost nothing.

use super::*;
use proptest::prelude::*;

mod bytes;

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
        [231, 224, 205, 195, 6, 2, 0, 0, 5]
    );
    assert_eq!(
        postcard::to_allocvec(&Reply::Granted { grant: 300 }).expect("encodes"),
        [1, 172, 2]
    );
}

#[test]
fn the_bytes_of_pages_never_change() {
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
            [4, variant, 172, 2, 2, 1]
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
        assert_eq!(
            postcard::to_allocvec(&page).expect("encodes"),
            [7, variant, 0, 1, 172, 2, 2, 1]
        );
    }
    let made = Request::ContextMade { device_index: 2 };
    assert_eq!(postcard::to_allocvec(&made).expect("encodes"), [11, 2]);
}

#[test]
fn the_bytes_of_turns_and_ends_never_change() {
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
    let attach = Control::Attach {
        tenant: "a".to_owned(),
    };
    assert_eq!(
        postcard::to_allocvec(&attach).expect("encodes"),
        [3, 1, b'a']
    );
    let ends = Rows::Ends(vec![EndRow {
        name: "a".to_owned(),
        in_ms: 300,
        by: EndsBy::RunLimit,
        told: true,
    }]);
    assert_eq!(
        postcard::to_allocvec(&ends).expect("encodes"),
        [3, 1, 1, b'a', 172, 2, 1, 1]
    );
    let soon = ControlReply::EndsSoon {
        why: "a".to_owned(),
    };
    assert_eq!(postcard::to_allocvec(&soon).expect("encodes"), [6, 1, b'a']);
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
        alone: Some(Alone {
            part: 300,
            over_ms: 7,
        }),
        steered: Some(Steered {
            cause: SteeredBy::Gang,
            tenant: Some("b".to_owned()),
        }),
    };
    let mut bytes = vec![2, 1, 1, b'a'];
    bytes.extend([7; 16]);
    bytes.extend([
        244, 3, 1, 172, 2, 0, 1, 2, 5, 3, 4, 5, 6, 1, 172, 2, 7, 1, 4, 1, 1, b'b',
    ]);
    let rows = Rows::Shares(vec![row]);
    assert_eq!(postcard::to_allocvec(&rows).expect("encodes"), bytes);
}

#[test]
fn the_bytes_of_clients_and_gangs_never_change() {
    let ask = Control::Page {
        of: Listing::MpsClients,
        from: Cursor::default(),
    };
    assert_eq!(
        postcard::to_allocvec(&ask).expect("encodes"),
        [4, 4, 0, 0, 0]
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
        [4, 5, 0, 0, 0]
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
fn the_bytes_of_sharing_never_change() {
    let ask = Control::Page {
        of: Listing::Sharing,
        from: Cursor::default(),
    };
    let bytes = postcard::to_allocvec(&ask).expect("encodes");
    assert_eq!(bytes, [4, 6, 0, 0, 0]);
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
        let mut bytes = vec![7, 6, 1];
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
fn a_greeting_of_another_major_says_both_versions_and_what_to_do() {
    let hello = |major| Hello {
        major,
        ..Hello::of_this_build(5)
    };
    let said = |major| hello(major).check("this command");
    assert_eq!(said(MAJOR), Ok(()));
    let older =
        "the daemon speaks protocol 1, this command speaks 2: update the daemon, and restart it";
    assert_eq!(said(1), Err(older.to_owned()));
    let newer = "the daemon speaks protocol 3, this command speaks 2: update this command, and start programs that run again";
    assert_eq!(said(3), Err(newer.to_owned()));
    let foreign = Hello {
        magic: 7,
        ..hello(MAJOR)
    };
    assert!(foreign.check("this command").is_err());
}

#[test]
fn a_later_minor_is_talked_to() {
    let later = Hello {
        minor: MINOR + 1,
        capabilities: u64::MAX,
        ..Hello::of_this_build(5)
    };
    assert_eq!(later.check("this command"), Ok(()));
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

/// So a daemon sends a new kind of row, or of a state in one, only to whom it is known.
#[test]
fn a_reply_with_one_unknown_row_cannot_be_read_at_all() {
    let room = SwapRow::Room(SwapRoom::default());
    let reply = ControlReply::Page {
        rows: Rows::Swaps(vec![room.clone(), room]),
        next: None,
    };
    let mut body = postcard::to_allocvec(&reply).expect("encodes");
    assert_eq!(decode(9, &body), Ok(reply));
    // Behind the second row: three numbers and the end of the list.
    let kind = body.len() - 6;
    assert_eq!(std::mem::replace(&mut body[kind], 250), 0);
    let read = decode::<ControlReply>(9, &body);
    assert_eq!(read, Err(FrameError::Unknown { id: 9 }));
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
