//! The driver's memory beyond charges: contexts, modules, heaps. Estimated from the fall of the
//! device's free memory around the call that causes it, shown by `ps`, and not counted against the
//! limit.
//!
//! The first context of a process is not measured, unless the program has started NVML itself:
//! starting that takes longer than CUDA may be held up. Under a daemon, `ps` has the daemon's own
//! measurements.
//!
//! Other processes allocate and free meanwhile, so it is an estimate; [`PLAUSIBLE`] keeps a
//! neighbour's allocation from being taken for it. Whatever was added is taken off again: the sum
//! that is shown is always the ledger's.

use gpushare_cuda_abi::cuda::CUcontext;

use crate::account::{self, nvml};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts;
use crate::driver::current::CurrentContext;
use crate::driver::device::DeviceKey;
use crate::holdings::objects::Map;

/// The most one context or module is believed to take. Contexts of today's largest devices stay
/// below 1 GiB.
const PLAUSIBLE: u64 = 2 << 30;

/// The memory of one object.
#[derive(Clone, Copy, Debug)]
struct Taken {
    device: DeviceKey,
    /// The context it goes with.
    context: CUcontext,
    bytes: i64,
}

/// Everything measured, by the handle of what took it: a context, a module, a library.
static LEDGER: Map<Taken> = Map::new();

/// Where free memory is read, the same before and after.
#[derive(Debug)]
enum Gauge {
    /// In this context, current or not.
    Context(CUcontext),
    /// From NVML, where the thread has no context on the device yet and the program has NVML
    /// started.
    Nvml(nvml::Gauge),
}

impl Gauge {
    fn on(device: DeviceKey) -> Option<Self> {
        match contexts::here() {
            Some(here) if here.device == device => Some(Self::Context(here.handle)),
            _ => nvml::Gauge::open(&account::uuid(device)?).map(Self::Nvml),
        }
    }

    fn free(&self) -> Option<u64> {
        match self {
            Self::Context(context) => free_in(*context),
            Self::Nvml(gauge) => gauge.free(),
        }
    }
}

fn free_in(context: CUcontext) -> Option<u64> {
    let _current = CurrentContext::make(context).ok()?;
    let (free, _) = unnoticed(calls::memory_info).ok()?;
    Some(free as u64)
}

/// Makes a call and measures how much memory it took on `device`: negative where it freed some.
/// Memory that this process is charged with is no part of it: other threads allocate meanwhile.
pub(crate) fn measured<R>(device: Option<DeviceKey>, call: impl FnOnce() -> R) -> (R, i64) {
    let gauge = device.and_then(Gauge::on);
    let free = || {
        let free = gauge.as_ref().and_then(Gauge::free)?;
        Some(free.saturating_add(device.map_or(0, account::holds)))
    };
    let before = free();
    let answer = call();
    let after = before.and_then(|_| free());
    let took = match (before, after) {
        (Some(before), Some(after)) if before.abs_diff(after) <= PLAUSIBLE => {
            before.cast_signed().saturating_sub(after.cast_signed())
        }
        _ => 0,
    };
    (answer, took)
}

/// Records that there is a context, which took `bytes` if that is known. An existing context takes
/// more than zero.
pub(crate) fn book_context(context: CUcontext, device: DeviceKey, bytes: i64) {
    book(context.0.addr() as u64, context, device, bytes.max(1));
}

/// Notes that the object `handle`, which goes with `context`, took `bytes`; more of it adds up.
pub(crate) fn book(handle: u64, context: CUcontext, device: DeviceKey, bytes: i64) {
    let taken = Taken {
        device,
        context,
        bytes,
    };
    let added = add(&LEDGER, handle, taken);
    if added != 0 {
        account::overhead_add(device, added);
    }
}

/// Adds to an object's memory in the ledger, and returns by how much that has changed: nothing
/// takes less than no memory, though less may have been measured. Of a library with modules on
/// several devices, what the others took counts as their contexts'.
fn add(ledger: &Map<Taken>, handle: u64, more: Taken) -> i64 {
    let own = more.context.0.addr() as u64;
    let grow = |taken: &mut Taken| {
        let before = taken.bytes;
        taken.bytes = before.saturating_add(more.bytes).max(0);
        taken.bytes - before
    };
    let known = |taken: &mut Taken| (taken.device == more.device).then(|| grow(taken));
    let first = Taken {
        bytes: more.bytes.max(0),
        ..more
    };
    let added = ledger.with(handle, known).or_else(|| {
        let is_first = first.bytes == 0 || ledger.fill(handle, first).is_none();
        is_first.then_some(Some(first.bytes))
    });
    // Another thread may have come first.
    match added.or_else(|| ledger.with(handle, known)).flatten() {
        Some(added) => added,
        None if handle == own => 0,
        None => add(ledger, own, more),
    }
}

/// An object that the driver is asked to give up. As soon as it has, the handle may be another's.
#[derive(Debug)]
#[must_use = "it is gone, or stays"]
pub(crate) struct Going {
    handle: u64,
    taken: Taken,
}

/// An object is about to go; `None`: nothing of it was measured.
pub(crate) fn going(handle: u64) -> Option<Going> {
    let taken = LEDGER.take(handle)?;
    Some(Going { handle, taken })
}

impl Going {
    /// It is gone, with its memory.
    pub(crate) fn gone(self) {
        account::overhead_add(self.taken.device, self.taken.bytes.saturating_neg());
    }

    /// The driver has refused: it is there still.
    pub(crate) fn stays(self) {
        LEDGER.insert(self.handle, self.taken);
    }
}

/// The context is gone, and everything that went with it.
pub(crate) fn context_gone(context: CUcontext) {
    for (_, taken) in LEDGER.drain_if(|_, taken| taken.context == context) {
        account::overhead_add(taken.device, taken.bytes.saturating_neg());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bytes` that an object in this context took.
    fn taken(context: usize, device_index: usize, bytes: i64) -> Taken {
        Taken {
            device: DeviceKey::of_index(device_index).expect("a device"),
            context: CUcontext(core::ptr::without_provenance_mut(context)),
            bytes,
        }
    }

    #[test]
    fn less_than_no_memory_is_neither_shown_nor_given_back() {
        static LEDGER: Map<Taken> = Map::new();
        let load = |bytes| add(&LEDGER, 7, taken(1, 0, bytes));
        assert_eq!((load(-1024), LEDGER.take(7).map(|it| it.bytes)), (0, None));
        assert_eq!((load(400), load(-100)), (400, -100));
        assert_eq!((load(-1024), load(50)), (-300, 50));
        assert_eq!(LEDGER.take(7).map(|it| it.bytes), Some(50));
    }

    #[test]
    fn a_librarys_module_on_another_device_counts_as_its_contexts() {
        static LEDGER: Map<Taken> = Map::new();
        for (context, device_index) in [(1, 0), (1, 0), (2, 1), (2, 1)] {
            assert_eq!(add(&LEDGER, 7, taken(context, device_index, 10)), 10);
        }
        let held = |handle| LEDGER.take(handle).map(|it| (it.device.index(), it.bytes));
        assert_eq!(
            [held(7), held(1), held(2)],
            [Some((0, 20)), None, Some((1, 20))]
        );
    }
}
