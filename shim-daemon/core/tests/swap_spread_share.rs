//! What tenants of one device get of it beside two that always work on two devices.

use crate::node::swap::swapping;
use crate::node::{Node, secs};
use crate::swap_spread::{devices, fills, on, set_works, work};
use gpushare_core::{Bytes, Event, Nanos, Place, Quota, TenantId, TenantSpec};

/// So long is measured: over a slow link a round takes minutes.
const fn time(rate: u64) -> Nanos {
    Nanos::secs(if rate > 1 { 600 } else { 1800 })
}

/// Two tenants on both devices, and one of each of these devices alone. Of any two of one device
/// only one fits at a time. The thousandths of the time in which each could work.
fn shares(narrow: &[usize], rate: u64) -> Vec<u64> {
    let (mut node, both) = devices();
    let mut tenants: Vec<TenantId> = Vec::new();
    for _ in 0..2 {
        tenants.push(fills(&mut node, on(&both, 1024)).0);
    }
    for at in narrow {
        tenants.push(fills(&mut node, on(&[both[*at]], 1024)).0);
    }
    for tenant in &tenants {
        set_works(&mut node, *tenant, true);
        node.guests.get_mut(tenant).expect("it runs").moves.rate = rate << 30;
        node.call_where_out(*tenant);
    }
    work(&mut node, &tenants, secs(200));
    count_anew(&mut node, &tenants);
    work(&mut node, &tenants, time(rate));
    let part = |tenant: &TenantId| {
        let useful = node.guests[tenant].moves.useful(node.now);
        useful.0 / (time(rate).0 / 1000)
    };
    let all: Vec<u64> = tenants.iter().map(part).collect();
    eprintln!("narrow on {narrow:?}, {rate} GiB/s: {all:?} thousandths");
    all
}

fn count_anew(node: &mut Node, tenants: &[TenantId]) {
    let now = node.now;
    for tenant in tenants {
        let guest = node.guests.get_mut(tenant).expect("it runs");
        guest.moves.count_anew(now);
    }
}

/// The least share is at least so much, however fast the link is.
fn least_is(narrow: &[usize], thousandths: u64) {
    for rate in [1, 20] {
        let least = shares(narrow, rate).into_iter().min();
        assert!(least >= Some(thousandths), "on {narrow:?}, {rate} GiB/s");
    }
}

#[test]
fn a_tenant_of_one_device_beside_two_of_both_has_half_its_part() {
    for narrow in [&[0][..], &[0, 1]] {
        least_is(narrow, 1000 / 3 / 2);
    }
}

#[test]
fn tenants_of_two_devices_keep_half_their_part_among_others() {
    for narrow in [&[][..], &[0, 0], &[0, 0, 1, 1]] {
        least_is(narrow, 1000 / 4 / 2);
    }
}

/// Beside two of both devices: so many alone on the first, and one alone on the other. That one has
/// at least half of a third, and the others half of what is theirs of the first device.
fn one_alone(beside: usize, rate: u64) {
    let narrow: Vec<usize> = (0..beside).map(|_| 0).chain([1]).collect();
    let mut all = shares(&narrow, rate);
    let alone = all.pop();
    assert!(alone >= Some(1000 / 3 / 2), "{beside}, {rate} GiB/s");
    let part = 1000 / (2 + u64::try_from(beside).expect("a few"));
    assert!(
        all.into_iter().min() >= Some(part / 2),
        "{beside}, {rate} GiB/s"
    );
}

#[test]
fn a_device_with_few_is_not_held_by_a_tenant_that_waits_for_one_with_many() {
    for (beside, rates) in [(2, &[1, 5, 20, 100][..]), (3, &[20])] {
        rates.iter().for_each(|rate| one_alone(beside, *rate));
    }
}

#[test]
fn a_wait_for_another_device_that_ends_in_a_drain_is_no_residency() {
    for halted in [true, false] {
        let (mut node, both) = devices();
        let (wide, _) = fills(&mut node, on(&both, 1024));
        node.tell(Event::Suspend { tenant: wide });
        node.live(secs(2));
        let (narrow, _) = fills(&mut node, on(&both[1..], 1024));
        node.live(secs(25));
        // No program of the node's keeps it from its first device.
        node.guarantees = false;
        node.devices.get_mut(&both[0]).expect("it exists").foreign = Bytes::gib(1);
        node.sample(both[0]);
        node.tell(Event::Suspend { tenant: narrow });
        node.live(secs(2));
        node.calls(wide, both[1]);
        if halted {
            node.calls(wide, both[0]);
        }
        node.live(secs(60));
        assert_eq!(node.place(wide, both[1]), Place::In);
        let moves = &mut node.guests.get_mut(&wide).expect("it runs").moves;
        moves.drain = secs(3);
        let all = Bytes::gib(1);
        let (request, limit) = (all, all);
        let (urgent, process) = node.run(TenantSpec {
            quotas: vec![(both[1], Quota { request, limit })],
            ..swapping(both[1], 1024)
        });
        set_works(&mut node, urgent, false);
        let ask = node.want(process, both[1], all);
        node.until("it drains", 5, |node| {
            node.place(wide, both[1]) == Place::Sealing
        });
        node.devices.get_mut(&both[0]).expect("it exists").foreign = Bytes::ZERO;
        node.sample(both[0]);
        node.until("its other device is free", 2, |node| {
            !halted || node.place(wide, both[0]) == Place::In
        });
        assert_eq!(node.place(wide, both[1]), Place::Sealing);
        node.until("it has left", 10, |node| {
            node.granted(ask) && node.place(wide, both[1]) == Place::Out
        });
        // Of two that wait the one that has had less comes first.
        node.calls(narrow, both[1]);
        node.calls(wide, both[1]);
        node.finish(urgent);
        let [first, other] = if halted {
            [wide, narrow]
        } else {
            [narrow, wide]
        };
        node.until("one is back", 10, |node| {
            node.place(first, both[1]) == Place::In
        });
        assert_ne!(node.place(other, both[1]), Place::In, "{halted}");
    }
}
