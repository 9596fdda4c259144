//! Streams: created ones, each context's legacy default stream, each thread's own default stream.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUlaunchAttributeID, CUresult, CUstream, CUstream_flags,
};

use super::engine::Queue;
use super::{DefaultStream, lock};
use crate::context::{self, Context, Green};
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
    green: Option<Arc<Green>>,
    flags: u32,
    priority: i32,
    legacy: bool,
    attributes: Mutex<BTreeMap<CUlaunchAttributeID, AttributeBytes>>,
}

/// An attribute's value as it lies in memory.
pub type AttributeBytes = [c_char; 64];

/// Where a stream is made: a context, or a green context of it.
#[derive(Debug)]
struct Home {
    context: Arc<Context>,
    green: Option<Arc<Green>>,
}

impl Home {
    /// The calling thread's part of `context`.
    fn here(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            green: context::current_green().filter(|green| Arc::ptr_eq(green.primary(), context)),
        }
    }
}

/// The default streams of a context, made when first used.
#[derive(Debug, Default)]
struct Defaults {
    legacy: Mutex<Option<StreamRef>>,
    threads: Mutex<HashMap<ThreadId, StreamRef>>,
}

impl Stream {
    fn new(home: &Home, flags: u32, priority: i32, legacy: bool) -> StreamRef {
        let id = handle::fresh() as u64;
        let Home { context, green } = home;
        let domain = green
            .as_ref()
            .map_or_else(|| context.id(), |green| green.domain());
        let queue = Queue {
            context: context.id(),
            domain,
            last: 0,
            unfinished: 0,
            blocking: flags & CUstream_flags::NON_BLOCKING.0 == 0,
            gone: false,
        };
        let mut timeline = lock();
        timeline.queues.insert(id, queue);
        if legacy {
            timeline.legacy.insert(domain, id);
        }
        drop(timeline);
        Arc::new(Self {
            id,
            context: Arc::clone(context),
            green: green.clone(),
            flags,
            priority,
            legacy,
            attributes: Mutex::default(),
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

    /// The green context it belongs to, if any.
    pub fn green(&self) -> Option<&Arc<Green>> {
        self.green.as_ref()
    }

    /// The streams it shares implicit order with.
    pub fn domain(&self) -> u64 {
        let green = self.green.as_ref();
        green.map_or_else(|| self.context.id(), |green| green.domain())
    }

    /// Whether it can still be used.
    ///
    /// # Errors
    /// The state of its context; what calls answer on a stream whose green context is destroyed.
    fn check(&self) -> Result {
        if self
            .green
            .as_ref()
            .is_some_and(|green| green.is_destroyed())
        {
            return Err(context::detached(&self.context));
        }
        self.context.check()
    }

    /// The flags it was made with.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its priority, within the range.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// An attribute's value: what was set, else zeroes, which is the default of each but two.
    ///
    /// # Errors
    /// `INVALID_VALUE` for what is no attribute of streams.
    pub fn attribute(&self, id: CUlaunchAttributeID) -> Result<AttributeBytes> {
        is_stream_attribute(id)?;
        if let Some(set) = self.attributes().get(&id) {
            return Ok(*set);
        }
        let default = match id {
            CUlaunchAttributeID::PRIORITY => self.priority,
            // CU_SYNC_POLICY_AUTO.
            CUlaunchAttributeID::SYNCHRONIZATION_POLICY => 1,
            _ => 0,
        };
        let mut bytes = [0; 64];
        for (byte, value) in bytes.iter_mut().zip(default.to_ne_bytes()) {
            *byte = c_char::from_ne_bytes([value]);
        }
        Ok(bytes)
    }

    /// Sets an attribute. None changes anything here.
    ///
    /// # Errors
    /// `INVALID_VALUE` for what is no attribute of streams, or the priority, which is fixed.
    pub fn set_attribute(&self, id: CUlaunchAttributeID, value: AttributeBytes) -> Result {
        is_stream_attribute(id)?;
        if id == CUlaunchAttributeID::PRIORITY {
            return Err(CUresult::INVALID_VALUE);
        }
        self.attributes().insert(id, value);
        Ok(())
    }

    /// Takes over what was set on another stream.
    pub fn copy_attributes(&self, from: &Self) {
        let copied = from.attributes().clone();
        self.attributes().extend(copied);
    }

    fn attributes(&self) -> MutexGuard<'_, BTreeMap<CUlaunchAttributeID, AttributeBytes>> {
        self.attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

fn is_stream_attribute(id: CUlaunchAttributeID) -> Result {
    use CUlaunchAttributeID as A;
    let known = [
        A::ACCESS_POLICY_WINDOW,
        A::SYNCHRONIZATION_POLICY,
        A::PRIORITY,
        A::MEM_SYNC_DOMAIN_MAP,
        A::MEM_SYNC_DOMAIN,
    ];
    if known.contains(&id) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// Makes a stream in the calling thread's current context, which is `context` or a green context of
/// it. A priority outside the range becomes the nearest one in it.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags.
pub fn create(context: &Arc<Context>, flags: u32, priority: i32) -> Result<CUstream> {
    if flags & !CUstream_flags::NON_BLOCKING.0 != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    enter(&Home::here(context), flags, priority)
}

/// Makes a stream in a green context, whatever is current.
///
/// # Errors
/// `INVALID_VALUE` for other flags than `NON_BLOCKING`; the state of the green context.
pub fn create_in(green: &Arc<Green>, flags: u32, priority: i32) -> Result<CUstream> {
    if flags != CUstream_flags::NON_BLOCKING.0 {
        return Err(CUresult::INVALID_VALUE);
    }
    green.check()?;
    let home = Home {
        context: Arc::clone(green.primary()),
        green: Some(Arc::clone(green)),
    };
    enter(&home, flags, priority)
}

fn enter(home: &Home, flags: u32, priority: i32) -> Result<CUstream> {
    let stream = Stream::new(home, flags, priority.clamp(GREATEST_PRIORITY, 0), false);
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
    let _held = stream.context.hold();
    lock().retire(stream.id);
    Ok(())
}

/// The stream behind a handle, in `context` where the handle names a default stream.
///
/// # Errors
/// `INVALID_HANDLE` for what is no stream (any more), and for the thread's own one where a green
/// context is current; the state of its context, if that is lost.
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
            found.check()?;
            return Ok(found);
        }
    };
    let home = Home::here(context);
    let defaults = match &home.green {
        Some(_) if which == DefaultStream::PerThread => return Err(CUresult::INVALID_HANDLE),
        Some(green) => green.ext::<Defaults>(),
        None => context.ext::<Defaults>(),
    };
    Ok(match which {
        DefaultStream::Legacy => {
            let mut legacy = defaults
                .legacy
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(legacy.get_or_insert_with(|| Stream::new(&home, 0, 0, true)))
        }
        DefaultStream::PerThread => {
            let mut threads = defaults
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                threads
                    .entry(thread::current().id())
                    .or_insert_with(|| Stream::new(&home, 0, 0, false)),
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
