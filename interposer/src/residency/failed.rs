//! Contexts that failed while memory of theirs was on the host: another client of an MPS server has
//! faulted, or the device has an error that cannot be corrected. No copy can be made in them again,
//! so their memory comes back at no order. Each call in them has the driver's error, which the
//! program gets once the process is open.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::{CUcontext, CUresult, CUstream};

use super::blocks::{Chunk, Valid};
use super::copies::Streams;
use super::memory::blocks;
use super::spent::Spent;
use crate::driver::current::CurrentContext;
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::gate::marks::is_over;

/// Gives up what contexts on a device have on the host that have failed for good, by the driver's
/// own word. A failed call alone is none: it may succeed the next time. What belongs to no context
/// is copied in another one from now on, if one lives. `false`: no context has failed, or it was
/// known.
pub(super) fn give_up(device_index: usize, streams: &mut Streams) -> bool {
    let away = |chunk: &Chunk| {
        let on_host = matches!(chunk.valid, Valid::Host(_) | Valid::Managed { home: true });
        on_host || chunk.new.is_some()
    };
    let list = {
        let blocks = blocks();
        let mut list = blocks.some(device_index, u64::MAX, |_| true);
        // On the device without all of its mappings, it is of no more use.
        list.retain(|(base, _, chunk)| away(chunk) || blocks.torn.contains(base));
        list
    };
    let mut bases: Vec<u64> = list.iter().map(|(base, ..)| *base).collect();
    bases.dedup();
    let mut asked: BTreeMap<usize, bool> = BTreeMap::new();
    bases.retain(|base| {
        let contexts = contexts_of(*base, device_index);
        let mut failed = contexts.iter().map(|context| {
            let known = asked.entry(context.0.addr());
            *known.or_insert_with(|| has_failed(*context))
        });
        !contexts.is_empty() && failed.all(|failed| failed)
    });
    let mut is_new = false;
    for (context, _) in asked.into_iter().filter(|(_, failed)| *failed) {
        is_new |= streams.has_failed(context);
    }
    let mut bytes = 0;
    for (base, index, chunk) in list {
        if bases.contains(&base) {
            bytes += chunk.bytes;
            // Where the return could not be undone it is mapped still.
            if let Some(new) = blocks().is_gone(base, index) {
                let mapped = new.mapped.then_some((chunk.at, chunk.bytes));
                Spent::chunk(mapped, new.handle).give_up();
            }
        }
    }
    if bytes > 0 {
        tracing::warn!(
            device_index,
            bytes,
            "a context has failed with what was moved out"
        );
    }
    bytes > 0 || is_new
}

/// The contexts in which an allocation can be copied: its own, or those of its device.
fn contexts_of(base: u64, device_index: usize) -> Vec<CUcontext> {
    {
        let blocks = blocks();
        let block = blocks.map.get(&base);
        if let Some(block) = block.filter(|block| block.pool.is_none()) {
            return vec![block.handle];
        }
    }
    let all = streams::contexts_on(device_index);
    all.into_iter().map(|(context, _)| context).collect()
}

/// Whether a context lives and no call in it succeeds any more.
fn has_failed(context: CUcontext) -> bool {
    let fault = match CurrentContext::make(context) {
        Ok(_current) => StreamRef::legacy(CUstream::NULL).fault(),
        Err(why) => Some(why),
    };
    let ended = [
        CUresult::DEINITIALIZED,
        CUresult::INVALID_CONTEXT,
        CUresult::CONTEXT_IS_DESTROYED,
    ];
    fault.is_some_and(|why| is_over(why) && !ended.contains(&why))
}
