//! The driver has no memory for what was granted: whose memory would help, and how much of it the
//! ask waits for. Each behaviour with its opposite.

use crate::node::further::Call;
use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Manners, Node, Rng, killable, mib, resolving, secs, spec};
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Event, Nanos, Notice, Oversubscribe, Place, Policy,
    Preemptible, ProcessId, Quota, Resolver, TenantId, TenantSpec,
};

/// No tenant has this memory, and the driver gives it to none. The last look did not show it.
fn strangers_take(node: &mut Node, device: DeviceId, bytes: Bytes) {
    node.pass(Nanos::millis(1));
    node.devices.get_mut(&device).expect("it exists").foreign = bytes;
}

fn is_told_to_end(node: &Node, tenant: TenantId) -> bool {
    let guest = node.guests.get(&tenant);
    guest.is_none_or(|guest| !guest.signals.is_empty())
}

/// A tenant that may be moved and may be ended; it does nothing.
fn moved_or_ended(node: &mut Node, device: DeviceId) -> (TenantId, ProcessId) {
    let (tenant, process) = node.run(TenantSpec {
        preemptible: Preemptible::Kill,
        ..swapping(device, 3072)
    });
    let guest = node.guests.get_mut(&tenant).expect("it runs");
    guest.moves.works = false;
    let ask = node.want(process, device, mib(3072));
    assert!(node.granted(ask));
    (tenant, process)
}

/// A tenant that has 512 MiB within its request.
fn guaranteed(node: &mut Node, device: DeviceId) -> ProcessId {
    let quota = Quota {
        request: mib(512),
        limit: mib(512),
    };
    let (_, process) = node.run(TenantSpec {
        quotas: vec![(device, quota)],
        ..spec(device, 0, 1)
    });
    let ask = node.want(process, device, mib(512));
    assert!(node.granted(ask));
    process
}

#[test]
fn a_tenant_whose_memory_is_on_the_host_is_not_ended_for_the_card() {
    let (mut node, device) = Node::swaps(4096, 64);
    let process = guaranteed(&mut node, device);
    let (away, _) = moved_or_ended(&mut node, device);
    let (other, second) = node.run(swapping(device, 3072));
    let ask = node.want(second, device, mib(3072));
    node.live(secs(20));
    assert!(node.granted(ask));
    node.finish(other);
    node.live(secs(1));
    assert_eq!(node.place(away, device), Place::Out);
    strangers_take(&mut node, device, mib(3584));
    let ask = node.refused(process, device, mib(256));
    node.live(secs(10));
    assert!(!is_told_to_end(&node, away));
    assert!(node.waits(ask), "nothing is free");
    strangers_take(&mut node, device, mib(3072));
    node.live(secs(1));
    assert!(node.granted(ask));
    assert!(!is_told_to_end(&node, away));
}

#[test]
fn a_tenant_on_the_card_that_does_not_leave_is_ended_for_the_driver() {
    let (mut node, device) = Node::swaps(4096, 64);
    let process = guaranteed(&mut node, device);
    let (there, _) = moved_or_ended(&mut node, device);
    node.obeys(there, Obeys::Busy);
    strangers_take(&mut node, device, mib(512));
    let ask = node.refused(process, device, mib(256));
    node.live(secs(20));
    assert!(is_told_to_end(&node, there));
    assert!(node.granted(ask));
}

/// The driver lacks 6 GiB for a request. Of two tenants that may be ended one has 2 of the 10 that
/// it was granted, and the other 4. They end only when they are killed.
fn lacks_what_two_have() -> (Node, DeviceId, [TenantId; 2], AskKey) {
    let (mut node, device) = Node::with_device(24);
    let (_, asks) = node.run(spec(device, 8, 8));
    node.want(asks, device, mib(8192));
    let both = [10, 4].map(|gib| {
        let (tenant, process) = node.run(killable(device, 0, gib));
        let ask = node.want(process, device, Bytes::gib(gib));
        assert!(node.granted(ask));
        node.guests.get_mut(&tenant).expect("it runs").manners = Manners::Stubborn;
        (tenant, process)
    });
    node.free(both[0].1, device, mib(8192));
    strangers_take(&mut node, device, mib(10 << 10));
    let ask = node.refused(asks, device, mib(6144));
    node.live(Nanos::millis(500));
    (node, device, both.map(|(tenant, _)| tenant), ask)
}

fn spared(node: &Node) -> usize {
    let all = node.notices.iter();
    all.filter(|one| matches!(one, Notice::Spared { .. }))
        .count()
}

#[test]
fn all_that_are_ended_for_the_driver_are_told_so_once() {
    let (mut node, _, both, ask) = lacks_what_two_have();
    for tenant in both {
        assert_eq!(node.guests[&tenant].signals.len(), 1);
    }
    assert_eq!((spared(&node), node.waits(ask)), (0, true));
    node.live(secs(12));
    assert!(node.granted(ask));
}

