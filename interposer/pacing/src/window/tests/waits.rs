//! Waits by the program, and work that the window did not record.

use super::*;

#[test]
fn what_the_program_waited_for_needs_no_mark_and_what_came_meanwhile_does() {
    let mut window: Window<u64> = Window::default();
    let put = |window: &mut Window<u64>| {
        let _ = admit(window, 0, BOUNDS, 1);
        submit(window, 0, BOUNDS, STREAM, 1, 100);
    };
    put(&mut window);
    let stamp = window.stamp();
    window.waited_for(
        1_000,
        |stream_key| *stream_key == STREAM,
        stamp,
        false,
        |_| None,
    );
    assert!(window.is_drained());
    put(&mut window);
    let stamp = window.stamp();
    put(&mut window);
    window.waited_for(
        1_000,
        |stream_key| *stream_key == STREAM,
        stamp,
        false,
        |_| None,
    );
    assert!(!window.is_drained(), "another thread launched meanwhile");
    window.waited_for(
        1_000,
        |stream_key| stream_key.context == 77,
        window.stamp(),
        false,
        |_| None,
    );
    assert!(!window.is_drained(), "another context");
}

#[test]
fn a_program_that_waits_for_each_launch_was_active_until_its_work_ended() {
    let mut window: Window<u64> = Window::default();
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, STREAM, 1, 500 * US);
    assert_eq!(window.last_active(), 0, "submitted then");
    window.waited_for(700 * US, |_| true, window.stamp(), true, |_| None);
    assert_eq!(window.last_active(), 700 * US);
}

#[test]
fn how_long_the_program_waited_says_how_long_its_work_took() {
    let run = |blocked: bool| {
        let mut window: Window<u64> = Window::default();
        let mut now = MS;
        for _ in 0..10 {
            let Ok(ns) = admit(&mut window, now, BOUNDS, 1) else {
                panic!("nothing is under way")
            };
            submit(&mut window, now, BOUNDS, STREAM, 1, ns);
            now += 30 * MS;
            let stamp = window.stamp();
            window.waited_for(now, |_| true, stamp, blocked, |_| None);
        }
        admit(&mut window, now, BOUNDS, 1)
    };
    assert_eq!(run(true), Ok(30 * MS));
    assert_eq!(run(false), Ok(MS / 2), "it was done long before");
}

#[test]
fn a_mark_behind_a_whole_context_stands_for_all_its_streams() {
    let mut window: Window<u64> = Window::default();
    let own = |thread| StreamKey { thread, ..STREAM };
    let context = StreamKey::of_context(STREAM.context);
    let elsewhere = StreamKey {
        context: STREAM.context + 1,
        ..STREAM
    };
    for stream_key in [own(0), own(1), own(2), elsewhere] {
        let _ = admit(&mut window, 0, BOUNDS, 1);
        submit(&mut window, 0, BOUNDS, stream_key, 1, 100);
    }
    assert_eq!(window.unmarked_streams().count(), 4);
    let number = window.close_blindly(context, 0);
    window.marked(number, 7).unwrap();
    assert_eq!(window.unmarked_streams().count(), 1);
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, own(2), 1, 100);
    window.look(1_000, |mark| *mark == 7, |_| None);
    let left: Vec<StreamKey> = window
        .unmarked_streams()
        .map(|(stream_key, _)| stream_key)
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&own(2)), "what came after the mark");
    assert!(left.contains(&elsewhere), "another context's");
}

#[test]
fn work_keeps_its_marks_under_another_name() {
    let mut window: Window<u64> = Window::default();
    let name = StreamKey {
        stream: 9,
        ..STREAM
    };
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, STREAM, 1, 100);
    let number = window.close_batch(STREAM, 0).unwrap();
    window.marked(number, 7).unwrap();
    window.rename(STREAM, name);
    window.look(10, |_| false, |_| None);
    assert!(!window.is_drained());
    assert_eq!(
        window.close_batch(STREAM, 0),
        None,
        "nothing is known of it"
    );
    window.look(20, |mark| *mark == 7, |_| None);
    assert!(window.is_drained());
}

#[test]
fn a_mark_finds_its_work_though_the_stream_went_meanwhile() {
    let mut window: Window<u64> = Window::default();
    let name = StreamKey {
        stream: 9,
        ..STREAM
    };
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, STREAM, 1, 100);
    let number = window.close_batch(STREAM, 0).unwrap();
    window.rename(STREAM, name);
    window.marked(number, 7).unwrap();
    window.look(10, |mark| *mark == 7, |_| None);
    assert!(window.is_drained());
    let _ = admit(&mut window, 20, BOUNDS, 1);
    submit(&mut window, 20, BOUNDS, STREAM, 1, 100);
    let number = window.close_batch(STREAM, 20).unwrap();
    window.rename(STREAM, name);
    window.unmarked(number);
    assert_eq!(
        window.unmarked_streams().count(),
        1,
        "it waits for another mark"
    );
}

