//! Closings against launches on real threads: none slips through, by the fast way or the slow one,
//! with the system's barrier and without it. What loom cannot model, `membarrier`, is tried here;
//! the numbers are printed. [`seals`] does the same for what a seal holds.

mod seals;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io::Write;
use std::time::{Duration, Instant};

use super::Gate;
use crate::gate::guard::GateGuard;
use crate::gate::word::FENCED;
use crate::guest::barrier;

/// The device that closes.
const DEVICE: usize = 3;
/// Launching threads: more than the processors of a small machine, so that some are always
/// preempted somewhere.
const THREADS: usize = 4;
/// The longest that may be spent on one way of closing; a loaded machine does fewer closings.
const LONGEST: Duration = Duration::from_secs(8);

/// State shared by the launching threads and the closing one.
struct Device {
    /// Set between the end of a closing and the opening.
    closed: AtomicBool,
    /// Launches that came while it was set.
    slipped: AtomicU64,
    launched: [Counter; THREADS],
    end: AtomicBool,
}

#[repr(align(64))]
struct Counter(AtomicU64);

impl Device {
    fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            closed: AtomicBool::new(false),
            slipped: AtomicU64::new(0),
            launched: [const { Counter(AtomicU64::new(0)) }; THREADS],
            end: AtomicBool::new(false),
        }))
    }

    /// Stands for the driver's call.
    fn launch(&self, thread: usize) {
        if self.closed.load(Ordering::Relaxed) {
            self.slipped.fetch_add(1, Ordering::Relaxed);
        }
        let count = &self.launched[thread].0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        let counts = self.launched.iter();
        counts.map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

/// Launches until the end.
fn hammer(gate: &'static Gate, device: &Device, thread: usize) -> (u64, u64) {
    let (mut fast, mut slow) = (0, 0);
    while !device.end.load(Ordering::Relaxed) {
        let frame = crate::guest::frames::Frame::new();
        if let Some(inside) = gate.fast(&frame) {
            device.launch(thread);
            inside.leave();
            fast += 1;
        } else {
            let mut guard = GateGuard::begin(gate, &frame);
            guard.wait_while_closed(DEVICE, &mut || None);
            device.launch(thread);
            slow += 1;
        }
    }
    (fast, slow)
}

/// Closes, looks, and opens, `closings` times.
fn close_and_open(gate: &'static Gate, device: &Device, closings: usize) -> usize {
    let began = Instant::now();
    for done in 0..closings {
        if began.elapsed() > LONGEST {
            return done;
        }
        gate.close(DEVICE);
        while !gate.is_quiet(DEVICE) {
            std::thread::yield_now();
        }
        let before = device.count();
        device.closed.store(true, Ordering::SeqCst);
        (0..100).for_each(|_| core::hint::spin_loop());
        assert_eq!(device.count(), before, "closing {done}: a launch after it");
        device.closed.store(false, Ordering::SeqCst);
        gate.open(DEVICE, done % 2 == 0);
    }
    closings
}

#[allow(
    clippy::print_stdout,
    reason = "the numbers are read in the test's output"
)]
fn litmus(name: &str, bits: u64, closings: usize) {
    let gate: &'static Gate = Box::leak(Box::new(Gate::new(bits)));
    let device = Device::new();
    let (done, ways) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || hammer(gate, device, thread)))
            .collect();
        let done = close_and_open(gate, device, closings);
        device.end.store(true, Ordering::Relaxed);
        let ways: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        (done, ways)
    });
    let fast: u64 = ways.iter().map(|(fast, _)| fast).sum();
    let slow: u64 = ways.iter().map(|(_, slow)| slow).sum();
    println!("{name}: {done} closings against {fast} fast and {slow} slow launches");
    assert_eq!(device.slipped.load(Ordering::SeqCst), 0, "slipped through");
    assert_eq!(device.count(), fast + slow);
    // If its barrier is refused, a gate makes launches use their own, which the other test covers.
    let fenced = gate.word.load() & FENCED;
    assert_eq!(fenced, bits & FENCED, "the system's barrier was refused");
    assert!(
        done > 0 && slow > 0,
        "closings that no launch met prove nothing"
    );
    if bits & FENCED == 0 {
        assert!(fast > 0, "closings that no launch met prove nothing");
    }
}

/// Whether the system's barrier works here: it is used, for a sandbox may say that it has it and
/// refuse it.
fn has_barrier() -> bool {
    barrier::is_offered() && barrier::heavy()
}

/// Says so by name instead of passing in silence; `scripts/test.sh` names the list and counts its
/// lines.
#[allow(clippy::print_stderr, reason = "it is read in the test's output")]
fn not_runnable_here(test: &str) {
    let why = "the system offers no membarrier";
    eprintln!("{test}: not runnable here: {why}");
    if let Some(list) = std::env::var_os("GPUTEST_NOT_RUNNABLE") {
        let list = std::fs::File::options()
            .append(true)
            .create(true)
            .open(list);
        writeln!(list.unwrap(), "{test}: {why}").unwrap();
    }
}

#[test]
fn nothing_slips_through_with_the_systems_barrier() {
    if has_barrier() {
        litmus("membarrier", 0, 40_000);
    } else {
        not_runnable_here("nothing_slips_through_with_the_systems_barrier");
    }
}

#[test]
fn nothing_slips_through_where_launches_bring_their_own_barrier() {
    litmus("own barrier", FENCED, 40_000);
}

#[test]
#[ignore = "half a minute of two processors"]
fn nothing_slips_through_half_a_million_closings() {
    litmus("long, own barrier", FENCED, 100_000);
    if !has_barrier() {
        return not_runnable_here("nothing_slips_through_half_a_million_closings");
    }
    for _ in 0..4 {
        litmus("long, membarrier", 0, 100_000);
    }
}
