//! Tests of books beside an arena's own memory.

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

/// The most that an arena of 64 units may have had, after a call that booked 16 was given this.
/// The first 8 units had been freed. Another call has booked 4 and is under way.
fn most_after(given: Option<(u64, u64)>) -> u64 {
    let arena = Still(Held::default(), Some(64 * UNIT));
    let held = arena.held();
    let [mine, others] = [16, 4].map(|units| Charge::of_no_account(arena.device(), Units(units)));
    let mut books = held.lock();
    (books.reserved, books.charged, books.most) = (64, 64, 64);
    drop(books);
    held.tell(held.number(), Some((0, 8 * UNIT, None)));
    held.enter(&others);
    held.enter(&mine);
    assert_eq!(held.most(), 64 * UNIT, "no call is over");
    assert!(after_giving(&arena, mine, given).is_ok());
    held.most() / UNIT
}

#[test]
fn memory_that_had_been_freed_of_an_arena_has_not_made_it_grow() {
    assert_eq!(most_after(Some((2 * UNIT, 4 * UNIT))), 64);
}

#[test]
fn other_memory_may_have_made_an_arena_grow_that_shrank_since() {
    for given in [None, Some((4 * UNIT, 8 * UNIT)), Some((32 * UNIT, UNIT))] {
        assert_eq!(most_after(given), 64 + 16 + 4);
    }
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
