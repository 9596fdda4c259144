//! Room on the host that another device of the process needs while this one leaves.

use super::*;

/// One of three chunks has left, and the room of the others is taken.
fn short_of_room(is_asking: bool) -> World {
    let mut world = World::new(3);
    world.order(1, Order::Leave);
    while world.facts.away == 0 {
        assert!(world.one());
    }
    world.said.clear();
    (world.facts.short, world.facts.is_asking) = (2, is_asking);
    world
}

#[test]
fn a_move_out_waits_while_more_room_is_on_its_way() {
    let mut world = short_of_room(true);
    assert_eq!(world.settles(), []);
    assert_eq!(world.facts.away, 1);
    world.facts.short = 0;
    let said = world.settles();
    assert_eq!(said, [Answer::Away { epoch: 1, away: 3 }]);
}

#[test]
fn a_move_out_goes_on_as_far_as_there_is_room_where_none_comes() {
    let mut world = short_of_room(false);
    world.one();
    world.one();
    assert_eq!(world.facts.away, 2);
    world.fails = true;
    assert_eq!(world.settles(), [Answer::NoRoom { epoch: 1, bytes: 1 }]);
}

#[test]
fn an_order_to_leave_again_waits_for_room_that_is_on_its_way() {
    let mut world = short_of_room(false);
    world.fails = true;
    world.settles();
    (world.fails, world.facts.is_asking) = (false, true);
    let said = world.order(2, Order::Leave).settles();
    assert_eq!((said, world.facts.away), (vec![], 1));
    world.facts.short = 0;
    let said = world.settles();
    assert_eq!(said.last(), Some(&Answer::Away { epoch: 2, away: 3 }));
}

#[test]
fn a_move_out_that_waits_for_room_is_taken_back_at_once() {
    let mut world = short_of_room(true);
    world.settles();
    let said = world.order(2, Order::Return).settles();
    assert_eq!(said, [Answer::Back { epoch: 2 }]);
}
