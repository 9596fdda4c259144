//! `meet(uint64 ns, uint32 *own, const uint32 *peer, uint32 value)`.

use super::access::Region;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::va::Access;

/// Waits on the device for its peer on another, as the kernels of a collective do.
pub(super) static MEET: Builtin = Builtin {
    name: "meet",
    params: &[8, 8, 8, 4],
    weight,
    run,
    spins: Some(has_come),
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0))
}

/// Says that it is here, and looks whether the peer is. At an address that is gone it ends, and
/// faults in `run`.
fn has_come(args: &Args<'_>, context: &Context) -> bool {
    let Ok(own) = Region::<u32>::new(context, args.number(1), 1, Access::Write) else {
        return true;
    };
    own.set(0, value(args));
    reached(args, context).unwrap_or(true)
}

/// What it does has been done; a wrong address is found out here.
fn run(args: &Args<'_>, context: &Context) -> Result {
    Region::<u32>::new(context, args.number(1), 1, Access::Write)?;
    reached(args, context).map(drop)
}

/// Cyclic, as the values of stream memory operations are.
fn reached(args: &Args<'_>, context: &Context) -> Result<bool> {
    let peer = Region::<u32>::new(context, args.number(2), 1, Access::Read)?;
    Ok(peer.get(0).wrapping_sub(value(args)) < 1 << 31)
}

fn value(args: &Args<'_>) -> u32 {
    u32::try_from(args.number(3)).unwrap_or(0)
}
