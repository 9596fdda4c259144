//! The mover against a world of chunks: each order's path, and random orders and failures.

use gpushare_protocol::page::residency::OrderWord;

use super::*;

mod back;
mod room;
mod strayed;

const MS: u64 = 1_000_000;

/// A process with so many chunks of one byte.
struct World {
    mover: Mover,
    now: u64,
    facts: Facts,
    chunks: u64,
    sealed: bool,
    drain: Drained,
    /// Chunks that a return has brought; the host's copies stay valid until all are.
    brought: u64,
    /// A step of a move fails.
    fails: bool,
    /// What is away was given up.
    given_up: bool,
    said: Vec<Answer>,
}

impl World {
    fn new(chunks: u64) -> Self {
        Self {
            mover: Mover::default(),
            now: 1,
            facts: Facts {
                is_led: true,
                resident: chunks,
                ..Facts::default()
            },
            chunks,
            sealed: false,
            drain: Drained::Yes,
            brought: 0,
            fails: false,
            given_up: false,
            said: Vec::new(),
        }
    }

    fn order(&mut self, epoch: u32, order: Order) -> &mut Self {
        self.facts.orders.word = OrderWord::new(epoch, order);
        self.facts.orders.drain_ms = 2_000;
        self
    }

    /// One step. `false`: it sleeps.
    fn one(&mut self) -> bool {
        let drained = self.sealed && self.drain == Drained::Yes;
        match self.mover.step(self.now, &self.facts) {
            Act::Sleep(until) if until > self.now => return false,
            Act::Sleep(_) => {}
            Act::Seal => self.sealed = true,
            Act::Drain => {
                assert!(self.sealed, "it drains what can begin again");
                self.mover.drain(self.now, self.drain);
            }
            Act::Open => {
                assert!(
                    self.facts.away == 0 || self.given_up,
                    "opened while memory is away"
                );
                assert_eq!(self.brought, 0, "opened in the middle of a return");
                self.sealed = false;
            }
            Act::Leave => {
                assert!(drained, "memory left a process at work");
                if self.fails {
                    self.mover.left(Moved::Failed(1), self.facts.away);
                } else {
                    self.facts.resident -= 1;
                    self.facts.away += 1;
                    self.mover.left(Moved::Some, self.facts.away);
                }
            }
            Act::Enter => {
                assert!(self.sealed);
                let left = self.facts.away - self.brought;
                let moved = if self.fails {
                    self.brought = 0;
                    Moved::Failed(1)
                } else if left > self.facts.withheld() {
                    self.brought += 1;
                    Moved::Some
                } else if left > 0 {
                    Moved::Withheld
                } else {
                    self.brought = 0;
                    self.facts.away = 0;
                    self.facts.resident = self.chunks;
                    Moved::All
                };
                self.mover.entered(self.now, &self.facts, moved);
            }
            Act::Undo => self.brought = 0,
            Act::GiveUp => {
                assert!(self.sealed, "given up while calls may touch it");
                (self.brought, self.given_up) = (0, true);
            }
            Act::Say(answer) => self.said.push(answer),
        }
        true
    }

    /// Goes on until it sleeps; what was said, without progress.
    fn settles(&mut self) -> Vec<Answer> {
        for _ in 0..10_000 {
            if !self.one() {
                let said = self.said.drain(..);
                return said
                    .filter(|said| !matches!(said, Answer::Moved { .. }))
                    .collect();
            }
        }
        panic!("it never sleeps: {:?}", self.mover);
    }
}

#[test]
fn a_process_leaves_stays_out_and_comes_back() {
    let mut world = World::new(3);
    assert_eq!(world.settles(), [], "nothing is asked");
    let said = world.order(1, Order::Leave).settles();
    assert_eq!(
        said,
        [
            Answer::Sealed { epoch: 1 },
            Answer::Away { epoch: 1, away: 3 }
        ]
    );
    assert_eq!((world.mover.place(), world.sealed), (Where::Out, true));
    assert_eq!(world.order(2, Order::Out).settles(), []);
    assert!(world.sealed);
    let said = world.order(3, Order::Return).settles();
    assert_eq!(said, [Answer::Back { epoch: 3 }]);
    assert_eq!((world.mover.place(), world.sealed), (Where::In, false));
}

