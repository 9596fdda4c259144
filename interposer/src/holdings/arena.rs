//! Memory that the driver takes in steps of its own and keeps for reuse: stream-ordered pools and
//! the memory of graphs.
//!
//! The charge is the memory that the driver *reserves*, not the memory that the program holds. A
//! call that may make an arena grow is charged with an upper bound first; after it, the driver is
//! asked for the reserved size and the charge follows. Calls that race each keep their own bound
//! until then, so the sum is never too low.
//!
//! Where the bound does not fit, even after [`crate::holdings::reclaim`], a pool's allocation is
//! refused (ADR 79). A graph's launch may go without growth, under a [`Promise`]: the graphs'
//! memory says itself how much of it is unused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::page::{MAX_UNITS, UNIT, units_for};

use crate::account::{self, Charge, Refused, Units};
use crate::driver::device::DeviceKey;

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
pub(crate) struct Held(Mutex<Books>);

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
pub(crate) fn after(arena: &dyn Arena, mut charge: Charge) -> Result<u64, Refused> {
    let mut books = arena.held().lock();
    let reserved = arena.reserved();
    let mine = charge.units().0;
    books.booked = books.booked.saturating_sub(mine);
    let Some(now) = reserved.map(|bytes| units_for(bytes).unwrap_or(MAX_UNITS)) else {
        // The driver will not say: the bound stays charged.
        books.charged = books.charged.saturating_add(charge.keep().0);
        return Ok(0);
    };
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
    books.booked = books.booked.saturating_sub(charge.units().0);
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

impl Held {
    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A call that has booked `charge` is about to be made; [`after`] follows.
    pub(crate) fn enter(&self, charge: &Charge) {
        let mut books = self.lock();
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
mod tests {
    use super::*;

    /// An arena whose reserved size does not change, or is not known.
    struct Still(Held, Option<u64>);

    impl Arena for Still {
        fn device(&self) -> DeviceKey {
            DeviceKey::of_index(0).unwrap()
        }

        fn held(&self) -> &Held {
            &self.0
        }

        fn reserved(&self) -> Option<u64> {
            self.1
        }

        fn used(&self) -> Option<u64> {
            self.1
        }

        fn trim(&self) {}
    }

    /// The units booked in two arenas once a call has booked 5 in each, or was refused by `third`.
    fn booked_after(third: Result<(), Refused>) -> [u32; 2] {
        let arenas = [Some(0), None].map(|reserved| Still(Held::default(), reserved));
        let bookings = arenas.iter().map(|arena| {
            let charge = Charge::of_no_account(arena.device(), Units(5));
            arena.held().enter(&charge);
            Ok(Some((arena, charge)))
        });
        let bookings = bookings.chain([third.map(|()| None)]);
        let made = all_or_none(bookings, |made| {
            if let Some((arena, charge)) = made {
                after_refusal(arena, charge);
            }
        });
        assert_eq!(made.is_ok(), third.is_ok());
        arenas.each_ref().map(|arena| arena.held().lock().booked)
    }

    #[test]
    fn a_refusal_in_one_arena_undoes_what_was_booked_in_others() {
        assert_eq!(booked_after(Err(Refused)), [0, 0]);
    }

    #[test]
    fn bookings_that_all_fit_stay_until_the_call_is_made() {
        assert_eq!(booked_after(Ok(())), [5, 5]);
    }

    #[test]
    fn a_wait_follows_the_frees_before_it() {
        let frees = Frees::new();
        assert!(!frees.pending());
        frees.add();
        assert!(frees.pending());
        let before = frees.so_far();
        frees.follow(before);
        assert!(!frees.pending());
    }

    #[test]
    fn a_free_that_comes_while_the_host_waits_is_left_to_the_next_wait() {
        let frees = Frees::new();
        frees.add();
        let before = frees.so_far();
        frees.add();
        frees.follow(before);
        assert!(frees.pending());
        frees.follow(frees.so_far());
        assert!(!frees.pending());
    }

    #[test]
    fn a_wait_that_began_earlier_takes_nothing_back() {
        let frees = Frees::new();
        let early = frees.so_far();
        frees.add();
        frees.follow(frees.so_far());
        frees.follow(early);
        assert!(!frees.pending());
    }
}
