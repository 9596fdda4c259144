//! `saxpy(float a, const float *x, float *y, uint64 n)`: `y = a * x + y`, rounded once like a GPU's
//! fused operation.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::{Accessed, Manner};
use crate::va::Access;

/// Scales a vector and adds it to another.
pub(super) static SAXPY: Builtin = Builtin {
    name: "saxpy",
    params: &[4, 8, 8, 8],
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
        (args.number(1), bytes, Manner::Read),
        (args.number(2), bytes, Manner::Write),
    ]
}

fn run(args: &Args<'_>, context: &Context) -> Result {
    let (a, n) = (args.float(0), args.number(3));
    let x = DeviceSlice::<u32>::new(context, args.number(1), n, Access::Read)?;
    let y = DeviceSlice::<u32>::new(context, args.number(2), n, Access::Write)?;
    for at in 0..y.len() {
        y.set(
            at,
            a.mul_add(f32::from_bits(x.get(at)), f32::from_bits(y.get(at)))
                .to_bits(),
        );
    }
    Ok(())
}
