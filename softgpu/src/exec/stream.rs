//! Streams: created ones, each context's legacy default stream, each thread's own default stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUresult, CUstream, CUstream_flags,
};

use super::engine::Queue;
use super::{DefaultStream, lock};
use crate::context::Context;
use crate::error::Result;
use crate::handle::{self, Handles};

/// A stream's number in this process: its handle value, whether or not it was given out.
pub type StreamId = u64;

/// A stream that is held.
pub type StreamRef = Arc<Stream>;

/// The most urgent priority; the least urgent is 0. What NVIDIA's current devices answer.
pub const GREATEST_PRIORITY: i32 = -5;

static STREAMS: Handles<Stream> = Handles::new();

/// A queue of work in one context.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    context: Arc<Context>,
    flags: u32,
    priority: i32,
    legacy: bool,
}

/// The default streams of a context, made when first used.
#[derive(Debug, Default)]
struct Defaults {
    legacy: Mutex<Option<StreamRef>>,
    threads: Mutex<HashMap<ThreadId, StreamRef>>,
}

impl Stream {
    fn new(context: &Arc<Context>, flags: u32, priority: i32, legacy: bool) -> StreamRef {
        let id = handle::fresh() as u64;
        let queue = Queue {
            context: context.id(),
            last: 0,
            unfinished: 0,
            blocking: flags & CUstream_flags::NON_BLOCKING.0 == 0,
            gone: false,
        };
        let mut timeline = lock();
        timeline.queues.insert(id, queue);
        if legacy {
            timeline.legacy.insert(context.id(), id);
        }
        drop(timeline);
        Arc::new(Self {
            id,
            context: Arc::clone(context),
            flags,
            priority,
            legacy,
        })
    }

    /// Its number.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The context its work runs in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The flags it was made with.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its priority, within the range.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Whether it is its context's legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// Whether it and the legacy default stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags & CUstream_flags::NON_BLOCKING.0 == 0
    }
}

/// Makes a stream; a priority outside the range becomes the nearest one in it.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags.
pub fn create(context: &Arc<Context>, flags: u32, priority: i32) -> Result<CUstream> {
    if flags & !CUstream_flags::NON_BLOCKING.0 != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = Stream::new(context, flags, priority.clamp(GREATEST_PRIORITY, 0), false);
    let value = usize::try_from(stream.id).map_err(|_| CUresult::UNKNOWN)?;
    STREAMS.insert_at(value, stream);
    Ok(CUstream(std::ptr::without_provenance_mut(value)))
}

/// Destroys a created stream; what was submitted to it still runs.
///
/// # Errors
/// `INVALID_HANDLE` for default streams and what is no stream (any more).
pub fn destroy(stream: CUstream) -> Result {
    let stream = STREAMS
        .remove(stream.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)?;
    crate::graph::capture::stream_gone(&stream);
    lock().retire(stream.id);
    Ok(())
}

/// The stream behind a handle, in `context` where the handle names a default stream.
///
/// # Errors
/// `INVALID_HANDLE` for what is no stream (any more); the state of its context, if that is lost.
pub fn resolve(
    context: &Arc<Context>,
    stream: CUstream,
    default: DefaultStream,
) -> Result<StreamRef> {
    let which = match stream {
        CU_STREAM_LEGACY => DefaultStream::Legacy,
        CU_STREAM_PER_THREAD => DefaultStream::PerThread,
        null if null.is_null() => default,
        created => {
            let found = STREAMS
                .get(created.0.addr())
                .ok_or(CUresult::INVALID_HANDLE)?;
            found.context.check()?;
            return Ok(found);
        }
    };
    let defaults = context.ext::<Defaults>();
    Ok(match which {
        DefaultStream::Legacy => {
            let mut legacy = defaults
                .legacy
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(legacy.get_or_insert_with(|| Stream::new(context, 0, 0, true)))
        }
        DefaultStream::PerThread => {
            let mut threads = defaults
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                threads
                    .entry(thread::current().id())
                    .or_insert_with(|| Stream::new(context, 0, 0, false)),
            )
        }
    })
}

/// Forgets the created streams of a context that is destroyed.
pub(super) fn forget_all(context: u64) {
    for stream in STREAMS.remove_if(|stream| stream.context.id() == context) {
        crate::graph::capture::stream_gone(&stream);
    }
}
