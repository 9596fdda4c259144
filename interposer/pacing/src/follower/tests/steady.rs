//! How often a holder of a shared device that launches steadily is looked at, in virtual time.

use std::collections::BTreeSet;

use super::*;
use crate::estimate::Expected;
use crate::window::{BATCH_AGE, Bounds, Op, StreamKey, Window};

const US: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
const BOUNDS: Bounds = Bounds {
    window: 10 * MS,
    deadline: u64::MAX,
};
/// How long after its submission an operation is complete.
const TAKES: u64 = MS;

/// A stream, and how often a kernel is launched into it.
struct Stream {
    number: usize,
    every: u64,
    next: u64,
}

impl Stream {
    fn new(number: usize, every: u64) -> Self {
        let next = SECOND + number as u64 * 37 * US;
        Self {
            number,
            every,
            next,
        }
    }

    /// Launches a kernel. Whether the gate thread is called.
    fn launches(&mut self, window: &mut Window<u64>) -> bool {
        let now = self.next;
        self.next += self.every;
        let stream_key = StreamKey {
            context: 1,
            stream: self.number,
            thread: 0,
        };
        let expected = Expected {
            ns: self.every.min(100 * US),
            in_stream: self.every.min(100 * US),
            known: true,
        };
        let op = Op {
            count: 1,
            key: 3,
            expected,
            waits: false,
            first: false,
        };
        window.set_aside(1, expected.ns);
        if window.submitted(now, BOUNDS, stream_key, op) {
            marks(window, stream_key, now);
        }
        window.look(now, |done| *done <= now, |_| None);
        window.lags(now, stream_key)
    }
}

fn marks(window: &mut Window<u64>, stream_key: StreamKey, now: u64) {
    if let Some(number) = window.close_batch(stream_key, now) {
        window.marked(number, now + TAKES).unwrap();
    }
}

/// One second of a program: how many rounds the gate thread makes, and how many times work of a
/// stream has had no mark for twice as long as it should.
fn runs(mut streams: Vec<Stream>) -> (u32, usize) {
    let mut window = Window::default();
    let mut follower = LeaseFollower::default();
    let turn = shared(true);
    assert_eq!(follower.step(SECOND, &turn, &BUSY), Act::Open);
    let (mut wakes, mut rounds, mut late) = (SECOND + MS, 0, BTreeSet::new());
    loop {
        let next = streams.iter_mut().min_by_key(|stream| stream.next).unwrap();
        let now = next.next.min(wakes);
        if now >= 2 * SECOND {
            return (rounds, late.len());
        }
        let unmarked: Vec<(StreamKey, u64)> = window.unmarked_streams().collect();
        for (stream_key, since) in unmarked {
            if now - since > 2 * BATCH_AGE {
                late.insert(since);
            }
            if now == wakes && now - since >= BATCH_AGE {
                marks(&mut window, stream_key, now);
            }
        }
        if now < wakes {
            if next.launches(&mut window) {
                wakes = now;
            }
            continue;
        }
        rounds += 1;
        window.look(now, |done| *done <= now, |_| None);
        let facts = Facts {
            empty: window.is_empty(),
            quiet: true,
            last_active: window.last_active(),
            left: window.left(now),
        };
        match follower.step(now, &turn, &facts) {
            Act::Sleep(until) => wakes = until,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_that_is_launched_into_steadily_costs_no_rounds() {
    for every in [20 * US, 500 * US, 3 * MS] {
        let (rounds, late) = runs(vec![Stream::new(1, every)]);
        assert!(rounds <= 60, "{rounds} with one each {every} ns");
        assert_eq!(late, 0, "its own launches mark it");
    }
}

#[test]
fn streams_that_are_launched_into_side_by_side_cost_no_rounds() {
    for every in [20 * US, 500 * US] {
        let (rounds, _) = runs((1..=4).map(|number| Stream::new(number, every)).collect());
        assert!(rounds <= 60, "{rounds} with one each {every} ns");
    }
}

#[test]
fn a_stream_that_falls_behind_is_marked_soon_beside_a_steady_one() {
    let (rounds, late) = runs(vec![Stream::new(1, 500 * US), Stream::new(2, 47 * MS)]);
    assert_eq!(late, 0);
    assert!((1..=80).contains(&rounds), "{rounds}");
}
