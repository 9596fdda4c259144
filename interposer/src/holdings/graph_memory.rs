//! The memory that the driver keeps for the graphs of this process, by device.

use std::time::Duration;

use gpushare_cuda_abi::cuda::CUgraphMem_attribute;
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::{self, DeviceKey};
use crate::guest::fork::ForkLocal;
use crate::guest::timed_lock::{TimedLock, TimedLockGuard};
use crate::holdings::arena::{Arena, Held, Promise};
use crate::holdings::launches::{Given, Launch, Launches, Lessening};

/// The known graph memory of each device.
static KNOWN: ForkLocal<[Known; MAX_DEVICES]> = ForkLocal::new();
/// The longest wait of a launch that relies on room for another that does. That one may be waiting
/// for the device; this one would, too. While the process is sealed that one may sleep in its call:
/// this one waits at the seal too, and then so long again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it waits at a seal. The turn may have been left by a jump.
const ROUNDS: usize = 3;

#[derive(Debug, Default)]
struct Known {
    /// The charged memory.
    held: Held,
    /// The turns to rely on room.
    turns: TimedLock,
    /// The calls that take or give back memory.
    launches: Launches,
}

/// The memory of all graphs of this process on one device.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    device: DeviceKey,
    known: &'static Known,
}

impl GraphMemory {
    /// That of one device.
    pub(crate) fn of(device: DeviceKey) -> Self {
        let all = KNOWN.get_or(|| std::array::from_fn(|_| Known::default()));
        Self {
            device,
            known: &all[device.index()],
        }
    }

    fn attribute(&self, attribute: CUgraphMem_attribute) -> Option<u64> {
        let ordinal = device::ordinal_of(self.device)?;
        unnoticed(|| calls::graph_memory(ordinal, attribute)).ok()
    }
}

impl Arena for GraphMemory {
    fn device(&self) -> DeviceKey {
        self.device
    }

    fn held(&self) -> &Held {
        &self.known.held
    }

    fn reserved(&self) -> Option<u64> {
        self.attribute(CUgraphMem_attribute::RESERVED_MEM_CURRENT)
    }

    fn used(&self) -> Option<u64> {
        self.attribute(CUgraphMem_attribute::USED_MEM_CURRENT)
    }

    fn trim(&self) {
        let _lessens = self.lessens();
        if let Some(ordinal) = device::ordinal_of(self.device) {
            let _ = unnoticed(|| calls::trim_graph_memory(ordinal));
        }
    }
}

/// Shows the graph memory of every device that has had any to `visit`.
pub(crate) fn each(visit: &dyn Fn(&dyn Arena)) {
    if KNOWN.get().is_none() {
        return;
    }
    for memory in (0..MAX_DEVICES)
        .filter_map(DeviceKey::of_index)
        .map(GraphMemory::of)
    {
        if !memory.known.held.is_empty() {
            visit(&memory);
        }
    }
}

impl GraphMemory {
    /// Notes that a call begins that may take memory.
    pub(crate) fn begin(&self) -> Launch<'static> {
        self.known.launches.begin()
    }

    /// Notes that a call begins after which the driver may have given memory back.
    pub(crate) fn lessens(&self) -> Lessening<'static> {
        self.known.launches.lessens()
    }

    /// Room for `bytes`, if there is any: memory that no graph uses, or what the same graph's last
    /// launch was given. Other launches take no more of it than they have booked. `waits`: a wait
    /// at the seal, and whether one was set. It is made where another call keeps the turn.
    pub(crate) fn room(
        &self,
        bytes: u64,
        last: Option<&Given>,
        waits: impl Fn() -> bool,
    ) -> Option<(TimedLockGuard<'static>, Promise<'static>)> {
        self.room_under(taken(&self.known.turns, PATIENCE, waits)?, bytes, last)
    }

    /// The same where no other call keeps the turn.
    pub(crate) fn room_at_once(
        &self,
        bytes: u64,
        last: Option<&Given>,
    ) -> Option<(TimedLockGuard<'static>, Promise<'static>)> {
        self.room_under(self.known.turns.take(Duration::ZERO)?, bytes, last)
    }

    fn room_under(
        &self,
        turn: TimedLockGuard<'static>,
        bytes: u64,
        last: Option<&Given>,
    ) -> Option<(TimedLockGuard<'static>, Promise<'static>)> {
        let promise = Promise::of(&self.known.held, bytes);
        let reserved = self.reserved()?;
        let own = last.is_some_and(|given| self.known.launches.has(given, reserved));
        let unused = reserved.checked_sub(self.used()?)?;
        (own || unused >= bytes).then_some((turn, promise))
    }
}

/// A turn, waited for `patience`, and so long again each time that `waits` was a wait at the seal.
fn taken(
    turns: &TimedLock,
    patience: Duration,
    waits: impl Fn() -> bool,
) -> Option<TimedLockGuard<'_>> {
    for _ in 0..ROUNDS {
        let turn = turns.take(patience);
        if turn.is_some() || !waits() {
            return turn;
        }
    }
    turns.take(patience)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn a_turn_is_waited_for_while_calls_sleep_at_the_seal() {
        let turns = TimedLock::new();
        let other = Cell::new(turns.take(NONE));
        let returns = Cell::new(ROUNDS);
        let turn = taken(&turns, NONE, || {
            returns.set(returns.get() - 1);
            if returns.get() == 0 {
                // It came back, and the other call is over.
                drop(other.take());
            }
            true
        });
        assert!(turn.is_some());
        assert_eq!(returns.get(), 0);
    }

    #[test]
    fn a_turn_that_is_left_is_not_waited_for_without_bound() {
        let turns = TimedLock::new();
        let _left = turns.take(NONE);
        let waits = Cell::new(0);
        let turn = taken(&turns, NONE, || {
            waits.set(waits.get() + 1);
            assert!(waits.get() < 100, "it waits for ever");
            true
        });
        assert!(turn.is_none());
    }

    #[test]
    fn a_turn_is_waited_for_no_longer_once_no_call_sleeps() {
        let turns = TimedLock::new();
        let other = turns.take(NONE);
        let looks = Cell::new(2);
        let waits = || {
            looks.set(looks.get() - 1);
            looks.get() > 0
        };
        assert!(taken(&turns, NONE, waits).is_none());
        assert_eq!(looks.get(), 0);
        drop(other);
        assert!(taken(&turns, NONE, || false).is_some());
    }
}
