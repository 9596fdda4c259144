//! An allocation from a pool of the driver's whose growth is tracked, and its free.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::*;

use crate::account::{self, Charge, Deadline, Refused};
use crate::driver::stream_ref::StreamRef;
use crate::driver::tracker::StreamId;
use crate::entry::args::Out;
use crate::holdings::arena::{self, Arena as _, Turn};
use crate::holdings::frees::{self, Freed};
use crate::holdings::objects::Map;
use crate::holdings::pools::{Pool, growth_of};
use crate::holdings::reclaim::{self, Found};
use crate::hooks::early::{self, Call};

/// Every allocation made from a pool, by address.
pub(super) static ALLOCATIONS: Map<Allocation> = Map::new();

/// An allocation and its size in bytes.
#[derive(Debug)]
pub(super) struct Allocation {
    pool: Arc<Pool>,
    bytes: u64,
}

/// An allocation from a pool whose growth is tracked.
pub(super) struct Request<'a, F: Fn() -> CUresult> {
    pub(super) pool: &'a Arc<Pool>,
    pub(super) dptr: Out<'a, CUdeviceptr>,
    pub(super) bytes: u64,
    pub(super) stream: StreamRef,
    pub(super) call: &'a F,
    pub(super) refusal: &'a dyn Fn() -> CUresult,
}

