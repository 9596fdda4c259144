//! A full stream: the submitting thread waits with its context's lock held, so other threads that
//! need the lock wait too.
//!
//! # Safety
//! The `unsafe` promises one thing: a test's driver handles may cross threads.
#![allow(unsafe_code, reason = "a C handle is not Send by itself")]
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

/// As many operations as a stream queues.
const DEPTH: usize = 1024;
/// More than that.
const MANY: usize = 1100;

/// A handle that another thread uses.
#[derive(Clone, Copy)]
struct Sent<T>(T);

// SAFETY: to the test a driver's handle is a number, and the driver accepts calls of any thread.
unsafe impl<T: Copy> Send for Sent<T> {}

impl<T: Copy> Sent<T> {
    fn take(self) -> T {
        self.0
    }
}

/// A thread that makes driver calls.
struct Caller {
    thread: JoinHandle<()>,
    /// The file with the thread's state.
    stat: String,
    over: Arc<AtomicBool>,
}

impl Caller {
    /// Starts the call in `context`. Returns when it sleeps or has returned.
    fn settled(context: CUcontext, call: impl FnOnce() + Send + 'static) -> Self {
        let (context, over) = (Sent(context), Arc::new(AtomicBool::new(false)));
        let (tell, told) = mpsc::channel();
        let done = Arc::clone(&over);
        let thread = thread::spawn(move || {
            assert_eq!(cuCtxSetCurrent(context.take()), OK);
            let own = fs::read_link("/proc/thread-self").unwrap();
            tell.send(format!("/proc/{}/stat", own.display())).unwrap();
            call();
            done.store(true, Ordering::SeqCst);
        });
        let stat = told.recv().unwrap();
        let caller = Self { thread, stat, over };
        while !caller.is_over() && !caller.sleeps() {
            thread::yield_now();
        }
        caller
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(&self.stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        state == Some(b'S')
    }
}

/// A thread that waits for room in a stream of `context`, and the gate that blocks the stream.
fn full(context: CUcontext) -> (Caller, Gate) {
    let stream = free_stream();
    let (gate, at) = (Gate::close(stream), memory(4096));
    let (stream, filled) = (Sent(stream), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&filled);
    let fill = move || {
        let stream = stream.take();
        for _ in 0..MANY {
            assert_eq!(cuMemsetD32Async(at, 1, 4, stream), OK);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    let filler = Caller::settled(context, fill);
    // It may have slept for a lock before the stream was full. The gate is an operation, too.
    while filled.load(Ordering::SeqCst) < DEPTH - 1 || !filler.sleeps() {
        thread::yield_now();
    }
    (filler, gate)
}

fn current() -> CUcontext {
    start();
    get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, 0))
}

#[test]
fn a_full_stream_blocks_submission_by_other_threads_of_its_context() {
    let name = "a_full_stream_blocks_submission_by_other_threads_of_its_context";
    alone(name, "room=locked", || {
        let context = current();
        let (stream, at) = (Sent(free_stream()), memory(4096));
        let (recorded, unneeded, unused) = (Sent(event()), Sent(event()), Sent(free_stream()));
        let (filler, gate) = full(context);
        assert!(!filler.is_over());
        let calls: [Box<dyn FnOnce() + Send>; 4] = [
            Box::new(move || assert_eq!(cuEventRecord(recorded.take(), stream.take()), OK)),
            Box::new(move || assert_eq!(cuMemsetD32Async(at, 1, 4, stream.take()), OK)),
            Box::new(move || assert_eq!(cuEventDestroy_v2(unneeded.take()), OK)),
            Box::new(move || assert_eq!(cuStreamDestroy_v2(unused.take()), OK)),
        ];
        let callers = calls.map(|call| Caller::settled(context, call));
        for (at, caller) in callers.iter().enumerate() {
            assert!(!caller.is_over(), "call {at}");
        }
        gate.open();
        for caller in callers.into_iter().chain([filler]) {
            caller.thread.join().unwrap();
        }
        assert_eq!(cuCtxSynchronize(), OK);
    });
}

#[test]
fn a_full_stream_blocks_no_other_thread_with_room_free() {
    let name = "a_full_stream_blocks_no_other_thread_with_room_free";
    alone(name, "room=free", || {
        let context = current();
        let (stream, mark) = (free_stream(), event());
        let (filler, gate) = full(context);
        assert_eq!(cuEventRecord(mark, stream), OK);
        assert_eq!(cuEventSynchronize(mark), OK);
        assert_eq!(cuEventDestroy_v2(mark), OK);
        assert!(!filler.is_over());
        gate.open();
        filler.thread.join().unwrap();
    });
}

#[test]
fn a_full_stream_does_not_block_queries_and_other_contexts() {
    let name = "a_full_stream_does_not_block_queries_and_other_contexts";
    alone(name, "room=locked", || {
        let context = current();
        let (stream, done) = (free_stream(), event());
        assert_eq!(cuEventRecord(done, stream), OK);
        assert_eq!(cuEventSynchronize(done), OK);
        let (filler, gate) = full(context);
        assert_eq!(cuEventQuery(done), OK);
        assert_eq!(cuStreamQuery(stream), OK);
        assert_eq!(cuEventSynchronize(done), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
        let (other, mark) = (free_stream(), event());
        assert_eq!(cuEventRecord(mark, other), OK);
        assert_eq!(cuEventSynchronize(mark), OK);
        assert!(!filler.is_over());
        gate.open();
        filler.thread.join().unwrap();
    });
}

#[test]
fn loading_a_module_blocks_submission_by_other_threads() {
    let name = "loading_a_module_blocks_submission_by_other_threads";
    alone(name, "room=locked,load=300ms", || {
        let context = current();
        let (stream, mark, loaded) = (free_stream(), event(), Sent(function("spin")));
        let own = Sent(free_stream());
        let began = std::time::Instant::now();
        let loader = Caller::settled(context, move || {
            let mut ns = 1_000_u64;
            let params = &mut [(&raw mut ns).cast()];
            assert_eq!(launch(loaded.take(), own.take(), params), OK);
        });
        assert_eq!(cuEventRecord(mark, stream), OK);
        assert!(began.elapsed().as_millis() >= 300);
        loader.thread.join().unwrap();
    });
}
