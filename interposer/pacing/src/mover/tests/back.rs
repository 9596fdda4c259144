//! Memory that is away though the daemon counts the process as in: its orders bring nothing back a
//! second time, so the process goes on by itself.

use super::*;

/// Two of three chunks have left when the daemon orders the process to be in, and none comes back.
fn taken_back_without_room() -> World {
    let mut world = World::new(3);
    world.order(1, Order::Leave);
    while world.facts.away < 2 {
        assert!(world.one());
    }
    world.fails = true;
    let said = world.order(2, Order::In).settles();
    assert_eq!(said.last(), Some(&Answer::NoRoom { epoch: 2, bytes: 1 }));
    assert_eq!((world.facts.away, world.sealed), (2, true));
    world
}

#[test]
fn a_return_by_the_order_to_be_in_is_tried_until_it_succeeds() {
    let mut world = taken_back_without_room();
    world.now += 3_000 * MS;
    let said = world.settles();
    assert_eq!(said, [Answer::NoRoom { epoch: 2, bytes: 1 }]);
    world.fails = false;
    world.now += 3_000 * MS;
    assert_eq!(world.settles(), []);
    assert_eq!((world.facts.away, world.sealed), (0, false));
}

#[test]
fn a_return_by_the_order_to_be_in_pauses_between_its_attempts() {
    let mut world = taken_back_without_room();
    world.fails = false;
    world.now += 10 * MS;
    assert_eq!(world.settles(), [], "not at once");
    assert_eq!((world.facts.away, world.sealed), (2, true));
    let act = world.mover.step(world.now, &world.facts);
    assert!(matches!(act, Act::Sleep(until) if until < 3_000 * MS));
}

/// The reports of a move out whose step fails after so many chunks have left.
fn said_by_a_move_that_fails(after: u64) -> Vec<Answer> {
    let mut world = World::new(3);
    world.order(1, Order::Leave);
    while world.facts.away < after || !world.sealed {
        assert!(world.one());
    }
    world.fails = true;
    while world.one() {}
    world.said
}

#[test]
fn a_move_out_that_fails_says_first_how_much_is_away() {
    let said = said_by_a_move_that_fails(2);
    let [
        ..,
        Answer::Moved { away: 2, .. },
        Answer::NoRoom { bytes: 1, .. },
    ] = said[..]
    else {
        panic!("{said:?}");
    };
    let said = said_by_a_move_that_fails(0);
    let is_moved = |said: &Answer| matches!(said, Answer::Moved { .. });
    assert!(!said.iter().any(is_moved), "nothing has left: {said:?}");
}
