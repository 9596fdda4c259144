//! A tenant without oversubscription asks beside a tenant on two devices that waits for the other.

use crate::node::swap::swapping;
use crate::node::{Node, gib, resolving, secs};
use crate::swap_spread::{fills, set_works, work};
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Nanos, Oversubscribe, Place, Preemptible, Quota, Resolver,
    TenantId, TenantSpec,
};

fn on(devices: &[DeviceId], gib_each: u64, of: Oversubscribe) -> TenantSpec {
    let quota = Quota {
        request: Bytes::ZERO,
        limit: gib(gib_each),
    };
    TenantSpec {
        quotas: devices.iter().map(|device| (*device, quota)).collect(),
        oversubscribe: of,
        ..swapping(devices[0], 0)
    }
}

/// A device of 3 GiB and one of 64. A tenant on both has 2 GiB of the first and waits for 2 GiB of
/// the second, where another works that has all of it. Then a plain tenant asks for so much of the
/// first.
fn scene(of: Oversubscribe, wanted: u64) -> (Node, [DeviceId; 2], [TenantId; 3], AskKey) {
    let (mut node, small) = Node::swaps(3 << 10, 256);
    let large = node.device(64);
    let both = [small, large];
    let (wide, _) = fills(&mut node, on(&both, 2, of));
    let (other, _) = fills(&mut node, on(&[large], 64, Oversubscribe::Swap));
    assert_eq!(node.place(wide, small), Place::In);
    assert_eq!(node.place(wide, large), Place::Out);
    for tenant in [wide, other] {
        set_works(&mut node, tenant, true);
    }
    work(&mut node, &[other], secs(2));
    node.calls(wide, large);
    work(&mut node, &[wide, other], secs(1));
    let plain = TenantSpec {
        oversubscribe: Oversubscribe::Off,
        preemptible: Preemptible::Never,
        wait_timeout: secs(2),
        ..on(&[small], 2, Oversubscribe::Off)
    };
    let (plain, process) = node.run(resolving(&[Resolver::Swap, Resolver::Wait], plain));
    let ask = node.want(process, small, gib(wanted));
    (node, both, [wide, other, plain], ask)
}

#[test]
fn an_ask_beside_one_that_waits_for_its_other_device_is_met_in_time() {
    // Its work in flight ends at once, or just in time to be sealed.
    for drain in [5, 4900].map(Nanos::millis) {
        let (mut node, both, [wide, other, _], ask) = scene(Oversubscribe::Uvm, 2);
        let moves = &mut node.guests.get_mut(&wide).expect("it runs").moves;
        moves.drain = drain;
        let since = node.now;
        let bound = node.world.rotation_bound(both[0], since);
        while node.now < since + Nanos((bound - since).0 / 2) {
            work(&mut node, &[wide, other], Nanos::millis(250));
            assert_eq!(node.place(wide, both[0]), Place::In, "it goes on first");
        }
        while node.waits(ask) {
            work(&mut node, &[wide, other], Nanos::millis(250));
        }
        assert_eq!(node.place(wide, both[1]), Place::Out);
        assert!(node.granted(ask), "{:?}, {drain:?}", node.answer(ask));
        assert!(node.now < bound, "{:?} of {bound:?}", node.now);
    }
}

#[test]
fn an_ask_that_would_keep_a_tenant_out_for_good_waits_its_own_time() {
    // Beside these 2 GiB, which nothing takes back, the other could never have its own again.
    let (mut node, both, [wide, other, _], ask) = scene(Oversubscribe::Swap, 2);
    work(&mut node, &[wide, other], Nanos::millis(2100));
    let waited = secs(2);
    assert_eq!(node.denied(ask), Some(Denial::TimedOut { waited }));
    assert_eq!(node.place(wide, both[0]), Place::In);
    let (node, .., ask) = scene(Oversubscribe::Swap, 1);
    assert!(node.granted(ask), "both fit");
}
