//! The driver's memory beyond charges: contexts, modules, heaps. Estimated from the fall of the
//! device's free memory around the call that causes it, shown by `ps`, and not counted against the
//! limit.
//!
//! The first context of a process is not measured, unless the program has started NVML itself:
//! starting that takes longer than CUDA may be held up. Under a daemon, `ps` has the daemon's own
//! measurements.
//!
//! Other processes allocate meanwhile, so it is an estimate; [`PLAUSIBLE`] keeps a neighbour's
//! allocation from being taken for it.

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
pub(crate) fn measured<R>(device: Option<DeviceKey>, call: impl FnOnce() -> R) -> (R, i64) {
    let gauge = device.and_then(Gauge::on);
    let before = gauge.as_ref().and_then(Gauge::free);
    let answer = call();
    let after = before.and_then(|_| gauge.as_ref().and_then(Gauge::free));
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
    if bytes == 0 {
        return;
    }
    account::overhead_add(device, bytes);
    let known = LEDGER.with(handle, |taken| {
        taken.bytes = taken.bytes.saturating_add(bytes)
    });
    if known.is_none()
        && let Some(raced) = LEDGER.insert(
            handle,
            Taken {
                device,
                context,
                bytes,
            },
        )
    {
        LEDGER.with(handle, |taken| {
            taken.bytes = taken.bytes.saturating_add(raced.bytes)
        });
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
