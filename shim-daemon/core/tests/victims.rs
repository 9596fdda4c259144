//! Making room by priority: which tenant is ended, which is spared, and how. Each behaviour with
//! its opposite.

use crate::node::{Manners, Node, gib, killable, ranked, resolving, secs, spec};
use gpushare_core::{
    AskKey, Denial, DeviceId, Event, Nanos, Notice, ProcessId, Resolver, Signal, TenantId,
    TenantSpec,
};

mod late;

/// A tenant whose process has taken 12 GiB of the 16, and a better one that then asks for 8.
struct Contest {
    node: Node,
    device: DeviceId,
    low: TenantId,
    first: ProcessId,
    second: ProcessId,
    ask: AskKey,
}

impl Contest {
    /// A tenant exits when it is ordered to.
    fn between(
        low: impl Fn(DeviceId) -> TenantSpec,
        better: impl Fn(DeviceId) -> TenantSpec,
    ) -> Self {
        Self::with(Manners::Polite, low, better)
    }

    fn with(
        manners: Manners,
        low: impl Fn(DeviceId) -> TenantSpec,
        better: impl Fn(DeviceId) -> TenantSpec,
    ) -> Self {
        let (mut node, device) = Node::with_device(16);
        let (low, first) = node.run(ranked(100, low(device)));
        node.guests.get_mut(&low).expect("it is there").manners = manners;
        let (_, second) = node.run(better(device));
        node.want(first, device, gib(12));
        let ask = node.want(second, device, gib(8));
        Self {
            node,
            device,
            low,
            first,
            second,
            ask,
        }
    }

    fn low_is_spared(&self) -> bool {
        self.node.guests.contains_key(&self.low)
    }
}

/// Makes room by priority, and does not wait where that makes none.
fn by_priority(request: u64) -> impl Fn(DeviceId) -> TenantSpec {
    move |device| resolving(&[Resolver::Priority], killable(device, request, 16))
}

fn may_be_ended(request: u64) -> impl Fn(DeviceId) -> TenantSpec {
    move |device| killable(device, request, 16)
}

#[test]
fn priority_ends_the_lower_burster_that_allows_it() {
    let contest = Contest::between(may_be_ended(4), by_priority(4));
    assert!(contest.node.granted(contest.ask));
    assert!(!contest.low_is_spared());
}

#[test]
fn priority_never_ends_one_that_does_not_allow_it() {
    let never = |device| spec(device, 4, 16);
    let contest = Contest::between(never, by_priority(4));
    let denied = contest.node.denied(contest.ask);
    assert!(matches!(denied, Some(Denial::NoRoom { .. })));
    assert!(contest.low_is_spared());
}

#[test]
fn priority_never_ends_one_within_its_request() {
    let contest = Contest::between(may_be_ended(12), by_priority(0));
    let denied = contest.node.denied(contest.ask);
    assert!(matches!(denied, Some(Denial::NoRoom { .. })));
    assert!(contest.low_is_spared());
}

#[test]
fn an_equal_burster_is_ended_once_it_is_idle() {
    let (mut node, device) = Node::with_device(16);
    let resolvers = vec![Resolver::Priority, Resolver::Wait];
    let (equal, first) = node.run(killable(device, 0, 16));
    let (asker, second) = node.run(resolving(&resolvers, killable(device, 0, 16)));
    node.want(first, device, gib(12));
    node.pass(secs(4));
    node.tell(Event::Worked { tenant: equal });
    node.tell(Event::Worked { tenant: asker });
    let ask = node.want(second, device, gib(8));
    node.pass(secs(4));
    assert!(
        node.waits(ask) && node.guests.contains_key(&equal),
        "it worked 4 s ago"
    );
    node.pass(secs(1));
    assert!(node.granted(ask) && !node.guests.contains_key(&equal));
}

#[test]
fn two_asks_that_lack_memory_at_once_have_a_victim_each() {
    let (mut node, device) = Node::with_device(32);
    let (dying, dead) = node.run(spec(device, 0, 16));
    node.want(dead, device, gib(15));
    let victims = [(); 2].map(|()| {
        let (victim, process) = node.run(ranked(100, killable(device, 0, 16)));
        node.guests.get_mut(&victim).expect("it is there").manners = Manners::Stubborn;
        node.want(process, device, gib(8));
        victim
    });
    let resolvers = [Resolver::Priority, Resolver::Wait];
    let askers = [(); 2].map(|()| {
        let (_, process) = node.run(resolving(&resolvers, spec(device, 0, 16)));
        process
    });
    node.devices.get_mut(&device).expect("it exists").linger = None;
    node.finish(dying);
    let asks = askers.map(|process| node.want(process, device, gib(7)));
    let told = |node: &Node| victims.map(|victim| node.guests[&victim].signals.len());
    assert_eq!(told(&node), [0, 0], "what the dead hold is on its way");
    while told(&node) == [0, 0] {
        node.pass(Nanos::millis(1));
    }
    assert_eq!(told(&node), [1, 1], "it does not come");
    node.devices.get_mut(&device).expect("it exists").linger = Some(Nanos::ZERO);
    node.live(secs(30));
    assert!(asks.iter().all(|ask| node.granted(*ask)));
}

