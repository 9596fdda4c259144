//! A pool grows by segments, within its own limit, also where threads make it grow at once.

use core::cell::Cell;
use std::time::{Duration, Instant};

use gpushare_cuda_abi::cuda::CUresult;

use super::super::memory::{Owner, blocks, granularity_of, make_for};
use super::{Pool, PoolId};
use crate::account::{self, Units};
use crate::driver::device::DeviceKey;
use crate::driver::tracker::StreamId;
use crate::gate::seal;
use crate::guest::{exit, frames};
use crate::holdings::pools::growth_of;

/// How often it is looked whether another thread has made a pool grow.
const LOOK: Duration = Duration::from_micros(200);
/// Longest wait of a call for that. A segment is made in milliseconds; a thread that jumped out of
/// the driver's call never makes it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a pool may reserve more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// Not beside what threads are making for it, which may be more than they need.
    Coming,
    Full,
}

impl Pool {
    pub(super) fn room(&self, bytes: u64) -> Room {
        let fits = |more: u64| {
            let then = self.books.reserved.now.checked_add(more);
            then.is_some_and(|then| then <= growth_of(self.most))
        };
        match self.most {
            0 => Room::Free,
            _ if fits(bytes.saturating_add(self.growing)) => Room::Free,
            // Also where it does not fit by itself: what is made may have room.
            _ if self.growing > 0 => Room::Coming,
            _ => Room::Full,
        }
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

/// The bytes by which a pool grows for an allocation of `size`, and whether it may; `None`: it is
/// gone. A capture that began since [`can_serve`](super::can_serve) changes nothing: a segment is
/// made outside of it.
pub(super) fn growth(pool: PoolId, size: u64) -> Option<(DeviceKey, u64, Room)> {
    let device = blocks().pooled.pools.get(&pool)?.device;
    let growth = growth_of(size).checked_next_multiple_of(granularity_of(device)?)?;
    let room = blocks().pooled.pools.get(&pool)?.room(growth);
    Some((device, growth, room))
}

/// A call's wait for other threads that make a pool grow.
#[derive(Debug, Default)]
pub(super) struct Wait {
    end: Option<Instant>,
}

impl Wait {
    /// Gives them time. `false` once that was long enough, or the process leaves.
    pub(super) fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        if now >= *self.end.get_or_insert(now + PATIENCE) || exit::is_leaving() {
            return false;
        }
        frames::sleep(LOOK);
        true
    }
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
    /// By its own limit: other threads have made it grow since it was found to have room, or do.
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
            Some(known) if known.room(growth) != Room::Free => {
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
