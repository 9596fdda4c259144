//! Processes that came back without their daemon, which then leads them again.

use super::*;

/// A process of two chunks that was ordered to stay out, and came back without its daemon.
fn came_back_alone() -> World {
    let mut world = World::new(2);
    world.order(1, Order::Leave).settles();
    world.order(2, Order::Out).settles();
    (world.facts.is_led, world.facts.is_wanted) = (false, true);
    world.settles();
    assert_eq!((world.facts.away, world.sealed), (0, false));
    world.facts.is_wanted = false;
    world
}

#[test]
fn one_that_came_back_alone_leaves_again_under_the_same_word() {
    for steps in 0..4 {
        let mut world = came_back_alone();
        world.facts.is_led = true;
        for _ in 0..steps {
            world.one();
        }
        // The daemon stands still once more.
        world.facts.is_led = false;
        world.settles();
        world.facts.is_led = true;
        let said = world.settles();
        assert_eq!(said.last(), Some(&Answer::Away { epoch: 2, away: 2 }));
        assert_eq!((world.mover.place(), world.sealed), (Where::Out, true));
        assert_eq!(world.settles(), [], "and stays out");
    }
}

#[test]
fn one_that_came_back_alone_and_works_is_sealed_once_it_rests() {
    let mut world = came_back_alone();
    world.facts.is_led = true;
    world.drain = Drained::Never(Obstacle::Capture);
    let said = world.settles();
    assert!(matches!(said[..], [Answer::Busy { epoch: 2, .. }]));
    assert!(!world.sealed);
    world.drain = Drained::Yes;
    assert_eq!(world.settles(), [], "it said when");
    world.now += 100 * MS;
    world.settles();
    assert_eq!((world.facts.away, world.sealed), (2, true));
}

#[test]
fn one_that_came_back_alone_stays_sealed_where_the_host_is_full() {
    let mut world = came_back_alone();
    (world.facts.is_led, world.facts.short) = (true, 1);
    assert_eq!(world.settles(), []);
    assert_eq!((world.facts.away, world.sealed), (0, true));
    world.facts.short = 0;
    world.settles();
    assert_eq!((world.facts.away, world.sealed), (2, true));
}

#[test]
fn one_that_came_back_alone_leaves_for_no_word_of_another_daemon() {
    let mut world = came_back_alone();
    world.facts.is_led = true;
    world.mover.forget();
    assert_eq!(world.order(1, Order::Out).settles(), []);
    assert_eq!((world.facts.away, world.sealed), (0, true));
    let mut world = World::new(2);
    assert_eq!(world.order(1, Order::Out).settles(), [], "nor at first");
    assert_eq!((world.facts.away, world.sealed), (0, true));
}

#[test]
fn a_try_alone_that_failed_does_not_keep_a_later_one_on_the_card() {
    let mut world = World::new(2);
    world.order(1, Order::Leave).settles();
    world.order(2, Order::Out).settles();
    (world.facts.is_led, world.facts.is_wanted) = (false, true);
    world.fails = true;
    world.settles();
    assert_eq!((world.facts.away, world.sealed), (2, true));
    world.fails = false;
    world.now += 60_000 * MS;
    while world.facts.away > 0 {
        assert!(world.one());
    }
    // The daemon leads it again before it opens.
    (world.facts.is_led, world.facts.is_wanted) = (true, false);
    world.settles();
    assert_eq!((world.facts.away, world.sealed), (2, true));
}
