//! Memory that the driver takes in steps of its own and keeps for reuse: stream-ordered pools and
//! the memory of graphs.
//!
//! The charge is the memory that the driver *reserves*, not the memory that the program holds. A
//! call that may make an arena grow is charged with an upper bound first; after it, the driver is
//! asked for the reserved size and the charge follows. Calls that race each keep their own bound
//! until then, so the sum is never too low.
//!
//! A call for which the arena has room goes without a bound, under a [`Promise`]: a graph's launch,
//! as the graphs' memory says itself how much of it is unused, and a pool's allocation in what was
//! freed of the pool ([`PoolRoom`]), in a [`Turn`]. Where neither the bound nor the room does, even
//! after [`crate::holdings::reclaim`], the call is refused (ADR 79).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_protocol::page::{MAX_UNITS, UNIT, units_for};

use crate::account::{self, Charge, Refused, Units};
use crate::driver::device::DeviceKey;
use crate::driver::tracker::StreamId;
use crate::holdings::pool_room::PoolRoom;

/// The longest wait for a turn, for the end of calls that have booked, and of these for a turn: far
/// longer than the driver takes for an allocation, unless a stream is full.
const PATIENCE: Duration = Duration::from_secs(1);

/// Frees so far, and those of them that a synchronisation has followed which began after them.
///
/// The driver may give freed memory back when it synchronises, in any thread. A free that comes
/// while another thread synchronises may be too late for that, so it is left to the next one.
#[derive(Debug, Default)]
struct Frees {
    made: AtomicU64,
    followed: AtomicU64,
}

impl Frees {
    const fn new() -> Self {
        Self {
            made: AtomicU64::new(0),
            followed: AtomicU64::new(0),
        }
    }