#[test]
fn those_that_are_ended_for_the_driver_are_spared_once_it_has_memory() {
    let (mut node, device, both, ask) = lacks_what_two_have();
    strangers_take(&mut node, device, Bytes::ZERO);
    node.live(secs(12));
    assert!(node.granted(ask));
    assert_eq!(spared(&node), 2);
    assert!(both.iter().all(|tenant| node.guests.contains_key(tenant)));
}

/// A context of 512 MiB was granted, and a stranger has left the driver 100 MiB of 4 GiB for it.
struct Context {
    node: Node,
    device: DeviceId,
    process: ProcessId,
    ask: AskKey,
}

fn of_contexts() -> (Node, DeviceId) {
    let mut node = Node::with(Policy {
        first_overhead: mib(512),
        ..policy(0)
    });
    let device = node.device_of(mib(4096));
    (node, device)
}

impl Context {
    fn refused(
        beside: impl FnOnce(&mut Node, DeviceId),
        spec: impl Fn(DeviceId) -> TenantSpec,
    ) -> Self {
        let (mut node, device) = of_contexts();
        beside(&mut node, device);
        // The driver makes no more of them.
        node.devices.get_mut(&device).expect("it exists").context = Bytes::ZERO;
        let (_, process) = node.run(spec(device));
        let held = node.physical(device);
        strangers_take(&mut node, device, mib(3996) - held);
        let ask = node.refused(process, device, Bytes::ZERO);
        Self {
            node,
            device,
            process,
            ask,
        }
    }
}

#[test]
fn a_context_waits_until_the_driver_has_what_was_set_aside() {
    let mut scene = Context::refused(|_, _| (), |device| spec(device, 0, 1));
    scene.node.live(secs(5));
    assert!(scene.node.waits(scene.ask), "100 MiB are not enough");
    strangers_take(&mut scene.node, scene.device, Bytes::ZERO);
    scene.node.live(secs(1));
    assert!(scene.node.granted(scene.ask));
}

fn lapses(scene: &Context) -> usize {
    let all = scene.node.notices.iter();
    all.filter(|one| matches!(one, Notice::Lapsed { process, .. } if *process == scene.process))
        .count()
}

#[test]
fn what_is_set_aside_for_a_context_that_waits_does_not_lapse() {
    let mut scene = Context::refused(|_, _| (), |device| spec(device, 0, 1));
    scene.node.live(secs(20));
    assert!(scene.node.waits(scene.ask));
    assert_eq!(lapses(&scene), 0);
    strangers_take(&mut scene.node, scene.device, Bytes::ZERO);
    scene.node.live(secs(5));
    assert!(scene.node.granted(scene.ask));
    assert_eq!(lapses(&scene), 0, "it may be made now");
    scene.node.live(secs(10));
    assert_eq!(lapses(&scene), 1, "it was not made");
}

#[test]
fn a_context_that_waits_holds_up_no_others_refusal() {
    let refused_after = |wait| {
        let mut scene = Context::refused(|_, _| (), |device| spec(device, 0, 1));
        let (_, second) = scene
            .node
            .run(resolving(&[Resolver::Fail], spec(scene.device, 0, 8)));
        scene.node.live(wait);
        assert!(scene.node.waits(scene.ask));
        let ask = scene.node.want(second, scene.device, mib(4096));
        scene.node.live(Nanos::millis(100));
        scene.node.denied(ask).is_some()
    };
    // It is about to be measured, as far as can be known.
    assert!(!refused_after(Nanos::millis(500)));
    assert!(refused_after(secs(5)));
}

#[test]
fn a_complete_context_that_was_not_measured_is_not_the_first_one() {
    let (mut node, device) = of_contexts();
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .lists_processes = false;
    node.devices.get_mut(&device).expect("it exists").context = mib(300);
    let (_, process) = node.run(spec(device, 0, 1));
    node.tell(Event::ContextMade { process, device });
    node.live(secs(1));
    strangers_take(&mut node, device, mib(3596));
    let ask = node.refused(process, device, Bytes::ZERO);
    node.live(secs(1));
    assert!(node.granted(ask));
}

#[test]
fn a_context_is_refused_when_the_time_to_wait_is_over() {
    let mut scene = Context::refused(|_, _| (), |device| spec(device, 0, 1));
    scene.node.live(secs(31));
    let denied = scene.node.denied(scene.ask);
    assert!(
        matches!(denied, Some(Denial::TimedOut { .. })),
        "{denied:?}"
    );
}

