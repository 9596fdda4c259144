//! `fill(uint32 *dst, uint64 n, uint32 value)`.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::{Accessed, Manner};
use crate::va::Access;

/// Writes one value to all elements.
pub(super) static FILL: Builtin = Builtin {
    name: "fill",
    params: &[8, 8, 4],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Bytes(args.number(1).saturating_mul(4))
}

fn accesses(args: &Args<'_>) -> Vec<Accessed> {
    let bytes = args.number(1).saturating_mul(4);
    vec![(args.number(0), bytes, Manner::Write)]
}

fn run(args: &Args<'_>, context: &Context) -> Result {
    let dst = DeviceSlice::<u32>::new(context, args.number(0), args.number(1), Access::Write)?;
    let value = u32::try_from(args.number(2)).unwrap_or(0);
    (0..dst.len()).for_each(|at| dst.set(at, value));
    Ok(())
}
