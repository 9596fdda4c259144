//! Launches beside other streams' operations: what runs already is not shortened by keeping them.

use super::*;

const WIDE: Bounds = Bounds {
    window: 5 * MS,
    deadline: u64::MAX,
};

fn stream(number: usize) -> StreamKey {
    StreamKey {
        stream: number,
        ..STREAM
    }
}

fn known(ns: u64) -> Expected {
    Expected {
        ns,
        in_stream: ns,
        known: true,
    }
}

fn op(key: u64, expected: Expected) -> Op {
    Op {
        count: 1,
        key,
        expected,
        waits: false,
        first: false,
    }
}

/// Operations of so long are under way in streams of their own, since 0, with marks behind them.
fn running(each: &[Expected]) -> Window<u64> {
    let mut window = Window::default();
    for (at, expected) in each.iter().enumerate() {
        window.came(0, WIDE, stream(at), op(1 + at as u64, *expected));
        let number = window.close_batch(stream(at), 0).expect("it has work");
        window.marked(number, u64::MAX).expect("it is there");
    }
    window
}

/// How many launches of `expected` go into a stream, one after another.
fn go(window: &mut Window<u64>, now: u64, stream_key: StreamKey, expected: Expected) -> u32 {
    let mut count = 0;
    while count < 1000 && window.admit(now, WIDE, stream_key, expected, false) == Answer::Go {
        let _ = window.submitted(now, WIDE, stream_key, op(9, expected));
        count += 1;
    }
    count
}

#[test]
fn a_short_launch_goes_beside_a_long_operation_of_another_stream() {
    let mut window = running(&[known(20 * MS)]);
    assert_eq!(go(&mut window, MS, stream(7), known(20 * US)), 125);
}

#[test]
fn behind_a_long_operation_of_its_own_stream_a_launch_waits_as_before() {
    let mut window = running(&[known(20 * MS)]);
    assert_eq!(go(&mut window, MS, stream(0), known(20 * US)), 0);
}

#[test]
fn of_two_long_operations_the_second_waits_for_the_first() {
    let mut window = running(&[known(20 * MS)]);
    assert_eq!(go(&mut window, MS, stream(7), known(20 * MS)), 0);
    assert_eq!(go(&mut window, 18 * MS, stream(7), known(20 * MS)), 1);
}

#[test]
fn beside_endless_operations_measured_launches_go_at_once() {
    let endless = Expected {
        ns: 1_250 * US,
        in_stream: 0,
        known: false,
    };
    let mut window = running(&[endless, endless, endless]);
    for now in (1..100).map(|at| at * 10 * MS) {
        window.look(now, |_| false, |_| None);
        assert!(go(&mut window, now, stream(7), known(20 * US)) >= 100);
        let is_seven = |stream_key: &StreamKey| *stream_key == stream(7);
        let stamp = window.stamp();
        window.waited_for(now + MS, is_seven, stamp, true, |_| None);
    }
}

#[test]
fn beside_one_endless_operation_also_unknown_launches_go() {
    let unknown = Expected {
        ns: 1_250 * US,
        in_stream: 0,
        known: false,
    };
    let mut window = running(&[unknown]);
    window.look(100 * MS, |_| false, |_| None);
    assert_eq!(go(&mut window, 100 * MS, stream(7), unknown), 2);
    let mut window = running(&[unknown, unknown]);
    window.look(15 * MS, |_| false, |_| None);
    assert_eq!(go(&mut window, 15 * MS, stream(7), unknown), 0);
}

#[test]
fn beside_untracked_work_launches_go_at_once() {
    let mut window: Window<u64> = Window::default();
    let number = window.close_blindly(StreamKey::of_context(STREAM.context), 0);
    window.marked(number, u64::MAX).unwrap();
    window.look(100 * MS, |_| false, |_| None);
    assert!(go(&mut window, 100 * MS, stream(7), known(20 * US)) >= 100);
}

/// A device with streams: side by side, or one operation after another.
struct Streams {
    window: Window<u64>,
    now: u64,
    is_parallel: bool,
    /// When each stream, and the device, has done all.
    ends: Vec<u64>,
    device: u64,
    done: u64,
    most: u64,
}

