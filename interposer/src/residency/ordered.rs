//! Frees in a stream's order of allocations that move and belong to no pool. The stream's free is
//! followed as those of plain memory ([`frees`]): nothing is waited for. The memory stays in the
//! books, and charged, until the stream has come to it. Then it is given back where the host waits,
//! before an allocation is refused, and by the mover's thread; not while the process is sealed: an
//! allocation that needs its room waits for the return then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::behind::Behind;
use super::blocks::Block;
use super::memory::{blocks, now_free};
use super::{later, managed};
use crate::account::Units;
use crate::driver::contexts::{self, Here};
use crate::driver::current::CurrentContext;
use crate::driver::device::DeviceKey;
use crate::driver::marking::{self, Kept};
use crate::driver::stream_ref::StreamRef;
use crate::gate::seal;
use crate::guest::fork::ForkLocal;
use crate::holdings::frees::{self, Freed, Parted};
use crate::holdings::returning;

#[derive(Debug, Default)]
struct Ordered {
    /// Frees that are not carried out to the end.
    count: AtomicUsize,
    /// Those that their streams have come to.
    due: Mutex<Vec<(DeviceKey, Parted)>>,
}

static ORDERED: ForkLocal<Ordered> = ForkLocal::new();

/// Frees memory once a stream comes to it.
pub(super) fn free(stream: StreamRef, here: Here, device: DeviceKey, parted: Parted) {
    let ordered = ORDERED.get_or(Ordered::default);
    ordered.count.fetch_add(1, Ordering::AcqRel);
    returning::begins(device, parted.units.bytes());
    frees::freed_in(stream, Some(here), device, Freed::Parted(parted));
}

/// Streams have come to these frees.
pub(super) fn over(device: DeviceKey, list: &[Parted]) {
    let due = &ORDERED.get_or(Ordered::default).due;
    let mut due = due.lock().unwrap_or_else(PoisonError::into_inner);
    due.extend(list.iter().map(|parted| (device, *parted)));
}

/// Gives back what is due. Not while the process is sealed: the next wait of the host does it.
pub(super) fn give_back() {
    let Some(ordered) = ORDERED.get().filter(|ordered| ordered.has_any()) else {
        return;
    };
    if seal::is_set() {
        frees::freed();
        return;
    }
    let _ = seal::pass(|| {
        ordered.carry_out();
        CUresult::SUCCESS
    });
}

/// Waits while the process is sealed, and gives back what is due. `false`: the memory will not come
/// back.
pub(super) fn give_back_returned() -> bool {
    let answer = seal::pass(|| {
        if let Some(ordered) = ORDERED.get() {
            ordered.carry_out();
        }
        CUresult::SUCCESS
    });
    answer.is_success()
}

/// Looks which frees are over, and gives back what is due. For the mover's thread, while nothing is
/// sealed.
pub(super) fn look() {
    if let Some(ordered) = ORDERED.get().filter(|ordered| ordered.has_any()) {
        frees::settle();
        ordered.carry_out();
    }
}

/// The block is no allocation any more. Returns the number of its free.
pub(super) fn freed(base: u64) -> u64 {
    let blocks = &mut *blocks();
    let number = blocks.smalls.next_serial();
    if let Some(block) = blocks.map.get_mut(&base) {
        block.freed = Some(number);
    }
    number
}

/// Frees the block of a free whose work is over. If it ended with its context, another may be
/// there. Inside a passage of the seal. `None`: it is gone.
fn free_parted(base: u64, number: u64) -> Option<CUresult> {
    let of_it = |block: &Block| block.freed == Some(number);
    let is_it = blocks().map.get(&base).is_some_and(of_it);
    is_it.then(|| now_free(base))
}

/// Has the mover's thread free a block once this work is over. Its charge counts as
/// [`returning`].
pub(super) fn free_when_over(
    work: Behind,
    device: DeviceKey,
    base: u64,
    number: u64,
    charge: Units,
) {
    later::put(work, move || match free_beside(base, number) {
        // Its context may be ending, or only released.
        Kept::Going => free_when_over(Behind::now(device), device, base, number, charge),
        // Memory that the driver does not take back stays charged.
        Kept::Done(Some(answer)) if !answer.is_success() => {
            returning::ends(device, charge.bytes());
        }
        Kept::Done(_) | Kept::Gone => returning::back(device, charge),
    });
}

/// As [`free_parted`], in the mover's thread: the driver frees managed memory in a context alone.
fn free_beside(base: u64, number: u64) -> Kept<Option<CUresult>> {
    let handle = blocks().map.get(&base).map(|block| block.handle);
    let context = handle.filter(|_| managed::is_on());
    let Some(life) = context.and_then(contexts::life_of) else {
        return Kept::Done(free_parted(base, number));
    };
    marking::keeping_life(life, || {
        let _current = CurrentContext::make(life.handle());
        free_parted(base, number)
    })
}

impl Ordered {
    fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Inside a passage of the seal, or by the mover's thread.
    fn carry_out(&self) {
        let taken = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut *due)
        };
        for (device, parted) in taken {
            let Parted { at, number, units } = parted;
            match free_parted(at, number) {
                // Memory that the driver does not take back stays charged.
                Some(answer) if !answer.is_success() => {
                    returning::ends(device, units.bytes());
                }
                Some(_) => returning::back(device, units),
                None => {
                    // A slab too many stays until it is empty for long.
                    let _ = blocks().smalls.give(at, |_, serial| serial == number);
                    returning::back(device, units);
                }
            }
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
