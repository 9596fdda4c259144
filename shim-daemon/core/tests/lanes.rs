//! Work that another process can make wait: each owner waits for itself alone.

use gpushare_core::TenantId;
use gpushare_core::lanes::{Lanes, Owner, Part};

fn of(user: u32, tenant: u64) -> Owner {
    Owner {
        user,
        part: Part::Shared(TenantId(tenant)),
    }
}

/// Adds work, and has as many threads take some as are to be started. Returns what they took.
fn add(lanes: &mut Lanes<u32>, owner: Owner, work: u32) -> Vec<(Owner, u32)> {
    lanes.add(owner, work);
    let mut taken = Vec::new();
    while lanes.starts() {
        taken.extend(lanes.take());
    }
    taken
}

#[test]
fn an_owners_work_is_done_in_its_order_by_one_thread() {
    let mut lanes = Lanes::default();
    let one = of(0, 1);
    assert_eq!(add(&mut lanes, one, 1), [(one, 1)]);
    assert!(add(&mut lanes, one, 2).is_empty() && add(&mut lanes, one, 3).is_empty());
    for next in [2, 3] {
        lanes.done(one);
        assert_eq!(lanes.take(), Some((one, next)));
    }
    lanes.done(one);
    assert_eq!(lanes.take(), None);
    assert_eq!(add(&mut lanes, one, 4), [(one, 4)], "with another thread");
}

#[test]
fn work_that_is_stuck_delays_no_other_owner() {
    let mut lanes = Lanes::default();
    let (stuck, other) = (of(0, 1), of(0, 2));
    add(&mut lanes, stuck, 1);
    for work in 2..1000 {
        assert!(add(&mut lanes, stuck, work).is_empty());
        assert_eq!(add(&mut lanes, other, work), [(other, work)]);
        lanes.done(other);
        assert_eq!(lanes.take(), None);
    }
}

#[test]
fn owners_take_turns_where_threads_are_few() {
    let mut lanes = Lanes::default();
    let all: Vec<Owner> = (0..130).map(|tenant| of(0, tenant)).collect();
    let taken: usize = all.iter().map(|one| add(&mut lanes, *one, 1).len()).sum();
    assert_eq!(taken, 128, "there are no more threads");
    assert!(add(&mut lanes, all[0], 2).is_empty());
    lanes.done(all[0]);
    assert_eq!(lanes.take(), Some((all[128], 1)), "it has waited longer");
    lanes.done(all[128]);
    assert_eq!(lanes.take(), Some((all[129], 1)));
    lanes.done(all[129]);
    assert_eq!(lanes.take(), Some((all[0], 2)));
}

#[test]
fn a_user_with_many_tenants_leaves_threads_for_others() {
    let mut lanes = Lanes::default();
    let taken = (0..200).map(|tenant| add(&mut lanes, of(1001, tenant), 1).len());
    assert_eq!(taken.sum::<usize>(), 8);
    let other = of(1002, 1000);
    assert_eq!(add(&mut lanes, other, 1), [(other, 1)]);
    lanes.done(of(1001, 0));
    assert_eq!(lanes.take(), Some((of(1001, 8), 1)));
}

#[test]
fn an_owner_is_put_off_once_256_things_wait() {
    let mut lanes = Lanes::default();
    let (one, other) = (of(0, 1), of(0, 2));
    for work in 0..256 {
        add(&mut lanes, one, work);
        assert!(!lanes.is_full(one), "{work}");
    }
    add(&mut lanes, one, 256);
    assert!(lanes.is_full(one) && !lanes.is_full(other));
    lanes.done(one);
    assert!(lanes.take().is_some() && !lanes.is_full(one));
}

#[test]
fn a_thread_that_could_not_be_started_is_tried_again() {
    let mut lanes = Lanes::default();
    lanes.add(of(0, 1), 1);
    for _ in 0..1000 {
        assert!(lanes.starts());
        lanes.ends();
    }
    assert!(lanes.starts() && !lanes.starts());
    assert_eq!(lanes.take(), Some((of(0, 1), 1)));
}

/// An owner with this number of a user.
fn caller(user: u32, part: Part) -> Owner {
    Owner { user, part }
}

#[test]
fn many_users_at_one_door_leave_threads_for_other_tenants() {
    for part in [Part::Door(TenantId(1)), Part::Container(1)] {
        let mut lanes = Lanes::default();
        let all: Vec<Owner> = (0..128).map(|user| caller(user, part)).collect();
        let taken = all.iter().map(|one| add(&mut lanes, *one, 1).len());
        assert_eq!(taken.sum::<usize>(), 8);
        for other in [of(0, 2), caller(0, Part::Door(TenantId(2))), of(1001, 3)] {
            assert_eq!(add(&mut lanes, other, 1), [(other, 1)]);
        }
        lanes.done(all[0]);
        assert_eq!(lanes.take(), Some((all[8], 1)), "its next");
    }
}

#[test]
fn callers_of_all_doors_leave_threads_for_tenants_memory() {
    let mut lanes = Lanes::default();
    let doors = (0..64).map(|at| Part::Door(TenantId(at)));
    let containers = (0..64).map(Part::Container);
    let commands = (0..64).map(|_| Part::Commands);
    let parts = doors.chain(containers).chain(commands);
    let callers: Vec<Owner> = (1..)
        .zip(parts)
        .map(|(user, part)| caller(user, part))
        .collect();
    let taken = callers.iter().map(|one| add(&mut lanes, *one, 1).len());
    assert_eq!(taken.sum::<usize>(), 64);
    let shared = (0..64).map(|tenant| add(&mut lanes, of(0, tenant), 1).len());
    assert_eq!(shared.sum::<usize>(), 64);
    lanes.done(callers[0]);
    assert_eq!(lanes.take(), Some((callers[64], 1)));
}

#[test]
fn stuck_tenants_of_many_users_leave_threads_for_those_of_root() {
    let mut lanes = Lanes::default();
    let users = (0..64).flat_map(|user| (0..8).map(move |tenant| of(1000 + user, tenant)));
    let users: Vec<Owner> = users.collect();
    let taken = users.iter().map(|one| add(&mut lanes, *one, 1).len());
    assert_eq!(taken.sum::<usize>(), 32);
    let callers = (0..128).map(|at| caller(5000 + at, Part::Container(at.into())));
    let taken = callers.map(|one| add(&mut lanes, one, 1).len());
    assert_eq!(taken.sum::<usize>(), 64);
    let roots = (0..64).map(|tenant| add(&mut lanes, of(0, 2000 + tenant), 1).len());
    assert_eq!(roots.sum::<usize>(), 32);
    lanes.done(users[0]);
    assert_eq!(lanes.take(), Some((users[32], 1)), "the next user's");
}