#[test]
fn an_idle_asker_is_not_ended_for_its_own_ask() {
    for other_is_killable in [false, true] {
        let (mut node, device) = Node::with_device(16);
        let resolvers = [Resolver::Priority, Resolver::Wait];
        let (asker, first) = node.run(resolving(&resolvers, killable(device, 0, 16)));
        let (other, second) = node.run(match other_is_killable {
            true => killable(device, 0, 16),
            false => spec(device, 0, 16),
        });
        node.want(first, device, gib(8));
        node.want(second, device, gib(7));
        let ask = node.want(first, device, gib(4));
        node.pass(secs(20));
        assert!(node.guests.contains_key(&asker));
        assert_eq!(node.guests.contains_key(&other), !other_is_killable);
        assert_eq!(node.granted(ask), other_is_killable);
    }
}

#[test]
fn a_victim_gets_a_grace_before_it_is_killed() {
    let Contest {
        mut node, low, ask, ..
    } = Contest::with(Manners::Stubborn, may_be_ended(0), by_priority(0));
    node.pass(secs(9));
    assert_eq!(node.guests[&low].signals, [Signal::Terminate]);
    assert!(node.waits(ask));
    node.pass(secs(1));
    assert!(node.granted(ask));
}

#[test]
fn a_victim_that_frees_its_burst_in_its_grace_is_spared() {
    let Contest {
        mut node,
        device,
        low,
        first,
        ask,
        ..
    } = Contest::with(Manners::Stubborn, may_be_ended(4), by_priority(4));
    node.free(first, device, gib(8));
    node.pass(secs(60));
    assert_eq!(node.guests[&low].signals, [Signal::Terminate]);
    assert!(node.notices.contains(&Notice::Spared { tenant: low }));
    assert!(node.granted(ask));
}

#[test]
fn a_victim_is_spared_when_the_asker_goes_away() {
    let Contest {
        mut node,
        device,
        low,
        first,
        second,
        ..
    } = Contest::with(Manners::Stubborn, may_be_ended(4), by_priority(4));
    node.exit(second);
    node.pass(secs(60));
    assert_eq!(node.guests[&low].signals, [Signal::Terminate]);
    let more = node.want(first, device, gib(1));
    assert!(node.granted(more), "it is no longer being ended");
}

#[test]
fn a_stubborn_victim_is_given_up_and_the_asker_gets_its_timeout() {
    let resolvers = [Resolver::Priority, Resolver::Wait];
    let waits_too = |device| resolving(&resolvers, killable(device, 0, 16));
    let Contest {
        mut node, low, ask, ..
    } = Contest::with(Manners::Unkillable, may_be_ended(0), waits_too);
    node.pass(secs(15));
    assert!(node.notices.contains(&Notice::WillNotYield { tenant: low }));
    node.pass(secs(15));
    assert_eq!(
        node.denied(ask),
        Some(Denial::TimedOut { waited: secs(30) })
    );
}

#[test]
fn memory_in_limbo_saves_a_victim_that_would_have_been_ended_for_it() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = Some(secs(1));
    let (low, first) = node.run(ranked(100, killable(device, 0, 16)));
    let (dying, dead) = node.run(killable(device, 0, 16));
    let (_, second) = node.run(resolving(&[Resolver::Priority], killable(device, 0, 16)));
    node.want(first, device, gib(8));
    node.want(dead, device, gib(8));
    node.finish(dying);
    let ask = node.want(second, device, gib(8));
    node.pass(secs(1));
    assert!(node.waits(ask), "no look at the device was taken yet");
    node.sample(device);
    assert!(node.granted(ask));
    assert!(node.guests.contains_key(&low));
}

#[test]
fn memory_in_limbo_for_long_saves_nobody() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = None;
    let (low, first) = node.run(ranked(100, killable(device, 0, 16)));
    let (dying, dead) = node.run(killable(device, 0, 16));
    let (_, second) = node.run(resolving(&[Resolver::Priority], killable(device, 0, 16)));
    node.devices.get_mut(&device).unwrap().linger = None;
    node.want(first, device, gib(8));
    node.want(dead, device, gib(8));
    node.finish(dying);
    let ask = node.want(second, device, gib(8));
    node.pass(secs(1));
    assert!(node.guests.contains_key(&low));
    node.pass(secs(1));
    assert!(!node.guests.contains_key(&low));
    node.devices.get_mut(&device).unwrap().linger = Some(Nanos::ZERO);
    node.sample(device);
    assert!(node.granted(ask));
}

