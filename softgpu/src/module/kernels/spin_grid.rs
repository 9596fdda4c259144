//! `spin_grid(uint64 ns)`.

use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::Accessed;

/// Takes time for each block of its grid and accesses no memory.
pub(super) static SPIN_GRID: Builtin = Builtin {
    name: "spin_grid",
    params: &[8],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Time(args.number(0).saturating_mul(args.blocks))
}

fn accesses(_: &Args<'_>) -> Vec<Accessed> {
    Vec::new()
}

fn run(_: &Args<'_>, _: &Context) -> Result {
    Ok(())
}
