//! The device and context of a stream, and its identity.

use core::cell::Cell;

use gpushare_cuda_abi::cuda::CUstream;

use super::contexts::{self, Here};
use super::state::epoch;
use super::streams;
use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::driver::relaxed::unnoticed;
use crate::driver::stream_ref::StreamRef;
use crate::guest::sys;

/// The identity of a stream, whatever its handle: stream 0 is another one in each context, the
/// per-thread default stream in each thread, and a handle may be reused once its stream is
/// destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamId {
    /// The driver's number, which it never gives twice.
    Number(u64),
    /// Drivers before 12.0 have none: the handle, whether the twin was called, the context, and the
    /// thread where it matters.
    Handle(usize, bool, usize, i64),
}

/// A stream that the program made, and the driver's facts about it.
#[derive(Clone, Copy, Debug)]
struct Last {
    epoch: u64,
    stream: CUstream,
    here: Here,
    /// Known once it was asked for: that is a question which a capture may forbid.
    id: Option<StreamId>,
}

thread_local! {
    // Const and without a destructor: memory is freed in other libraries' destructors too.
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

impl StreamRef {
    /// The stream's context: the current one for the default streams.
    pub(crate) fn place(self) -> Option<Here> {
        if streams::is_default(self.handle()) {
            return contexts::here();
        }
        let epoch = epoch();
        if let Some(last) = LAST.get()
            && (last.epoch, last.stream) == (epoch, self.handle())
        {
            return Some(last.here);
        }
        let Ok(context) = calls::stream_context(self.handle()) else {
            return contexts::here();
        };
        let here = contexts::of(context)?;
        // Only streams whose destruction a hook will see are cached.
        if streams::knows(self.handle()) {
            LAST.set(Some(Last {
                epoch,
                stream: self.handle(),
                here,
                id: None,
            }));
        }
        Some(here)
    }

    /// The device of the stream's context; the first device where that is unknown, so that every
    /// allocation is charged.
    pub(crate) fn device(self) -> Option<DeviceKey> {
        self.place()
            .map(|here| here.device)
            .or_else(|| device::of_ordinal(0))
    }

    /// Which stream it is. `here` is its place.
    pub(crate) fn id(self, here: Option<Here>) -> StreamId {
        let last = LAST
            .get()
            .filter(|last| (last.epoch, last.stream) == (epoch(), self.handle()));
        if let Some(id) = last.and_then(|last| last.id) {
            return id;
        }
        let id = self.ask_id(here);
        if let Some(last) = last
            && matches!(id, StreamId::Number(_))
        {
            LAST.set(Some(Last {
                id: Some(id),
                ..last
            }));
        }
        id
    }

    /// Asks the driver. It refuses to number a stream that captures, and ends that capture; beside
    /// another capture it may (ADR 38).
    fn ask_id(self, here: Option<Here>) -> StreamId {
        let ask = || calls::stream_number(self.handle(), self.is_per_thread());
        if !self.records()
            && let Ok(number) = unnoticed(ask)
        {
            return StreamId::Number(number);
        }
        let own = self.is_own();
        let thread = own.then(sys::this_thread);
        let context = here.map_or(0, |here| here.handle.0.addr());
        StreamId::Handle(self.handle().0.addr(), own, context, thread.unwrap_or(0))
    }
}