#[test]
fn work_nobody_noted_is_waited_for() {
    let mut window: Window<u64> = Window::default();
    let number = window.close_blindly(STREAM, 0);
    window.marked(number, 7).unwrap();
    window.look(10 * MS, |_| false, |_| None);
    assert!(!window.is_drained());
    assert!(window.remaining(10 * MS) >= 10 * MS, "as long again");
    window.look(20 * MS, |_| true, |_| None);
    assert!(window.is_drained());
}

#[test]
fn a_program_that_stood_still_is_not_taken_for_slow_work() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.launch(1, 10 * US, BOUNDS);
        bench.mark(STREAM);
        bench.now += 500 * MS;
        bench.look();
    }
    let Ok(ns) = admit(&mut bench.window, bench.now, BOUNDS, 1) else {
        panic!("nothing is under way")
    };
    assert!(ns <= MS / 2, "{ns}");
}

#[test]
fn the_time_that_work_was_under_way_is_told_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.window.take_busy(bench.now), None);
    let began = bench.now;
    bench.launch(1, 4 * MS, BOUNDS);
    bench.now += MS;
    bench.look();
    assert_eq!(bench.window.take_busy(bench.now), Some((began, bench.now)));
    let told = bench.now;
    bench.drain();
    let ended = bench.now;
    bench.now += 100 * MS;
    let (from, until) = bench.window.take_busy(bench.now).unwrap();
    assert_eq!(from, told);
    assert!(until <= ended && until >= ended - MS, "{until} of {ended}");
    assert_eq!(bench.window.take_busy(bench.now), None);
}

#[test]
fn time_of_work_that_may_wait_is_owed_until_it_is_known_to_be_over() {
    let mut bench = Bench::new();
    bench.launch(1, 1_000 * MS, BOUNDS);
    bench.mark(STREAM);
    bench.now += 30 * MS;
    bench.look();
    assert_eq!(bench.window.take_busy(bench.now), None);
    assert!(bench.window.owes(bench.now));
    let stamp = bench.window.stamp();
    bench.now += 970 * MS;
    let now = bench.now;
    bench
        .window
        .waited_for(now, |_| true, stamp, true, |_| None);
    let (from, until) = bench.window.take_busy(now).expect("it is over");
    assert_eq!(until - from, 1_000 * MS);
    assert!(!bench.window.owes(now));
}

#[test]
fn a_process_that_ends_tells_the_time_of_work_that_may_wait() {
    let mut bench = Bench::new();
    let began = bench.now;
    bench.launch(1, 1_000 * MS, BOUNDS);
    bench.mark(STREAM);
    bench.now += 30 * MS;
    bench.look();
    assert_eq!(bench.window.take_busy(bench.now), None);
    // A process that was stopped after that is not known to have held the device.
    let seen = bench.now;
    bench.now += 500 * MS;
    assert_eq!(bench.window.take_last(bench.now), Some((began, seen)));
    assert_eq!(bench.window.take_last(bench.now), None, "once");
}

#[test]
fn a_process_that_ends_does_not_tell_the_time_of_work_that_waited() {
    let (mut window, began) = held_up();
    let went = began + goes_at(&mut window, began);
    assert_eq!(window.take_last(went), None, "a launch went on for it");
}

#[test]
fn a_stopped_process_did_not_hold_the_device_meanwhile() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.launch(1, 100 * US, BOUNDS);
        bench.drain();
    }
    bench.window.take_busy(bench.now);
    let began = bench.now;
    bench.launch(1, 100 * US, BOUNDS);
    bench.now += 5_000 * MS;
    let (_, until) = bench.window.take_busy(bench.now).unwrap();
    assert!(until <= began + MS, "no mark was made and no check came");
}

/// Work under way that fills the window and waits for a launch that comes after it; when it should
/// have been complete for long.
fn held_up() -> (Window<u64>, u64) {
    let mut window: Window<u64> = Window::default();
    for _ in 0..5 {
        let ns = admit(&mut window, MS, BOUNDS, 1).expect("the window is not full");
        submit(&mut window, MS, BOUNDS, STREAM, 1, ns);
    }
    let number = window.close_batch(STREAM, MS).unwrap();
    window.marked(number, 7).unwrap();
    (window, 8 * MS)
}

/// When a launch of another kind goes that asks each millisecond.
fn goes_at(window: &mut Window<u64>, from: u64) -> u64 {
    let mut times = (0..).map(|step| from + step * MS);
    let goes = times.find(|now| {
        window.look(*now, |_| false, |_| None);
        admit(window, *now, BOUNDS, 2).is_ok()
    });
    goes.expect("some time") - from
}

