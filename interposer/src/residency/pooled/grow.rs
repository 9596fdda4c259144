//! A pool grows by segments, within its own limit, also where threads make it grow at once.

use core::cell::Cell;

use gpushare_cuda_abi::cuda::CUresult;

use super::super::memory::{Owner, blocks, granularity_of, make_for};
use super::{Pool, PoolId};
use crate::account::{self, Units};
use crate::driver::device::DeviceKey;
use crate::driver::tracker::StreamId;
use crate::gate::seal;
use crate::holdings::pools::growth_of;

impl Pool {
    /// Whether it may reserve so much more, beside what threads are making for it.
    fn may_grow(&self, bytes: u64) -> bool {
        let now = self.books.reserved.now.saturating_add(self.growing);
        let then = now.checked_add(bytes);
        self.most == 0 || then.is_some_and(|then| then <= growth_of(self.most))
    }
}

/// A segment is charged with so much.
pub(super) fn charged(grown: Grown, device: DeviceKey, charge: Units) {
    let holds = blocks().pooled.charged(grown, charge);
    if !holds {
        // Nothing was in it, and it was given back meanwhile.
        account::release(device, charge);
    }
}

/// The bytes by which a pool grows for an allocation of `size`; `None` if it may not. A capture
/// that began since [`can_serve`](super::can_serve) changes nothing: a segment is made outside of
/// it.
pub(super) fn growth(pool: PoolId, size: u64) -> Option<(DeviceKey, u64)> {
    let device = blocks().pooled.pools.get(&pool)?.device;
    let growth = growth_of(size).checked_next_multiple_of(granularity_of(device)?)?;
    let may_grow = blocks().pooled.pools.get(&pool)?.may_grow(growth);
    may_grow.then_some((device, growth))
}

/// A segment that was made, and an allocation in it or elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grown {
    pub(super) base: u64,
    pub(super) serial: u64,
    /// The allocation's address.
    pub(super) at: u64,
}

/// Why a pool did not grow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ungrown {
    /// By its own limit: other threads have made it grow since it was found to have room.
    Full,
    Driver(CUresult),
}

/// Makes a segment and takes an allocation: from it, or from memory that was freed meanwhile. The
/// segment's charge is told by [`charged`].
pub(super) fn grow(
    pool: PoolId,
    growth: u64,
    stream: StreamId,
    bytes: u64,
    size: u64,
) -> Result<Grown, Ungrown> {
    let (made, is_full) = (Cell::new(Grown::default()), Cell::new(false));
    let answer = seal::pass(|| {
        let owner = match blocks().pooled.pools.get_mut(&pool) {
            None => return CUresult::INVALID_VALUE,
            Some(known) if !known.may_grow(growth) => {
                is_full.set(true);
                return CUresult::OUT_OF_MEMORY;
            }
            Some(known) => {
                known.growing += growth;
                Owner::pool(pool, known.device, known.ordinal)
            }
        };
        match make_for(&owner, growth, growth) {
            Ok(base) => {
                let mut blocks = blocks();
                blocks.pooled.grows_no_more(pool, growth);
                let serial = blocks.pooled.grow(pool, base, growth);
                match blocks.take_pooled(pool, stream, bytes, size) {
                    Some(at) => {
                        made.set(Grown { base, serial, at });
                        CUresult::SUCCESS
                    }
                    None => CUresult::UNKNOWN,
                }
            }
            Err(why) => {
                blocks().pooled.grows_no_more(pool, growth);
                why
            }
        }
    });
    match answer.ok() {
        Ok(()) => Ok(made.get()),
        Err(_) if is_full.get() => Err(Ungrown::Full),
        Err(why) => Err(Ungrown::Driver(why)),
    }
}