    #[inline]
    fn add(&self) {
        self.made.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    fn pending(&self) -> bool {
        self.made.load(Ordering::Relaxed) != self.followed.load(Ordering::Relaxed)
    }

    fn so_far(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    fn follow(&self, before: u64) {
        self.followed.fetch_max(before, Ordering::Release);
    }
}

static FREES: Frees = Frees::new();

/// Notes a free that needs no event.
#[inline]
pub(crate) fn freed() {
    FREES.add();
}

/// Whether a synchronisation is to be followed.
#[inline(always)]
pub(crate) fn pending() -> bool {
    FREES.pending()
}

/// The frees so far: those that a synchronisation which begins now comes after.
pub(crate) fn so_far() -> u64 {
    FREES.so_far()
}

/// All arenas were followed after a synchronisation that began when so many frees were made.
pub(crate) fn follows(before: u64) {
    FREES.follow(before);
}

/// The charge of one arena. The lock orders readings of the reserved size; it is held for one query
/// to the driver.
#[derive(Debug, Default)]
pub(crate) struct Held {
    books: Mutex<Books>,
    /// A turn has ended, or no call under way has booked anything.
    quiet: Condvar,
    /// Frees that have a number for the room.
    numbered: AtomicU64,
}

/// In units.
#[derive(Debug, Default)]
struct Books {
    charged: u32,
    /// Booked by calls under way, which will be charged by themselves.
    booked: u32,
    /// Units by which calls under way may grow the arena, though they found room in it: another
    /// call or a trim may take that room first. As many units are not given back until those calls
    /// are done.
    pledged: u32,
    /// As it was last read.
    reserved: u32,
    /// The room that the arena certainly has, if it is a pool.
    room: PoolRoom,
    /// The most that it may have reserved since its room was last forgotten, by calls that are
    /// over.
    most: u32,
    /// Since when a call relies on that.
    turn: Option<Instant>,
}

impl Books {
    /// A call that may have grown the arena is about to be over: so much it may have reserved, by
    /// that call and by the others under way.
    fn may_have_grown(&mut self) {
        let most = self.reserved.saturating_add(self.booked);
        self.most = self.most.max(most);
    }
}

/// One arena of the driver.
pub(crate) trait Arena {
    /// Where its memory lies.
    fn device(&self) -> DeviceKey;
    /// Its charge.
    fn held(&self) -> &Held;
    /// Bytes the driver holds for it now, in use or not.
    fn reserved(&self) -> Option<u64>;
    /// Of these, bytes in use.
    fn used(&self) -> Option<u64>;
    /// Makes the driver give back unused memory.
    fn trim(&self);
}

/// Bytes an arena holds and does not use.
pub(crate) fn unused(arena: &dyn Arena) -> Option<u64> {
    arena.reserved()?.checked_sub(arena.used()?)
}

/// Follows the arena after a call: its growth is taken from `charge` and returned in bytes, the
/// rest is given back.
///
/// # Errors
/// [`Refused`] if it grew by more than was booked and that is above the limit. It is charged all
/// the same: the driver has it.
pub(crate) fn after(arena: &dyn Arena, charge: Charge) -> Result<u64, Refused> {
    after_giving(arena, charge, None)
}

/// As [`after`] a call to which the driver has `given` memory: its start, and its bytes.
///
/// # Errors
/// As [`after`].
pub(crate) fn after_giving(
    arena: &dyn Arena,
    mut charge: Charge,
    given: Option<(u64, u64)>,
) -> Result<u64, Refused> {
    let mut books = arena.held().lock();
    let mine = charge.units().0;
    // An arena has not grown for what had been freed of it.
    let was_its = given.is_some_and(|(start, bytes)| {
        let numbered = arena.held().numbered();
        books.room.took(start, bytes, numbered)
    });
    if mine > 0 && !was_its {
        books.may_have_grown();
    }
    let reserved = arena.reserved();
    arena.held().leave(&mut books, mine);
    let Some(now) = reserved.map(|bytes| units_for(bytes).unwrap_or(MAX_UNITS)) else {
        // The driver will not say: the bound stays charged.
        books.charged = books.charged.saturating_add(charge.keep().0);
        return Ok(0);
    };
    if now != books.reserved {
        if now < books.reserved {
            // The driver has given some of it back: which is not known.
            books.room.forget(arena.held().numbered());
        }
        books.reserved = now;
        books.most = books.most.max(now);
    }
    let grew = now.saturating_sub(books.charged);
    // Growth beyond this call's booking is another call's, as far as others have booked any.
    let owed = grew.saturating_sub(mine).saturating_sub(books.booked);
    let most = books.charged.saturating_add(mine).saturating_add(owed);
    let wanted = now.saturating_add(books.pledged).min(most);
    let fits = match wanted.checked_sub(books.charged) {
        None | Some(0) => {
            drop(charge);
            account::release(arena.device(), Units(books.charged.saturating_sub(wanted)));
            Ok(0)
        }
        Some(more) => {
            let bytes = u64::from(more) * UNIT;
            let fits = charge.settle(bytes);
            charge.settle_anyway(bytes);
            let _ = charge.keep();
            fits.map(|()| u64::from(grew) * UNIT)
        }
    };
    books.charged = wanted;
    fits
}

/// Follows the arena after a call that the driver has refused. An arena that cannot be queried has
/// not grown by it: the handle names none.
pub(crate) fn after_refusal(arena: &dyn Arena, charge: Charge) {
    if arena.reserved().is_some() {
        let _ = after(arena, charge);
        return;
    }
    let mut books = arena.held().lock();
    arena.held().leave(&mut books, charge.units().0);
}

/// The bookings of a call, in one arena after another. After a refusal, `undo` is called for each
/// booking that was made before it.
///
/// # Errors
/// The first error of `bookings`; none is asked for after it.
pub(crate) fn all_or_none<T, E>(
    bookings: impl Iterator<Item = Result<T, E>>,
    undo: impl FnMut(T),
) -> Result<Vec<T>, E> {
    let mut made = Vec::new();
    for booking in bookings {
        match booking {
            Ok(booked) => made.push(booked),
            Err(refused) => {
                made.into_iter().for_each(undo);
                return Err(refused);
            }
        }
    }
    Ok(made)
}

/// Follows an arena that may have shrunk.
pub(crate) fn follow(arena: &dyn Arena) {
    if let Ok(nothing) = account::charge_nothing(arena.device()) {
        let _ = after(arena, nothing);
    }
}

/// A call may grow an arena by memory it has not booked, because it found room. As long as this
/// lives, that much stays charged of memory that the arena frees, or that others booked and did not
/// need. Made before the room is looked for.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    held: &'a Held,
    units: u32,
}

impl<'a> Promise<'a> {
    /// Of at most `bytes`.
    pub(crate) fn of(held: &'a Held, bytes: u64) -> Self {
        let units = units_for(bytes).unwrap_or(MAX_UNITS);
        let mut books = held.lock();
        books.pledged = books.pledged.saturating_add(units);
        drop(books);
        Self { held, units }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut books = self.held.lock();
        books.pledged = books.pledged.saturating_sub(self.units);
    }
}

/// The only call under way that may take memory of an arena: what was found of its room stays until
/// this is dropped. It is a [`Promise`] too.
///
/// No lock is held for it. Others wait for its end, [`PATIENCE`] at most: they go on then, as they
/// have booked what they may take. If the turn was left by a jump, no other one is taken.
#[derive(Debug)]
pub(crate) struct Turn<'a>(Promise<'a>);

