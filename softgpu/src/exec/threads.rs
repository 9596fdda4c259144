//! The four background threads, started with the first operation. The first watches the hardware,
//! so that time slices are taken in time and host functions begin. The second applies late effects,
//! so that programs which poll memory make progress. The third calls host functions. The fourth
//! runs kernels, and starts further ones ([`job`](super::job)). They are never joined: the process
//! may exit, or hang in a host function.
//!
//! # Safety
//! `unsafe` blocks all signals while a thread is started: an application's signals must reach its
//! own threads.
#![allow(unsafe_code, reason = "signal masks are C")]

use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::time::Duration;

use gpushare_cuda_abi::cuda::CUresult;

use super::engine::Timeline;
use super::{CALLS, DONE, LATE, WATCH, clock, host, lock};
use crate::error::Result;
use crate::va;

/// How much later than the hardware the watching thread may look (ns). The lag delays no caller and
/// saves the thread most of its work.
const GRAIN: u64 = 200_000;
/// How often values in memory are polled while a wait is pending (ns).
const POLL: u64 = 50_000;

/// Starts the threads if they are not running.
///
/// # Errors
/// `OPERATING_SYSTEM` if a thread cannot be started.
pub(super) fn ensure() -> Result {
    static STARTED: OnceLock<bool> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        without_signals(|| {
            [
                ("softgpu-watch", watch as fn()),
                ("softgpu-late", late),
                ("softgpu-calls", calls),
                ("softgpu-kernels", super::job::work),
            ]
            .into_iter()
            .all(|(name, body)| {
                std::thread::Builder::new()
                    .name(name.into())
                    .spawn(body)
                    .is_ok()
            })
        })
    });
    if *started {
        Ok(())
    } else {
        Err(CUresult::OPERATING_SYSTEM)
    }
}

pub(super) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: `sigset_t` is plain data for which all zeroes is a value; both sets live through the
    // calls that fill and read them.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let result = body();
    // SAFETY: `before` is the mask that the first call filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Wakes the background threads that have work now. To be called after a change that adds or
/// finishes operations.
pub(super) fn nudge(timeline: &Timeline) {
    let next = if timeline.values.is_empty() {
        timeline.next_event()
    } else {
        Some(0)
    };
    if next.is_some_and(|at| at.saturating_add(GRAIN) < timeline.watch) {
        WATCH.ring(timeline);
    }
    if timeline.dozing && !timeline.late.is_empty() {
        LATE.ring(timeline);
    }
    if !timeline.calls.is_empty() {
        CALLS.ring(timeline);
    }
}

fn watch() {
    let mut timeline = lock();
    loop {
        timeline = look_at_values(timeline);
        let now = timeline.catch_up();
        nudge(&timeline);
        let rest = if timeline.values.is_empty() {
            timeline
                .next_event()
                .map(|at| at.saturating_sub(now).max(GRAIN))
        } else {
            Some(POLL)
        };
        timeline.watch = rest.map_or(u64::MAX, |rest| now + rest);
        timeline = WATCH.wait(timeline, rest.map(Duration::from_nanos));
        timeline.watch = 0;
    }
}

/// Finishes the value waits whose value has arrived or whose context is lost. Memory is read
/// outside the timeline's lock, because it has locks of its own.
fn look_at_values(mut timeline: MutexGuard<'static, Timeline>) -> MutexGuard<'static, Timeline> {
    if timeline.values.is_empty() {
        return timeline;
    }
    let waiting = std::mem::take(&mut timeline.values);
    let waits: Vec<_> = waiting
        .iter()
        .map(|op| (*op, timeline.value_wait(*op)))
        .collect();
    drop(timeline);
    let (come, open): (Vec<_>, Vec<_>) = waits.into_iter().partition(|(_, wait)| match wait {
        // After the driver's teardown no value comes: nothing more begins then.
        Some(_) if va::is_closed() => false,
        Some((value, context)) => context.check().is_err() || value.has_come(),
        None => true,
    });
    let mut timeline = lock();
    timeline.values.extend(open.into_iter().map(|(op, _)| op));
    if !come.is_empty() {
        let now = timeline.catch_up();
        come.into_iter().for_each(|(op, _)| timeline.come(op, now));
        DONE.ring(&timeline);
    }
    timeline
}

fn late() {
    let mut timeline = lock();
    loop {
        let now = clock::now();
        match timeline.late.first().copied() {
            Some((at, op)) if at <= now => timeline = super::apply::apply(timeline, &[op]),
            Some((at, _)) => timeline = LATE.wait(timeline, Some(Duration::from_nanos(at - now))),
            None => {
                timeline.dozing = true;
                timeline = LATE.wait(timeline, None);
                timeline.dozing = false;
            }
        }
    }
}

fn calls() {
    let mut timeline = lock();
    loop {
        let Some(op) = timeline.calls.pop_front() else {
            timeline = CALLS.wait(timeline, None);
            continue;
        };
        let before = timeline
            .nodes
            .get(&op)
            .map(|node| node.after.clone())
            .unwrap_or_default();
        timeline = super::apply::apply(timeline, &before);
        timeline = call(timeline, op);
        timeline.catch_up();
        timeline.finish(op, clock::now());
        DONE.ring(&timeline);
        nudge(&timeline);
    }
}

/// Calls into the application, outside the lock.
fn call(timeline: MutexGuard<'_, Timeline>, op: u64) -> MutexGuard<'_, Timeline> {
    let Some((call, context)) = timeline.host_call(op) else {
        return timeline;
    };
    let state = context.check();
    drop(timeline);
    host::invoke(call, state);
    lock()
}
