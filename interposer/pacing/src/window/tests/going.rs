//! Contexts that go while work is under way in them.

use super::*;

/// A kind that takes a millisecond.
const KIND: u64 = 1;
/// A stream of a context that stays.
const OTHER: StreamKey = StreamKey {
    context: 9,
    ..STREAM
};

fn is_gone(stream_key: &StreamKey) -> bool {
    stream_key.context == STREAM.context
}

fn expected(window: &Window<u64>) -> Expected {
    window.expected(BOUNDS, KIND)
}

/// A window that knows the kind, and when the last of them was complete.
fn knowing() -> (Window<u64>, u64) {
    let mut window: Window<u64> = Window::default();
    let mut now = MS;
    while !expected(&window).known {
        submit(&mut window, now, BOUNDS, STREAM, KIND, MS);
        mark(&mut window, now);
        window.look(now + MS - 1, |_| false, |_| None);
        now += MS;
        window.look(now, |_| true, |_| None);
    }
    let _ = (window.take_service(), window.take_busy(now));
    (window, now)
}

fn mark(window: &mut Window<u64>, now: u64) {
    let number = window.close_batch(STREAM, now).unwrap();
    window.marked(number, 7).unwrap();
}

/// Twenty of the kind are under way, half of them before a mark, and one of another context.
fn under_way() -> (Window<u64>, u64) {
    let (mut window, now) = knowing();
    for operation in 0..20 {
        submit(&mut window, now, BOUNDS, STREAM, KIND, MS);
        if operation == 9 {
            mark(&mut window, now);
        }
    }
    submit(&mut window, now, BOUNDS, OTHER, KIND, MS);
    (window, now)
}

#[test]
fn the_work_of_a_context_that_has_ended_is_service_and_teaches_nothing() {
    let (mut window, now) = under_way();
    let known = expected(&window);
    let end = now + 500 * MS;
    window.ended(end, is_gone);
    assert_eq!(window.take_service().all(), 20 * known.ns);
    assert_eq!(expected(&window), known);
    assert_eq!(window.streams().collect::<Vec<_>>(), [OTHER]);
    assert_eq!(window.remaining(now), MS);
}

#[test]
fn the_work_of_a_context_that_has_failed_is_no_service() {
    let (mut window, now) = under_way();
    window.forget(is_gone);
    assert_eq!(window.take_service().all(), 0);
    assert_eq!(window.streams().collect::<Vec<_>>(), [OTHER]);
    assert_eq!(window.remaining(now), MS);
}

#[test]
fn a_context_that_takes_long_to_end_is_busy_as_long_as_its_work_is() {
    for is_asked in [false, true] {
        let (mut window, now) = knowing();
        submit(&mut window, now, BOUNDS, STREAM, KIND, MS);
        mark(&mut window, now);
        let end = now + 500 * MS;
        let is_left_out = |stream_key: &StreamKey| !is_asked && is_gone(stream_key);
        window.look_except(end - 1, is_left_out, |_| false, |_| None);
        window.ended(end, is_gone);
        let (from, until) = window.take_busy(end).unwrap();
        let busy = if is_asked { 500 * MS - 1 } else { MS };
        assert_eq!(until - from, busy);
        assert!(window.is_empty());
    }
}
