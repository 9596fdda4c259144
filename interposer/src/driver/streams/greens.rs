//! Green contexts: marks behind what they were given, by way of their primary contexts, and their destruction.
//!
//! A stream that belongs to a green context and has a handle is marked like any, with the primary context current. The default stream of
//! a green context has no handle that means it elsewhere: it is marked with its whole green context, by the thread that launches into it,
//! or with its whole primary context. Why: ADR 41.

use std::sync::atomic::Ordering;

use gpushare_cuda_abi::cuda::{CUresult, CUstream};

use super::{Current, EPOCH, Hold, Marked, Origin, Shared, Stream, drain};
use crate::driver::green::{self, Green};
use crate::driver::ordered::Ordered;
use crate::gate::marks;

/// Runs `body`, which records an event behind everything in a green context, while none of its streams captures.
pub(crate) fn marking_green<R>(green: &Green, body: impl FnOnce() -> R) -> Marked<R> {
    let _held = match Hold::take(green.primary, CUstream::NULL) {
        Ok(held) => held,
        Err(why) => return why.into(),
    };
    let _current = match Current::make(green.primary) {
        Ok(current) => current,
        Err(why) if marks::is_over(why) => return Marked::Gone,
        Err(_) => return Marked::Unknown,
    };
    let own = own_streams(green);
    if own
        .iter()
        .any(|(stream, _)| Ordered::legacy(*stream).records())
    {
        return Marked::Captures;
    }
    Marked::Done(body())
}

fn own_streams(green: &Green) -> Vec<(CUstream, Stream)> {
    let registry = Shared::get().lock();
    let is_own = |stream: &CUstream| green::owns(green, stream.0.addr());
    let own = registry.streams.iter().filter(|(stream, _)| is_own(stream));
    own.map(|(stream, known)| (*stream, *known)).collect()
}

/// Destroys a green context by `call`. From then on nothing can be put into its streams, but the driver finishes what they hold: that is
/// marked before.
pub(crate) fn destroying_green(green: &Green, call: impl FnOnce() -> CUresult) -> CUresult {
    let shared = Shared::get();
    let own = own_streams(green);
    for (stream, known) in &own {
        drain::stream_going(known.here, *stream);
    }
    drain::green_going(green);
    {
        let busy = |registry: &super::Registry| {
            let mut own = own
                .iter()
                .filter_map(|(stream, _)| registry.streams.get(stream));
            own.any(|stream| stream.busy > 0)
        };
        let mut registry = shared.wait(shared.lock(), busy);
        for (stream, _) in &own {
            registry
                .capturing
                .retain(|origin| *origin != Origin::Stream(*stream));
            registry.streams.remove(stream);
        }
    }
    EPOCH.fetch_add(1, Ordering::AcqRel);
    own.iter()
        .for_each(|(stream, _)| drain::stream_gone(*stream));
    drain::stream_gone(CUstream(green.converted.0.cast()));
    let answer = call();
    if !answer.is_success() {
        let mut registry = shared.lock();
        for (stream, known) in own {
            registry
                .streams
                .entry(stream)
                .or_insert(Stream { busy: 0, ..known });
        }
    }
    answer
}
