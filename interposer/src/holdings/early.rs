//! Refusals before a wait, for allocators that free their cache only after a *returned*
//! out-of-memory.
//!
//! Such an allocator (PyTorch's) keeps freed blocks. While it waits in the driver for memory, it
//! holds its own lock and all that its cache could give back. So before a thread of such a process
//! waits, it is refused once: it frees its cache and asks again, and that request waits. Which
//! processes these are is not guessed: the library of PyTorch's allocator is loaded, or a thread
//! has been seen to free memory after an out-of-memory and to ask for the same again. No other
//! process is refused early. Such a refusal is not counted as one. Why so: ADR 58.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::account;
use crate::driver::captures;
use crate::driver::device::DeviceKey;
use crate::guest::linker;

/// The library of PyTorch's caching allocator, as the dynamic linker names it.
const TORCH: &[u8] = b"libc10_cuda.so";
/// Sizes that a thread's early refusals are remembered of.
const SIZES: usize = 4;

/// A thread's request: a device and bytes.
type Request = (DeviceKey, u64);

/// The recent refusals of one thread.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Its last request, if that ran out of memory, and how often the process had freed by then.
    failed: Option<(Request, u64)>,
    /// Its last request, if that was refused early.
    early: Option<Request>,
    /// Whether its current request is the retry after an early refusal.
    retries: bool,
    /// Requests that met a wait, and how often the process had freed when they last did.
    met: [Option<(Request, u64)>; SIZES],
    /// The oldest of them.
    oldest: usize,
}

impl Told {
    const NOTHING: Self = Self {
        failed: None,
        early: None,
        retries: false,
        met: [None; SIZES],
        oldest: 0,
    };

    /// Whether the thread's next request is of interest.
    fn watches(&self) -> bool {
        self.failed.is_some() || self.early.is_some() || self.retries
    }

    /// A request begins. Whether it shows that the process frees memory after an out-of-memory, and
    /// asks again.
    fn begins(&mut self, request: Request, frees: u64) -> bool {
        self.retries = self.early.take() == Some(request);
        let failed = self.failed.take();
        failed.is_some_and(|(last, then)| last == request && then != frees)
    }

    /// The request has run out of memory.
    fn ran_out(&mut self, request: Request, frees: u64) {
        self.failed = Some((request, frees));
    }

    /// The request would wait now: whether it is refused instead. Once for a size, and once more
    /// only after the process has freed something since.
    fn refuses(&mut self, request: Request, frees: u64) -> bool {
        let met = self
            .met
            .iter()
            .position(|met| met.is_some_and(|(size, _)| size == request));
        let known = met.and_then(|at| self.met[at]) == Some((request, frees));
        let at = met.unwrap_or(self.oldest);
        self.met[at] = Some((request, frees));
        if met.is_none() {
            self.oldest = (at + 1) % SIZES;
        }
        if known || self.retries {
            return false;
        }
        self.early = Some(request);
        true
    }
}

thread_local! {
    // Const and without a destructor: allocations are made in other libraries' destructors too.
    static TOLD: Cell<Told> = const { Cell::new(Told::NOTHING) };
}

/// Threads whose next request matters; while there are none, a request costs one load.
static WATCHED: AtomicU32 = AtomicU32::new(0);
/// Frees of this process. Threads may lose counts of each other, which only have to differ.
static FREES: AtomicU64 = AtomicU64::new(0);
/// Whether this process is known to free its cache after an out-of-memory.
static CACHES: AtomicBool = AtomicBool::new(false);

/// Changes this thread's state, and keeps the count of watched threads.
fn told<R>(change: impl FnOnce(&mut Told) -> R) -> R {
    let mut told = TOLD.get();
    let before = told.watches();
    let result = change(&mut told);
    match (before, told.watches()) {
        (false, true) => drop(WATCHED.fetch_add(1, Ordering::Relaxed)),
        (true, false) => drop(WATCHED.fetch_sub(1, Ordering::Relaxed)),
        _ => {}
    }
    TOLD.set(told);
    result
}

