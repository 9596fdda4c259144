//! Streams: created streams, each context's legacy default stream, and each thread's default
//! stream.

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

/// A stream's number in this process. It equals the stream's handle value; default streams have a
/// number too.
pub type StreamId = u64;

/// A counted reference to a stream.
pub type StreamRef = Arc<Stream>;

/// The most urgent priority; the least urgent is 0. NVIDIA's current devices report this value.
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

/// An attribute's value as the API passes it.
pub type AttributeBytes = [c_char; 64];

/// The context, or green context, in which a stream is created.
#[derive(Debug)]
struct Home {
    context: Arc<Context>,
    green: Option<Arc<Green>>,
}

impl Home {
    /// The calling thread's current green context if it belongs to `context`; else `context`.
    fn here(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            green: context::current_green().filter(|green| Arc::ptr_eq(green.primary(), context)),
        }
    }
}

/// The default streams of a context, created at first use.
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

    /// The streams that it implicitly synchronises with.
    pub fn domain(&self) -> u64 {
        let green = self.green.as_ref();
        green.map_or_else(|| self.context.id(), |green| green.domain())
    }

    /// Whether the stream can still be used.
    ///
    /// # Errors
    /// The error of a lost context; the error for a stream whose green context is destroyed.
    fn check(&self) -> Result {
        if self.is_detached() {
            return Err(context::detached(&self.context));
        }
        self.context.check()
    }

    /// Whether its green context is destroyed.
    fn is_detached(&self) -> bool {
        let green = self.green.as_ref();
        green.is_some_and(|green| green.is_destroyed())
    }

    /// The flags it was created with.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its priority, within the range.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// An attribute's value: the value that was set, else the default. The default is zero for all
    /// attributes but two.
    ///
    /// # Errors
    /// `INVALID_VALUE` if `id` is not an attribute of streams.
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

    /// Sets an attribute. No attribute changes the simulation.
    ///
    /// # Errors
    /// `INVALID_VALUE` if `id` is not an attribute of streams, or is the priority, which is fixed.
    pub fn set_attribute(&self, id: CUlaunchAttributeID, value: AttributeBytes) -> Result {
        is_stream_attribute(id)?;
        if id == CUlaunchAttributeID::PRIORITY {
            return Err(CUresult::INVALID_VALUE);
        }
        self.attributes().insert(id, value);
        Ok(())
    }

    /// Copies the attributes that were set on another stream.
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

    /// Whether it and the legacy default stream synchronise with each other.
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

/// Creates a stream in the calling thread's current context, which is `context` or a green context
/// of it. A priority outside the range is clamped.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags.
pub fn create(context: &Arc<Context>, flags: u32, priority: i32) -> Result<CUstream> {
    if flags & !CUstream_flags::NON_BLOCKING.0 != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    enter(&Home::here(context), flags, priority)
}

/// Creates a stream in a green context, whatever context is current.
///
/// # Errors
/// `INVALID_VALUE` if the flags are not `NON_BLOCKING`; the state of the green context.
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
    let value = STREAMS.insert(stream);
    Ok(CUstream(std::ptr::without_provenance_mut(value)))
}

/// Destroys a created stream; work submitted to it still runs.
///
/// # Errors
/// `INVALID_HANDLE` for default streams and for handles that name no stream; `CONTEXT_IS_DESTROYED`
/// for a stream whose green context is destroyed, on drivers that keep such streams.
pub fn destroy(stream: CUstream) -> Result {
    let detached =
        |stream: &StreamRef| context::keeps_detached(&stream.context) && stream.is_detached();
    if STREAMS
        .get(stream.0.addr())
        .is_some_and(|stream| detached(&stream))
    {
        return Err(CUresult::CONTEXT_IS_DESTROYED);
    }
    let stream = STREAMS
        .remove(stream.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)?;
    crate::graph::capture::stream_gone(&stream);
    let _held = stream.context.hold();
    lock().retire(stream.id);
    Ok(())
}

/// The context of a call that submits to `stream`: the calling thread's, or the stream's where the
/// thread has none.
///
/// # Errors
/// `INVALID_CONTEXT` if the thread has none and the stream is a default one, or does not exist; the
/// error of a context that cannot be used.
pub fn context_for(stream: CUstream) -> Result<Arc<Context>> {
    if context::current_named().is_some() {
        return context::current();
    }
    let created = STREAMS.get(stream.0.addr());
    let created = created.ok_or(CUresult::INVALID_CONTEXT)?;
    created.check()?;
    Ok(Arc::clone(created.context()))
}

/// The stream of a handle. A handle that names a default stream means the default stream of
/// `context`.
///
/// # Errors
/// `INVALID_HANDLE` for a handle that names no stream, and for the per-thread default stream if a
/// green context is current; for a created stream the error of its lost context.
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

/// Forgets the created streams of a context that is being destroyed.
pub(super) fn forget_all(context: u64) {
    for stream in STREAMS.remove_if(|stream| stream.context.id() == context) {
        crate::graph::capture::stream_gone(&stream);
    }
}
