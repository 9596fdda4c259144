//! The properties that the parsers must keep for any bytes. A violation panics.
//!
//! `scripts/fuzz_parsers.sh` looks for new inputs. `tests/tests/parsers.rs` compiles this file too,
//! and runs the inputs kept in `fuzz/corpus` in every run of the tests.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;

use gpushare_protocol::limits::{Limits, Maxima};
use gpushare_protocol::page::{MAX_DEVICES, MAX_SLOTS, PAGE_BYTES, Snapshot, TEXT_MAX};
use gpushare_protocol::size::{self, Size};
use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, FrameError, Hello, Reply, Request, decode, encode,
};
use gpushared::foreign::{Foreign, Lanes};
use gpushared::node::Settings;
use gpushared::pages::UsagePage;
use serde::{Serialize, de::DeserializeOwned};
use softgpu::spec::Spec;

/// Reads bytes as one parser's input. Returns whether the parser accepted any of them.
pub(crate) type Target = fn(&[u8]) -> bool;

/// By name, as the folders of the corpus.
pub(crate) const ALL: [(&str, Target); 6] = [
    ("wire", wire),
    ("pages", pages),
    ("limits", limits),
    ("sizes", sizes),
    ("config", config),
    ("spec", spec),
];

/// Frames come out of a stream the same however it is cut. A message that is understood is
/// understood again from its own encoding.
fn wire(bytes: &[u8]) -> bool {
    let at_once = frames(bytes, usize::MAX);
    for step in [1, 7] {
        assert_eq!(at_once, frames(bytes, step), "in steps of {step}");
    }
    let framed = at_once.0.iter().filter(|(id, body)| messages(*id, body));
    let understood = framed.count();
    messages(0, bytes) || understood > 0
}

type Frames = (Vec<(u32, Vec<u8>)>, Option<FrameError>);

fn frames(bytes: &[u8], step: usize) -> Frames {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(step.min(bytes.len()).max(1)) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn messages(id: u32, body: &[u8]) -> bool {
    // Not `||`: each is tried.
    message::<Hello>(id, body)
        | message::<Request>(id, body)
        | message::<Reply>(id, body)
        | message::<Control>(id, body)
        | message::<ControlReply>(id, body)
}

fn message<T: Serialize + DeserializeOwned + PartialEq + Debug>(id: u32, body: &[u8]) -> bool {
    let Ok(message) = decode::<T>(id, body) else {
        return false;
    };
    let mut frame = Vec::new();
    encode(id, &message, &mut frame).expect("no longer than what it was decoded from");
    let (found, error) = frames(&frame, usize::MAX);
    assert_eq!((found.len(), error), (1, None), "{message:?}");
    let again = decode::<T>(id, &found[0].1).expect("its own encoding");
    assert_eq!(again, message);
    true
}

/// A page on which others wrote anything anywhere is refused, or read without a number out of its
/// range; a tenant's and a command's reading agree.
///
/// The bytes are changes of a valid page: a place (4 bytes, little endian) and what is written
/// there (8).
fn pages(bytes: &[u8]) -> bool {
    let page = UsagePage::create().expect("shared memory");
    page.view().found(1, 1);
    page.view().header.set_text("limit=1GiB");
    let file = File::from(
        page.descriptor()
            .try_clone_to_owned()
            .expect("a descriptor"),
    );
    for change in bytes.chunks_exact(12) {
        let (place, value) = change.split_at(4);
        let place = u32::from_le_bytes(place.try_into().expect("four bytes"));
        let place = u64::from(place) % (PAGE_BYTES as u64 - 8);
        file.write_all_at(value, place).expect("it has its size");
    }
    let mut copy = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut copy, 0).expect("it has its size");
    let snapshot = Snapshot::parse(&copy);
    let presented = file.try_clone().expect("one more").into();
    let Ok(adopted) = UsagePage::adopt(Foreign::new(presented, &Lanes::default().own())) else {
        return false;
    };
    let snapshot = snapshot.expect("what a daemon adopts, a command reads");
    assert_eq!(snapshot.limits, adopted.view().header.text());
    // A byte that is no UTF-8 becomes a sign of three bytes.
    assert!(snapshot.limits.len() <= 3 * TEXT_MAX);
    for device in &snapshot.devices {
        assert_eq!(
            adopted.view().devices[device.device_index].uuid(),
            Some(device.uuid)
        );
    }
    for process in &snapshot.processes {
        assert!(process.slot < MAX_SLOTS);
        let row = adopted.view().row(process.slot).expect("a slot has a row");
        for used in &process.uses {
            let word = row[used.device_index].word.load();
            assert_eq!(used.charged, u64::from(word.charged) * 512);
            assert_eq!(used.credit, u64::from(word.credit) * 512);
        }
    }
    // No sum overflows, whatever stands in the words: each is below 2 TiB.
    let charged = (0..MAX_DEVICES).map(|device_index| snapshot.charged(device_index));
    assert!(
        charged
            .into_iter()
            .all(|bytes| bytes < (MAX_SLOTS as u64) << 41)
    );
    true
}

