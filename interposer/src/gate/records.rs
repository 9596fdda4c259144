//! The threads' records: found by a thread in one load, handed on when their thread has died, never
//! given back.
//!
//! There is nothing to run when a thread ends: it may launch from its last destructor. So records
//! are looked for, when all are taken, among threads that the kernel no longer knows; a thread that
//! finds its own id on one is that thread's successor.
//!
//! # Safety
//! Slabs are pages of zeros from the kernel, linked once and never unmapped: references into them
//! last for ever. A record of zeros is a valid, free one.
#![allow(unsafe_code, reason = "pages from the kernel")]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::gate::device_gate;
use crate::gate::ledger;
use crate::gate::owner::{IN_HAND, NOBODY};
use crate::gate::word::{FRAME_BITS, Record};
use crate::guest::frames::Frame;
use crate::guest::sys;

/// Records beside the link in one page.
const PER_SLAB: usize = 63;

#[derive(Debug)]
#[repr(C, align(64))]
struct Slab {
    next: AtomicPtr<Self>,
    records: [Record; PER_SLAB],
}

const _: () = assert!(size_of::<Slab>() == 4096);

/// All records of a gate.
#[derive(Debug)]
pub(super) struct Records {
    slabs: AtomicPtr<Slab>,
    /// Threads inside that no record was to be had for.
    crowd: AtomicU32,
    /// Their calls that touch device memory and pass no gate.
    touching: AtomicU32,
    /// Their submissions.
    count: AtomicU64,
}

impl Records {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self {
            slabs: AtomicPtr::new(ptr::null_mut()),
            crowd: AtomicU32::new(0),
            touching: AtomicU32::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Drops them: in a forked child, whose only thread is outside. Their pages stay.
    pub(super) fn forget(&self) {
        self.slabs.store(ptr::null_mut(), Ordering::Release);
        self.crowd.store(0, Ordering::Release);
        self.touching.store(0, Ordering::Release);
        self.count.store(0, Ordering::Release);
    }

    fn slabs(&self) -> impl Iterator<Item = &'static Slab> {
        // SAFETY: null or a slab that stays.
        let slab = |at: &AtomicPtr<Slab>| unsafe { at.load(Ordering::Acquire).as_ref() };
        core::iter::successors(slab(&self.slabs), move |last: &&'static Slab| {
            slab(&last.next)
        })
    }

    /// All records, taken or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Record> {
        self.slabs().flat_map(|slab| &slab.records)
    }

    /// A submission of a thread that has no record.
    pub(super) fn count(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Submissions so far: only differences are meaningful.
    pub(super) fn submissions(&self) -> u64 {
        let counts = self.all();
        counts
            .map(|record| record.count.load(Ordering::Relaxed))
            .fold(self.count.load(Ordering::Relaxed), u64::wrapping_add)
    }

    /// The same. `None`: a call that may submit something is in the driver.
    #[inline]
    pub(super) fn counted(&self) -> Option<u64> {
        let mut all = self.count.load(Ordering::Acquire);
        if self.crowd.load(Ordering::Acquire) | self.touching.load(Ordering::Acquire) != 0 {
            return None;
        }
        for slab in self.slabs() {
            for record in &slab.records {
                let count = record.count.load(Ordering::Acquire);
                // They are taken in their order: no thread has had the rest.
                if count == 0 && record.owner.seen().thread() == NOBODY {
                    break;
                }
                if record.may_touch() {
                    return None;
                }
                all = all.wrapping_add(count);
            }
        }
        Some(all)
    }

    /// Threads inside that have no record.
    pub(super) fn crowd(&self) -> &AtomicU32 {
        &self.crowd
    }

    /// The same for calls that touch device memory and pass no gate.
    pub(super) fn touching(&self) -> &AtomicU32 {
        &self.touching
    }

    /// A record for the calling thread. `None` if the system has no page for it, or if a record has
    /// no room for the address of the thread's frames.
    #[cold]
    pub(super) fn claim(&self) -> Option<&'static Record> {
        if Frame::new().address() >> FRAME_BITS != 0 {
            return None;
        }
        let me = this_thread();
        // A live thread's id is unique, so the earlier owner of a record under this id is dead.
        let found = self.take(me, me).or_else(|| self.take(NOBODY, me));
        let found = found.or_else(|| {
            self.all().find(|record| {
                let owner = record.owner.seen();
                is_dead(owner.thread()) && record.owner.passes(owner, me)
            })
        });
        if let Some(record) = found {
            ledger::hand_on(record);
            device_gate::has_died(record);
            record.was_left();
            return Some(record);
        }
        self.add_slab()?;
        self.take(NOBODY, me)
    }

    /// The first record of `owner`'s that could be made `me`'s.
    fn take(&self, owner: i32, me: i32) -> Option<&'static Record> {
        self.all()
            .find(|record| record.owner.passes_from(owner, me))
    }

    /// Links one more page of free records.
    fn add_slab(&self) -> Option<()> {
        // SAFETY: a new private page of zeros, without another owner.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<Slab>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return None;
        }
        let slab = page.cast::<Slab>();
        let mut first = self.slabs.load(Ordering::Acquire);
        loop {
            // SAFETY: not linked yet, so this thread's alone; zeros are a valid slab, and a page is
            // aligned enough.
            unsafe { (*slab).next.store(first, Ordering::Relaxed) };
            match self
                .slabs
                .compare_exchange(first, slab, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(()),
                Err(now) => first = now,
            }
        }
    }

    /// Frees the records of threads that died inside, such as by cancellation in the driver.
    pub(super) fn reap(&self) {
        for record in self.all().filter(|record| record.may_touch()) {
            let owner = record.owner.seen();
            if is_dead(owner.thread()) && record.owner.passes(owner, IN_HAND) {
                device_gate::has_died(record);
                record.was_left();
                let _ = record.owner.passes_from(IN_HAND, NOBODY);
            }
        }
    }
}

