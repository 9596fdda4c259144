//! Refusals before a wait, for allocators that free their cache only after a *returned*
//! out-of-memory, and the one wait of requests that grow ever smaller.
//!
//! Such an allocator (PyTorch's) keeps freed blocks. While it waits in the driver for memory, it
//! holds its own lock and all that its cache could give back. So before a thread of such a process
//! waits, it is refused once: it frees its cache and asks again, and that request waits. Which
//! processes these are is not guessed: the library of PyTorch's allocator is loaded, or a thread
//! has been seen to free memory after an out-of-memory and to ask for the same again. No other
//! process is refused early, and beside PyTorch's allocator no request that cannot be its. Such a
//! refusal is not counted as one, unless the process does not ask again; nor is that of the limit,
//! which makes such an allocator free its cache as well. Why so: ADR 58.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use gpushare_protocol::page::MAX_DEVICES;

use crate::account::{self, Deadline};
use crate::driver::captures;
use crate::driver::device::DeviceKey;
use crate::guest::exit;
pub(crate) use crate::holdings::told::Call;
use crate::holdings::told::{Begun, Request, Told};
use crate::holdings::torch;

thread_local! {
    // Const and without a destructor: allocations are made in other libraries' destructors too.
    static TOLD: Cell<Told> = const { Cell::new(Told::NOTHING) };
}

/// Threads whose next request matters; while there are none, a request costs one load.
static WATCHED: AtomicU32 = AtomicU32::new(0);
/// Frees of this process. Threads may lose counts of each other, which only have to differ.
static FREES: AtomicU64 = AtomicU64::new(0);
/// The kinds of calls, by [`Call::bit`], with which this process is known to free a cache after an
/// out-of-memory that is not the one of PyTorch's allocator.
static CACHES: AtomicU8 = AtomicU8::new(0);

/// Refusals that are counted if no retry comes, and the largest so far.
#[derive(Debug)]
struct Unanswered {
    count: AtomicU64,
    largest: AtomicU64,
}

/// By device.
static UNANSWERED: [Unanswered; MAX_DEVICES] = [const {
    Unanswered {
        count: AtomicU64::new(0),
        largest: AtomicU64::new(0),
    }
}; MAX_DEVICES];

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

/// Whether [`begins`] does anything: a request may be the one that a thread is watched for.
#[inline]
pub(crate) fn watches() -> bool {
    WATCHED.load(Ordering::Relaxed) != 0
}

/// Notes that this thread asks for memory: for `bytes`, by a call.
#[inline]
pub(crate) fn begins(device: DeviceKey, bytes: u64, call: Call) {
    if watches() {
        begins_watched(Request {
            device,
            bytes,
            call,
        });
    }
}

#[cold]
fn begins_watched(request: Request) {
    let frees = FREES.load(Ordering::Relaxed);
    let Begun {
        shows_a_cache,
        answers,
        unanswered,
    } = told(|told| told.begins(request, frees, Instant::now()));
    if let Some(early) = answers.or(unanswered) {
        let less = |count: u64| count.checked_sub(1);
        let count = &UNANSWERED[early.device.index()].count;
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
    if let Some(early) = unanswered {
        account::count_refusal(early.device, early.bytes);
    }
    if shows_a_cache && !torch::explains(request.call) {
        shows(request);
    }
}

fn shows(request: Request) {
    let bit = request.call.bit();
    if CACHES.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        tracing::info!(
            request.bytes,
            "frees its cache when memory runs out: it is refused before it waits"
        );
    }
}

/// Notes that this thread's request has run out of memory.
#[cold]
pub(crate) fn ran_out(device: DeviceKey, bytes: u64, by: Call, call: &Deadline) {
    let request = Request {
        device,
        bytes,
        call: by,
    };
    let frees = FREES.load(Ordering::Relaxed);
    let times = (call.waited_in_vain(), Instant::now());
    told(|told| told.ran_out(request, frees, times));
}

/// Notes that this thread has made an allocation of physical memory complete.
pub(crate) fn pieces_end() {
    told(Told::pieces_end);
}

/// Whether this thread's request, which would wait now, is refused instead. Not where the answer
/// would be the same without a wait, and not while the process holds nothing that it could give
/// back. A request that goes on with others waits no longer than they may together.
#[cold]
pub(crate) fn refuses(device: DeviceKey, bytes: u64, by: Call, call: &Deadline) -> bool {
    if let Some(since) = TOLD.get().since() {
        call.goes_on(since);
    }
    let request = Request {
        device,
        bytes,
        call: by,
    };
    if account::holds(device) == 0 || !would_wait(device, bytes) || !may_be_a_caches(request) {
        return false;
    }
    let frees = FREES.load(Ordering::Relaxed);
    let refuses = told(|told| told.refuses(request, frees));
    if refuses {
        is_unanswered(request);
    }
    refuses
}

/// Notes that this thread's request was refused, which was not done early. It is counted; where the
/// process may free a cache for its limit and ask again, with the answer to that, or once it is
/// known that none comes.
#[cold]
pub(crate) fn refused(device: DeviceKey, bytes: u64, by: Call) {
    let request = Request {
        device,
        bytes,
        call: by,
    };
    let may_free = account::holds(device) != 0 && !fits_the_limit(device, bytes);
    if may_free && may_be_a_caches(request) && told(|told| told.may_ask_again(request)) {
        is_unanswered(request);
    } else {
        account::count_refusal(device, bytes);
    }
}

/// A refusal is counted if no retry comes.
fn is_unanswered(request: Request) {
    let unanswered = &UNANSWERED[request.device.index()];
    unanswered
        .largest
        .fetch_max(request.bytes, Ordering::Relaxed);
    unanswered.count.fetch_add(1, Ordering::Relaxed);
    exit::say_last(count_unanswered);
}

/// The process ends: no retry comes any more.
fn count_unanswered() {
    let devices = UNANSWERED.iter().enumerate();
    for (unanswered, device) in
        devices.filter_map(|(index, one)| Some((one, DeviceKey::of_index(index)?)))
    {
        let largest = unanswered.largest.load(Ordering::Relaxed);
        for _ in 0..unanswered.count.swap(0, Ordering::Relaxed) {
            account::count_refusal(device, largest);
        }
    }
}

/// Whether a request may wait: within the limit, and not in a thread that records a graph.
fn would_wait(device: DeviceKey, bytes: u64) -> bool {
    fits_the_limit(device, bytes) && captures::may_wait()
}

fn fits_the_limit(device: DeviceKey, bytes: u64) -> bool {
    account::quota_status(device).is_some_and(|status| {
        let limit = status.limit.unwrap_or(u64::MAX);
        status.charged.saturating_add(bytes) <= limit
    })
}

/// Whether a request may be one of an allocator that frees a cache after an out-of-memory: of one
/// that was seen to, or of PyTorch's.
fn may_be_a_caches(request: Request) -> bool {
    CACHES.load(Ordering::Relaxed) & request.call.bit() != 0 || torch::may_have_made(request.call)
}