/// A small burst that may be ended fills the device, and then a better one under `priority` alone
/// wants half of it. The device gives dead memory back after `linger`. A second burst that may be
/// ended holds as much as is wanted, so that it would be taken next.
fn a_victim_lingers(
    linger: Option<Nanos>,
    timeout: Nanos,
) -> (Node, DeviceId, [TenantId; 2], AskKey) {
    let (mut node, device) = Node::with_device(16);
    let (first, one) = node.run(ranked(100, killable(device, 0, 16)));
    let (second, two) = node.run(ranked(200, killable(device, 0, 16)));
    let (_, better) = node.run(TenantSpec {
        wait_timeout: timeout,
        ..resolving(&[Resolver::Priority], killable(device, 0, 16))
    });
    node.devices.get_mut(&device).expect("it exists").linger = linger;
    node.guarantees = false;
    node.want(one, device, gib(8));
    node.want(two, device, gib(8));
    let ask = node.want(better, device, gib(8));
    (node, device, [first, second], ask)
}

#[test]
fn an_ask_waits_for_what_was_ended_for_it_on_a_slow_device_too() {
    let (mut node, _, [first, second], ask) = a_victim_lingers(Some(secs(8)), secs(30));
    assert!(!node.guests.contains_key(&first));
    node.live(Nanos::millis(7_900));
    assert!(node.waits(ask), "{:?}", node.denied(ask));
    node.live(Nanos::millis(400));
    assert!(node.granted(ask));
    assert!(
        node.guests.contains_key(&second),
        "no tenant is ended for bytes that are on their way"
    );
}

#[test]
fn an_ask_waits_for_memory_of_the_dead_that_the_device_no_longer_lists() {
    let (mut node, device, [first, second], ask) = a_victim_lingers(Some(secs(8)), secs(30));
    node.devices.get_mut(&device).unwrap().lists_dead = false;
    assert!(!node.guests.contains_key(&first));
    node.live(Nanos::millis(7_900));
    assert!(node.waits(ask), "{:?}", node.denied(ask));
    let limbo = node.world.device(device).unwrap().limbo;
    assert_eq!(limbo, gib(8), "no other tenant has come meanwhile");
    node.live(Nanos::millis(400));
    assert!(node.granted(ask) && node.guests.contains_key(&second));
}

#[test]
fn unlisted_bytes_are_the_deads_in_their_grace_then_a_strangers() {
    for (linger, after) in [(Some(secs(1)), gib(2)), (None, gib(10))] {
        let (mut node, device) = Node::with_device(16);
        let (dying, process) = node.run(spec(device, 0, 16));
        node.want(process, device, gib(8));
        node.sample(device);
        let hardware = node.devices.get_mut(&device).unwrap();
        (hardware.lists_dead, hardware.linger) = (false, linger);
        node.finish(dying);
        node.devices.get_mut(&device).unwrap().foreign = gib(2);
        node.sample(device);
        let seen = |node: &Node| {
            let view = node.world.device(device).unwrap();
            (view.limbo, view.unmanaged)
        };
        assert_eq!(seen(&node), (gib(8), gib(2)));
        node.live(secs(3));
        assert_eq!(seen(&node), (gib(0), after), "{linger:?}");
    }
}

#[test]
fn what_never_comes_back_is_waited_for_until_the_ask_times_out() {
    let (mut node, _, [_, second], ask) = a_victim_lingers(None, secs(25));
    node.live(Nanos::millis(24_900));
    assert!(node.waits(ask));
    node.live(Nanos::millis(100));
    let waited = secs(25);
    assert_eq!(node.denied(ask), Some(Denial::TimedOut { waited }));
    assert!(node.guests.contains_key(&second));
}

#[test]
fn what_a_victim_never_gives_back_is_expected_for_half_a_minute() {
    let (mut node, _, [_, second], ask) = a_victim_lingers(None, secs(600));
    node.live(Nanos::millis(29_900));
    assert!(node.waits(ask) && node.guests.contains_key(&second));
    node.live(Nanos::millis(200));
    assert!(
        node.waits(ask) && !node.guests.contains_key(&second),
        "the awaited memory does not come, so the next tenant is ended"
    );
    node.live(secs(29));
    assert!(node.waits(ask));
    node.live(secs(1));
    let short = gib(8);
    assert_eq!(
        node.denied(ask),
        Some(Denial::NoRoom { short }),
        "and no other tenant is there"
    );
}

