//! The names of work whose stream goes, or does not go after all.

use super::*;
use crate::gate::device_gate::Op;
use gpushare_pacing::estimate::Expected;

const STREAM: StreamKey = StreamKey {
    context: 1,
    stream: 0x1000,
    thread: 0,
};

fn going() -> CUstream {
    CUstream(core::ptr::without_provenance_mut(STREAM.stream))
}

/// A gate that knows work in the stream.
fn busy() -> DeviceGate {
    let gate = DeviceGate::new(0, false);
    comes(&gate);
    gate
}

fn comes(gate: &DeviceGate) {
    let expected = Expected {
        ns: 1_000,
        in_stream: 1_000,
        known: true,
    };
    let op = Op {
        count: 1,
        key: 3,
        expected,
        waits: false,
        first: false,
    };
    let mut inner = gate.lock();
    let bounds = inner.bounds;
    inner.window.came(clock::now(), bounds, STREAM, op);
}

fn names(gate: &DeviceGate) -> Vec<StreamKey> {
    gate.lock().window.streams().collect()
}

#[test]
fn work_of_a_stream_that_goes_has_a_name_of_its_own() {
    let gate = busy();
    let new = gate.stream_gone(going());
    assert_eq!(names(&gate), [new[0].new]);
    comes(&gate);
    assert_eq!(names(&gate), [new[0].new, STREAM]);
}

#[test]
fn work_of_a_stream_that_stays_has_its_name_again() {
    let gate = busy();
    let new = gate.stream_gone(going());
    gate.stream_stays(&new);
    assert_eq!(names(&gate), [STREAM]);
}

#[test]
fn no_two_parts_of_a_streams_work_get_one_name() {
    let gate = busy();
    let new = gate.stream_gone(going());
    comes(&gate);
    gate.stream_stays(&new);
    assert_eq!(names(&gate), [new[0].new, STREAM]);
}
