//! Records by exact address: three levels of 4096 entries over 57-bit addresses, then a leaf for
//! each 2 MiB.
//!
//! Nodes are zeroed memory straight from the kernel, made on first use and never freed, so a reader
//! needs no lock and no counter. An address at a multiple of 2 MiB, where every large allocation
//! starts, has its cell in the lowest node and costs no leaf.
//!
//! # Safety
//! A node pointer is null or came from [`Node::make`]: zeroed memory of that node's type, mapped
//! for ever. All fields are atomics, for which zero is valid.
#![allow(unsafe_code, reason = "nodes are mapped memory behind atomic pointers")]

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::Record;

const FANOUT: usize = 4096;
const FANOUT_BITS: u32 = 12;
/// Bytes of address space one leaf covers.
pub(super) const SPAN: u64 = 1 << SPAN_BITS;
const SPAN_BITS: u32 = 21;
/// Bytes of address space one cell stands for.
const GRAIN: u64 = 512;
const ADDRESS_BITS: u32 = SPAN_BITS + 3 * FANOUT_BITS;

/// Room for one record.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    /// The current record.
    pub(super) fn get(&self) -> Option<Record> {
        Record::unpack(self.0.load(Ordering::Acquire))
    }

    /// Stores a record and returns the earlier one.
    #[inline]
    pub(super) fn swap(&self, record: Option<Record>) -> Option<Record> {
        Record::unpack(self.0.swap(Record::pack(record), Ordering::AcqRel))
    }

    /// Stores a record, as the one thread that the driver has given this address to, and returns
    /// the earlier one.
    ///
    /// No other thread writes to an empty cell, so this needs no locked instruction.
    #[inline]
    pub(super) fn put(&self, record: Record) -> Option<Record> {
        if self.0.load(Ordering::Acquire) != 0 {
            return self.swap(Some(record));
        }
        self.0.store(Record::pack(Some(record)), Ordering::Release);
        None
    }

    /// Puts something in unless there is something already.
    pub(super) fn fill(&self, record: Record) -> bool {
        let word = Record::pack(Some(record));
        self.0
            .compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes out a record that `wanted` accepts.
    pub(super) fn take_if(&self, wanted: impl Fn(Record) -> bool) -> Option<Record> {
        let word = self.0.load(Ordering::Acquire);
        let record = Record::unpack(word).filter(|record| wanted(*record))?;
        self.0
            .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| record)
    }

    /// Changes the record that is there.
    pub(super) fn update(&self, change: impl Fn(Record) -> Record) -> bool {
        let changed = |word| Record::unpack(word).map(|record| Record::pack(Some(change(record))));
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, changed)
            .is_ok()
    }
}

#[derive(Debug)]
struct Leaf([Cell; FANOUT]);

/// 2 MiB of addresses: the cell of the first one, and a leaf for the others.
#[derive(Debug)]
struct Span {
    head: Cell,
    leaf: Link<Leaf>,
}

#[derive(Debug)]
struct Low([Span; FANOUT]);
#[derive(Debug)]
struct Middle([Link<Low>; FANOUT]);
#[derive(Debug)]
struct High([Link<Middle>; FANOUT]);

/// The whole.
#[derive(Debug)]
pub(super) struct Radix(Link<High>);

/// A node that may not be there yet.
#[repr(transparent)]
#[derive(Debug)]
struct Link<T>(AtomicPtr<T>);

/// Memory that is valid when it is all zeros.
///
/// # Safety
/// The implementer consists of atomics alone.
unsafe trait Node: Sized {
    /// Zeroed memory for a node, null if there is none.
    fn make() -> *mut Self {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            ptr::null_mut()
        } else {
            base.cast()
        }
    }
}

// SAFETY: atomics.
unsafe impl Node for Leaf {}
// SAFETY: atomics.
unsafe impl Node for Low {}
// SAFETY: atomics.
unsafe impl Node for Middle {}
// SAFETY: atomics.
unsafe impl Node for High {}

impl<T: Node> Link<T> {
    #[inline]
    fn get(&self) -> Option<&T> {
        // SAFETY: null or a node, which is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    fn get_or_make(&self, make: bool) -> Option<&T> {
        match self.get() {
            None if make => self.make(),
            found => found,
        }
    }

