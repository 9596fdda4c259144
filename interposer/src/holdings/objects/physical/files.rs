//! Files that memory was exported as: each holds its memory until the program has closed it.
//!
//! No hook sees a descriptor closed, so those that nothing else holds the memory of are looked at:
//! after a release or an unmapping, before a charge is refused, before free memory is told, and
//! once a second by the gate thread, where there is one: a program may close a file and be quiet,
//! and its tenant's other processes want the memory. A file is known by its number, its device and
//! its inode. The driver's files are all of one inode, so one of them that has taken the number of
//! another is taken for it, until an export answers that number: memory may be charged for too long
//! so. A file that is left only under another number, or in another process, holds nothing here
//! (ADR 213).

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::MutexGuard;

use super::{Allocation, Binding, Credit, Holding, Physical, free_physical, physical};
use crate::account;
use crate::guest::descriptor;

/// Whether memory may be left to its files. Changed with the books locked.
static LEFT: AtomicBool = AtomicBool::new(false);

/// A file, by its descriptor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Device and inode.
    identity: (u64, u64),
    /// The allocation.
    id: u64,
    /// Tells it from a later export under the same number.
    serial: u64,
}

impl File {
    fn is_open(&self, number: c_int) -> bool {
        descriptor::identity(number).is_ok_and(|now| now == self.identity)
    }
}

impl Physical {
    /// Notes that other processes may have the memory of `handle`, and that a file of this number,
    /// device and inode holds it from now on. The credits of what the number held before: that file
    /// must have been closed.
    pub(crate) fn exported(
        &mut self,
        handle: u64,
        file: Option<(c_int, (u64, u64))>,
    ) -> Vec<Credit> {
        let Some(id) = self.handles.get(&handle).map(|(id, _)| *id) else {
            return Vec::new();
        };
        let Some(allocation) = self.allocations.get_mut(&id) else {
            return Vec::new();
        };
        allocation.exported = true;
        let Some(file) = file else {
            return Vec::new();
        };
        allocation.held += 1;
        allocation.files += 1;
        self.file_made(id, file)
    }

    /// The same of what is mapped in a range of addresses, which may be of several allocations: the
    /// file is one of its own, without a charge, which holds them as an object what is bound to it.
    pub(crate) fn range_exported(
        &mut self,
        (from, length): (u64, u64),
        file: (c_int, (u64, u64)),
    ) -> Vec<Credit> {
        let memory = self.mapped(from, length);
        if memory.is_empty() {
            return Vec::new();
        }
        self.next += 1;
        let id = self.next;
        let buffer = Allocation {
            charge: None,
            held: 1,
            files: 1,
            exported: true,
        };
        self.allocations.insert(id, buffer);
        self.is_left_to_files(id);
        for (place, memory) in (0..).zip(memory) {
            if let Some(its) = self.allocations.get_mut(&memory) {
                its.exported = true;
                its.held += 1;
                self.holds
                    .insert(Binding::Multicast(id, i32::MIN, place), (1, memory));
            }
        }
        self.file_made(id, file)
    }

    /// The allocations that are mapped in a range of addresses.
    fn mapped(&self, from: u64, length: u64) -> Vec<u64> {
        let begins = Binding::Address(from);
        let below = self.holds.range(..begins).next_back();
        let below = below.filter(|(place, (length, _))| match place {
            Binding::Address(start) => from - start < *length,
            _ => false,
        });
        let inside = self
            .holds
            .range(begins..Binding::Address(from.saturating_add(length)));
        below
            .into_iter()
            .chain(inside)
            .map(|(_, (_, id))| *id)
            .collect()
    }

    /// A file holds an allocation, and is counted there.
    fn file_made(&mut self, id: u64, (number, identity): (c_int, (u64, u64))) -> Vec<Credit> {
        self.next += 1;
        let serial = self.next;
        let file = File {
            identity,
            id,
            serial,
        };
        match self.files.insert(number, file) {
            Some(stale) => self.let_file_go(stale.id),
            None => Vec::new(),
        }
    }

    /// The memory of a file of ours is about to be imported.
    pub(crate) fn holding_file(&mut self, number: c_int) -> Option<Holding> {
        let file = *self.files.get(&number)?;
        file.is_open(number).then(|| self.holding_one(file.id))?
    }

    /// Nothing but files holds this memory.
    pub(super) fn is_left_to_files(&mut self, id: u64) {
        self.left_to_files.insert(id);
        LEFT.store(true, Ordering::Relaxed);
    }

    /// The files of memory that nothing else holds.
    fn alone(&mut self) -> Vec<(c_int, File)> {
        let all = &self.allocations;
        let is_alone = |id: &u64| all.get(id).is_some_and(|its| its.held == its.files);
        self.left_to_files.retain(is_alone);
        if self.left_to_files.is_empty() {
            LEFT.store(false, Ordering::Relaxed);
            return Vec::new();
        }
        let files = self.files.iter().map(|(number, file)| (*number, *file));
        files
            .filter(|(_, file)| self.left_to_files.contains(&file.id))
            .collect()
    }

    /// A file was looked at, and is closed: the credits.
    fn closed(&mut self, number: c_int, looked_at: &File) -> Vec<Credit> {
        if self.files.get(&number) != Some(looked_at) {
            return Vec::new();
        }
        self.files.remove(&number);
        self.let_file_go(looked_at.id)
    }

    fn let_file_go(&mut self, id: u64) -> Vec<Credit> {
        if let Some(allocation) = self.allocations.get_mut(&id) {
            allocation.files -= 1;
        }
        self.let_go(id)
    }
}

/// Credits what only files have held that the program has closed.
#[inline]
pub(crate) fn credit_closed() {
    if LEFT.load(Ordering::Relaxed) {
        look(|| Some(physical()));
    }
}

/// The same by a thread that waits for no other one: where the books are locked it credits nothing.
pub(crate) fn credit_closed_if_free() {
    if LEFT.load(Ordering::Relaxed) {
        look(free_physical);
    }
}

#[cold]
fn look(books: fn() -> Option<MutexGuard<'static, Physical>>) {
    let files = books().map(|mut books| books.alone()).unwrap_or_default();
    // Looked at outside the lock: by now a number may be that of a file that answers slowly.
    for (number, file) in files {
        if !file.is_open(number) {
            let gone = books().map(|mut books| books.closed(number, &file));
            gone.into_iter()
                .flatten()
                .for_each(|(device, units)| account::release(device, units));
        }
    }
}

#[cfg(test)]
mod tests;
