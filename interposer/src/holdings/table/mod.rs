//! The pointer table: what each device address that the driver handed out was charged with.
//!
//! [`radix`] finds a record by its exact address without a lock. Addresses that it does not cover
//! (not a multiple of 512, above 57 bits) are kept in an ordered map, and so are the bounds of
//! allocations of 2 MiB and more, so that an address in their middle is found too. An address that
//! is not here was not charged, and goes to the driver as it came.
//!
//! A free takes the record out *before* the driver is called and puts it back if the driver
//! refuses: once the driver has freed an address, another thread may be given it and enter it here.

mod radix;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::account;
use crate::driver::contexts::{self, ContextId};
use crate::guest::fork::ForkLocal;

use radix::Radix;
pub(crate) use record::{Kind, Record};

/// Allocations of this size and more are found by ranges; smaller ones by walking back to their
/// start.
const LARGE: u64 = radix::SPAN;

#[derive(Debug)]
struct Table {
    exact: Radix,
    /// Records the radix has no place for.
    odd: Mutex<BTreeMap<u64, Record>>,
    /// Start and end of large allocations.
    large: Mutex<BTreeMap<u64, u64>>,
}

static TABLE: ForkLocal<Table> = ForkLocal::new();

#[inline]
fn table() -> &'static Table {
    TABLE.get_or(Table::new)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are whole between any two of their calls, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inserts the charge of the allocation at `address`.
///
/// A record that is already there belongs to an allocation the driver has freed without our hearing
/// of it: it is credited.
#[inline]
pub(crate) fn insert(address: u64, record: Record) {
    if let Some(stale) = table().insert(address, record) {
        account::release(stale.device(), stale.units());
    }
}

/// Takes out the record of the allocation at exactly `address`.
#[inline]
pub(crate) fn take(address: u64) -> Option<Record> {
    table().take(address)
}

/// The same if it is of this kind. A free that is known only after the driver's answer may find the
/// record of the address's next allocation, which stays.
pub(crate) fn take_of(address: u64, kind: Kind) -> Option<Record> {
    table().take_of(address, kind)
}

/// Puts back what [`take`] took, because the driver refused the free. Where another thread has
/// ended the allocation's context meanwhile, the record is credited instead: nobody would look for
/// it any more. So is that of an address which has another one by now, which stays.
#[cold]
pub(crate) fn put_back(address: u64, record: Record) {
    let is_alive = || contexts::is_alive(record.context());
    if let Some(over) = table().put_back(address, record, is_alive) {
        account::release(over.device(), over.units());
    }
}

/// The allocation that `address` lies in: its start and record.
pub(crate) fn find(address: u64) -> Option<(u64, Record)> {
    table().find(address)
}

/// Changes the record at exactly `address`; `false` if there is none.
pub(crate) fn update(address: u64, change: impl Fn(Record) -> Record) -> bool {
    table().update(address, change)
}

/// Takes out and credits everything allocated in a context that is gone.
pub(crate) fn drain_context(context: ContextId) {
    table().drain(context, |record| {
        account::release(record.device(), record.units())
    });
}

/// Shows every record to `visit`, as far as none changes meanwhile.
pub(crate) fn each(visit: &mut dyn FnMut(Record)) {
    table().exact.each(&mut |_, cell| {
        if let Some(record) = cell.get() {
            visit(record);
        }
    });
    locked(&table().odd).values().copied().for_each(visit);
}

impl Table {
    const fn new() -> Self {
        Self {
            exact: Radix::new(),
            odd: Mutex::new(BTreeMap::new()),
            large: Mutex::new(BTreeMap::new()),
        }
    }

    #[inline]
    fn insert(&self, address: u64, record: Record) -> Option<Record> {
        if record.bytes() >= LARGE {
            return self.insert_large(address, record);
        }
        match self.exact.cell(address, true) {
            Some(cell) => cell.put(record),
            None => self.insert_odd(address, record),
        }
    }

    #[inline]
    fn take(&self, address: u64) -> Option<Record> {
        let exact = self.exact.cell(address, false);
        let record = match exact.and_then(|cell| cell.swap(None)) {
            Some(record) => record,
            None => self.take_odd(address)?,
        };
        if record.bytes() >= LARGE {
            self.leave_large(address);
        }
        Some(record)
    }

    fn take_of(&self, address: u64, kind: Kind) -> Option<Record> {
        self.take_if(address, |record| record.kind() == kind)
    }