    #[cold]
    fn make(&self) -> Option<&T> {
        let mine = T::make();
        if mine.is_null() {
            return None;
        }
        if self
            .0
            .compare_exchange(ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: another thread was first; this mapping was never published.
            unsafe { libc::munmap(mine.cast(), size_of::<T>()) };
        }
        self.get()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked to twelve bits")]
const fn index(address: u64, shift: u32) -> usize {
    (address >> shift) as usize & (FANOUT - 1)
}

/// The number of the cell that `address` lies in, among those of its span.
const fn cell_in_span(address: u64) -> usize {
    (address % SPAN / GRAIN) as usize
}

impl Span {
    /// The last record in these cells of the span that begins at `base`, with its address.
    fn last_of(&self, base: u64, cells: Range<usize>) -> Option<(u64, Record)> {
        let first = cells.start.max(1);
        let in_leaf = self.leaf.get().and_then(|leaf| {
            let mut cells = (first..cells.end).rev();
            cells.find_map(|at| Some((at, leaf.0[at].get()?)))
        });
        let head = || (cells.start == 0).then(|| self.head.get())?;
        let (at, record) = in_leaf.or_else(|| Some((0, head()?)))?;
        Some((base + at as u64 * GRAIN, record))
    }
}

#[cfg(test)]
thread_local! {
    /// Walks from the top down to a span, by this thread.
    pub(super) static WALKS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

impl Radix {
    pub(super) const fn new() -> Self {
        Self(Link(AtomicPtr::new(ptr::null_mut())))
    }

    /// The cell of `address`; nodes on the way are made if `make`. `None` if it has none, or there
    /// is no memory for one.
    #[inline]
    pub(super) fn cell(&self, address: u64, make: bool) -> Option<&Cell> {
        if !address.is_multiple_of(GRAIN) || address >> ADDRESS_BITS != 0 {
            return None;
        }
        let span = self.span(address, make)?;
        if address.is_multiple_of(SPAN) {
            return Some(&span.head);
        }
        let leaf = span.leaf.get_or_make(make)?;
        Some(&leaf.0[cell_in_span(address)])
    }

    #[inline]
    fn span(&self, address: u64, make: bool) -> Option<&Span> {
        #[cfg(test)]
        WALKS.set(WALKS.get() + 1);
        let middle = self.0.get_or_make(make)?.0[index(address, SPAN_BITS + 2 * FANOUT_BITS)]
            .get_or_make(make)?;
        let low = middle.0[index(address, SPAN_BITS + FANOUT_BITS)].get_or_make(make)?;
        Some(&low.0[index(address, SPAN_BITS)])
    }

    /// The nearest record that starts at or before `address` and less than [`SPAN`] away. It walks
    /// down to two spans, and looks only at cells that are there.
    pub(super) fn before(&self, address: u64) -> Option<(u64, Record)> {
        if address >> ADDRESS_BITS != 0 {
            return None;
        }
        let base = address & !(SPAN - 1);
        let next = cell_in_span(address) + 1;
        let here = || self.span(base, false)?.last_of(base, 0..next);
        here().or_else(|| {
            let base = base.checked_sub(SPAN)?;
            self.span(base, false)?.last_of(base, next..FANOUT)
        })
    }

    /// Visits every cell that has been made, with its address.
    pub(super) fn each(&self, visit: &mut dyn FnMut(u64, &Cell)) {
        let Some(high) = self.0.get() else { return };
        for (h, middle) in (0_u64..).zip(&high.0) {
            let Some(middle) = middle.get() else { continue };
            for (m, low) in (0_u64..).zip(&middle.0) {
                let Some(low) = low.get() else { continue };
                for (l, span) in (0_u64..).zip(&low.0) {
                    let base = (h << (2 * FANOUT_BITS) | m << FANOUT_BITS | l) << SPAN_BITS;
                    visit(base, &span.head);
                    let cells = span.leaf.get().map_or(&[][..], |leaf| &leaf.0[1..]);
                    for (i, cell) in (1_u64..).zip(cells) {
                        visit(base + i * GRAIN, cell);
                    }
                }
            }
        }
    }
}
