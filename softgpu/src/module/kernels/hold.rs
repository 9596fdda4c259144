//! `hold(uint64 ns, uint8 *at, uint64 n)`.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::{Accessed, Manner};
use crate::va::Access;

/// Takes time, and needs its memory for all of it. It changes no byte.
pub(super) static HOLD: Builtin = Builtin {
    name: "hold",
    params: &[8, 8, 8],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0))
}

fn accesses(args: &Args<'_>) -> Vec<Accessed> {
    vec![(args.number(1), args.number(2), Manner::Write)]
}

fn run(args: &Args<'_>, context: &Context) -> Result {
    DeviceSlice::<u8>::new(context, args.number(1), args.number(2), Access::Write).map(drop)
}
