//! Submission of copies, as late and as asynchronous as the documentation allows.
//!
//! Synchronous functions: copies within device memory return at once. A pageable source is staged
//! after its stream is idle, and the call returns before the bytes arrive. All other copies wait.
//! Asynchronous functions: a pageable source is staged at once; the call waits for a pageable
//! destination, and for copies between host memories.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUDA_MEMCPY3D_v2, CUstream};

use super::{Place, Transfer};
use crate::Result;
use crate::context::Context;
use crate::exec::{self, Cost, DefaultStream, Kind, Op, Raw};
use crate::memory::managed::{Accessed, Manner};
use crate::memory::{pointer, table};

/// The operation of a copy node.
///
/// # Errors
/// As [`Transfer::check`].
pub fn op(_context: &Arc<Context>, copy: &CUDA_MEMCPY3D_v2) -> Result<Op> {
    let transfer = Transfer::from_3d(copy)?;
    transfer.check()?;
    Ok(transfer.op())
}

/// The ranges of driver memory that a copy reads and writes.
pub(crate) fn accesses(copy: &CUDA_MEMCPY3D_v2) -> Vec<Accessed> {
    let Ok(transfer) = Transfer::from_3d(copy) else {
        return Vec::new();
    };
    let written = transfer.dst.range(transfer.shape);
    let read = transfer.src.range(transfer.shape);
    let read = read.map(|(address, len)| (address, len, Manner::CopyFrom));
    let written = written.map(|(address, len)| (address, len, Manner::Write));
    read.into_iter().chain(written).collect()
}

fn on_host(place: &Place) -> bool {
    match place {
        Place::Pageable(_) | Place::Staged(_) => true,
        Place::Array(_) => false,
        Place::Address(address) => {
            table::find(*address).is_some_and(|(_, record)| !record.on_device())
        }
    }
}

/// When the source of a copy may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceOrder {
    /// In stream order.
    Stream,
    /// During the call, whatever work the stream has.
    DuringCall,
    /// At any time, also between the call and its turn in the stream.
    Any,
}

impl Transfer {
    /// Submits it; the source is read according to `order`.
    ///
    /// # Errors
    /// As [`Transfer::later`].
    pub fn ordered(
        mut self,
        context: &Arc<Context>,
        stream: CUstream,
        default: DefaultStream,
        order: SourceOrder,
    ) -> Result {
        self.check()?;
        if order == SourceOrder::Stream
            || self.bytes() == 0
            || exec::is_capturing(&exec::resolve(context, stream, default)?)?
        {
            return self.later(context, stream, default);
        }
        let stream = exec::resolve(context, stream, default)?;
        if order == SourceOrder::DuringCall {
            self.stage();
        }
        if matches!(self.dst.place, Place::Pageable(_)) {
            return exec::run(context, &stream, self.op());
        }
        exec::submit(context, &stream, self.op())
    }

    /// The copy as an operation.
    pub fn op(self) -> Op {
        let kind = Kind::Copy(Raw(self.to_3d()));
        let cost = match (on_host(&self.src.place), on_host(&self.dst.place)) {
            (true, true) => Cost::Instant,
            (true, false) => Cost::ToDevice(self.bytes()),
            (false, true) => Cost::ToHost(self.bytes()),
            (false, false) => Cost::OnDevice(self.bytes()),
        };
        Op::new(kind, cost, move || self.run().map_err(Into::into))
    }

    /// Whether the application set `SYNC_MEMOPS` on the source or the destination.
    fn must_wait(&self) -> bool {
        [&self.src.place, &self.dst.place]
            .into_iter()
            .any(|place| matches!(place, Place::Address(address) if pointer::sync_memops(*address)))
    }

    /// Submits it like a synchronous function.
    ///
    /// # Errors
    /// The errors of the arguments, of capture or of failed work.
    pub fn now(self, context: &Arc<Context>, default: DefaultStream) -> Result {
        self.check()?;
        if self.bytes() == 0 {
            return Ok(());
        }
        let stream = exec::resolve(context, CUstream::NULL, default)?;
        if self.must_wait() {
            return exec::run(context, &stream, self.op());
        }
        let (from_host, to_host) = (on_host(&self.src.place), on_host(&self.dst.place));
        if !from_host && !to_host {
            return exec::submit(context, &stream, self.op());
        }
        if matches!(self.src.place, Place::Pageable(_)) && !to_host {
            exec::synchronize(&stream)?;
            return exec::submit(context, &stream, self.staged().op());
        }
        exec::run(context, &stream, self.op())
    }

    /// Submits it like an asynchronous function.
    ///
    /// # Errors
    /// The errors of the arguments, of capture or of the context.
    pub fn later(self, context: &Arc<Context>, stream: CUstream, default: DefaultStream) -> Result {
        self.check()?;
        let stream = exec::resolve(context, stream, default)?;
        if exec::is_capturing(&stream)? {
            return exec::submit(context, &stream, self.op());
        }
        if self.bytes() == 0 {
            return Ok(());
        }
        let (from_host, to_host) = (on_host(&self.src.place), on_host(&self.dst.place));
        if matches!(self.dst.place, Place::Pageable(_)) || from_host && to_host {
            return exec::run(context, &stream, self.op());
        }
        exec::submit(context, &stream, self.staged().op())
    }
}
