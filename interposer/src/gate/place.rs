//! Where a launch goes: the device, and what is known of it beforehand.

use gpushare_cuda_abi::cuda::{
    CUDA_LAUNCH_PARAMS, CUcontext, CUfunction, CUgraphExec, CUresult, CUstream,
};

use super::streams;
use crate::hooks::Ordered;

/// What is launched, for estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A kernel: the address of its function.
    Function(usize),
    /// A graph: the address of its executable.
    Graph(usize),
    /// Anything else, by a number of the hook's own.
    Other(u32),
}

impl From<CUfunction> for Key {
    fn from(function: CUfunction) -> Self {
        Self::Function(function.0.addr())
    }
}

impl From<CUgraphExec> for Key {
    fn from(exec: CUgraphExec) -> Self {
        Self::Graph(exec.0.addr())
    }
}

/// One launch on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The stream's context.
    pub(crate) context: CUcontext,
    /// The stream as the program named it.
    pub(crate) stream: CUstream,
    /// Stream 0 is the thread's own one.
    pub(crate) per_thread: bool,
    /// The device's column.
    pub(crate) column: usize,
    /// What is launched.
    pub(crate) key: Key,
}

/// A launch as its hook sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// In one stream.
    One(Ordered, Key),
    /// The parts of a cooperative launch on several devices.
    Several(&'a [CUDA_LAUNCH_PARAMS]),
}

/// Calls `body` with the places of a launch: none if nothing of it may be held back.
pub(super) fn with(work: &Work<'_>, body: &mut dyn FnMut(&[Place]) -> CUresult) -> CUresult {
    match work {
        Work::One(stream, key) => match place(*stream, *key) {
            Some(place) => body(&[place]),
            None => body(&[]),
        },
        Work::Several(parts) => {
            let place = |part: &CUDA_LAUNCH_PARAMS| {
                place(Ordered::legacy(part.hStream), part.function.into())
            };
            let places: Vec<_> = parts.iter().filter_map(place).collect();
            body(&places)
        }
    }
}

/// `None` if the stream records the launch instead of running it, and where the driver will refuse it: it does not know the stream, or
/// the call comes from inside a host callback, which nobody may keep waiting.
fn place(stream: Ordered, key: Key) -> Option<Place> {
    if !stream.runs() {
        return None;
    }
    let here = streams::locate(stream)?;
    if stream.is_own() {
        streams::own_stream_runs();
    }
    Some(Place {
        context: here.handle,
        stream: stream.handle(),
        per_thread: stream.is_per_thread(),
        column: here.device.index(),
        key,
    })
}
