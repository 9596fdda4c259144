//! The built-in kernels, found by exact name. `tests/kernels` has the same kernels for real GPUs.
//!
//! | name | parameters |
//! |---|---|
//! | `spin` | `uint64 ns`: occupies the engine for `ns` |
//! | `spin_grid` | `uint64 ns`: occupies the engine for `ns` for each block of the grid, so the launches of one function differ in length |
//! | `meet` | `uint64 ns, uint32 *own, const uint32 *peer, uint32 value`: occupies the engine for `ns`, writes `value` to `own`, and continues until `peer` has reached `value` |
//! | `hold` | `uint64 ns, uint8 *at, uint64 n`: occupies the engine for `ns`, and needs the `n` bytes for all of that time |
//! | `fill` | `uint32 *dst, uint64 n, uint32 value` |
//! | `vadd` | `const float *a, const float *b, float *out, uint64 n` |
//! | `saxpy` | `float a, const float *x, float *y, uint64 n` |
//! | `checksum` | `const uint8 *src, uint64 n, uint64 *out`: FNV-1a, 64 bit |
//!
//! All kernels but `spin_grid` do their whole work whatever the grid, like a grid-stride loop, and
//! on real bytes. Every range is checked first: an illegal address loses the context with error
//! 700, a misaligned one with 716.

pub(crate) mod access;
mod checksum;
mod fill;
mod hold;
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
use crate::memory::managed::Accessed;

/// Time to start any kernel (ns). A kernel with an unknown name takes only this time.
pub const LAUNCH_NS: u64 = 5_000;

/// A kernel with a known effect.
#[derive(Debug)]
pub struct Builtin {
    /// Its exact name.
    pub name: &'static str,
    /// The size of each parameter in bytes; a parameter is aligned to its size.
    pub params: &'static [usize],
    /// The bytes it moves, or the time that its parameters set.
    weight: fn(&Args<'_>) -> Weight,
    run: fn(&Args<'_>, &Context) -> Result,
    /// The ranges that it reads and writes: address, bytes, access.
    accesses: fn(&Args<'_>) -> Vec<Accessed>,
    /// For a kernel that spins after its time: does its work, and returns whether the value it
    /// waits for has arrived.
    spins: Option<fn(&Args<'_>, &Context) -> bool>,
}

/// The basis of a kernel's duration.
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
    &hold::HOLD,
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
    /// The offset and the size of the parameter at `index` (bytes).
    pub fn param(&self, index: usize) -> Option<(usize, usize)> {
        let (offsets, _) = layout(self.params);
        Some((*offsets.get(index)?, *self.params.get(index)?))
    }

    /// The duration of a launch of `blocks` blocks with these parameters on memory with bandwidth
    /// `bw` bytes per second (ns).
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

    /// The ranges that a launch with these parameters accesses.
    pub(crate) fn accesses(&'static self, params: &Params) -> Vec<Accessed> {
        (self.accesses)(&Args {
            builtin: self,
            params,
            blocks: 1,
        })
    }

    /// Whether its time is what its parameters say. A kernel of a PTX text with its name measures
    /// the device's timer to the same end.
    pub(super) fn is_timed(&self) -> bool {
        ["spin", "spin_grid", "meet", "hold"].contains(&self.name)
    }

    /// Whether it waits on the device for a value.
    pub fn spins(&self) -> bool {
        self.spins.is_some()
    }

    /// Whether the value it waits for has arrived.
    pub fn has_come(&'static self, params: &Params, context: &Context) -> bool {
        let args = Args {
            builtin: self,
            params,
            blocks: 1,
        };
        self.spins.is_none_or(|spins| spins(&args, context))
    }

    /// Does the kernel's work.
    ///
    /// # Errors
    /// The fault of an illegal or misaligned address.
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
