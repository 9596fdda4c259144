//! The window by itself: times are made up, a mark is a number.

use crate::estimate::{Expected, Timed};
use crate::window::{Answer, BATCH_AGE, BATCH_OPS, Bounds, Op, StreamKey, Window};

mod beside;
mod going;
mod streams;
mod unlearned;
mod waits;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
const BOUNDS: Bounds = Bounds {
    window: 2 * MS,
    deadline: u64::MAX,
};
const STREAM: StreamKey = StreamKey {
    context: 1,
    stream: 2,
    thread: 0,
};

/// Asks for one operation of `key`. Returns its expected duration, if it may go.
fn admit(window: &mut Window<u64>, now: u64, bounds: Bounds, key: u64) -> Result<u64, Answer> {
    let expected = window.expected(bounds, key);
    match window.admit(now, bounds, STREAM, expected, false) {
        Answer::Go => Ok(expected.ns),
        answer => Err(answer),
    }
}

/// Submits an operation that was admitted for `ns`. Whether it wants a mark.
fn submit(
    window: &mut Window<u64>,
    now: u64,
    bounds: Bounds,
    stream_key: StreamKey,
    key: u64,
    ns: u64,
) -> bool {
    let now_known = window.expected(bounds, key);
    let op = Op {
        key,
        count: 1,
        expected: Expected { ns, ..now_known },
        waits: false,
        first: false,
    };
    window.submitted(now, bounds, stream_key, op)
}

/// A window and a device that executes one operation after another.
struct Bench {
    window: Window<u64>,
    now: u64,
    /// When the device will be done with everything it has.
    device: u64,
    most: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            window: Window::default(),
            now: MS,
            device: 0,
            most: 0,
        }
    }

    /// Looks at the marks, which are the times at which they will have been passed.
    fn look(&mut self) {
        let now = self.now;
        self.window.look(now, |mark| *mark <= now, |_| None);
    }

    fn put(&mut self, stream_key: StreamKey, key: u64, ns: u64, took: u64, bounds: Bounds) {
        self.device = self.device.max(self.now) + took;
        if submit(&mut self.window, self.now, bounds, stream_key, key, ns) {
            self.mark(stream_key);
        }
        self.most = self.most.max(self.device - self.now);
    }

    fn mark(&mut self, stream_key: StreamKey) {
        if let Some(number) = self.window.close_batch(stream_key, self.now) {
            self.window.marked(number, self.device).unwrap();
        }
    }

    /// Submits one operation as a launching thread does. `false` if the turn is over.
    fn launch(&mut self, key: u64, took: u64, bounds: Bounds) -> bool {
        loop {
            match admit(&mut self.window, self.now, bounds, key) {
                Ok(ns) => {
                    self.put(STREAM, key, ns, took, bounds);
                    return true;
                }
                Err(Answer::Wait(pause)) => {
                    self.now += pause;
                    self.mark(STREAM);
                    self.look();
                }
                Err(_) => return false,
            }
        }
    }

    /// Lets everything be done and looked at.
    fn drain(&mut self) {
        self.mark(STREAM);
        self.now = self.now.max(self.device - 1);
        self.look();
        self.now = self.now.max(self.device);
        self.look();
    }
}

#[test]
fn short_operations_fill_the_window_and_do_not_exceed_it() {
    let mut bench = Bench::new();
    for _ in 0..20_000 {
        assert!(bench.launch(1, 10 * US, BOUNDS));
        bench.now += US;
    }
    bench.most = 0;
    let began = bench.now;
    for _ in 0..20_000 {
        assert!(bench.launch(1, 10 * US, BOUNDS));
        bench.now += US;
    }
    let most = bench.most;
    assert!(most <= 2 * MS + 200 * US, "{most} ns were under way");
    let worked = (bench.now - began) as f64;
    let idle = 1.0 - 20_000.0 * 10_000.0 / worked;
    assert!(idle < 0.01, "the device stood still for {idle}");
}

