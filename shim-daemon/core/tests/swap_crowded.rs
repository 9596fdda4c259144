//! A large tenant among small ones, beside one that does not leave: the large one has its turns. A
//! tenant that is out and another that ends.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, gib, secs};
use gpushare_core::{DeviceId, Event, Nanos, Place, TenantId};

/// The large tenant fits beside the tenant that does not leave and one small tenant at most.
const CARD: u64 = 16 << 10;
const LARGE: u64 = 9;
const SMALL: u64 = 4;
const STAYING: u64 = 3;
/// How often it is looked where they are.
const BEAT: Nanos = Nanos::millis(100);

/// A node where all want their memory: the large tenant, four small ones, and one that obeys so.
fn crowd(obeys: Obeys) -> (Node, DeviceId, Vec<TenantId>) {
    let (mut node, device) = Node::swaps(CARD, 256);
    node.guarantees = false;
    let sizes = [STAYING, SMALL, SMALL, SMALL, SMALL, LARGE];
    let tenants = sizes.map(|size| {
        let (tenant, process) = node.run(swapping(device, size << 10));
        node.want(process, device, gib(size));
        tenant
    });
    node.obeys(tenants[0], obeys);
    (node, device, tenants.to_vec())
}

/// The residency of a tenant in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    /// The longest time that it was not in.
    longest: Nanos,
    /// How often it came back.
    times: u64,
    /// How long it was in.
    time: Nanos,
}

/// Lets all of them work for so long.
fn works(node: &mut Node, device: DeviceId, tenants: &[TenantId], time: Nanos) -> Vec<Had> {
    let end = node.now + time;
    let mut all = vec![Had::default(); tenants.len()];
    let mut since = vec![None; tenants.len()];
    while node.now < end {
        for ((tenant, since), had) in tenants.iter().zip(&mut since).zip(&mut all) {
            node.tell(Event::Worked { tenant: *tenant });
            if node.place(*tenant, device) == Place::In {
                had.times += u64::from(since.is_some());
                had.time = had.time + BEAT;
                *since = None;
            } else {
                let out = node.now - *since.get_or_insert(node.now);
                had.longest = had.longest.max(out);
            }
        }
        node.live(BEAT);
    }
    all
}

#[test]
fn a_large_tenant_has_its_part_whatever_one_small_tenant_does() {
    for obeys in [
        Obeys::Honestly,
        Obeys::Busy,
        Obeys::Silently,
        Obeys::Halting,
        Obeys::Lying,
        Obeys::Failing,
        Obeys::Stopping,
    ] {
        let (mut node, device, tenants) = crowd(obeys);
        works(&mut node, device, &tenants, secs(200));
        let all = works(&mut node, device, &tenants, secs(400));
        let bound = node.world.rotation_bound(device, Nanos::ZERO);
        let [_, small @ .., large] = &*all else {
            panic!("six tenants");
        };
        // The rotation is fair in memory times time.
        let part = |size: u64, had: &Had| size * had.time.0 / 1_000_000_000;
        let (own, others) = (part(LARGE, large), small.iter().map(|had| part(SMALL, had)));
        let least = others.clone().min().expect("four");
        eprintln!(
            "{obeys:?}: {own} GiB s, others {:?}, in {} times, out for {:?} of {bound:?}",
            others.collect::<Vec<_>>(),
            large.times,
            large.longest,
        );
        assert!(
            large.longest <= bound,
            "{obeys:?}: {:?} of {bound:?}",
            large.longest
        );
        assert!(own * 10 >= least * 7, "{obeys:?}: {own} GiB s of {least}");
    }
}

/// Whether one of two is in 450 ms after the other has ended, so long after its return. The device
/// takes a dead process's memory back after 300 ms, and the bytes come back in 50.
fn is_in_after_the_end(stays: Nanos) -> bool {
    let (mut node, device) = Node::swaps(1536, 64);
    let linger = Some(Nanos::millis(300));
    node.devices.get_mut(&device).expect("it is there").linger = linger;
    let tenants = [(); 2].map(|()| {
        let (tenant, process) = node.run(swapping(device, 1024));
        node.want(process, device, gib(1));
        tenant
    });
    works(&mut node, device, &tenants, secs(30));
    let is_in = |node: &Node, tenant: &TenantId| node.place(*tenant, device) == Place::In;
    while !is_in(&node, &tenants[0]) {
        node.live(BEAT);
    }
    node.live(stays);
    node.finish(tenants[0]);
    node.live(Nanos::millis(450));
    is_in(&node, &tenants[1])
}

#[test]
fn a_tenant_that_is_out_comes_back_as_soon_as_another_ends() {
    // A regular look comes once a second: these are between two of them.
    for stays in [100, 300, 500, 700] {
        assert!(is_in_after_the_end(Nanos::millis(stays)), "{stays} ms");
    }
}
