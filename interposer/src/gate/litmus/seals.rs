//! Seals against calls on real threads: while memory is away no copy and no launch is in the
//! driver, by the fast way or the slow one, and once operations are held too, no stream memory
//! operation either.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gpushare_cuda_abi::cuda::CUresult;

use super::{Counter, DEVICE, LONGEST, THREADS, has_barrier, not_runnable_here};
use crate::gate::guard::GateGuard;
use crate::gate::seal::passing;
use crate::gate::word::{ANY_SEALED, DRAINED, FENCED};
use crate::gate::{Gate, seal};
use crate::guest::frames::Frame;

/// The device whose memory moves: another than that of the launches.
const AWAY: usize = 5;
/// Another one, whose drain begins anew meanwhile.
const BUSY: usize = 6;

/// Every such seal is a long one, and how often the others get its thread's processor meanwhile.
const LONG: usize = 8;
const AWAY_FOR: usize = 4;

/// What a thread calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Copy,
    Launch,
    /// A stream memory operation.
    Operation,
}

/// How often a thread's calls were made, by the fast way and the slow one.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    fast: u64,
    slow: u64,
    operations: u64,
}

/// State shared by the calling threads and the sealing one.
struct Memory {
    /// Copies and launches may not be in the driver.
    away: AtomicBool,
    /// Nothing may.
    drained: AtomicBool,
    /// Calls that came nevertheless.
    slipped: [AtomicU64; 3],
    /// All that came behind a look that found nothing in the driver.
    came: AtomicU64,
    made: [Counter; THREADS],
    end: AtomicBool,
}