#[test]
fn a_seal_keeps_the_memory_and_is_taken_back_by_the_next_order() {
    let mut world = World::new(3);
    let said = world.order(1, Order::Seal).settles();
    assert_eq!(said, [Answer::Sealed { epoch: 1 }]);
    assert_eq!((world.facts.away, world.sealed), (0, true));
    assert_eq!(world.order(2, Order::In).settles(), []);
    assert!(!world.sealed);
    assert_eq!(
        world.order(3, Order::Return).settles(),
        [Answer::Back { epoch: 3 }]
    );
}

#[test]
fn a_process_that_does_not_drain_opens_says_why_and_backs_off() {
    let mut world = World::new(1);
    world.drain = Drained::No(Obstacle::Work);
    let mut told = Vec::new();
    for epoch in 1..=12 {
        world.order(epoch, Order::Leave);
        assert_eq!(world.settles(), [], "it still tries");
        world.now += 1_999 * MS;
        assert_eq!(world.settles(), []);
        world.now += 2 * MS;
        let said = world.settles();
        let [Answer::Busy { why, retry_ms, .. }] = said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(why, Obstacle::Work);
        told.push(retry_ms);
        assert!(!world.sealed);
        world.now += 60_000 * MS;
        assert_eq!(world.settles(), [], "an order is not tried twice");
    }
    assert_eq!(told[..4], [100, 200, 400, 800]);
    assert_eq!(told[11], 60_000);
    world.drain = Drained::Yes;
    world.order(13, Order::Leave).settles();
    world.order(14, Order::Return).settles();
    world.drain = Drained::Never(Obstacle::Capture);
    let said = world.order(15, Order::Leave).settles();
    assert!(
        matches!(said[..], [Answer::Busy { retry_ms: 100, .. }]),
        "at once, and as for the first time: {said:?}"
    );
}

#[test]
fn without_host_memory_a_process_does_not_begin_to_leave() {
    let mut world = World::new(2);
    world.facts.short = 7;
    world.facts.is_asking = true;
    let said = world.order(1, Order::Leave).settles();
    assert_eq!(
        said,
        [Answer::Sealed { epoch: 1 }],
        "some may be on its way"
    );
    world.facts.is_asking = false;
    let said = world.settles();
    assert_eq!(said, [Answer::NoRoom { epoch: 1, bytes: 7 }]);
    assert_eq!((world.facts.away, world.sealed), (0, false));
}

#[test]
fn a_return_without_room_stays_out_until_the_next_order() {
    let mut world = World::new(2);
    world.order(1, Order::Leave).settles();
    world.fails = true;
    let said = world.order(2, Order::Return).settles();
    assert_eq!(said, [Answer::NoRoom { epoch: 2, bytes: 1 }]);
    assert_eq!((world.facts.away, world.sealed), (2, true));
    world.fails = false;
    world.now += 60_000 * MS;
    assert_eq!(world.settles(), [], "not under the same order");
    assert_eq!(
        world.order(3, Order::Return).settles(),
        [Answer::Back { epoch: 3 }]
    );
}

#[test]
fn what_a_failed_leave_moved_comes_back_when_that_is_ordered() {
    let mut world = World::new(3);
    world.order(1, Order::Leave);
    while world.facts.away < 2 {
        assert!(world.one());
    }
    world.fails = true;
    let said = world.settles();
    assert_eq!(said.last(), Some(&Answer::NoRoom { epoch: 1, bytes: 1 }));
    world.fails = false;
    world.now += 60_000 * MS;
    assert_eq!(world.settles(), [], "others may have the room");
    assert_eq!((world.facts.away, world.sealed), (2, true));
    let said = world.order(2, Order::Return).settles();
    assert_eq!(said, [Answer::Back { epoch: 2 }]);
    assert_eq!((world.facts.away, world.sealed), (0, false));
}

