//! `meet(uint64 ns, uint32 *own, const uint32 *peer, uint32 value)`.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::Accessed;
use crate::va::Access;

/// Waits on the device for its peer on another device, like the kernels of a collective.
pub(super) static MEET: Builtin = Builtin {
    name: "meet",
    params: &[8, 8, 8, 4],
    weight,
    run,
    accesses,
    spins: Some(has_come),
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0))
}

/// Writes its own value, and returns whether the peer's value has arrived. An illegal address ends
/// the wait, and `run` returns the fault.
fn has_come(args: &Args<'_>, context: &Context) -> bool {
    let Ok(own) = DeviceSlice::<u32>::new(context, args.number(1), 1, Access::Write) else {
        return true;
    };
    own.set(0, value(args));
    reached(args, context).unwrap_or(true)
}

/// Two words, which stay where they are.
fn accesses(_: &Args<'_>) -> Vec<Accessed> {
    Vec::new()
}

/// Checks the addresses again and returns the fault of an illegal one. The work was done by
/// `has_come`.
fn run(args: &Args<'_>, context: &Context) -> Result {
    DeviceSlice::<u32>::new(context, args.number(1), 1, Access::Write)?;
    reached(args, context).map(drop)
}

/// The comparison is cyclic, as in stream memory operations.
fn reached(args: &Args<'_>, context: &Context) -> Result<bool> {
    let peer = DeviceSlice::<u32>::new(context, args.number(2), 1, Access::Read)?;
    Ok(peer.get(0).wrapping_sub(value(args)) < 1 << 31)
}

fn value(args: &Args<'_>) -> u32 {
    u32::try_from(args.number(3)).unwrap_or(0)
}