impl Memory {
    fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            away: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            slipped: [const { AtomicU64::new(0) }; 3],
            came: AtomicU64::new(0),
            made: [const { Counter(AtomicU64::new(0)) }; THREADS],
            end: AtomicBool::new(false),
        }))
    }

    /// Stands for the driver's call.
    fn touch(&self, thread: usize, call: Call) {
        let forbidden = match call {
            Call::Operation => &self.drained,
            Call::Copy | Call::Launch => &self.away,
        };
        if forbidden.load(Ordering::Relaxed) {
            self.slipped[call as usize].fetch_add(1, Ordering::Relaxed);
        }
        let count = &self.made[thread].0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The calls of these threads so far.
    fn count(&self, threads: core::ops::Range<usize>) -> u64 {
        let counts = self.made[threads].iter();
        counts.map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

/// The thread whose calls are stream memory operations, which a seal lets through at first.
const OPERATING: usize = 0;

/// Calls until the end.
fn hammer(gate: &'static Gate, memory: &Memory, thread: usize) -> Made {
    let mut made = Made::default();
    let calls = if thread == OPERATING {
        [Call::Operation; 3]
    } else {
        [Call::Copy, Call::Launch, Call::Copy]
    };
    for call in calls.into_iter().cycle() {
        if memory.end.load(Ordering::Relaxed) {
            break;
        }
        match call {
            Call::Copy => copy(gate, memory, thread, &mut made),
            Call::Launch => launch(gate, memory, thread, &mut made),
            Call::Operation => {
                let _ = passing(gate, DRAINED, || touched(memory, thread, call));
                made.operations += 1;
            }
        }
    }
    made
}

fn touched(memory: &Memory, thread: usize, call: Call) -> CUresult {
    memory.touch(thread, call);
    CUresult::SUCCESS
}

/// As [`seal::pass`] and the hooks of copies.
fn copy(gate: &'static Gate, memory: &Memory, thread: usize, made: &mut Made) {
    let frame = Frame::new();
    if let Some(touching) = gate.try_touch(&frame, 0) {
        memory.touch(thread, Call::Copy);
        seal::Touching::leave(touching);
        made.fast += 1;
    } else {
        let _ = passing(gate, ANY_SEALED, || touched(memory, thread, Call::Copy));
        made.slow += 1;
    }
}

fn launch(gate: &'static Gate, memory: &Memory, thread: usize, made: &mut Made) {
    let frame = Frame::new();
    if let Some(inside) = gate.fast(&frame) {
        memory.touch(thread, Call::Launch);
        inside.leave();
        made.fast += 1;
    } else {
        let mut guard = GateGuard::begin(gate, &frame);
        guard.wait_while_closed(DEVICE, &mut || None);
        memory.touch(thread, Call::Launch);
        made.slow += 1;
    }
}

/// Waits until nothing that is forbidden is in the driver, and counts what of these threads comes
/// nevertheless. With `long` the others get the processor: one that was preempted on its way in
/// goes on.
fn stays_still(gate: &Gate, memory: &Memory, (forbid, from): (&AtomicBool, usize), long: bool) {
    while !gate.is_still() {
        std::thread::yield_now();
    }
    let before = memory.count(from..THREADS);
    forbid.store(true, Ordering::SeqCst);
    (0..100).for_each(|_| core::hint::spin_loop());
    if long {
        (0..AWAY_FOR).for_each(|_| std::thread::yield_now());
    }
    let came = memory.count(from..THREADS) - before;
    memory.came.fetch_add(came, Ordering::Relaxed);
}

/// Seals, looks, holds operations too, looks, and opens, so many times.
fn seal_and_open(gate: &'static Gate, memory: &Memory, seals: usize) -> usize {
    let began = Instant::now();
    for done in 0..seals {
        if began.elapsed() > LONGEST {
            return done;
        }
        let long = done.is_multiple_of(LONG);
        gate.seal(AWAY);
        stays_still(gate, memory, (&memory.away, OPERATING + 1), long);
        gate.hold_operations(AWAY, true);
        gate.seal(BUSY);
        gate.hold_operations(BUSY, true);
        gate.hold_operations(BUSY, false);
        stays_still(gate, memory, (&memory.drained, OPERATING), long);
        memory.drained.store(false, Ordering::SeqCst);
        memory.away.store(false, Ordering::SeqCst);
        gate.unseal(AWAY);
        gate.unseal(BUSY);
    }
    seals
}

#[test]
fn operations_are_held_until_no_sealed_device_holds_them() {
    let gate = Gate::new(0);
    let holds = || gate.word.load() & DRAINED != 0;
    gate.seal(AWAY);
    gate.seal(BUSY);
    gate.hold_operations(AWAY, true);
    gate.hold_operations(BUSY, true);
    gate.hold_operations(BUSY, false);
    assert!(holds(), "a drain that begins anew");
    gate.hold_operations(BUSY, true);
    gate.unseal(AWAY);
    assert!(holds(), "the other one is drained");
    gate.hold_operations(BUSY, false);
    assert!(!holds(), "its work may wait for one");
    gate.hold_operations(BUSY, true);
    gate.unseal(BUSY);
    assert!(!holds());
}

#[test]
fn a_device_that_drains_holds_no_operation_when_another_one_opens() {
    let gate = Gate::new(0);
    gate.seal(AWAY);
    gate.hold_operations(AWAY, true);
    gate.seal(BUSY);
    gate.unseal(AWAY);
    assert_eq!(gate.word.load() & DRAINED, 0, "its work may wait for one");
    assert_ne!(gate.word.load() & ANY_SEALED, 0);
}

#[allow(
    clippy::print_stdout,
    reason = "the numbers are read in the test's output"
)]
fn litmus(name: &str, bits: u64, seals: usize) {
    let gate: &'static Gate = Box::leak(Box::new(Gate::new(bits)));
    let memory = Memory::new();
    let (done, all) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || hammer(gate, memory, thread)))
            .collect();
        let done = seal_and_open(gate, memory, seals);
        memory.end.store(true, Ordering::Relaxed);
        let all: Vec<Made> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        (done, all)
    });
    let sum = |of: fn(&Made) -> u64| all.iter().map(of).sum::<u64>();
    let (fast, slow) = (sum(|made| made.fast), sum(|made| made.slow));
    let operations = sum(|made| made.operations);
    println!(
        "{name}: {done} seals against {fast} fast and {slow} slow calls, {operations} operations"
    );
    let slipped = memory
        .slipped
        .each_ref()
        .map(|count| count.load(Ordering::SeqCst));
    assert_eq!(slipped, [0; 3], "copies, launches, operations");
    assert_eq!(memory.came.load(Ordering::SeqCst), 0, "slipped through");
    assert_eq!(memory.count(0..THREADS), fast + slow + operations);
    // If its barrier is refused, a gate makes calls use their own, which the other test covers.
    let fenced = gate.word.load() & FENCED;
    assert_eq!(fenced, bits & FENCED, "the system's barrier was refused");
    let met = done > 0 && slow > 0 && operations > 0;
    assert!(met, "seals that no call met prove nothing");
    assert_eq!(fast > 0, bits & FENCED == 0, "the fast way");
}

#[test]
fn nothing_is_in_the_driver_while_sealed_with_the_systems_barrier() {
    if has_barrier() {
        litmus("membarrier", 0, 6_000);
    } else {
        not_runnable_here("nothing_is_in_the_driver_while_sealed_with_the_systems_barrier");
    }
}

#[test]
fn nor_where_calls_bring_their_own_barrier() {
    litmus("own barrier", FENCED, 6_000);
}

#[test]
#[ignore = "half a minute of two processors"]
fn nor_under_many_seals() {
    litmus("long, own barrier", FENCED, 100_000);
    if !has_barrier() {
        return not_runnable_here("nor_under_many_seals");
    }
    for _ in 0..4 {
        litmus("long, membarrier", 0, 100_000);
    }
}