/// Notes that the program has freed memory.
#[inline]
pub(crate) fn freed() {
    FREES.store(
        FREES.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// Notes that this thread asks for memory.
#[inline]
pub(crate) fn begins(device: DeviceKey, bytes: u64) {
    if WATCHED.load(Ordering::Relaxed) != 0 {
        begins_watched(device, bytes);
    }
}

#[cold]
fn begins_watched(device: DeviceKey, bytes: u64) {
    let frees = FREES.load(Ordering::Relaxed);
    if told(|told| told.begins((device, bytes), frees)) && !CACHES.swap(true, Ordering::Relaxed) {
        tracing::info!(
            bytes,
            "frees its cache when memory runs out: it is refused before it waits"
        );
    }
}

/// Notes that this thread's request has run out of memory.
#[cold]
pub(crate) fn ran_out(device: DeviceKey, bytes: u64) {
    let frees = FREES.load(Ordering::Relaxed);
    told(|told| told.ran_out((device, bytes), frees));
}

/// Whether this thread's request, which would wait now, is refused instead. Not where the answer
/// would be the same without a wait, and not while the process holds nothing that it could give
/// back.
#[cold]
pub(crate) fn refuses(device: DeviceKey, bytes: u64) -> bool {
    if account::holds(device) == 0 || !would_wait(device, bytes) || !caches() {
        return false;
    }
    let frees = FREES.load(Ordering::Relaxed);
    told(|told| told.refuses((device, bytes), frees))
}

/// Whether a request may wait: within the limit, and not in a thread that records a graph.
fn would_wait(device: DeviceKey, bytes: u64) -> bool {
    let fits = account::quota_status(device).is_some_and(|status| {
        let limit = status.limit.unwrap_or(u64::MAX);
        status.charged.saturating_add(bytes) <= limit
    });
    fits && captures::may_wait()
}

/// Whether the process frees a cache after an out-of-memory: it was seen to, or its allocator is
/// PyTorch's.
fn caches() -> bool {
    if CACHES.load(Ordering::Relaxed) {
        return true;
    }
    let torch = linker::has(TORCH);
    if torch {
        CACHES.store(true, Ordering::Relaxed);
    }
    torch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u64) -> Request {
        (DeviceKey::default(), bytes)
    }

    #[test]
    fn freeing_and_asking_again_after_an_out_of_memory_shows_a_cache() {
        let mut told = Told::NOTHING;
        assert!(!told.begins(request(8), 0));
        told.ran_out(request(8), 0);
        assert!(told.watches());
        assert!(told.begins(request(8), 3));
        assert!(!told.watches());
    }

    #[test]
    fn asking_again_without_a_free_or_for_another_size_does_not() {
        for (next, frees) in [(8, 0), (4, 1)] {
            let mut told = Told::NOTHING;
            told.ran_out(request(8), 0);
            assert!(!told.begins(request(next), frees));
            assert!(
                !told.begins(request(8), 5),
                "it is the next request that counts"
            );
        }
    }

    #[test]
    fn the_request_that_follows_an_early_refusal_waits() {
        let mut told = Told::NOTHING;
        told.begins(request(8), 0);
        assert!(told.refuses(request(8), 0));
        told.begins(request(8), 5);
        assert!(
            !told.refuses(request(8), 5),
            "though the cache was freed meanwhile"
        );
    }

    #[test]
    fn a_size_is_refused_again_only_after_a_free() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(request(8), 0));
        told.begins(request(8), 1);
        assert!(!told.refuses(request(8), 1));
        told.begins(request(8), 1);
        assert!(!told.refuses(request(8), 1), "nothing was freed since");
        told.begins(request(8), 2);
        assert!(told.refuses(request(8), 2));
    }

    #[test]
    fn a_retry_that_need_not_wait_is_one_too() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(request(8), 0));
        // It fits now, and never comes to a wait.
        told.begins(request(8), 1);
        told.begins(request(8), 2);
        assert!(told.refuses(request(8), 2));
    }

    #[test]
    fn another_size_is_refused_by_itself() {
        let mut told = Told::NOTHING;
        for bytes in [1, 2, 3, 4, 5] {
            told.begins(request(bytes), 0);
            assert!(told.refuses(request(bytes), 0));
        }
        told.begins(request(5), 0);
        assert!(!told.refuses(request(5), 0));
    }
}
