//! `vadd(const float *a, const float *b, float *out, uint64 n)`.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::{Accessed, Manner};
use crate::va::Access;

/// Adds two vectors.
pub(super) static VADD: Builtin = Builtin {
    name: "vadd",
    params: &[8, 8, 8, 8],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Bytes(args.number(3).saturating_mul(12))
}

fn accesses(args: &Args<'_>) -> Vec<Accessed> {
    let bytes = args.number(3).saturating_mul(4);
    vec![
        (args.number(0), bytes, Manner::Read),
        (args.number(1), bytes, Manner::Read),
        (args.number(2), bytes, Manner::Write),
    ]
}

fn run(args: &Args<'_>, context: &Context) -> Result {
    let n = args.number(3);
    let a = DeviceSlice::<u32>::new(context, args.number(0), n, Access::Read)?;
    let b = DeviceSlice::<u32>::new(context, args.number(1), n, Access::Read)?;
    let out = DeviceSlice::<u32>::new(context, args.number(2), n, Access::Write)?;
    for at in 0..out.len() {
        out.set(
            at,
            (f32::from_bits(a.get(at)) + f32::from_bits(b.get(at))).to_bits(),
        );
    }
    Ok(())
}