/// A process with a measured context, for which a further one of 300 MiB is asked if it `asks`;
/// then a stranger leaves the driver 100 MiB.
fn beside_one(asks: bool) -> (Node, DeviceId, ProcessId, AskKey) {
    let (mut node, device) = of_contexts();
    node.devices.get_mut(&device).expect("it exists").context = mib(300);
    let (_, process) = node.run(spec(device, 0, 1));
    node.live(secs(1));
    if asks {
        let asked = node.open_more(process, device, Call::Hangs);
        assert!(node.granted(asked));
    }
    strangers_take(&mut node, device, mib(3696));
    let ask = node.refused(process, device, Bytes::ZERO);
    (node, device, process, ask)
}

#[test]
fn a_context_beside_one_that_was_measured_is_waited_for() {
    let (mut node, device, ..) = beside_one(true);
    node.live(secs(5));
    assert_eq!(node.asks.len(), 1, "100 MiB are not enough");
    strangers_take(&mut node, device, mib(3496));
    node.live(secs(1));
    assert!(node.asks.is_empty());
}

#[test]
fn what_is_set_aside_for_a_further_context_that_waits_does_not_lapse() {
    let (mut node, device, process, ask) = beside_one(true);
    let lapses = |node: &Node| {
        let all = node.notices.iter();
        let own =
            |one: &&Notice| matches!(one, Notice::Lapsed { process: of, .. } if *of == process);
        all.filter(own).count()
    };
    node.live(secs(20));
    assert!(node.waits(ask));
    assert_eq!(lapses(&node), 0);
    strangers_take(&mut node, device, Bytes::ZERO);
    node.live(secs(5));
    assert!(node.granted(ask));
    assert_eq!(lapses(&node), 0, "it may be made now");
    node.live(secs(10));
    assert_eq!(lapses(&node), 1, "it was not made");
}

#[test]
fn a_context_that_an_older_library_makes_beside_another_is_not_waited_for() {
    let (mut node, _, _, ask) = beside_one(false);
    node.live(secs(1));
    // Nothing was set aside for it.
    assert!(node.granted(ask));
}

/// Takes 2 GiB beyond any request.
fn with_a_borrower(node: &mut Node, device: DeviceId) {
    let (_, process) = node.run(killable(device, 0, 2));
    let ask = node.want(process, device, mib(2048));
    assert!(node.granted(ask));
    node.live(secs(1));
}

#[test]
fn a_first_context_of_a_request_has_a_borrower_ended() {
    let mut scene = Context::refused(with_a_borrower, |device| spec(device, 1, 1));
    scene.node.live(secs(20));
    assert!(scene.node.granted(scene.ask));
    assert_eq!(scene.node.guests.len(), 1);
}

#[test]
fn a_context_without_a_request_ends_nobody() {
    let mut scene = Context::refused(with_a_borrower, |device| spec(device, 0, 1));
    scene.node.live(secs(40));
    assert!(!scene.node.granted(scene.ask));
    assert_eq!(scene.node.guests.len(), 2);
    let started = scene.node.processes.contains_key(&scene.process);
    assert!(started);
}

/// Two processes that the driver has just refused so many MiB each, on a card without a byte free
/// where it keeps 1696 of a tenant whose managed memory is out.
fn beside_kept_memory(each: u64) -> (Node, DeviceId, [AskKey; 2]) {
    let (mut node, device) = Node::swaps(4096, 64);
    let both = [(); 2].map(|()| {
        let (_, process) = node.run(spec(device, 0, 2));
        let ask = node.want(process, device, mib(1200));
        assert!(node.granted(ask));
        process
    });
    let (away, process) = node.run(TenantSpec {
        oversubscribe: Oversubscribe::Uvm,
        ..swapping(device, 1696)
    });
    node.guests.get_mut(&away).expect("it runs").moves.works = false;
    node.want(process, device, mib(1696));
    node.live(secs(1));
    node.tell(Event::Suspend { tenant: away });
    node.live(secs(3));
    assert_eq!(node.place(away, device), Place::Out);
    assert_eq!(node.physical(device), mib(4096), "its memory is kept");
    // The looks that they ask for come late.
    node.lag = Some((Rng(1), secs(1)));
    node.pass(Nanos::millis(1));
    let asks = both.map(|process| node.refused(process, device, mib(each)));
    assert!(asks.iter().all(|ask| node.waits(*ask)));
    (node, device, asks)
}

#[test]
fn what_the_driver_keeps_is_given_to_one_ask_of_a_look() {
    let (mut node, device, asks) = beside_kept_memory(1000);
    node.sample(device);
    let granted = asks.iter().filter(|ask| node.granted(**ask)).count();
    assert_eq!(granted, 1);
    // There is enough for two smaller ones.
    let (mut node, device, asks) = beside_kept_memory(800);
    node.sample(device);
    assert!(asks.iter().all(|ask| node.granted(*ask)));
}