/// Limits that are accepted are within the device and the node's maxima.
///
/// The bytes are lines of `NAME=VALUE`; after an empty line, those of the node's maxima.
fn limits(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (own, most) = text.split_once("\n\n").unwrap_or((&text, ""));
    let Ok(limits) = Limits::from_env(pairs(own)) else {
        return false;
    };
    hold(&limits);
    if let Ok(maxima) = Maxima::read(pairs(most))
        && let Ok(bounded) = Limits::from_env_under(pairs(own), [], maxima)
    {
        hold(&bounded);
    }
    true
}

fn pairs(text: &str) -> Vec<(OsString, OsString)> {
    let pair = |line: &str| {
        line.split_once('=')
            .map(|(name, value)| (name.into(), value.into()))
    };
    text.lines().filter_map(pair).collect()
}

fn hold(limits: &Limits) {
    for capacity in [1, 64 << 20, 16 << 30, 80 << 30, u64::MAX] {
        for ordinal in [0, 1, 31] {
            let Ok(device) = limits.for_device(ordinal, &[7; 16], capacity) else {
                continue;
            };
            assert!(device.view_total <= capacity, "{device:?} of {capacity}");
            assert!(device.request <= capacity, "{device:?} of {capacity}");
            assert!(
                device.limit.is_none_or(|limit| device.request <= limit),
                "{device:?} of {capacity}"
            );
        }
    }
}

/// A size reads back from its own text, and a part of a device is no more than the device.
fn sizes(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else {
        return false;
    };
    for suffix in [false, true] {
        let _ = size::parse_letters(text, suffix);
    }
    let _ = size::parse_mebibytes(text);
    let Ok(size) = Size::parse(text) else {
        return false;
    };
    let again = size.to_string();
    assert_eq!(Size::parse(&again), Ok(size), "{text} is told as {again}");
    for capacity in [0, 1, 16 << 30, u64::MAX] {
        match size {
            Size::Bytes(bytes) => assert_eq!(size.on(capacity), bytes),
            Size::Percent(_) => assert!(size.on(capacity) <= capacity, "{text} of {capacity}"),
        }
    }
    true
}

/// A daemon's configuration is accepted, or refused with a text.
fn config(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else {
        return false;
    };
    match gpushared::config::read(text, Settings::default()) {
        Ok(_) => true,
        Err(why) => {
            assert!(!why.trim().is_empty(), "refused without a reason: {text}");
            false
        }
    }
}

/// A software GPU's description reads back from its own text.
fn spec(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else {
        return false;
    };
    let Ok(spec) = text.parse::<Spec>() else {
        return false;
    };
    let again: Spec = spec.to_string().parse().expect("its own text");
    assert_eq!(again, spec, "{text}");
    true
}