impl<'a> Turn<'a> {
    /// For a call that may take `bytes` at most. `None` where another call is under way for long.
    pub(crate) fn take(held: &'a Held, bytes: u64) -> Option<Self> {
        let books = held.wait(held.lock(), PATIENCE, |books| books.turn.is_some());
        if books.turn.is_some() {
            return None;
        }
        let mut books = books;
        books.turn = Some(Instant::now());
        let books = held.wait(books, PATIENCE, |books| books.booked > 0);
        let is_alone = books.booked == 0;
        drop(books);
        let turn = Self(Promise::of(held, bytes));
        is_alone.then_some(turn)
    }

    /// The streams that have freed room for so many bytes; `None` for a free that was over at once.
    pub(crate) fn room(&self, bytes: u64) -> Vec<Option<StreamId>> {
        self.0.held.lock().room.streams_with(bytes)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.held.lock().turn = None;
        self.0.held.quiet.notify_all();
    }
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn wait<'a>(
        &self,
        books: MutexGuard<'a, Books>,
        patience: Duration,
        busy: impl FnMut(&mut Books) -> bool,
    ) -> MutexGuard<'a, Books> {
        let waited = self.quiet.wait_timeout_while(books, patience, busy);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// A call is over that has booked so much.
    fn leave(&self, books: &mut Books, units: u32) {
        books.booked = books.booked.saturating_sub(units);
        if books.turn.is_some() && books.booked == 0 {
            self.quiet.notify_all();
        }
    }

    fn numbered(&self) -> u64 {
        self.numbered.load(Ordering::SeqCst)
    }

    /// A free of the pool's memory is about to be given to the driver: its number for
    /// [`Self::tell`], which follows.
    pub(crate) fn number(&self) -> u64 {
        self.numbered.fetch_add(1, Ordering::SeqCst)
    }

    /// The free of this number is made: the start of the memory, its bytes, and the stream if there
    /// is one; nothing if it was refused, or its stream is not known.
    pub(crate) fn tell(&self, number: u64, freed: Option<(u64, u64, Option<StreamId>)>) {
        self.lock().room.tell(number, freed);
    }

    /// The driver may have given back any memory that was freed so far.
    pub(crate) fn forget_room(&self) {
        let mut books = self.lock();
        books.room.forget(self.numbered());
        books.most = books.reserved;
    }

    /// The most bytes that the arena may have had reserved at any time since its room was last
    /// forgotten. Calls under way may have grown it further, unless there is a [`Turn`].
    pub(crate) fn most(&self) -> u64 {
        Units(self.lock().most).bytes()
    }

    /// A call that has booked `charge` is about to be made; [`after`] follows.
    pub(crate) fn enter(&self, charge: &Charge) {
        let mut books = self.lock();
        if let Some(began) = books.turn {
            let left = PATIENCE.saturating_sub(began.elapsed());
            books = self.wait(books, left, |books| books.turn.is_some());
        }
        books.booked = books.booked.saturating_add(charge.units().0);
    }

    /// The charge, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        Units(self.lock().charged).bytes()
    }

    /// Whether nothing is charged.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().charged == 0
    }

    /// Takes everything out: the arena is gone.
    pub(crate) fn take(&self) -> Units {
        let mut books = self.lock();
        Units(std::mem::take(&mut books.charged))
    }
}

#[cfg(test)]
mod tests;
