//! The built-in kernels, found by exact name. `tests/kernels` has the same ones for real GPUs.
//!
//! | name | parameters |
//! |---|---|
//! | `spin` | `uint64 ns`: occupies its context's turn for that long |
//! | `spin_grid` | `uint64 ns`: the same for `ns` and each block of the grid: one function whose length follows the launch |
//! | `meet` | `uint64 ns, uint32 *own, const uint32 *peer, uint32 value`: occupies its context's turn for `ns`, writes `value` to `own`, and then until `peer` has reached it |
//! | `fill` | `uint32 *dst, uint64 n, uint32 value` |
//! | `vadd` | `const float *a, const float *b, float *out, uint64 n` |
//! | `saxpy` | `float a, const float *x, float *y, uint64 n` |
//! | `checksum` | `const uint8 *src, uint64 n, uint64 *out`: FNV-1a, 64 bit |
//!
//! All but `spin_grid` do their whole work whatever the grid, as a grid-stride loop does, on real
//! bytes: every range is checked first, and a wrong address loses the context with 700, a
//! misaligned one with 716.

pub(crate) mod access;
mod checksum;
mod fill;
mod meet;
mod saxpy;
mod spin;
mod spin_grid;
mod vadd;

use std::sync::Arc;

use super::params::{Params, layout};
use crate::context::Context;
use crate::error::Result;
use crate::exec::nanoseconds;

/// What starting any kernel takes (ns); all that a kernel of unknown name takes.
pub const LAUNCH_NS: u64 = 5_000;

/// A kernel whose effect is known.
#[derive(Debug)]
pub struct Builtin {
    /// Its exact name.
    pub name: &'static str,
    /// The size of each parameter in bytes; a parameter is aligned to its size.
    pub params: &'static [usize],
    /// How many bytes of memory it moves, or the time it was told to take.
    weight: fn(&Args<'_>) -> Weight,
    run: fn(&Args<'_>, &Context) -> Result,
    /// For a kernel that spins when it has had its time: does what comes before, and says whether
    /// what it waits for has come.
    spins: Option<fn(&Args<'_>, &Context) -> bool>,
}

/// What decides how long a kernel takes.
enum Weight {
    /// Bytes through device memory.
    Bytes(u64),
    /// Time, exactly (ns).
    Time(u64),
}

/// The parameters of one launch.
struct Args<'a> {
    builtin: &'static Builtin,
    params: &'a Params,
    /// Blocks of the grid.
    blocks: u64,
}

impl Args<'_> {
    /// The parameter at `index` as an unsigned number.
    fn number(&self, index: usize) -> u64 {
        self.params.number(self.builtin, index)
    }

    /// The parameter at `index`, four bytes, as a float.
    fn float(&self, index: usize) -> f32 {
        f32::from_bits(u32::try_from(self.number(index)).unwrap_or(0))
    }
}

static ALL: &[&Builtin] = &[
    &spin::SPIN,
    &spin_grid::SPIN_GRID,
    &meet::MEET,
    &fill::FILL,
    &vadd::VADD,
    &saxpy::SAXPY,
    &checksum::CHECKSUM,
];

/// The built-in kernel of this name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().copied().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Where the parameter at `index` lies and how long it is (bytes).
    pub fn param(&self, index: usize) -> Option<(usize, usize)> {
        let (offsets, _) = layout(self.params);
        Some((*offsets.get(index)?, *self.params.get(index)?))
    }

    /// How long a launch of `blocks` blocks with these parameters takes on memory that moves `bw`
    /// bytes per second (ns).
    pub fn duration(&'static self, params: &Params, blocks: u64, bw: u64) -> u64 {
        match (self.weight)(&Args {
            builtin: self,
            params,
            blocks,
        }) {
            Weight::Bytes(bytes) => LAUNCH_NS.saturating_add(nanoseconds(bytes, bw)),
            Weight::Time(ns) => ns,
        }
    }

    /// Whether it waits for something on the device.
    pub fn spins(&self) -> bool {
        self.spins.is_some()
    }

    /// Whether what it waits for has come.
    pub fn has_come(&'static self, params: &Params, context: &Context) -> bool {
        let args = Args {
            builtin: self,
            params,
            blocks: 1,
        };
        self.spins.is_none_or(|spins| spins(&args, context))
    }

    /// Does the work.
    ///
    /// # Errors
    /// The fault.
    pub fn run(&'static self, params: &Params, context: &Arc<Context>) -> Result {
        (self.run)(
            &Args {
                builtin: self,
                params,
                blocks: 1,
            },
            context,
        )
    }
}