/// The calling thread's id in the kernel.
fn this_thread() -> i32 {
    i32::try_from(sys::this_thread()).unwrap_or(0)
}

/// Whether a record with this owner is no living thread's.
pub(super) fn is_nobodys(owner: i32) -> bool {
    owner == NOBODY || is_dead(owner)
}

/// Whether the kernel knows no such thread of this process.
fn is_dead(thread: i32) -> bool {
    thread > 0 && !sys::is_alive(thread.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| scope.spawn(body).join().unwrap())
    }

    /// A new thread's record, and its earlier count. The thread has ended, and the kernel has
    /// dropped its id.
    fn one_launch(records: &Records) -> (usize, u64) {
        let (record, thread) = in_a_thread(|| {
            let record = records.claim().unwrap();
            record.count();
            (record, this_thread())
        });
        while !is_dead(thread) {
            std::thread::yield_now();
        }
        let count = record.count.load(Ordering::Relaxed);
        (ptr::from_ref(record).addr(), count)
    }

    #[test]
    fn threads_that_live_have_records_of_their_own_beyond_one_page() {
        let records = Records::new();
        let all = 3 * PER_SLAB;
        let barrier = std::sync::Barrier::new(all);
        let mut seen: Vec<usize> = std::thread::scope(|scope| {
            let claim = || {
                let record = records.claim().unwrap();
                barrier.wait();
                ptr::from_ref(record).addr()
            };
            let threads: Vec<_> = (0..all).map(|_| scope.spawn(claim)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, usize>| thread.join().unwrap();
            threads.into_iter().map(join).collect()
        });
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
        // Threads that found no room at the same time may each have added a page.
        assert!(records.all().count() >= all);
    }

    #[test]
    fn no_more_pages_than_the_threads_that_came_one_by_one_need() {
        let records = Records::new();
        let all = 2 * PER_SLAB;
        let turn = std::sync::Mutex::new(());
        let barrier = std::sync::Barrier::new(all);
        std::thread::scope(|scope| {
            for _ in 0..all {
                scope.spawn(|| {
                    {
                        let _alone = turn.lock().unwrap();
                        records.claim().unwrap();
                    }
                    barrier.wait();
                });
            }
        });
        assert_eq!(records.all().count(), all);
    }

    #[test]
    fn records_of_the_dead_are_handed_on_with_what_they_counted() {
        let records = Records::new();
        let rounds = 4 * PER_SLAB;
        for _ in 0..rounds {
            one_launch(&records);
        }
        assert_eq!(records.all().count(), PER_SLAB, "one page is enough");
        let counted: u64 = records
            .all()
            .map(|record| record.count.load(Ordering::Relaxed))
            .sum();
        assert_eq!(counted, rounds as u64);
    }

    #[test]
    fn who_died_inside_is_buried_and_who_lives_is_not() {
        let records = Records::new();
        let word = super::super::word::GateWord::of(AtomicU64::new(0));
        let inside = |record: &Record| record.may_submit_to(0);
        let mine = records.claim().unwrap();
        assert!(mine.try_step_in(0, &word));
        let (dead, thread) = in_a_thread(|| {
            let record = records.claim().unwrap();
            assert!(record.try_step_in(0, &word));
            (record, this_thread())
        });
        while !is_dead(thread) {
            std::thread::yield_now();
        }
        assert!(inside(dead));
        records.reap();
        assert!(!inside(dead) && inside(mine));
    }

    #[test]
    fn a_forked_child_begins_without_its_parents_submissions() {
        let records = Records::new();
        records.count();
        records.claim().unwrap().count();
        assert_eq!(records.submissions(), 2);
        records.forget();
        assert_eq!(records.submissions(), 0);
    }

    #[test]
    fn a_thread_with_a_dead_ones_id_keeps_the_record_that_it_claims() {
        let records = Records::new();
        let record = records.claim().unwrap();
        let seen = record.owner.seen();
        // As by a thread that now has this one's id.
        assert!(ptr::eq(records.claim().unwrap(), record));
        assert!(!record.owner.passes(seen, IN_HAND), "looked at before");
        assert!(record.owner.passes(record.owner.seen(), IN_HAND));
        assert!(!ptr::eq(records.claim().unwrap(), record), "being freed");
    }

    #[test]
    fn a_column_is_not_held_up_by_launches_on_another() {
        let records = Records::new();
        let word = super::super::word::GateWord::of(AtomicU64::new(0));
        let mine = records.claim().unwrap();
        mine.step_in(0, super::super::word::to(1 << 2), &word);
        assert!(!mine.may_submit_to(0) && mine.may_submit_to(2) && !mine.may_submit_to(3));
        mine.step_out();
        assert!(!mine.may_submit_to(2));
    }
}