    fn take_if(&self, address: u64, wanted: impl Fn(Record) -> bool) -> Option<Record> {
        let exact = self.exact.cell(address, false);
        let record = match exact.and_then(|cell| cell.take_if(&wanted)) {
            Some(record) => record,
            None => self.take_odd_of(address, wanted)?,
        };
        if record.bytes() >= LARGE {
            self.leave_large_late(address);
        }
        Some(record)
    }

    #[cold]
    fn take_odd_of(&self, address: u64, wanted: impl Fn(Record) -> bool) -> Option<Record> {
        let mut odd = locked(&self.odd);
        let record = *odd.get(&address)?;
        wanted(record).then(|| odd.remove(&address))?
    }

    #[cold]
    fn insert_odd(&self, address: u64, record: Record) -> Option<Record> {
        locked(&self.odd).insert(address, record)
    }

    #[cold]
    fn take_odd(&self, address: u64) -> Option<Record> {
        locked(&self.odd).remove(&address)
    }

    /// The record and its bounds, in one step for those who look at both.
    #[inline(never)]
    fn insert_large(&self, address: u64, record: Record) -> Option<Record> {
        let mut large = locked(&self.large);
        large.insert(address, address.saturating_add(record.bytes()));
        match self.exact.cell(address, true) {
            Some(cell) => cell.put(record),
            None => self.insert_odd(address, record),
        }
    }

    #[inline(never)]
    fn leave_large(&self, address: u64) {
        locked(&self.large).remove(&address);
    }

    /// The same for an allocation that the driver may have freed before its record was taken: the
    /// bounds may be those of the address's next one by now, which stay.
    fn leave_large_late(&self, address: u64) {
        let mut large = locked(&self.large);
        let next = self.get(address);
        if next.is_none_or(|next| next.bytes() < LARGE) {
            large.remove(&address);
        }
    }

    /// Returns what is in no table now, and to be credited.
    fn put_back(
        &self,
        address: u64,
        record: Record,
        is_alive: impl FnOnce() -> bool,
    ) -> Option<Record> {
        let mut large = (record.bytes() >= LARGE).then(|| locked(&self.large));
        let back = match self.exact.cell(address, true) {
            Some(cell) => cell.fill(record),
            None => *locked(&self.odd).entry(address).or_insert(record) == record,
        };
        if !back {
            return Some(record);
        }
        if let Some(large) = &mut large {
            large.insert(address, address.saturating_add(record.bytes()));
        }
        drop(large);
        // Asked when it is in the table: whoever ends the context later finds it there.
        if record.context() == ContextId::NONE || is_alive() {
            return None;
        }
        self.take_if(address, |found| found == record)
    }

    fn get(&self, address: u64) -> Option<Record> {
        let exact = self.exact.cell(address, false).and_then(radix::Cell::get);
        exact.or_else(|| locked(&self.odd).get(&address).copied())
    }

    fn update(&self, address: u64, change: impl Fn(Record) -> Record) -> bool {
        if self
            .exact
            .cell(address, false)
            .is_some_and(|cell| cell.update(&change))
        {
            return true;
        }
        locked(&self.odd).get_mut(&address).is_some_and(|record| {
            *record = change(*record);
            true
        })
    }

    fn find(&self, address: u64) -> Option<(u64, Record)> {
        if let Some(record) = self.get(address) {
            return Some((address, record));
        }
        let inside = |(start, record): (u64, Record)| {
            (address - start < record.bytes()).then_some((start, record))
        };
        let large = locked(&self.large)
            .range(..=address)
            .next_back()
            .map(|(start, _)| *start);
        let large = large
            .and_then(|start| Some((start, self.get(start)?)))
            .and_then(inside);
        large
            .or_else(|| self.exact.before(address).and_then(inside))
            .or_else(|| {
                let odd = locked(&self.odd)
                    .range(..=address)
                    .next_back()
                    .map(|(start, record)| (*start, *record));
                odd.and_then(inside)
            })
    }

    fn drain(&self, context: ContextId, credit: impl Fn(Record)) {
        let mine = |record: Record| record.context() == context;
        self.exact.each(&mut |address, cell| {
            if let Some(record) = cell.take_if(mine) {
                if record.bytes() >= LARGE {
                    self.leave_large_late(address);
                }
                credit(record);
            }
        });
        locked(&self.odd).retain(|_, record| {
            let gone = mine(*record);
            if gone {
                credit(*record);
            }
            !gone
        });
    }
}