impl<F: Fn() -> CUresult> Request<'_, F> {
    /// Books the growth that the allocation may cause. Where that does not fit, room of the pool is
    /// used if it is certain.
    pub(super) fn serve(&self) -> CUresult {
        let (device, growth) = (self.pool.device(), growth_of(self.bytes));
        early::begins(device, growth, self.by());
        let call = Deadline::new();
        match account::charge_unasked(device, growth, &call) {
            Ok(charge) => self.booked(charge, &call),
            Err(Refused) => self.serve_slowly(&call),
        }
    }

    /// The program's call.
    fn by(&self) -> Call {
        Call::Pool(self.bytes)
    }

    /// As [`Self::serve`] where the growth did not fit at first. A daemon is asked for more, if
    /// there is one, and then this process's unused memory is given back: that of the pool goes to
    /// the driver, and returns as growth.
    #[cold]
    fn serve_slowly(&self, call: &Deadline) -> CUresult {
        let (device, growth) = (self.pool.device(), growth_of(self.bytes));
        if let Some(answer) = self.in_own_room() {
            return answer;
        }
        if let Ok(charge) = account::charge(device, growth, call) {
            return self.booked(charge, call);
        }
        if self.stream.fault().is_some() || self.pool.is_unknown() {
            match (self.refusal)() {
                CUresult::OUT_OF_MEMORY => {}
                wrong => return wrong,
            }
        }
        if let Some(refused) = self.pool.refused_by_capture() {
            return refused;
        }
        let by = Some(self.by());
        match reclaim::reserve_or(device, growth, by, call, &mut || self.in_own_room()) {
            Ok(Found::Booked(charge)) => self.booked(charge, call),
            Ok(Found::Otherwise(answer)) => answer,
            Err(Refused) => Refused.into(),
        }
    }

    /// Allocates in room that the pool certainly has, with nothing booked. `None`: there is none,
    /// and nothing is allocated.
    fn in_own_room(&self) -> Option<CUresult> {
        let (pool, device) = (&**self.pool, self.pool.device());
        let quota = account::quota_status(device)?;
        let limit = quota.limit.unwrap_or(quota.capacity);
        if self.stream.fault().is_some() {
            return None;
        }
        let kept = pool.keeps(limit)?;
        let turn = Turn::take(pool.held(), growth_of(self.bytes))?;
        // Calls that were under way may have grown the pool.
        if !pool.has_kept(kept, limit) || !self.finds_room(&turn) {
            return None;
        }
        let nothing = account::charge_nothing(device).ok()?;
        let answer = (self.call)();
        if !answer.is_success() {
            arena::after_refusal(pool, nothing);
            return (answer != CUresult::OUT_OF_MEMORY).then_some(answer);
        }
        let followed = self.follow(nothing);
        drop(turn);
        if followed.is_ok() {
            return Some(answer);
        }
        // It is above the limit: as in `booked`, but the slow way is left.
        pool.has_misled();
        (!self.take_back()).then_some(answer)
    }

    /// Whether a free has left room for the allocation that its stream can use.
    fn finds_room(&self, turn: &Turn<'_>) -> bool {
        let (device, stream) = (self.pool.device(), self.stream.id(self.stream.place()));
        let can_use = |freed_in: &Option<StreamId>| match *freed_in {
            None => true,
            Some(StreamId::Number(_)) if *freed_in == Some(stream) => true,
            Some(other) => !frees::pending_in(device, other),
        };
        let freed_in = turn.room(self.bytes);
        let can_be_used = || freed_in.iter().any(can_use);
        let is_over_by_now = || {
            frees::observe();
            can_be_used()
        };
        !freed_in.is_empty() && (can_be_used() || is_over_by_now())
    }

    /// Allocates with the growth booked, and follows the pool.
    fn booked(&self, charge: Charge, call: &Deadline) -> CUresult {
        self.pool.held().enter(&charge);
        // A driver that is out of memory lacks the growth, which is charged: not the allocation.
        let (device, growth) = (self.pool.device(), growth_of(self.bytes));
        let answer = reclaim::insist(device, growth, self.by(), call, self.call);
        if !answer.is_success() {
            arena::after_refusal(&**self.pool, charge);
            return answer;
        }
        match self.follow(charge) {
            Err(refused) => {
                account::count_refusal(device, growth);
                let _ = self.take_back();
                refused.into()
            }
            Ok(_) => answer,
        }
    }

    /// The driver's allocation. A request has a result pointer.
    fn address(&self) -> u64 {
        self.dptr.read_back().unwrap_or(0)
    }

    /// Records what the driver has given, and follows the pool.
    fn follow(&self, charge: Charge) -> Result<u64, Refused> {
        let (pool, address) = (&**self.pool, self.address());
        pool.one_more();
        let allocation = Allocation {
            pool: Arc::clone(self.pool),
            bytes: self.bytes,
        };
        ALLOCATIONS.insert(address, allocation);
        arena::after_giving(pool, charge, Some((address, self.bytes)))
    }

    /// Undoes an allocation that the program has not seen. Whether the driver lets it.
    fn take_back(&self) -> bool {
        let address = self.address();
        let Some(allocation) = ALLOCATIONS.take(address) else {
            return false;
        };
        let free = || self.stream.free(address);
        let freed = free_pooled(address, allocation, Some(self.stream), free).is_success();
        if freed {
            self.pool.trim();
            arena::follow(&**self.pool);
            self.dptr.write(0);
        }
        freed
    }
}

/// Frees an allocation by `call`, in a stream's order or at once.
pub(super) fn free_pooled(
    dptr: CUdeviceptr,
    allocation: Allocation,
    stream: Option<StreamRef>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let (pool, bytes) = (Arc::clone(&allocation.pool), allocation.bytes);
    pool.leaving();
    let number = pool.held().number();
    let answer = call();
    if !answer.is_success() {
        pool.held().tell(number, None);
        pool.stayed();
        ALLOCATIONS.insert(dptr, allocation);
        return answer;
    }
    early::freed();
    let freed = match stream {
        Some(stream) => {
            let freed = Freed::Pool(allocation.pool, bytes);
            let of = frees::freed_in(stream, stream.place(), pool.device(), freed);
            of.map(|stream| (dptr, bytes, Some(stream)))
        }
        None => {
            pool.over(1);
            Some((dptr, bytes, None))
        }
    };
    pool.held().tell(number, freed);
    pool.one_less();
    answer
}