#[test]
fn a_return_brings_no_more_than_is_not_withheld() {
    let mut world = World::new(4);
    world.order(1, Order::Leave).settles();
    world.facts.orders.withheld = 3;
    assert_eq!(world.order(2, Order::Return).settles(), []);
    assert_eq!((world.brought, world.sealed), (1, true));
    for (withheld, brought) in [(2, 2), (2, 2), (1, 3)] {
        world.facts.orders.withheld = withheld;
        assert_eq!(world.settles(), []);
        assert_eq!(world.brought, brought);
    }
    world.facts.orders.withheld = 0;
    assert_eq!(world.settles(), [Answer::Back { epoch: 2 }]);
    assert_eq!((world.facts.away, world.sealed), (0, false));
}

#[test]
fn a_return_of_which_a_part_is_withheld_can_be_taken_back() {
    let mut world = World::new(4);
    world.order(1, Order::Leave).settles();
    world.facts.orders.withheld = 1;
    assert_eq!(world.order(2, Order::Return).settles(), []);
    assert_eq!(world.brought, 3);
    let said = world.order(3, Order::Leave).settles();
    assert_eq!(said, [Answer::Away { epoch: 3, away: 4 }]);
    assert_eq!((world.brought, world.facts.away), (0, 4));
    world.facts.orders.withheld = 0;
    let said = world.order(4, Order::Return).settles();
    assert_eq!(said, [Answer::Back { epoch: 4 }]);
}

#[test]
fn without_its_daemon_a_withheld_return_takes_all_or_nothing() {
    for fails in [false, true] {
        let mut world = World::new(4);
        world.order(1, Order::Leave).settles();
        world.facts.orders.withheld = 2;
        world.order(2, Order::Return).settles();
        world.facts.is_led = false;
        world.facts.is_wanted = true;
        world.fails = fails;
        world.settles();
        let (away, sealed) = if fails { (4, true) } else { (0, false) };
        assert_eq!((world.brought, world.facts.away), (0, away));
        assert_eq!(world.sealed, sealed);
    }
}

#[test]
fn an_order_that_is_taken_back_in_the_middle_turns_round() {
    let mut world = World::new(3);
    world.order(1, Order::Leave);
    while world.facts.away < 2 {
        assert!(world.one());
    }
    let said = world.order(2, Order::Return).settles();
    assert_eq!(said.last(), Some(&Answer::Back { epoch: 2 }));
    world.order(3, Order::Leave).settles();
    world.order(4, Order::Return);
    while world.brought < 2 {
        assert!(world.one());
    }
    let said = world.order(5, Order::Leave).settles();
    assert_eq!(said, [Answer::Away { epoch: 5, away: 3 }]);
}

#[test]
fn without_a_daemon_the_sealed_open_and_the_out_ask_when_a_call_waits() {
    let mut world = World::new(2);
    world.order(1, Order::Seal).settles();
    world.facts.is_led = false;
    assert_eq!(world.settles(), []);
    assert!(!world.sealed);
    world.facts.is_led = true;
    world.order(2, Order::Leave).settles();
    world.facts.is_led = false;
    assert_eq!(world.settles(), []);
    assert!(world.sealed, "nobody waits");
    world.fails = true;
    world.facts.is_wanted = true;
    assert_eq!(world.settles().len(), 1, "it asked the driver");
    assert_eq!(world.settles(), [], "and does not ask at once again");
    world.fails = false;
    world.now += 3_000 * MS;
    world.settles();
    assert!(!world.sealed);
    assert_eq!(world.facts.away, 0);
}

#[test]
fn a_new_daemon_that_has_ordered_nothing_moves_nothing() {
    let mut world = World::new(2);
    world.order(1, Order::Leave).settles();
    world.mover.forget();
    world.facts.is_wanted = true;
    assert_eq!(world.order(0, Order::In).settles(), []);
    assert_eq!((world.facts.away, world.sealed), (2, true));
    assert_eq!(
        world.order(1, Order::Return).settles(),
        [Answer::Back { epoch: 1 }]
    );
}

/// A step of random choices without a pattern.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

