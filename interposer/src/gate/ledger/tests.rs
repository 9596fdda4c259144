//! The launches that a ledger remembers, and when it forgets them.

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

use super::*;

const NAMED: Named = Named {
    hash: 0x1234_5678,
    context: 0,
};

/// A page of a device, all zeros.
pub(in crate::gate) fn page() -> &'static ControlDevice {
    // SAFETY: a page holds atomics of numbers, for which zeros are values.
    Box::leak(unsafe { Box::new_zeroed().assume_init() })
}

fn remember(ledger: &Ledger) {
    let stream_key = StreamKey {
        context: 1,
        stream: 2,
        thread: 3,
    };
    let op = Op {
        count: 1,
        key: 4,
        expected: Expected {
            ns: 20_000,
            in_stream: 20_000,
            known: true,
        },
        waits: false,
        first: false,
    };
    ledger.remember(NAMED, stream_key, &op, 255);
}

/// A ledger that knows one kind.
fn ledger() -> &'static Ledger {
    // SAFETY: a ledger holds atomics of numbers and of pointers, for which zeros are values.
    let ledger: &'static Ledger = Box::leak(unsafe { Box::new_zeroed().assume_init() });
    remember(ledger);
    assert!(knows(ledger));
    ledger
}

fn knows(ledger: &Ledger) -> bool {
    let kind = &ledger.kinds[place(NAMED.hash) as usize];
    kind.named.load(Ordering::Relaxed) == NAMED.hash
}

#[test]
fn a_ledger_of_another_device_knows_no_launches() {
    static DEVICES: [Open; 2] = [Open::new(0), Open::new(1)];
    let ledger = ledger();
    assert!(ledger.bind(&DEVICES[0]) && !knows(ledger));
    remember(ledger);
    assert!(!ledger.bind(&DEVICES[1]) && knows(ledger), "it is bound");
    assert!(ledger.release() && ledger.bind(&DEVICES[1]) && !knows(ledger));
}

#[test]
fn a_record_that_changes_hands_knows_no_launches() {
    // SAFETY: a record of zeros is a free one.
    let record: &Record = Box::leak(unsafe { Box::new_zeroed().assume_init() });
    let ledger = ledger();
    let link = core::ptr::from_ref(ledger).cast_mut().cast();
    record.ledger.store(link, Ordering::Release);
    abandon(record);
    assert!(knows(ledger), "its thread was left by a jump");
    hand_on(record);
    assert!(!knows(ledger));
}

/// All names of a context's default streams: as a function without a suffix has them and as its
/// twin has them.
fn default_streams() -> Vec<StreamRef> {
    let handles = [CUstream::NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD].into_iter();
    handles
        .flat_map(|handle| [StreamRef::legacy(handle), StreamRef::per_thread(handle)])
        .collect()
}

#[test]
fn no_name_of_one_default_stream_is_a_name_of_another() {
    let streams = default_streams();
    for (at, one) in streams.iter().enumerate() {
        for other in &streams[at + 1..] {
            let [one_hash, other_hash] = [one, other].map(|of| hash(*of, 7, era()));
            assert_ne!(one_hash, other_hash, "{one:?} and {other:?}");
        }
    }
}

#[test]
fn a_stream_that_is_named_again_in_the_same_way_has_the_same_name() {
    let made = CUstream(core::ptr::without_provenance_mut(0x7f00_1234_5670));
    let all = default_streams().into_iter();
    for stream in all.chain([StreamRef::legacy(made), StreamRef::per_thread(made)]) {
        assert_eq!(hash(stream, 7, era()), hash(stream, 7, era()), "{stream:?}");
    }
}
