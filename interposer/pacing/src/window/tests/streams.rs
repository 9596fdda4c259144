//! Streams side by side: the parts that they have of the time, and what one of them has alone.

use super::*;

/// The duration of the operation of key 1 in its stream.
const TOOK: u64 = 300 * US;

fn stream(number: usize) -> StreamKey {
    StreamKey {
        stream: number,
        ..STREAM
    }
}

/// One operation of `key` in a stream, with a mark behind it that is `mark`.
fn one(window: &mut Window<u64>, now: u64, stream_key: StreamKey, key: u64, mark: u64) {
    let expected = window.expected(BOUNDS, key);
    let answer = window.admit(now, BOUNDS, stream_key, expected, true);
    assert_eq!(answer, Answer::Go);
    submit(window, now, BOUNDS, stream_key, key, expected.ns);
    let number = window.close_batch(stream_key, now).expect("it is there");
    window.marked(number, mark).expect("it is known");
}

/// In each round one operation of key 1 in each of so many streams; that of the first stream is in
/// it for `took` nanoseconds.
fn timed_in(window: &mut Window<u64>, streams: usize, rounds: u64, took: u64) {
    for round in 1..=rounds {
        let now = round * 10 * MS;
        (0..streams).for_each(|at| one(window, now, stream(at), 1, at as u64));
        let sample = |_| {
            Some(Timed {
                key: 1,
                ns: took,
                gap: 0,
            })
        };
        window.look(now + took, |mark| *mark == 0, sample);
        window.look(now + took, |_| true, |_| None);
    }
}

/// A window that knows the operation of key 1, as it was timed in so many streams side by side,
/// while another tenant works.
fn knowing(streams: usize) -> Window<u64> {
    let mut window = Window::default();
    window.contends(0, true);
    timed_in(&mut window, streams, 8, TOOK);
    let _ = window.take_service();
    window
}

#[test]
fn streams_that_are_busy_side_by_side_share_the_time() {
    let expected = knowing(4).expected(BOUNDS, 1);
    assert!(expected.known);
    assert_eq!((expected.ns, expected.in_stream), (TOOK / 4, TOOK));
}

#[test]
fn a_stream_alone_has_all_of_the_time() {
    let expected = knowing(1).expected(BOUNDS, 1);
    assert!(expected.known);
    assert_eq!((expected.ns, expected.in_stream), (TOOK, TOOK));
}

#[test]
fn an_operation_seen_alone_once_is_in_its_stream_no_longer_than_that() {
    // The device does one after another.
    let mut window: Window<u64> = Window::default();
    window.contends(0, true);
    timed_in(&mut window, 4, 8, 4 * TOOK);
    let expected = window.expected(BOUNDS, 1);
    assert_eq!((expected.ns, expected.in_stream), (TOOK, 4 * TOOK));
    timed_in(&mut window, 1, 1, TOOK);
    let expected = window.expected(BOUNDS, 1);
    assert_eq!((expected.ns, expected.in_stream), (TOOK, TOOK));
}

#[test]
fn a_stream_with_little_to_do_leaves_the_time_to_one_with_much() {
    let mut window = knowing(1);
    for round in 1..20 {
        let now = 100 * MS + round * 10 * MS;
        for _ in 0..8 {
            one(&mut window, now, stream(1), 1, 1);
        }
        // Its end has not been seen.
        let op = Op {
            key: 2,
            count: 1,
            expected: Expected {
                ns: 2 * US,
                in_stream: 2 * US,
                known: true,
            },
            waits: false,
            first: false,
        };
        window.came(now, BOUNDS, stream(2), op);
        let timed = Timed {
            key: 1,
            ns: TOOK,
            gap: 0,
        };
        window.look(now + 8 * TOOK, |_| true, |_| Some(timed));
        window.waited_for(now + 8 * TOOK, |_| true, window.stamp(), false, |_| None);
    }
    assert_eq!(window.expected(BOUNDS, 1).ns, TOOK);
}

/// The service that the window reports for four operations of key 1 in so many streams.
fn service_in(streams: usize) -> u64 {
    let mut window = knowing(4);
    for at in 0..4 {
        one(&mut window, 200 * MS, stream(at % streams), 1, 0);
    }
    window.look(200 * MS + 4 * TOOK, |_| true, |_| None);
    window.take_service().measured
}

#[test]
fn work_in_one_stream_of_several_has_had_all_of_its_time() {
    assert_eq!(service_in(1), 4 * TOOK);
    assert_eq!(service_in(2), 2 * TOOK);
}

#[test]
fn work_side_by_side_has_had_its_parts_of_the_time() {
    assert_eq!(service_in(4), TOOK);
}

#[test]
fn a_stream_has_had_no_more_than_the_time_that_has_passed() {
    // The device does one after another.
    let mut window: Window<u64> = Window::default();
    window.contends(0, true);
    timed_in(&mut window, 4, 8, 4 * TOOK);
    let _ = window.take_service();
    (0..10).for_each(|_| one(&mut window, 200 * MS, stream(1), 1, 0));
    window.look(200 * MS + 10 * TOOK, |_| true, |_| None);
    assert_eq!(window.take_service().measured, 10 * TOOK);
}

#[test]
fn what_is_left_is_counted_by_the_streams_that_share_the_device() {
    let mut window = knowing(1);
    let now = 200 * MS;
    (0..10).for_each(|_| one(&mut window, now, stream(1), 1, 1));
    let op = Op {
        key: 2,
        count: 1,
        expected: Expected {
            ns: US,
            in_stream: US,
            known: true,
        },
        waits: false,
        first: false,
    };
    (2..14).for_each(|at| window.came(now, BOUNDS, stream(at), op));
    let left = window.left(now + 8 * TOOK);
    assert!(left <= 9 * TOOK, "{left}");
}

#[test]
fn what_a_stream_has_is_counted_until_nothing_is_under_way() {
    let mut window = knowing(4);
    let now = 200 * MS;
    (0..3).for_each(|_| one(&mut window, now, stream(1), 1, 1));
    one(&mut window, now, stream(2), 1, 2);
    assert_eq!(window.in_stream(stream(1)), 3 * TOOK);
    assert_eq!(window.in_stream(stream(2)), TOOK);
    assert_eq!(
        (window.in_stream(stream(3)), window.longest()),
        (0, 3 * TOOK)
    );
    window.look(now + MS, |mark| *mark == 2, |_| None);
    assert_eq!(window.longest(), 3 * TOOK);
    window.counts_anew();
    assert_eq!((window.in_stream(stream(1)), window.longest()), (0, 0));
    one(&mut window, now + MS, stream(1), 1, 1);
    assert_eq!(window.longest(), TOOK);
    window.look(now + 2 * MS, |_| true, |_| None);
    assert_eq!((window.in_stream(stream(1)), window.longest()), (0, 0));
}