impl Streams {
    fn new(count: usize, is_parallel: bool) -> Self {
        Self {
            window: Window::default(),
            now: MS,
            is_parallel,
            ends: vec![0; count],
            device: 0,
            done: 0,
            most: 0,
        }
    }

    /// A step of 200 us: a thread for each stream launches an operation of `took` and waits for it.
    fn step(&mut self, took: u64) {
        let now = self.now;
        self.window.look(now, |mark| *mark <= now, |_| None);
        for at in 0..self.ends.len() {
            if self.ends[at] > now {
                continue;
            }
            let expected = self.window.expected(WIDE, 1);
            let answer = self.window.admit(now, WIDE, stream(at), expected, false);
            if answer != Answer::Go {
                continue;
            }
            let begins = if self.is_parallel {
                now
            } else {
                now.max(self.device)
            };
            let end = begins + took;
            (self.device, self.ends[at]) = (self.device.max(end), end);
            self.done += 1;
            let _ = self
                .window
                .submitted(now, WIDE, stream(at), op(1, expected));
            let number = self.window.close_batch(stream(at), now).unwrap();
            self.window.marked(number, end).unwrap();
        }
        self.most = self.most.max(self.device.saturating_sub(now));
        self.now += 200 * US;
    }

    fn run(&mut self, took: u64, for_ns: u64) {
        let end = self.now + for_ns;
        while self.now < end {
            self.step(took);
        }
    }
}

#[test]
fn streams_that_the_device_runs_side_by_side_all_have_an_operation() {
    // In steps of 200 us.
    for (count, took) in [(4, 20), (8, 10), (8, 20), (8, 200), (16, 10), (32, 50)] {
        let took = took * MS;
        let mut streams = Streams::new(count, true);
        streams.run(took, 20 * took);
        streams.done = 0;
        streams.run(took, 50 * took);
        let bare = 50 * count as u64;
        let done = streams.done;
        assert!(
            done * 100 >= bare * 90,
            "{done} of {bare}: {count} x {took}"
        );
    }
}

#[test]
fn of_streams_that_the_device_runs_one_after_another_one_has_an_operation() {
    let took = 20 * MS;
    let mut streams = Streams::new(8, false);
    streams.run(took, 100 * took);
    let (mut longer, mut steps) = (0, 0);
    (streams.done, streams.most) = (0, 0);
    let end = streams.now + 400 * took;
    while streams.now < end {
        streams.step(took);
        steps += 1;
        longer += u64::from(streams.device.saturating_sub(streams.now) > took + 5 * MS / 2);
    }
    assert!(streams.done >= 390, "{}", streams.done);
    assert!(streams.most <= 3 * took, "{}", streams.most);
    assert!(longer * 10 <= steps, "{longer} of {steps} steps");
}

#[test]
fn streams_that_begin_to_be_in_each_others_way_are_run_one_after_another() {
    let took = 20 * MS;
    let mut streams = Streams::new(8, true);
    streams.run(took, 50 * took);
    streams.is_parallel = false;
    streams.run(took, 50 * took);
    streams.most = 0;
    streams.run(took, 100 * took);
    assert!(streams.most <= 3 * took, "{}", streams.most);
    streams.is_parallel = true;
    streams.run(took, 300 * took);
    streams.done = 0;
    streams.run(took, 50 * took);
    assert!(streams.done >= 8 * 45, "{}", streams.done);
}

#[test]
fn work_that_was_never_measured_is_looked_at_soon() {
    let mut window: Window<u64> = Window::default();
    let expected = window.expected(WIDE, 1);
    assert_eq!(go(&mut window, 0, STREAM, expected), 5);
    let pause = |window: &mut Window<u64>, now| {
        let stream_key = window.streams().next().expect("there is work");
        match window.admit(now, WIDE, stream_key, expected, false) {
            Answer::Wait(pause) => pause,
            answer => panic!("{answer:?} at {now}"),
        }
    };
    assert!(pause(&mut window, 10 * US) <= 100 * US);
    assert_eq!(pause(&mut window, MS), 500 * US, "later and later");
    let mut window = running(&[known(20 * MS)]);
    let pause = pause(&mut window, 10 * US);
    assert_eq!(pause, 2 * MS, "of measured work it is known when");
}