#[test]
fn a_launch_that_work_may_wait_for_goes_though_there_is_no_room() {
    let (mut window, began) = held_up();
    let went = goes_at(&mut window, began);
    assert!((10 * MS..=25 * MS).contains(&went), "{went}");
    submit(&mut window, began + went, BOUNDS, STREAM, 2, MS / 2);
    let again = goes_at(&mut window, began + went);
    assert!(again >= 10 * MS, "one at a time: {again}");
}

#[test]
fn while_work_is_completed_no_launch_goes_without_room() {
    let mut window: Window<u64> = Window::default();
    let mut admitted = 0;
    for now in (1..200).map(|step| step * MS) {
        if let Ok(ns) = admit(&mut window, now, BOUNDS, 1) {
            submit(&mut window, now, BOUNDS, STREAM, 1, ns);
            let number = window.close_batch(STREAM, now).unwrap();
            window.marked(number, now).unwrap();
            admitted += 1;
        }
        // The device completes one each 15 ms, the oldest.
        if (now / MS).is_multiple_of(15) {
            let oldest = core::cell::Cell::new(true);
            window.look(now, |_| oldest.replace(false), |_| None);
        } else {
            window.look(now, |_| false, |_| None);
        }
    }
    assert!(admitted <= 200 / 15 + 6, "{admitted}");
}

#[test]
fn work_that_takes_long_by_its_nature_is_given_twice_that_time() {
    let mut window: Window<u64> = Window::default();
    let ns = 100 * MS;
    let known = window.expected(BOUNDS, 1);
    let _ = window.admit(MS, BOUNDS, STREAM, Expected { ns, ..known }, false);
    submit(&mut window, MS, BOUNDS, STREAM, 1, ns);
    let number = window.close_batch(STREAM, MS).unwrap();
    window.marked(number, 7).unwrap();
    window.look(150 * MS, |_| false, |_| None);
    let went = 150 * MS + goes_at(&mut window, 150 * MS);
    assert!((2 * ns..=2 * ns + 3 * MS).contains(&went), "{went}");
}

/// What is learned of work that is complete so long after a launch went without waiting for it.
fn learned(after: u64) -> u64 {
    let (mut window, began) = held_up();
    let went = began + goes_at(&mut window, began);
    submit(&mut window, went, BOUNDS, STREAM, 2, MS / 2);
    let end = went + after;
    window.look(end - 1, |_| false, |_| None);
    let timed = Timed {
        key: 1,
        ns: end - began,
        gap: 0,
    };
    let sample = |_| Some(timed);
    window.look(end, |mark| *mark == 7, sample);
    window.expected(BOUNDS, 1).ns
}

#[test]
fn work_that_ends_once_a_launch_went_on_is_not_taken_for_long() {
    assert_eq!(learned(MS), MS / 2, "it waited for that launch");
    assert!(learned(30 * MS) > 5 * MS, "it did not");
}

#[test]
fn time_for_which_a_launch_was_kept_is_told_if_no_work_waited_for_it() {
    let told = |after: u64| {
        let (mut window, began) = held_up();
        let went = began + goes_at(&mut window, began);
        assert_eq!(window.take_busy(went - 1), None, "it may be that launch's");
        submit(&mut window, went, BOUNDS, STREAM, 2, MS / 2);
        assert_eq!(window.take_busy(went), None);
        window.look(went + after, |mark| *mark == 7, |_| None);
        window.take_busy(went + after).expect("it was busy").0 >= went
    };
    assert!(told(MS), "not before the launch went");
    assert!(!told(30 * MS), "all of it");
}

/// Work of another thread's own stream has had no mark of its own for longer than it may, and a
/// mark behind its whole context is put if `is_marked`.
fn of_another_thread(is_marked: bool) -> Window<u64> {
    let mut window: Window<u64> = Window::default();
    let own = StreamKey {
        thread: 7,
        ..STREAM
    };
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, own, 1, 100);
    if is_marked {
        let number = window.close_blindly(StreamKey::of_context(STREAM.context), BATCH_AGE);
        window.marked(number, 7).unwrap();
    }
    window
}

#[test]
fn work_that_a_mark_behind_its_context_covers_is_not_too_old() {
    let window = of_another_thread(true);
    assert!(window.open(BATCH_AGE + MS, BOUNDS).is_some());
}

#[test]
fn work_that_no_mark_covers_is_too_old_also_what_came_after_the_mark() {
    let window = of_another_thread(false);
    assert_eq!(window.open(BATCH_AGE + MS, BOUNDS), None);
    let mut window = of_another_thread(true);
    let own = window.streams().next().unwrap();
    let _ = admit(&mut window, BATCH_AGE + MS, BOUNDS, 1);
    assert!(submit(&mut window, BATCH_AGE + MS, BOUNDS, own, 1, 100));
    assert_eq!(
        window.open(BATCH_AGE + MS, BOUNDS),
        None,
        "until its thread marks it"
    );
}