#[test]
fn who_could_not_have_what_a_victim_still_holds_is_refused_at_once() {
    let (mut node, device, [_, second], ask) = a_victim_lingers(Some(secs(8)), secs(30));
    let (_, late) = node.run(ranked(
        150,
        resolving(&[Resolver::Priority], killable(device, 0, 16)),
    ));
    node.live(secs(3));
    assert!(node.waits(ask));
    let lower = node.want(late, device, gib(1));
    assert!(
        matches!(node.denied(lower), Some(Denial::NoRoom { .. })),
        "all bytes on their way are the other's, and no tenant is below it"
    );
    assert!(node.waits(ask) && node.guests.contains_key(&second));
}

#[test]
fn within_its_request_an_ask_outlives_a_victim_that_gives_nothing_back() {
    let (mut node, device) = Node::with_device(16);
    let (first, one) = node.run(ranked(100, killable(device, 0, 16)));
    let (second, two) = node.run(ranked(200, killable(device, 0, 16)));
    let impatient = TenantSpec {
        wait_timeout: secs(1),
        ..resolving(&[], spec(device, 8, 8))
    };
    node.want(one, device, gib(8));
    node.want(two, device, gib(8));
    node.devices.get_mut(&device).unwrap().linger = None;
    node.guests.get_mut(&second).unwrap().manners = Manners::Stubborn;
    let (_, owner) = node.run(impatient);
    let ask = node.want(owner, device, gib(8));
    assert!(!node.guests.contains_key(&first));
    node.live(secs(29));
    assert!(node.waits(ask), "{:?}", node.denied(ask));
    assert_eq!(node.guests[&second].signals, []);
    node.live(secs(2));
    assert_eq!(node.guests[&second].signals, [Signal::Terminate]);
    node.live(secs(9));
    assert!(node.waits(ask) && !node.guests.contains_key(&second));
    node.devices.get_mut(&device).unwrap().dead.remove(&two);
    node.sample(device);
    assert!(node.granted(ask), "{:?}", node.denied(ask));
}

/// An unmanaged process has the memory that would serve a request, and no tenant may be ended for
/// it.
fn a_stranger_is_in_the_way(wait_timeout: Nanos) -> (Node, DeviceId, AskKey) {
    let (mut node, device) = Node::with_device(16);
    let (_, owner) = node.run(TenantSpec {
        wait_timeout,
        ..spec(device, 8, 8)
    });
    node.guarantees = false;
    node.devices.get_mut(&device).expect("it exists").foreign = gib(12);
    node.sample(device);
    let ask = node.want(owner, device, gib(8));
    (node, device, ask)
}

#[test]
fn an_ask_within_its_request_waits_as_long_as_a_victim_takes() {
    for (timeout, waited) in [(1, 17), (17, 17), (30, 30)] {
        let (mut node, _, ask) = a_stranger_is_in_the_way(secs(timeout));
        node.live(secs(waited) - Nanos::millis(100));
        assert!(
            node.waits(ask),
            "after {timeout} s it was {:?}",
            node.denied(ask)
        );
        node.live(Nanos::millis(100));
        let waited = secs(waited);
        assert_eq!(node.denied(ask), Some(Denial::TimedOut { waited }));
    }
}

#[test]
fn within_its_request_an_ask_is_served_when_a_stranger_leaves_in_time() {
    let (mut node, device, ask) = a_stranger_is_in_the_way(secs(1));
    node.live(secs(16));
    node.devices.get_mut(&device).unwrap().foreign = gib(0);
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn an_ask_within_its_request_is_refused_when_nothing_can_serve_it() {
    let (mut node, device) = Node::with_device(16);
    let (_, one) = node.run(ranked(100, killable(device, 0, 8)));
    node.want(one, device, gib(8));
    node.devices.get_mut(&device).unwrap().linger = None;
    node.guarantees = false;
    node.devices.get_mut(&device).unwrap().foreign = gib(8);
    node.sample(device);
    let (_, owner) = node.run(TenantSpec {
        wait_timeout: secs(1),
        ..spec(device, 8, 8)
    });
    let ask = node.want(owner, device, gib(8));
    // The ended tenant's memory counts as on its way for half a minute; no other tenant is there to
    // be ended.
    node.live(Nanos::millis(29_900));
    assert!(node.waits(ask), "{:?}", node.denied(ask));
    node.live(secs(3));
    assert!(matches!(node.denied(ask), Some(Denial::TimedOut { .. })));
}
