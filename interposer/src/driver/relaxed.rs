//! The relaxed mode of captures, in which the driver is asked on the program's behalf.

use gpushare_cuda_abi::cuda::CUstreamCaptureMode;

use crate::driver::calls;

/// This thread disturbs no capture, as long as this lives.
#[derive(Debug)]
pub(crate) struct Relaxed(CUstreamCaptureMode);

impl Relaxed {
    /// From now on.
    pub(crate) fn enter() -> Self {
        Self(calls::exchange_capture_mode(CUstreamCaptureMode::RELAXED))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        calls::exchange_capture_mode(self.0);
    }
}

/// Asks the driver something on the program's behalf that a capture could forbid: no capture
/// notices.
///
/// Which questions that are is listed in ADR 38.
#[inline]
pub(crate) fn unnoticed<R>(ask: impl FnOnce() -> R) -> R {
    let _relaxed = Relaxed::enter();
    ask()
}