#[test]
fn whatever_is_ordered_and_fails_memory_is_never_used_while_it_is_away() {
    for seed in 1..400 {
        let mut seed = seed;
        let mut world = World::new(4);
        for epoch in 1..120 {
            let orders = [
                Order::In,
                Order::Seal,
                Order::Leave,
                Order::Return,
                Order::Out,
            ];
            world.order(epoch, orders[(next(&mut seed) % 5) as usize]);
            world.facts.is_led = !next(&mut seed).is_multiple_of(8);
            world.facts.is_wanted = next(&mut seed).is_multiple_of(2);
            world.fails = next(&mut seed).is_multiple_of(4);
            world.facts.short = u64::from(next(&mut seed).is_multiple_of(8));
            world.facts.orders.withheld = (next(&mut seed) % 8).saturating_sub(3);
            // Nothing that drained can be at work again while the seal is set.
            if !world.sealed {
                world.drain = match next(&mut seed) % 6 {
                    0 => Drained::No(Obstacle::Work),
                    1 => Drained::Never(Obstacle::Capture),
                    _ => Drained::Yes,
                };
            }
            for _ in 0..next(&mut seed) % 12 {
                world.one();
            }
            // A daemon that goes on leads it by the word that it gave before.
            world.facts.is_led |= next(&mut seed).is_multiple_of(2);
            for _ in 0..next(&mut seed) % 12 {
                world.one();
            }
            world.now += next(&mut seed) % (500 * MS);
        }
        // In the end everything can be brought back.
        world.facts.is_led = true;
        world.facts.short = 0;
        world.facts.orders.withheld = 0;
        let by_in = next(&mut seed).is_multiple_of(2);
        let last = if by_in { Order::In } else { Order::Return };
        world.said.clear();
        world.order(1_000, last);
        // A return by the order to be in is tried again under the same word.
        world.fails = by_in;
        for _ in 0..next(&mut seed) % 24 {
            world.one();
        }
        world.fails = false;
        world.now += 3_000 * MS;
        for _ in 0..100 {
            world.one();
        }
        assert_eq!((world.facts.away, world.sealed), (0, false), "{seed}");
        let back = world.said.contains(&Answer::Back { epoch: 1_000 });
        assert_eq!(back, !by_in);
    }
}

/// A process in each of its states under way: `steps` after it was ordered to `order`.
fn under_way(order: Order, steps: usize) -> World {
    let mut world = World::new(3);
    if order == Order::Return {
        world.order(1, Order::Leave).settles();
    }
    world.order(2, order);
    for _ in 0..steps {
        world.one();
    }
    world
}

#[test]
fn a_process_opens_when_its_device_is_lost_wherever_its_memory_is() {
    let mut places = Vec::new();
    for order in [Order::Seal, Order::Leave, Order::Return] {
        for steps in 0..12 {
            let mut world = under_way(order, steps);
            places.push(world.mover.place());
            world.said.clear();
            assert_eq!(world.order(3, Order::Lost).settles(), [], "nobody listens");
            assert_eq!((world.mover.place(), world.sealed), (Where::In, false));
            // Not without its daemon either, and no later one has it sealed again.
            world.facts.is_led = false;
            world.facts.is_wanted = true;
            world.settles();
            assert!(!world.sealed);
            world.facts.is_led = true;
            world.mover.forget();
            world.order(4, Order::Leave).settles();
            assert!(!world.sealed);
        }
    }
    let all = [
        Where::In,
        Where::Sealing,
        Where::Sealed,
        Where::Leaving,
        Where::Out,
        Where::Entering,
    ];
    for place in all {
        assert!(places.contains(&place), "{place:?} was not tried");
    }
}

#[test]
fn a_process_gives_up_what_is_away_and_only_that() {
    for (order, gives_up) in [
        (Order::Leave, true),
        (Order::Seal, false),
        (Order::In, false),
    ] {
        let mut world = under_way(order, 12);
        world.order(3, Order::Lost).settles();
        assert_eq!(world.given_up, gives_up, "{order:?}");
    }
}

#[test]
fn a_process_without_a_daemon_heeds_no_word_that_its_device_is_lost() {
    let mut world = under_way(Order::Leave, 12);
    world.facts.is_led = false;
    world.order(3, Order::Lost).settles();
    assert_eq!((world.given_up, world.sealed), (false, true));
}