#[test]
fn of_operations_longer_than_the_window_one_runs_at_a_time() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.launch(1, 20 * MS, BOUNDS);
    }
    (bench.most, bench.device) = (0, bench.device);
    let began = bench.device;
    for _ in 0..50 {
        bench.launch(1, 20 * MS, BOUNDS);
    }
    let most = bench.most;
    assert!(
        most <= 20 * MS + 2 * MS + MS / 2,
        "{most} ns were under way"
    );
    let idle = bench.device - began - 50 * 20 * MS;
    assert!(idle <= 50 * 20 * MS / 100, "idle for {idle} ns");
}

#[test]
fn an_unknown_operation_is_a_quarter_window_and_marked_alone() {
    let mut window: Window<u64> = Window::default();
    for _ in 0..5 {
        assert_eq!(admit(&mut window, MS, BOUNDS, 1), Ok(MS / 2));
        assert!(submit(&mut window, MS, BOUNDS, STREAM, 1, MS / 2));
        let number = window.close_batch(STREAM, MS).unwrap();
        window.marked(number, 0).unwrap();
    }
    let next = admit(&mut window, MS, BOUNDS, 1);
    assert!(matches!(next, Err(Answer::Wait(_))), "{next:?}");
}

#[test]
fn a_known_one_is_marked_by_count_by_time_and_by_age() {
    let mut bench = Bench::new();
    for _ in 0..50 {
        bench.launch(1, US, BOUNDS);
        bench.drain();
    }
    let mut submit = |at: u64| {
        bench.now += at;
        let Ok(ns) = admit(&mut bench.window, bench.now, BOUNDS, 1) else {
            panic!("the window is empty");
        };
        let wants = submit(&mut bench.window, bench.now, BOUNDS, STREAM, 1, ns);
        if wants {
            let number = bench.window.close_batch(STREAM, bench.now).unwrap();
            bench.window.marked(number, 0).unwrap();
            bench.window.look(bench.now, |_| true, |_| None);
        }
        wants
    };
    for _ in 1..BATCH_OPS {
        assert!(!submit(0));
    }
    assert!(submit(0), "the last of a batch");
    assert!(!submit(0));
    assert!(submit(BATCH_AGE), "an old batch");
}

#[test]
fn work_that_takes_longer_than_expected_stops_more_of_it() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.launch(1, 100 * US, BOUNDS);
        bench.drain();
    }
    // The same function now takes 50 ms; the device sits on the first.
    bench.most = 0;
    for _ in 0..60 {
        assert!(bench.launch(1, 50 * MS, BOUNDS));
    }
    assert!(
        bench.most <= 25 * 50 * MS,
        "{} ns before it was noticed",
        bench.most
    );
    bench.most = 0;
    for _ in 0..60 {
        assert!(bench.launch(1, 50 * MS, BOUNDS));
    }
    assert!(
        bench.most <= 101 * MS,
        "{} ns once it was known",
        bench.most
    );
}

#[test]
fn launches_stop_so_that_all_is_complete_at_the_deadline() {
    let mut bench = Bench::new();
    for _ in 0..200 {
        bench.launch(1, 100 * US, BOUNDS);
    }
    bench.drain();
    bench.window.begin_turn();
    let bounds = Bounds {
        deadline: bench.now + 20 * MS,
        ..BOUNDS
    };
    let mut launched = 0;
    while bench.launch(1, 100 * US, bounds) {
        launched += 1;
        bench.now += US;
    }
    assert!((190..=200).contains(&launched), "{launched} in 20 ms");
    assert!(bench.device <= bounds.deadline + 100 * US);
    assert!(bench.now <= bounds.deadline);
}

#[test]
fn an_operation_longer_than_the_turn_runs_at_its_beginning() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.launch(1, 30 * MS, BOUNDS);
        bench.drain();
        bench.launch(2, MS, BOUNDS);
        bench.drain();
    }
    let bounds = Bounds {
        deadline: bench.now + 20 * MS,
        ..BOUNDS
    };
    bench.window.begin_turn();
    assert!(bench.launch(1, 30 * MS, bounds), "first of its turn");
    bench.drain();
    bench.window.begin_turn();
    let bounds = Bounds {
        deadline: bench.now + 20 * MS,
        ..BOUNDS
    };
    assert!(bench.launch(2, MS, bounds));
    bench.drain();
    assert!(
        !bench.launch(1, 30 * MS, bounds),
        "not in the rest of the turn"
    );
    assert!(bench.launch(2, MS, bounds), "a shorter one fits");
}

