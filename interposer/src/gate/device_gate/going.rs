//! A context that is destroyed, reset or released, and its work.

use gpushare_cuda_abi::cuda::CUcontext;

use super::{DeviceGate, StreamKey, clock};

impl DeviceGate {
    /// The context may be just going: its marks are asked a last time.
    pub(in crate::gate) fn context_going(&self, context: CUcontext) {
        let mut inner = self.lock();
        if !inner.window.is_drained() {
            let now = clock::now();
            inner.look_relaxed(now);
            self.settle(&mut inner, now);
        }
        inner.going.push(context);
    }

    /// The calls that may end the context, and that have not come back, never will.
    pub(in crate::gate) fn nothing_ends(&self, context: CUcontext) {
        self.lock().going.retain(|going| *going != context);
    }

    /// The context has gone, its events with it; or it is there as before.
    pub(in crate::gate) fn context_went(&self, context: CUcontext, gone: bool) {
        let mut inner = self.lock();
        if gone {
            // Also for calls that were left by a jump: its handle may be another one's now.
            inner.going.retain(|going| *going != context);
            inner.gone += 1;
            let now = clock::now();
            let of_context = |stream_key: &StreamKey| stream_key.context == context.0.addr();
            inner.window.ended(now, of_context);
            inner.spares.forget(context);
            self.settle(&mut inner, now);
        } else if let Some(at) = inner.going.iter().position(|going| *going == context) {
            inner.going.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(0x1000))
    }

    /// Two calls may end the context, one of which comes back. How many are known to go on.
    fn left(gone: bool) -> usize {
        let gate = DeviceGate::new(0, false);
        (0..2).for_each(|_| gate.context_going(context()));
        gate.context_went(context(), gone);
        gate.lock().going.len()
    }

    /// The driver may give its handle to another one.
    #[test]
    fn no_call_is_about_to_end_a_context_that_has_ended() {
        assert_eq!(left(true), 0);
    }

    #[test]
    fn another_call_may_still_end_a_context_that_is_there() {
        assert_eq!(left(false), 1);
    }
}
