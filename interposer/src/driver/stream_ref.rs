//! A stream as stream-ordered functions understand it: whether it records, and an event behind its
//! work. Where it is, the tracker knows (`tracker/place.rs`).

use core::ops::RangeInclusive;

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls::{self, Asked};
use crate::driver::green;
use crate::driver::relaxed::unnoticed;

/// The driver's errors where a capture forbids a call.
const CAPTURE_ERRORS: RangeInclusive<u32> =
    CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0;

/// A stream as the called function understands it: stream 0 is the legacy stream, or in a twin the
/// thread's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRef {
    stream: CUstream,
    per_thread: bool,
}

impl StreamRef {
    /// For a function without a suffix.
    pub(crate) fn legacy(stream: CUstream) -> Self {
        Self {
            stream,
            per_thread: false,
        }
    }

    /// For its twin.
    pub(crate) fn per_thread(stream: CUstream) -> Self {
        Self {
            stream,
            per_thread: true,
        }
    }

    /// Whether calls on the stream are recorded into a graph instead of executed, or forbidden
    /// because of another stream's capture. Any other answer of the driver means no: calls not
    /// known to be recorded are charged.
    pub(crate) fn records(self) -> bool {
        match self.capture_status() {
            Ok(status) => status != CUstreamCaptureStatus::NONE,
            Err(error) => CAPTURE_ERRORS.contains(&error.0),
        }
    }

    /// Whether a launch in the stream is one the driver would run: it is known, and does not
    /// record. A host callback may ask nothing, so that in one the answer is no.
    pub(crate) fn runs(self) -> bool {
        match self.capture_status() {
            Ok(status) => status == CUstreamCaptureStatus::NONE,
            // A driver that cannot capture.
            Err(answer) => answer == CUresult::NOT_FOUND,
        }
    }

    /// The driver's error for any call on the stream, if it reports one: the handle is invalid,
    /// there is no context, its work has failed. A capture is no error, and a driver that cannot be
    /// asked reports none.
    pub(crate) fn fault(self) -> Option<CUresult> {
        match self.capture_status() {
            Ok(_) | Err(CUresult::NOT_FOUND | CUresult::NOT_SUPPORTED) => None,
            Err(error) => (!CAPTURE_ERRORS.contains(&error.0)).then_some(error),
        }
    }

    fn capture_status(self) -> Asked<CUstreamCaptureStatus> {
        calls::capture_status(self.stream, self.per_thread)
    }

    /// Frees an allocation in the stream's order that the program has not seen. No capture notices.
    pub(crate) fn free(self, address: CUdeviceptr) -> CUresult {
        unnoticed(|| calls::free_in_stream(address, self.stream, self.per_thread))
    }

    /// The handle as the program gave it.
    pub(crate) fn handle(self) -> CUstream {
        self.stream
    }

    /// Whether it is the context's legacy stream.
    pub(crate) fn is_legacy(self) -> bool {
        self.stream == CU_STREAM_LEGACY || self.stream.is_null() && !self.per_thread
    }

    /// Whether it is a default stream of the green context that is current in the calling thread.
    pub(crate) fn is_of_green(self) -> bool {
        let defaults = [CUstream::NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD];
        defaults.contains(&self.stream) && green::current().is_some()
    }

    /// Whether the program called the twin.
    pub(crate) fn is_per_thread(self) -> bool {
        self.per_thread
    }

    /// Whether it is the calling thread's own default stream.
    pub(crate) fn is_own(self) -> bool {
        self.stream == CU_STREAM_PER_THREAD || self.stream.is_null() && self.per_thread
    }

    /// Records an event of ours behind everything the stream has been given.
    pub(crate) fn record(self, event: CUevent) -> Result<(), CUresult> {
        calls::record_event(event, self.stream, self.per_thread).ok()
    }
}