#[test]
fn nothing_begins_after_the_deadline() {
    let mut window: Window<u64> = Window::default();
    window.begin_turn();
    let bounds = Bounds {
        deadline: MS,
        ..BOUNDS
    };
    assert_eq!(admit(&mut window, MS, bounds, 1), Err(Answer::Over));
    assert!(admit(&mut window, MS - 1, bounds, 1).is_ok());
}

#[test]
fn an_operation_that_was_refused_leaves_nothing_behind() {
    let mut window: Window<u64> = Window::default();
    let Ok(ns) = admit(&mut window, MS, BOUNDS, 1) else {
        panic!("an empty window")
    };
    assert!(!window.is_empty());
    window.put_back(1, ns);
    assert!(window.is_empty() && window.is_drained());
    assert_eq!(window.remaining(MS), 0);
}

#[test]
fn a_mark_that_could_not_be_made_leaves_its_operations_to_the_next() {
    let mut bench = Bench::new();
    bench.put(STREAM, 1, MS, MS, BOUNDS);
    bench.put(STREAM, 1, MS / 4, MS / 4, BOUNDS);
    bench.now = 0;
    let mut window: Window<u64> = Window::default();
    let _ = admit(&mut window, 0, BOUNDS, 1);
    submit(&mut window, 0, BOUNDS, STREAM, 1, 100);
    let number = window.close_batch(STREAM, 0).unwrap();
    assert_eq!(
        window.close_batch(STREAM, 0),
        None,
        "nothing is left to mark"
    );
    window.unmarked(number);
    assert_eq!(window.unmarked_streams().count(), 1);
    assert!(!window.is_drained());
    let number = window.close_batch(STREAM, 0).unwrap();
    window.marked(number, 5).unwrap();
    window.look(0, |_| true, |_| None);
    assert!(window.is_drained());
}

#[test]
fn of_two_marks_of_a_batch_the_first_counts_and_no_failure_takes_it_back() {
    let mut window: Window<u64> = Window::default();
    let _ = admit(&mut window, 0, BOUNDS, 1);
    let in_making = |window: &Window<u64>| window.in_making(STREAM).collect::<Vec<u64>>();
    assert_eq!(in_making(&window), [], "it has no work");
    submit(&mut window, 0, BOUNDS, STREAM, 1, 100);
    assert_eq!(in_making(&window), [], "it has work in no batch");
    let number = window.close_batch(STREAM, 0).unwrap();
    assert_eq!(in_making(&window), [number]);
    window.marked(number, 5).unwrap();
    assert_eq!(in_making(&window), [], "its mark is there");
    assert_eq!(window.marked(number, 6), Err(6));
    window.unmarked(number);
    assert_eq!(window.unmarked_streams().count(), 0);
    window.look(0, |mark| *mark == 5, |_| None);
    assert!(window.is_drained());
}

#[test]
fn a_context_that_goes_takes_its_work_along_and_gives_the_late_mark_back() {
    let mut window: Window<u64> = Window::default();
    let other = StreamKey {
        context: 9,
        ..STREAM
    };
    for stream_key in [STREAM, other] {
        let Ok(ns) = admit(&mut window, 0, BOUNDS, 1) else {
            panic!("there is room")
        };
        window.put_back(1, ns);
        submit(&mut window, 0, BOUNDS, stream_key, 1, 100);
    }
    let number = window.close_batch(STREAM, 0).unwrap();
    window.forget(|stream_key| stream_key.context == STREAM.context);
    assert_eq!(window.marked(number, 7), Err(7));
    let left: Vec<StreamKey> = window
        .unmarked_streams()
        .map(|(stream_key, _)| stream_key)
        .collect();
    assert_eq!(left, [other]);
    assert_eq!(window.remaining(0), 100);
}
