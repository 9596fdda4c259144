//! `spin(uint64 ns)`.

use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;

/// Takes time and accesses no memory.
pub(super) static SPIN: Builtin = Builtin {
    name: "spin",
    params: &[8],
    weight,
    run,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0))
}

fn run(_: &Args<'_>, _: &Context) -> Result {
    Ok(())
}
