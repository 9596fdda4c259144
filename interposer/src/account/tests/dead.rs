//! Bytes and rows of processes that have died.

use super::*;

#[test]
fn a_dead_processs_bytes_can_be_had_once_nobody_lists_it() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, 70 * MIB) && charge(&b, 30 * MIB));
    drop(a);
    assert!(
        charge(&b, 70 * MIB),
        "there is no NVML here that would still list it"
    );
    assert_eq!(charged(&b), 100 * MIB);
}

#[test]
fn a_charge_under_a_lock_does_not_look_for_the_dead() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, 70 * MIB) && charge(&b, 30 * MIB));
    drop(a);
    let call = crate::session::Deadline::new();
    let grows = |asking| grow::grow(&b, b.device_indices[0], units(MIB), asking, &call).is_ok();
    assert!(!grows(grow::Asking::Never));
    assert!(grows(grow::Asking::Now));
}

#[test]
fn slots_of_the_dead_are_used_again() {
    let world = World::new();
    let keeper = world.join("100MiB");
    for _ in 0..MAX_SLOTS + 10 {
        let member = world.join("100MiB");
        assert!(charge(&member, MIB));
        drop(member);
        limbo::settle_all(&keeper);
    }
    assert_eq!(charged(&keeper), 0);
}

#[test]
fn a_tenant_full_of_the_dead_is_joined_once_nobody_lists_them() {
    let world = World::new();
    let members: Vec<Membership> = (0..MAX_SLOTS).map(|_| world.join("1GiB")).collect();
    assert!(members.iter().all(|member| charge(member, MIB)));
    drop(members);
    let member = world.join("1GiB");
    assert_eq!(charged(&member), (MAX_SLOTS as u64 - 1) * MIB, "one row");
    limbo::settle_all(&member);
    assert_eq!(charged(&member), 0);
    assert!(charge(&member, 1024 * MIB) && !charge(&member, UNIT));
}

/// How often NVML is started for a look at the dead of this tenant by a process without a row.
fn starts_of_nvml(member: &Membership, is_alive: bool) -> u32 {
    let starts = std::cell::Cell::new(0);
    limbo::gone(
        member.page,
        |_| is_alive,
        || {
            starts.set(starts.get() + 1);
            None
        },
    );
    starts.get()
}

#[test]
fn nvml_is_started_once_for_the_dead_with_charges_and_not_else() {
    let world = World::new();
    let devices = [GPU, OTHER_GPU];
    let member = world.join_as(Some("a"), &[], &devices).unwrap();
    assert_eq!(starts_of_nvml(&member, false), 0, "there is no charge");
    for &device in &member.device_indices {
        assert!(member.line(device).unwrap().word.charge_anyway(1) == 1);
    }
    assert_eq!(starts_of_nvml(&member, true), 0, "it lives");
    assert_eq!(starts_of_nvml(&member, false), 1);
}

#[test]
fn a_tenant_full_of_the_dead_is_not_joined_in_the_place_of_the_living() {
    let world = World::new();
    let mut members: Vec<Membership> = (0..MAX_SLOTS).map(|_| world.join("1GiB")).collect();
    assert!(members.iter().all(|member| charge(member, MIB)));
    let dead = members.remove(77);
    let slot = dead.slot;
    drop(dead);
    assert_eq!(world.join("1GiB").slot, slot);
}

#[test]
fn a_charge_that_fits_not_even_without_the_dead_does_not_look_for_them() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, 10 * MIB) && charge(&b, 90 * MIB));
    drop(a);
    assert!(!charge(&b, 10 * MIB + UNIT));
    assert_eq!(charged(&b), 100 * MIB, "they are still charged");
    assert!(charge(&b, 10 * MIB));
    assert_eq!(charged(&b), 100 * MIB, "one that fits takes their place");
}

#[test]
fn a_row_that_another_has_taken_is_not_cleared_for_the_dead() {
    for dies in [false, true] {
        let world = World::new();
        let (a, b) = (world.join("100MiB"), world.join("100MiB"));
        let (device_index, slot) = (a.device_indices[0], a.slot);
        assert!(charge(&a, 10 * MIB));
        drop(a);
        let dead = b.dead(device_index);
        assert_eq!(dead.len(), 1);
        limbo::settle_all(&b);
        let next = world.join("100MiB");
        assert!(next.slot == slot && charge(&next, 20 * MIB));
        // Only its generation tells a dead one from the one before.
        let lives = (!dies).then_some(next);
        limbo::settle(&b, device_index, &dead, lock::PATIENCE);
        assert_eq!(charged(&b), 20 * MIB, "dies: {dies}");
        drop(lives);
        limbo::settle(&b, device_index, &b.dead(device_index), lock::PATIENCE);
        assert_eq!(charged(&b), 0, "its own are given back");
    }
}
