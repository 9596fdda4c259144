//! `spin(uint64 ns)`.

use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::Accessed;

/// Takes time and accesses no memory.
pub(super) static SPIN: Builtin = Builtin {
    name: "spin",
    params: &[8],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0))
}

fn accesses(_: &Args<'_>) -> Vec<Accessed> {
    Vec::new()
}

fn run(_: &Args<'_>, _: &Context) -> Result {
    Ok(())
}
