//! The bell: no ring is lost on a thread that is about to sleep.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};

use super::bell::Bell;
use super::sync;

/// Where the thread sleeps, on a word that nobody changes, without a limit of time: a wake meets
/// those alone that sleep by then. Loom fails where a thread spins for ever.
struct Kernel(AtomicU32);

impl Kernel {
    fn sleep(&self) {
        self.0.swap(1, Ordering::AcqRel);
        while self.0.fetch_add(0, Ordering::AcqRel) != 0 {
            loom::thread::yield_now();
        }
    }

    fn wake(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }
}

struct Scene {
    bell: Bell,
    kernel: Kernel,
    /// What each ringing thread has done before.
    work: AtomicU32,
}

impl Scene {
    /// The thread looks until it has seen so much.
    fn looks(&self, until: u32) {
        loop {
            self.bell.take();
            if self.work.load(Ordering::Relaxed) == until {
                return;
            }
            if self.bell.arm() {
                self.kernel.sleep();
            }
            self.bell.disarm();
        }
    }

    /// Rings, with so many wakes at most.
    fn rings(&self, most: Option<u32>) {
        self.work.fetch_add(1, Ordering::Relaxed);
        let mut wakes = 0;
        self.bell.ring(
            || self.kernel.wake(),
            || {
                wakes += 1;
                loom::thread::yield_now();
                most.is_none_or(|most| wakes < most)
            },
        );
    }
}

/// A thread that looks while so many others ring.
fn rings(threads: u32, most: Option<u32>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let scene = Arc::new(Scene {
            bell: Bell::of(AtomicU32::new(0), AtomicU32::new(0)),
            kernel: Kernel(AtomicU32::new(0)),
            work: AtomicU32::new(0),
        });
        let others: Vec<_> = (0..threads)
            .map(|_| {
                let scene = Arc::clone(&scene);
                loom::thread::spawn(move || scene.rings(most))
            })
            .collect();
        scene.looks(threads);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_ring_is_heard_by_a_thread_that_is_about_to_sleep() {
    rings(1, None);
}

#[test]
#[should_panic(expected = "maximum number of branches")]
fn without_the_whole_fence_a_ring_would_be_lost() {
    sync::FENCE.set(sync::Fence::AcqRel);
    rings(1, None);
}

#[test]
#[should_panic(expected = "maximum number of branches")]
fn a_wake_that_is_not_repeated_would_be_lost() {
    rings(1, Some(1));
}
