//! Submission of copies, as late and as asynchronous as the documentation allows.
//!
//! Synchronous functions: copies within device memory return at once. A pageable source is staged
//! after its stream is idle, and the call returns before the bytes arrive; with `upload=along` a
//! source of at most 64 KiB is staged at once. All other copies wait.
//! Asynchronous functions: a pageable source is staged at once, or with `stage=waits` after its
//! stream is idle; the call waits for a pageable destination, and for copies between host memories.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUDA_MEMCPY3D_v2, CUstream};

use super::{Place, Side, Transfer};
use crate::Result;
use crate::context::Context;
use crate::exec::{self, Cost, DefaultStream, Kind, Op, Raw};
use crate::memory::managed::{Accessed, Manner};
use crate::memory::{pointer, table};
use crate::spec::{Stage, Upload};

/// NVIDIA's programming guide counts copies of at most so many bytes from the host among the calls
/// that return before the device is done. A real driver waits.
const SENT_ALONG: u64 = 64 << 10;

/// The operation of a copy node.
///
/// # Errors
/// As [`Transfer::check`].
pub fn op(context: &Arc<Context>, copy: &CUDA_MEMCPY3D_v2) -> Result<Op> {
    let transfer = Transfer::from_3d(copy)?.of(context);
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

/// Where memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// Nothing is there now.
    Unknown,
    /// On the host.
    Host,
    /// On the device with this ordinal, in this context; 0 for memory of none.
    Device(u32, u64),
    /// An array.
    Array,
}

/// Where the memory at an address is.
pub(crate) fn home_of(address: u64) -> Home {
    match table::find(address) {
        None => Home::Unknown,
        Some((_, record)) if record.on_device() => Home::Device(record.device, record.context),
        Some(_) => Home::Host,
    }
}

/// Where the source and the destination of a copy are.
pub(crate) fn homes(copy: &CUDA_MEMCPY3D_v2) -> [Home; 2] {
    let of = |side: &Side| match side.place {
        Place::Pageable(_) | Place::Staged(_) => Home::Host,
        Place::Array(_) => Home::Array,
        Place::Address(address) => home_of(address),
    };
    Transfer::from_3d(copy).map_or([Home::Unknown; 2], |copy| [of(&copy.src), of(&copy.dst)])
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
        self,
        context: &Arc<Context>,
        stream: CUstream,
        default: DefaultStream,
        order: SourceOrder,
    ) -> Result {
        let mut this = self.of(context);
        this.check()?;
        if order == SourceOrder::Stream
            || this.bytes() == 0
            || exec::is_capturing(&exec::resolve(context, stream, default)?)?
        {
            return this.later(context, stream, default);
        }
        let stream = exec::resolve(context, stream, default)?;
        if order == SourceOrder::DuringCall {
            this.stage();
        }
        if matches!(this.dst.place, Place::Pageable(_)) {
            return exec::run(context, &stream, this.op());
        }
        exec::submit(context, &stream, this.op())
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
        let this = self.of(context);
        this.check()?;
        if this.bytes() == 0 {
            return Ok(());
        }
        let stream = exec::resolve(context, CUstream::NULL, default)?;
        if this.must_wait() {
            return exec::run(context, &stream, this.op());
        }
        let (from_host, to_host) = (on_host(&this.src.place), on_host(&this.dst.place));
        if !from_host && !to_host {
            return exec::submit(context, &stream, this.op());
        }
        if matches!(this.src.place, Place::Pageable(_)) && !to_host {
            let upload = context.device().spec().upload;
            if upload == Upload::Waits || this.bytes() > SENT_ALONG {
                exec::synchronize(&stream)?;
            }
            return exec::submit(context, &stream, this.staged().op());
        }
        exec::run(context, &stream, this.op())
    }

    /// Submits it like an asynchronous function.
    ///
    /// # Errors
    /// The errors of the arguments, of capture or of the context.
    pub fn later(self, context: &Arc<Context>, stream: CUstream, default: DefaultStream) -> Result {
        let this = self.of(context);
        this.check()?;
        let stream = exec::resolve(context, stream, default)?;
        if exec::is_capturing(&stream)? {
            return exec::submit(context, &stream, this.op());
        }
        if this.bytes() == 0 {
            return Ok(());
        }
        let (from_host, to_host) = (on_host(&this.src.place), on_host(&this.dst.place));
        if matches!(this.dst.place, Place::Pageable(_)) || from_host && to_host {
            return exec::run(context, &stream, this.op());
        }
        let is_pageable = matches!(this.src.place, Place::Pageable(_));
        if is_pageable && context.device().spec().stage == Stage::Waits {
            // The driver's own wait: no capture forbids it.
            exec::idle(&stream);
        }
        exec::submit(context, &stream, this.staged().op())
    }
}
